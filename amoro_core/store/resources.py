"""Instances that containers started, in `resource`, and how many a group is to have, in `resource_group`."""

from amoro_core.errors import GroupNotFound
from amoro_core.model.containers import Resource, ResourceState, Scaling
from amoro_core.store.connection import Connection, Row
from amoro_core.store.rows import (
    from_ms,
    from_ms_or_none,
    insert_into,
    to_ms,
    to_ms_or_none,
    update_of,
)

_COLUMNS = ("resource_id", "group_name", "container_name", "state", "started_at_ms", "since_ms", "handle")
_INSERT = insert_into("resource", _COLUMNS)
_UPDATE = update_of("resource", _COLUMNS, ("resource_id",))
_SCALING = ("group_name", "instances", "failed_starts", "retry_at_ms", "start_failure")
_UPDATE_SCALING = update_of("resource_group", _SCALING, ("group_name",))


def add(db: Connection, resource: Resource) -> Resource:
    """Insert the resource."""
    db.execute(_INSERT, _to_row(resource))
    return resource


def find(db: Connection, resource_id: str) -> Resource | None:
    """The resource with that id; None when there is none."""
    row = db.select_one("SELECT * FROM resource WHERE resource_id = :resource_id", {"resource_id": resource_id})
    return None if row is None else _from_row(row)


def save(db: Connection, resource: Resource) -> Resource:
    """Replace what is kept of it; one that was forgotten stays so."""
    db.execute(_UPDATE, _to_row(resource))
    return resource


def remove(db: Connection, resource_id: str) -> None:
    """Forget it; twice is as once."""
    db.execute("DELETE FROM resource WHERE resource_id = :resource_id", {"resource_id": resource_id})


def list_resources(db: Connection, group: str | None = None) -> list[Resource]:
    """All of them, or those of one group, the oldest first."""
    rows = db.select(
        "SELECT * FROM resource WHERE (:group_name IS NULL OR group_name = :group_name) "
        "ORDER BY started_at_ms, resource_id",
        {"group_name": group},
    )
    return [_from_row(row) for row in rows]


def get_scaling(db: Connection, group: str) -> Scaling:
    """Raises GroupNotFound."""
    row = db.select_one("SELECT * FROM resource_group WHERE group_name = :group", {"group": group})
    if row is None:
        raise GroupNotFound(f"optimizer group {group!r} does not exist")
    return Scaling(row["instances"], row["failed_starts"], from_ms_or_none(row["retry_at_ms"]), row["start_failure"])


def save_scaling(db: Connection, group: str, scaling: Scaling) -> Scaling:
    """Replace what is kept of the group's scaling; of a group that is gone there is nothing."""
    db.execute(
        _UPDATE_SCALING,
        {
            "group_name": group,
            "instances": scaling.instances,
            "failed_starts": scaling.failed_starts,
            "retry_at_ms": to_ms_or_none(scaling.retry_at),
            "start_failure": scaling.failure,
        },
    )
    return scaling


def _to_row(resource: Resource) -> Row:
    return {
        "resource_id": resource.resource_id,
        "group_name": resource.group,
        "container_name": resource.container,
        "state": resource.state.value,
        "started_at_ms": to_ms(resource.started_at),
        "since_ms": to_ms(resource.since),
        "handle": resource.handle,
    }


def _from_row(row: Row) -> Resource:
    return Resource(
        resource_id=row["resource_id"],
        group=row["group_name"],
        container=row["container_name"],
        state=ResourceState(row["state"]),
        started_at=from_ms(row["started_at_ms"]),
        since=from_ms(row["since_ms"]),
        handle=row["handle"],
    )

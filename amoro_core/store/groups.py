"""Optimizer groups, in `resource_group`; `default` exists from the first migration on."""

from amoro_core.errors import GroupNotFound, IllegalState
from amoro_core.model.group_config import Capacity, Resource, ResourceState, Scaling, parse_group
from amoro_core.model.processes import ResourceGroup
from amoro_core.store.column_codecs import (
    from_ms,
    from_ms_or_none,
    insert_into,
    pairs_from_json,
    pairs_to_json,
    to_ms,
    to_ms_or_none,
    update_of,
)
from amoro_core.store.connection import Connection, Row

_COLUMNS = ("group_name", "scheduling_policy", "properties_json", "container_name")
_INSERT = insert_into("resource_group", _COLUMNS)
_UPDATE = update_of("resource_group", _COLUMNS, ("group_name",))
_USERS = (
    ("optimizer", "SELECT count(*) AS used FROM optimizer WHERE group_name = :name"),
    ("table", "SELECT count(*) AS used FROM table_runtime WHERE group_name = :name"),
    # Held by a process planned before its table changed the group.
    (
        "open task",
        "SELECT count(*) AS used FROM task_runtime WHERE group_name = :name AND finished_at_ms IS NULL",
    ),
)


def add(db: Connection, group: ResourceGroup) -> ResourceGroup:
    """Create the group if it does not exist, and return it as stored."""
    db.execute(f"{_INSERT} ON CONFLICT (group_name) DO NOTHING", _to_row(group))
    return find(db, group.name) or group


def get(db: Connection, name: str) -> ResourceGroup:
    """Raises GroupNotFound."""
    group = find(db, name)
    if group is None:
        known = ", ".join(item.name for item in list_groups(db))
        raise GroupNotFound(f"optimizer group {name!r} does not exist", hint=f"Known groups: {known}.")
    return group


def save(db: Connection, group: ResourceGroup) -> ResourceGroup:
    """Replace the group of that name. Raises GroupNotFound."""
    if not db.execute(_UPDATE, _to_row(group)):
        get(db, group.name)
    return group


def remove(db: Connection, name: str) -> None:
    """Raises GroupNotFound; IllegalState while optimizers are registered in it or tables name it."""
    get(db, name)
    for what, statement in _USERS:
        used = db.select(statement, {"name": name})[0]["used"]
        if used:
            raise IllegalState(
                f"optimizer group {name!r} is used by {used} {what}{'' if used == 1 else 's'}; it stays",
                hint="Scale it to 0 or drain its optimizers, and give its tables another self-optimizing.group.",
            )
    db.execute("DELETE FROM resource_group WHERE group_name = :name", {"name": name})


def find(db: Connection, name: str) -> ResourceGroup | None:
    """The group of that name; None when there is none."""
    row = db.select_one("SELECT * FROM resource_group WHERE group_name = :name", {"name": name})
    return None if row is None else _from_row(row)


def capacity(db: Connection, name: str) -> Capacity:
    """The threads of the group's optimizers, at least one, and its limits; defaults for an unknown group."""
    group = find(db, name)
    threads = db.select(
        "SELECT coalesce(sum(threads), 0) AS threads FROM optimizer WHERE group_name = :name", {"name": name}
    )
    config = parse_group(group.properties if group else ())
    return Capacity(max(1, threads[0]["threads"]), config.max_input_per_thread)


def list_groups(db: Connection) -> list[ResourceGroup]:
    """All of them, in order of their names."""
    return [_from_row(row) for row in db.select("SELECT * FROM resource_group ORDER BY group_name")]


def list_page(db: Connection, after: str, limit: int) -> list[ResourceGroup]:
    """Up to `limit` of them in order of name, after the name `after`, which need not exist."""
    sql = "SELECT * FROM resource_group WHERE group_name > :after ORDER BY group_name LIMIT :most"
    return [_from_row(row) for row in db.select(sql, {"after": after, "most": limit})]


def count(db: Connection) -> int:
    """How many there are."""
    return int(db.select("SELECT count(*) AS known FROM resource_group")[0]["known"])


def _to_row(group: ResourceGroup) -> Row:
    return {
        "group_name": group.name,
        "scheduling_policy": group.scheduling_policy,
        "properties_json": pairs_to_json(group.properties),
        "container_name": group.container,
    }


def _from_row(row: Row) -> ResourceGroup:
    return ResourceGroup(
        row["group_name"], row["scheduling_policy"], pairs_from_json(row["properties_json"]), row["container_name"]
    )


_RESOURCES_COLUMNS = ("resource_id", "group_name", "container_name", "state", "started_at_ms", "since_ms", "handle")
_RESOURCES_INSERT = insert_into("resource", _RESOURCES_COLUMNS)
_RESOURCES_UPDATE = update_of("resource", _RESOURCES_COLUMNS, ("resource_id",))
_SCALING = ("group_name", "instances", "failed_starts", "retry_at_ms", "start_failure")
_UPDATE_SCALING = update_of("resource_group", _SCALING, ("group_name",))


def add_resource(db: Connection, resource: Resource) -> Resource:
    """Insert the resource."""
    db.execute(_RESOURCES_INSERT, _resource_to_row(resource))
    return resource


def find_resource(db: Connection, resource_id: str) -> Resource | None:
    """The resource with that id; None when there is none."""
    row = db.select_one("SELECT * FROM resource WHERE resource_id = :resource_id", {"resource_id": resource_id})
    return None if row is None else _resource_from_row(row)


def save_resource(db: Connection, resource: Resource) -> Resource:
    """Replace what is kept of it; one that was forgotten stays so."""
    db.execute(_RESOURCES_UPDATE, _resource_to_row(resource))
    return resource


def remove_resource(db: Connection, resource_id: str) -> None:
    """Forget it; twice is as once."""
    db.execute("DELETE FROM resource WHERE resource_id = :resource_id", {"resource_id": resource_id})


def list_resources(db: Connection, group: str | None = None) -> list[Resource]:
    """All of them, or those of one group, the oldest first."""
    rows = db.select(
        "SELECT * FROM resource WHERE (:group_name IS NULL OR group_name = :group_name) "
        "ORDER BY started_at_ms, resource_id",
        {"group_name": group},
    )
    return [_resource_from_row(row) for row in rows]


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


def _resource_to_row(resource: Resource) -> Row:
    return {
        "resource_id": resource.resource_id,
        "group_name": resource.group,
        "container_name": resource.container,
        "state": resource.state.value,
        "started_at_ms": to_ms(resource.started_at),
        "since_ms": to_ms(resource.since),
        "handle": resource.handle,
    }


def _resource_from_row(row: Row) -> Resource:
    return Resource(
        resource_id=row["resource_id"],
        group=row["group_name"],
        container=row["container_name"],
        state=ResourceState(row["state"]),
        started_at=from_ms(row["started_at_ms"]),
        since=from_ms(row["since_ms"]),
        handle=row["handle"],
    )

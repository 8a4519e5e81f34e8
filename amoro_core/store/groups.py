"""Optimizer groups, their resources and optimizers."""

from dataclasses import replace
from datetime import datetime

from amoro_core.documents.formatting import many
from amoro_core.errors import AlreadyExists, GroupNotFound, IllegalState, UnknownToken
from amoro_core.model.group_config import Capacity, Resource, Scaling, parse_group, parse_scaling
from amoro_core.model.paging import Page, cut
from amoro_core.model.processes import Optimizer, ResourceGroup
from amoro_core.store.connection import Connection, Duplicate, Referenced, RowMapping, insert_into

_GROUPS = RowMapping(ResourceGroup, name="group_name", container="container_name")
_USERS = (
    ("optimizer", "optimizer", "group_name = :name"),
    ("table", "table_runtime", "group_name = :name"),
    # Held by a process planned before its table changed the group.
    ("open task", "task_runtime", "group_name = :name AND finished_at_ms IS NULL"),
)


def add(db: Connection, group: ResourceGroup) -> ResourceGroup:
    """Create the group if it does not exist, and return it as stored."""
    row = _GROUPS.to_row(group)
    db.execute(f"{insert_into('resource_group', tuple(row))} ON CONFLICT (group_name) DO NOTHING", row)
    return find(db, group.name) or group


def get(db: Connection, name: str) -> ResourceGroup:
    """Raises GroupNotFound."""
    group = find(db, name)
    if group is None:
        names = ", ".join(item.name for item in list_groups(db))
        raise GroupNotFound(f"optimizer group {name!r} does not exist", hint=f"Known groups: {names}.")
    return group


def save(db: Connection, group: ResourceGroup) -> ResourceGroup:
    """Replace the group of that name. Raises GroupNotFound."""
    if not db.update("resource_group", _GROUPS.to_row(group), "group_name"):
        get(db, group.name)
    return group


def remove(db: Connection, name: str) -> None:
    """Raises GroupNotFound; IllegalState while optimizers are registered in it or tables name it."""
    get(db, name)
    for noun, table, where in _USERS:
        if used := db.count(table, where, {"name": name}):
            raise IllegalState(
                f"optimizer group {name!r} is used by {many(used, noun)}; it stays",
                hint="Scale it to 0 or drain its optimizers, and give its tables another self-optimizing.group.",
            )
    db.execute("DELETE FROM resource_group WHERE group_name = :name", {"name": name})


def find(db: Connection, name: str) -> ResourceGroup | None:
    """The group of that name; None when there is none."""
    return _GROUPS.find(db, "SELECT * FROM resource_group WHERE group_name = :name", {"name": name})


def capacity(db: Connection, name: str) -> Capacity:
    """The threads of the group's optimizers, also of those on demand, at least one, and its limits; defaults for an
    unknown group."""
    group = find(db, name)
    properties = group.properties if group else ()
    scaling, config = parse_scaling(properties), parse_group(properties)
    on_demand = (scaling.max_instances or 0) * scaling.threads_of_each
    return Capacity(max(1, on_demand, count_threads(db, name)), config.max_input_per_thread)


def policy_of(db: Connection, name: str) -> str:
    """The scheduling policy of the group; "" for an unknown group."""
    return str(db.value("SELECT scheduling_policy FROM resource_group WHERE group_name = :name", {"name": name}) or "")


def count_threads(db: Connection, group: str) -> int:
    """The threads of the group's optimizers."""
    sql = "SELECT coalesce(sum(threads), 0) FROM optimizer WHERE group_name = :group"
    return int(db.value(sql, {"group": group}))


def list_groups(db: Connection) -> list[ResourceGroup]:
    """All of them, in order of their names."""
    return _GROUPS.select(db, "SELECT * FROM resource_group ORDER BY group_name")


def page(db: Connection, after: str, limit: int) -> Page[ResourceGroup]:
    """At most `limit` of them after a name, by their names."""
    return _GROUPS.page(db, "resource_group", "group_name", after, limit)


#: Of all groups: resources that have ended.
KEPT_ENDED = 1000
_RESOURCES = RowMapping(Resource, group="group_name", container="container_name")


def add_resource(db: Connection, resource: Resource) -> Resource:
    """Insert the resource."""
    db.insert("resource", _RESOURCES.to_row(resource))
    return resource


def find_resource(db: Connection, resource_id: str) -> Resource | None:
    """The resource with that id; None when there is none, or it has ended."""
    sql = "SELECT * FROM resource WHERE resource_id = :resource_id AND ended_at_ms IS NULL"
    return _RESOURCES.find(db, sql, {"resource_id": resource_id})


def save_resource(db: Connection, resource: Resource) -> Resource:
    """Replace what is kept of it."""
    db.update("resource", _RESOURCES.to_row(resource), "resource_id")
    return resource


def end_resource(db: Connection, resource_id: str, cause: str, now: datetime) -> None:
    """Note its end, unless that is noted; of all that have ended the latest are kept."""
    if (resource := find_resource(db, resource_id)) is not None:
        save_resource(db, replace(resource, ended_at=now, cause=cause or resource.cause))
        db.execute(
            "DELETE FROM resource WHERE resource_id IN (SELECT resource_id FROM resource "
            "WHERE ended_at_ms IS NOT NULL ORDER BY ended_at_ms DESC LIMIT -1 OFFSET :kept)",
            {"kept": KEPT_ENDED},
        )


def list_resources(db: Connection, group: str | None = None) -> list[Resource]:
    """All that have not ended, or those of one group, the oldest first."""
    return _RESOURCES.select(
        db,
        "SELECT * FROM resource WHERE ended_at_ms IS NULL AND (:group_name IS NULL OR group_name = :group_name) "
        "ORDER BY started_at_ms, resource_id",
        {"group_name": group},
    )


def resource_page(db: Connection, group: str, before: str, limit: int) -> Page[Resource]:
    """At most `limit` of the group's resources whose ids are below one, those that have ended too, the newest first."""
    rows = _RESOURCES.select(
        db,
        "SELECT * FROM resource WHERE group_name = :group AND (:before = '' OR resource_id < :before) "
        "ORDER BY resource_id DESC LIMIT :most",
        {"group": group, "before": before, "most": limit + 1},
    )
    total = db.count("resource", "group_name = :group", {"group": group})
    return cut(rows, limit, total, lambda item: item.resource_id)


_SCALINGS = RowMapping(Scaling, failure="start_failure")


def get_scaling(db: Connection, group: str) -> Scaling:
    """Raises GroupNotFound."""
    scaling = _SCALINGS.find(db, "SELECT * FROM resource_group WHERE group_name = :group", {"group": group})
    if scaling is None:
        raise GroupNotFound(f"optimizer group {group!r} does not exist")
    return scaling


def save_scaling(db: Connection, group: str, scaling: Scaling) -> Scaling:
    """Replace what is kept of the group's scaling; of a group that is gone there is nothing."""
    row = _SCALINGS.to_row(scaling)
    db.update("resource_group", {"group_name": group, **row}, "group_name")
    return scaling


_OPTIMIZERS = RowMapping(Optimizer, group="group_name", kinds="work_kinds_json")


def add_optimizer(db: Connection, optimizer: Optimizer) -> Optimizer:
    """Raises GroupNotFound, AlreadyExists (id or token)."""
    if find(db, optimizer.group) is None:
        raise GroupNotFound(f"optimizer group {optimizer.group!r} does not exist")
    try:
        db.insert("optimizer", _OPTIMIZERS.to_row(optimizer))
    except Duplicate as error:
        other = find_optimizer(db, optimizer.optimizer_id) or find_by_token_hash(db, optimizer.token_hash)
        if other is None:
            raise
        raise AlreadyExists(f"optimizer {other.optimizer_id} is registered already") from error
    return optimizer


def get_optimizer(db: Connection, optimizer_id: str) -> Optimizer:
    """Raises UnknownToken: an optimizer that is not registered has no token that counts."""
    optimizer = find_optimizer(db, optimizer_id)
    if optimizer is None:
        raise _missing_optimizer(optimizer_id)
    return optimizer


def find_by_token_hash(db: Connection, token_hash: str) -> Optimizer | None:
    """The optimizer whose token has that hash; None when there is none."""
    return _OPTIMIZERS.find(db, "SELECT * FROM optimizer WHERE token_hash = :token_hash", {"token_hash": token_hash})


def list_optimizers(db: Connection, group: str | None = None) -> list[Optimizer]:
    """Registered optimizers, of one group where it is given; in order of their registration."""
    return _OPTIMIZERS.select(
        db,
        "SELECT * FROM optimizer WHERE (:group_name IS NULL OR group_name = :group_name) "
        "ORDER BY registered_at_ms, optimizer_id",
        {"group_name": group},
    )


def optimizer_page(db: Connection, group: str, after: str, limit: int) -> Page[Optimizer]:
    """At most `limit` registered optimizers after an id, of a group or ("") all, by id."""
    where = ":group IN ('', group_name)"
    return _OPTIMIZERS.page(db, "optimizer", "optimizer_id", after, limit, where, {"group": group})


def save_optimizer(db: Connection, optimizer: Optimizer) -> Optimizer:
    """Raises UnknownToken when it is not registered."""
    if not db.update("optimizer", _OPTIMIZERS.to_row(optimizer), "optimizer_id"):
        raise _missing_optimizer(optimizer.optimizer_id)
    return optimizer


def remove_optimizer(db: Connection, optimizer_id: str) -> None:
    """End a registration, if it exists.

    Raises IllegalState while it holds tasks: they are to be reset or adopted first.
    """
    try:
        db.execute("DELETE FROM optimizer WHERE optimizer_id = :optimizer_id", {"optimizer_id": optimizer_id})
    except Referenced as error:
        raise IllegalState(f"optimizer {optimizer_id} still holds tasks") from error


def find_optimizer(db: Connection, optimizer_id: str) -> Optimizer | None:
    """The registered optimizer with that id; None when there is none."""
    return _OPTIMIZERS.find(
        db, "SELECT * FROM optimizer WHERE optimizer_id = :optimizer_id", {"optimizer_id": optimizer_id}
    )


def _missing_optimizer(optimizer_id: str) -> UnknownToken:
    return UnknownToken(f"optimizer {optimizer_id} is not registered")

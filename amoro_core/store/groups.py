"""Optimizer groups, their resources and optimizers."""

from amoro_core.errors import AlreadyExists, GroupNotFound, IllegalState, UnknownToken
from amoro_core.model.group_config import Capacity, Resource, ResourceState, Scaling, parse_group
from amoro_core.model.processes import Optimizer, ResourceGroup
from amoro_core.store.connection import (
    Connection,
    Duplicate,
    Referenced,
    Row,
    from_ms,
    from_ms_or_none,
    insert_into,
    pairs_from_json,
    pairs_to_json,
    to_json,
    to_ms,
    to_ms_or_none,
    tuple_from_json,
    update_of,
)

_COLUMNS = ("group_name", "scheduling_policy", "properties_json", "container_name")
_INSERT = insert_into("resource_group", _COLUMNS)
_UPDATE = update_of("resource_group", _COLUMNS, ("group_name",))
_USERS = (
    ("optimizer", "optimizer", "group_name = :name"),
    ("table", "table_runtime", "group_name = :name"),
    # Held by a process planned before its table changed the group.
    ("open task", "task_runtime", "group_name = :name AND finished_at_ms IS NULL"),
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
    for what, table, where in _USERS:
        if used := db.count(table, where, {"name": name}):
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
    return db.count("resource_group")


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


_OPTIMIZER_COLUMNS = (
    "optimizer_id",
    "token_hash",
    "group_name",
    "threads",
    "memory_bytes",
    "labels_json",
    "registered_at_ms",
    "draining",
    "work_kinds_json",
    "max_cluster_bytes",
)
_INSERT_OPTIMIZER = insert_into("optimizer", _OPTIMIZER_COLUMNS)
_UPDATE_OPTIMIZER = update_of("optimizer", _OPTIMIZER_COLUMNS, ("optimizer_id",))


def add_optimizer(db: Connection, optimizer: Optimizer) -> Optimizer:
    """Raises GroupNotFound, AlreadyExists (id or token)."""
    if find(db, optimizer.group) is None:
        raise GroupNotFound(f"optimizer group {optimizer.group!r} does not exist")
    try:
        db.execute(_INSERT_OPTIMIZER, _optimizer_to_row(optimizer))
    except Duplicate as error:
        known = find_optimizer(db, optimizer.optimizer_id) or find_by_token_hash(db, optimizer.token_hash)
        if known is None:
            raise
        raise AlreadyExists(f"optimizer {known.optimizer_id} is registered already") from error
    return optimizer


def get_optimizer(db: Connection, optimizer_id: str) -> Optimizer:
    """Raises UnknownToken: an optimizer that is not registered has no token that counts."""
    optimizer = find_optimizer(db, optimizer_id)
    if optimizer is None:
        raise _missing_optimizer(optimizer_id)
    return optimizer


def find_by_token_hash(db: Connection, token_hash: str) -> Optimizer | None:
    """The optimizer whose token has that hash; None when there is none."""
    row = db.select_one("SELECT * FROM optimizer WHERE token_hash = :token_hash", {"token_hash": token_hash})
    return None if row is None else _optimizer_from_row(row)


def list_optimizers(db: Connection, group: str | None = None) -> list[Optimizer]:
    """Registered optimizers, of one group where it is given; in order of their registration."""
    rows = db.select(
        "SELECT * FROM optimizer WHERE (:group_name IS NULL OR group_name = :group_name) "
        "ORDER BY registered_at_ms, optimizer_id",
        {"group_name": group},
    )
    return [_optimizer_from_row(row) for row in rows]


def list_optimizer_page(db: Connection, group: str, after: str, limit: int) -> list[Optimizer]:
    """At most `limit` registered optimizers with greater ids, of a group or ("") all, by id."""
    rows = db.select(
        "SELECT * FROM optimizer WHERE optimizer_id > :after AND (:group_name = '' OR group_name = :group_name) "
        "ORDER BY optimizer_id LIMIT :limit",
        {"after": after, "group_name": group, "limit": limit},
    )
    return [_optimizer_from_row(row) for row in rows]


def count_optimizers(db: Connection, group: str) -> int:
    """How many optimizers are registered, of a group or ("") all."""
    return db.count("optimizer", ":group = '' OR group_name = :group", {"group": group})


def save_optimizer(db: Connection, optimizer: Optimizer) -> Optimizer:
    """Raises UnknownToken when it is not registered."""
    if not db.execute(_UPDATE_OPTIMIZER, _optimizer_to_row(optimizer)):
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
    row = db.select_one("SELECT * FROM optimizer WHERE optimizer_id = :optimizer_id", {"optimizer_id": optimizer_id})
    return None if row is None else _optimizer_from_row(row)


def _missing_optimizer(optimizer_id: str) -> UnknownToken:
    return UnknownToken(f"optimizer {optimizer_id} is not registered")


def _optimizer_to_row(optimizer: Optimizer) -> Row:
    return {
        "optimizer_id": optimizer.optimizer_id,
        "token_hash": optimizer.token_hash,
        "group_name": optimizer.group,
        "threads": optimizer.threads,
        "memory_bytes": optimizer.memory_bytes,
        "labels_json": pairs_to_json(optimizer.labels),
        "registered_at_ms": to_ms(optimizer.registered_at),
        "draining": optimizer.draining,
        "work_kinds_json": to_json(optimizer.kinds),
        "max_cluster_bytes": optimizer.max_cluster_bytes,
    }


def _optimizer_from_row(row: Row) -> Optimizer:
    return Optimizer(
        optimizer_id=row["optimizer_id"],
        token_hash=row["token_hash"],
        group=row["group_name"],
        threads=row["threads"],
        memory_bytes=row["memory_bytes"],
        labels=pairs_from_json(row["labels_json"]),
        registered_at=from_ms(row["registered_at_ms"]),
        draining=bool(row["draining"]),
        kinds=tuple_from_json(row["work_kinds_json"]),
        max_cluster_bytes=row["max_cluster_bytes"],
    )

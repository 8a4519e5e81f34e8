"""Optimizer groups, in `resource_group`; `default` exists from the first migration on."""

from amoro_core.errors import GroupNotFound, IllegalState
from amoro_core.model.groups import Capacity, parse_group
from amoro_core.model.processes import ResourceGroup
from amoro_core.store.connection import Connection, Row
from amoro_core.store.rows import (
    insert_into,
    pairs_from_json,
    pairs_to_json,
    update_of,
)

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

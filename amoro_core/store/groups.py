"""Optimizer groups, in `resource_group`; `default` exists from the first migration on."""

from sqlite_utils import Database

from amoro_core.model.processes import ResourceGroup
from amoro_core.store.rows import Row, execute, insert_into, pairs_from_json, pairs_to_json, select, select_one

_INSERT = insert_into("resource_group", ("group_name", "scheduling_policy", "properties_json"))


def add(db: Database, group: ResourceGroup) -> ResourceGroup:
    """The group as it is kept: a second call changes nothing, whatever it says of a group that exists."""
    row = {
        "group_name": group.name,
        "scheduling_policy": group.scheduling_policy,
        "properties_json": pairs_to_json(group.properties),
    }
    execute(db, f"{_INSERT} ON CONFLICT (group_name) DO NOTHING", row)
    return find(db, group.name) or group


def find(db: Database, name: str) -> ResourceGroup | None:
    row = select_one(db, "SELECT * FROM resource_group WHERE group_name = ?", (name,))
    return None if row is None else _from_row(row)


def list_groups(db: Database) -> list[ResourceGroup]:
    """All of them, in order of their names."""
    return [_from_row(row) for row in select(db, "SELECT * FROM resource_group ORDER BY group_name")]


def _from_row(row: Row) -> ResourceGroup:
    return ResourceGroup(row["group_name"], row["scheduling_policy"], pairs_from_json(row["properties_json"]))

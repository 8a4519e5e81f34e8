"""Lists of tables in `table_listing`: a narrow copy of what they are sorted and filtered by, saved with runtimes."""

from collections.abc import Sequence
from dataclasses import dataclass

from amoro_core.model.paging import Key
from amoro_core.model.tables import Order, TableFilter, TableIdentifier, TableKey, TableOrder, TableRuntime
from amoro_core.store.connection import Connection, Row, conditions_of, to_json, to_ms, tuple_from_json

#: A score of a table that was not evaluated: behind the healthy ones.
UNEVALUATED = 101
#: When nothing is due: behind every time.
NEVER_DUE = 2**63 - 1

_NAME = ("catalog_name", "namespace_json", "table_name")
_TEXTS = frozenset((*_NAME, "status", "group_name"))
_KEYS: dict[TableKey, tuple[str, ...]] = {
    TableKey.NAME: _NAME,
    TableKey.STATUS: ("status", "table_id"),
    TableKey.HEALTH: ("health", "table_id"),
    TableKey.FILES: ("files", "table_id"),
    TableKey.SMALL_FILES: ("small_files", "table_id"),
    TableKey.DELETES: ("delete_files", "table_id"),
    TableKey.SIZE: ("data_bytes", "table_id"),
    TableKey.LAST_OPTIMIZED: ("last_optimized_ms", "table_id"),
    TableKey.NEXT_DUE: ("next_due_ms", "table_id"),
    TableKey.GROUP: ("group_name", "table_id"),
    TableKey.SAVING: ("unsaved", "table_id"),
}


@dataclass(frozen=True, slots=True)
class ListPosition:
    """A table's place in a list."""

    table_id: int
    values: tuple[Key, ...]  # by which it is ordered


def save(db: Connection, runtime: TableRuntime) -> None:
    """Keep what lists need of the runtime; nothing is written where that has not changed."""
    row = _to_row(runtime)
    stored = db.select_one("SELECT * FROM table_listing WHERE table_id = :table_id", {"table_id": runtime.table_id})
    if stored is None:
        db.insert("table_listing", row)
    elif stored != row:
        db.update("table_listing", row, "table_id")


def list_places(
    db: Connection, wanted: TableFilter | Sequence[int], order: TableOrder, after: Sequence[Key] | None, limit: int
) -> list[ListPosition]:
    """At most `limit` places of tables, in order, that follow these values; None: from the start.

    The tables are those with these ids, which are sorted; or those wanted, for which the index of the order is
    followed until enough are found: quick unless they are few of many.
    """
    columns = _KEYS[order.key]
    names = ", ".join(dict.fromkeys(("table_id", *columns)))
    where = "true"
    if isinstance(wanted, TableFilter):
        source = "table_listing"
        by_index = wanted.is_all_of_catalog and order.key is TableKey.NAME
        where, parameters = _conditions(wanted, by_index=by_index)
    else:
        # A LIMIT that cuts nothing: it keeps SQLite from following the order's index here, too.
        source = (
            f"(SELECT {names} FROM table_listing WHERE table_id IN (SELECT value FROM json_each(:ids)) LIMIT :few) "
            "AS found"
        )
        parameters = {"ids": to_json(list(wanted)), "few": len(wanted)}
    # Negated, so that of tables that save as much the one that was found first leads.
    is_descending = (order.order is Order.DESC) != (order.key is TableKey.SAVING)
    if after is not None:
        values = ", ".join(f":after_{number}" for number in range(len(columns)))
        where += f" AND ({', '.join(columns)}) {'<' if is_descending else '>'} ({values})"
        parameters |= {f"after_{number}": value for number, value in enumerate(after)}
    down = " DESC" if is_descending else ""
    sql = (
        f"SELECT {names} FROM {source} WHERE {where} "
        f"ORDER BY {', '.join(f'{column}{down}' for column in columns)} LIMIT :most"
    )
    rows = db.select(sql, {**parameters, "most": limit})
    return [ListPosition(row["table_id"], tuple(row[column] for column in columns)) for row in rows]


def list_ids(db: Connection, wanted: TableFilter, most: int) -> list[int]:
    """At most `limit` matching tables, unordered."""
    where, parameters = _conditions(wanted, by_index=True)
    rows = db.select(f"SELECT table_id FROM table_listing WHERE {where} LIMIT :most", {**parameters, "most": most})
    return [row["table_id"] for row in rows]


def count(db: Connection, wanted: TableFilter, most: int) -> int:
    """The number of wanted tables; counting ends at `most`."""
    return db.count("table_listing", *_conditions(wanted, by_index=True), most)


def list_names(db: Connection, catalog: str = "") -> list[tuple[int, TableIdentifier]]:
    """Number and name of every table, or of those of a catalog, in order of their names."""
    where, parameters = _conditions(TableFilter(catalog=catalog), by_index=True)
    sql = f"SELECT table_id, {', '.join(_NAME)} FROM table_listing WHERE {where} ORDER BY {', '.join(_NAME)}"
    return [(row["table_id"], name_of(row)) for row in db.select(sql, parameters)]


def kinds_of(key: TableKey) -> tuple[type, ...]:
    """The kinds of the values by which such a list is ordered."""
    return tuple(str if column in _TEXTS else int for column in _KEYS[key])


def place_of(identifier: TableIdentifier) -> tuple[Key, ...]:
    """The place of a name, known or not, in the list by name."""
    return identifier.catalog, to_json(identifier.namespace), identifier.name


def name_of(row: Row) -> TableIdentifier:
    """The name in a row with its columns."""
    return TableIdentifier(row["catalog_name"], tuple_from_json(row["namespace_json"]), row["table_name"])


def _conditions(wanted: TableFilter, *, by_index: bool) -> tuple[str, Row]:
    """The conditions and their values; without `by_index` as expressions, which no index is used for."""
    text, number = ("", "") if by_index else (" || ''", " + 0")
    below = None if wanted.health_below is None else min(wanted.health_below, UNEVALUATED)
    return conditions_of(
        (
            ("catalog", f"catalog_name{text} = :catalog", wanted.catalog or None),
            ("status", f"status{text} = :status", wanted.status and wanted.status.value),
            ("state", f"state{text} = :state", wanted.state and wanted.state.value),
            ("of_group", f"group_name{text} = :of_group", wanted.group or None),
            ("text", "instr(search_text, :text) > 0", wanted.text.replace("`", "").casefold() or None),
            (
                "namespace",
                f"namespace_json{text} = :namespace",
                to_json(wanted.namespace) if wanted.namespace else None,
            ),
            ("enabled", "enabled + 0 = :enabled", wanted.enabled),
            ("refusal", f"refusal{text} = :refusal", wanted.refusal or None),
            ("below", f"health{number} < :below", below),
        )
    )


def _to_row(runtime: TableRuntime) -> Row:
    identifier, files = runtime.identifier, runtime.summary
    return {
        "table_id": runtime.table_id,
        "catalog_name": identifier.catalog,
        "namespace_json": to_json(identifier.namespace),
        "table_name": identifier.name,
        "search_text": ".".join((identifier.catalog, *identifier.in_catalog)).casefold(),
        "status": runtime.status.value,
        "state": runtime.state.value,
        "refusal": runtime.refusal,
        "group_name": runtime.group,
        "enabled": int(runtime.enabled),
        "health": files.health_score if files.health_score >= 0 else UNEVALUATED,
        "files": files.data_files,
        "small_files": files.fragment_files + files.undersized_files,
        "delete_files": files.equality_delete_files + files.position_delete_files,
        "data_bytes": files.data_bytes,
        "unsaved": -runtime.saving.files,
        "last_optimized_ms": to_ms(runtime.last_optimized_at) if runtime.last_optimized_at else 0,
        "next_due_ms": to_ms(runtime.next_due_at) if runtime.next_due_at else NEVER_DUE,
    }

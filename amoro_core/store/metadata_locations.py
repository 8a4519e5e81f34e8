"""What is compared with a catalog's word on where its tables' metadata are, and when those tables are refreshed."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from amoro_core.model.processes import OPTIMIZING_ACTION
from amoro_core.records import record
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms, from_ms_or_none, to_json, to_ms, tuple_from_json

#: Narrow: this is read of every table of a catalog each time that it is looked over.
_KNOWN = (
    "SELECT table_id, namespace_json, table_name, metadata_location, format "
    "FROM table_identifier JOIN table_runtime USING (table_id) WHERE catalog_name = :catalog"
)
_DUE = (
    "SELECT table_id, metadata_location, refresh_at_ms, refreshed_at_ms, enabled, next_at_ms, retry_at_ms "
    "FROM table_runtime JOIN table_identifier USING (table_id) JOIN table_action USING (table_id) "
    # An expression, so that the few which are due are found by their time, not among all tables of the catalog.
    f"WHERE action_name = '{OPTIMIZING_ACTION}' AND catalog_name || '' = :catalog AND status IN ('idle', 'pending') "
    "AND refresh_at_ms <= :until_ms AND refreshed_at_ms >= :since_ms AND evaluated_at_ms IS NOT NULL"
)
_HURRY = (
    "UPDATE table_runtime SET refresh_at_ms = :now_ms "
    "WHERE table_id IN (SELECT value FROM json_each(:ids)) AND refresh_at_ms > :now_ms"
)
#: Nothing that was decided meanwhile is overwritten.
_REST = (
    "UPDATE table_runtime SET refresh_at_ms = :at_ms "
    "WHERE table_id = :table_id AND refresh_at_ms = :before_ms AND metadata_location = :metadata_location"
)
_SPREAD = (
    "UPDATE table_runtime SET refresh_at_ms = :now_ms + table_id * 1000 % :within_ms "
    "WHERE refresh_at_ms > :now_ms + :within_ms "
    "AND table_id IN (SELECT table_id FROM table_identifier WHERE catalog_name = :catalog)"
)


@record
class KnownLocation:
    """Where a table's metadata was at its last refresh."""

    table_id: int
    name: tuple[str, ...]  # in its catalog
    metadata_location: str  # "": never refreshed
    format: str


@record
class DueTable:
    """A table that rests or waits for its plan, and what it is refreshed for."""

    table_id: int
    metadata_location: str
    refresh_at: datetime
    refreshed_at: datetime
    next_due_at: datetime | None  # None, too, for a table that is only observed
    retry_at: datetime | None


def list_known(db: Connection, catalog: str) -> list[KnownLocation]:
    """All tables of the catalog, in no order."""
    spaces: dict[str, tuple[str, ...]] = {}
    found = []
    for row in db.select(_KNOWN, {"catalog": catalog}):
        space = row["namespace_json"]
        if space not in spaces:
            spaces[space] = tuple_from_json(space)
        name = (*spaces[space], row["table_name"])
        found.append(KnownLocation(row["table_id"], name, row["metadata_location"], row["format"]))
    return found


def list_due(db: Connection, catalog: str, until: datetime, since: datetime) -> list[DueTable]:
    """The catalog's evaluated tables that are refreshed by `until`, and were refreshed since; in no order.

    Not those that are refused or have a process, nor those that are refreshed at once.
    """
    wanted = {"catalog": catalog, "until_ms": to_ms(until), "since_ms": to_ms(since)}
    return [
        DueTable(
            row["table_id"],
            row["metadata_location"],
            from_ms(row["refresh_at_ms"]),
            from_ms(row["refreshed_at_ms"]),
            from_ms_or_none(row["next_at_ms"]) if row["enabled"] else None,
            from_ms_or_none(row["retry_at_ms"]),
        )
        for row in db.select(_DUE, wanted)
    ]


def refresh_by(db: Connection, table_ids: Iterable[int], now: datetime) -> int:
    """Let those of the tables that would be refreshed later be due now; how many there were."""
    return db.execute(_HURRY, {"ids": to_json(sorted(table_ids)), "now_ms": to_ms(now)})


def postpone(db: Connection, moments: Sequence[tuple[DueTable, datetime]]) -> None:
    """Let each table be refreshed at its moment, unless it has changed, or its moment, since it was listed."""
    db.execute_many(
        _REST,
        [
            {
                "table_id": table.table_id,
                "before_ms": to_ms(table.refresh_at),
                "metadata_location": table.metadata_location,
                "at_ms": to_ms(moment),
            }
            for table, moment in moments
        ],
    )


def spread(db: Connection, catalog: str, now: datetime, within_ms: int) -> int:
    """Let the catalog's tables that would be refreshed later than that be refreshed within it; how many there were."""
    return db.execute(_SPREAD, {"catalog": catalog, "now_ms": to_ms(now), "within_ms": within_ms})

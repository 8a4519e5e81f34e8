"""Runtimes of tables: names in `table_identifier`, the rest in `table_runtime`.

Two tables, as in Amoro: what others refer to (partitions, processes) is the id, whose name changes only when the table
is renamed, while the runtime is written at each refresh.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from amoro_core.errors import AlreadyExists, TableBusy, TableNotFound
from amoro_core.model.files import Partition
from amoro_core.model.maintenance import DataCommit
from amoro_core.model.paths import normalise, spellings
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import OPTIMIZING_ACTION
from amoro_core.model.tables import (
    ActionRecord,
    LastOptimized,
    OptimizingStatus,
    OptimizingType,
    Pending,
    TableIdentifier,
    TableRuntime,
    Turn,
)
from amoro_core.store import actions, table_listing
from amoro_core.store.connection import (
    Connection,
    Duplicate,
    Row,
    RowMapping,
    from_ms_or_none,
    to_json,
    to_ms,
    tuple_from_json,
)

#: The fields of a runtime that other tables hold: its name, and what is kept of each action.
_OF_ACTION = ("failures", "failure_code", "failing_since", "retry_at")
_ELSEWHERE = ("identifier", "status_reason", "next_due_at", "last_optimized_at", "failing", *_OF_ACTION)
_RUNTIMES = RowMapping(TableRuntime, uuid="table_uuid", group="group_name", without=_ELSEWHERE)
#: What is known of optimizing stands where what is known of every action does; and the name of another that fails.
_SELECT = (
    "SELECT *, (SELECT action_name FROM table_action WHERE table_id = table_identifier.table_id "
    f"AND action_name <> '{OPTIMIZING_ACTION}' AND {actions.KEEPS_FAILING} LIMIT 1) AS failing "
    "FROM table_identifier JOIN table_runtime USING (table_id) "
    f"JOIN table_action USING (table_id) WHERE action_name = '{OPTIMIZING_ACTION}'"
)
_BY_ID = f"{_SELECT} AND table_id = :table_id"
_BY_NAME = f"{_SELECT} AND catalog_name = :catalog AND namespace_json = :namespace AND table_name = :name"
_FIRST_OF_UUID = (
    "SELECT table_id, catalog_name, namespace_json, table_name FROM table_runtime "
    "JOIN table_identifier USING (table_id) WHERE table_uuid = :uuid ORDER BY table_id LIMIT 1"
)
#: In two parts, each by the index: with an OR it would be read whole, and this is asked for each second.
_DUE = (
    "SELECT table_id, catalog_name, refresh_at_ms FROM table_runtime JOIN table_identifier USING (table_id) "
    "WHERE refresh_at_ms IS NULL UNION ALL "
    "SELECT table_id, catalog_name, refresh_at_ms FROM table_runtime JOIN table_identifier USING (table_id) "
    "WHERE refresh_at_ms <= :now_ms ORDER BY refresh_at_ms, table_id"
)
#: Narrow: this is asked for each second, and thousands may wait.
_PENDING = (
    "SELECT table_id, catalog_name, namespace_json, table_name, group_name, quota, enabled, status_since_ms, reason, "
    "pending_type, last_at_ms, priority, value FROM table_runtime JOIN table_identifier USING (table_id) "
    f"JOIN table_action USING (table_id) WHERE action_name = '{OPTIMIZING_ACTION}' AND status = 'pending'"
)
_PENDING_TABLES = RowMapping(
    Pending,
    group="group_name",
    since="status_since_ms",
    type="pending_type",
    last_optimized_at="last_at_ms",
    without=["identifier"],
)
_WAITING_TURNS = RowMapping(Turn, group="group_name", since="status_since_ms", last_optimized_at="last_at_ms")
_IN_ORDER = "ORDER BY catalog_name, namespace_json, table_name"
#: What their order goes by.
_TURNS = (
    "SELECT table_id, group_name, quota, last_at_ms, priority, value, status_since_ms "
    "FROM table_runtime JOIN table_action USING (table_id) "
    f"WHERE action_name = '{OPTIMIZING_ACTION}' AND status = 'pending' AND :group IN ('', group_name)"
)
_ACTIVE_IN_CATALOG = (
    "SELECT * FROM table_process JOIN table_identifier USING (table_id) "
    "WHERE finished_at_ms IS NULL AND catalog_name = :catalog "
    "ORDER BY created_at_ms, process_id LIMIT 1"
)
_LIST = (
    f"{_SELECT} AND (:catalog IS NULL OR catalog_name = :catalog) AND (:status IS NULL OR status = :status) "
    "ORDER BY catalog_name, namespace_json, table_name"
)


def add(db: Connection, runtime: TableRuntime) -> TableRuntime:
    """Keep a new table; the runtime returned has its id, the one given counts for nothing. Raises AlreadyExists."""
    identifier = runtime.identifier
    name = {
        "catalog_name": identifier.catalog,
        "namespace_json": to_json(identifier.namespace),
        "table_name": identifier.name,
    }
    try:
        table_id = db.insert("table_identifier", name)
    except Duplicate as error:
        raise AlreadyExists(f"table {identifier} is known already") from error
    added = replace(runtime, table_id=table_id)
    db.insert("table_runtime", _RUNTIMES.to_row(added))
    actions.save(db, _optimizing(added))
    table_listing.save(db, added)
    return added


def get(db: Connection, table_id: int) -> TableRuntime:
    """Raises TableNotFound."""
    row = db.select_one(_BY_ID, {"table_id": table_id})
    if row is None:
        raise _missing(table_id)
    return _from_row(db, row)


def find(db: Connection, identifier: TableIdentifier) -> TableRuntime | None:
    """The runtime of that table; None when it is not known."""
    row = db.select_one(
        _BY_NAME, {"catalog": identifier.catalog, "namespace": to_json(identifier.namespace), "name": identifier.name}
    )
    return None if row is None else _from_row(db, row)


def get_by_name(db: Connection, identifier: TableIdentifier) -> TableRuntime:
    """Raises TableNotFound."""
    runtime = find(db, identifier)
    if runtime is None:
        raise TableNotFound(f"table {identifier} is not known", table=identifier)
    return runtime


def save(db: Connection, runtime: TableRuntime) -> TableRuntime:
    """Replace all but the name. Raises TableNotFound."""
    if not db.update("table_runtime", _RUNTIMES.to_row(runtime), "table_id"):
        raise _missing(runtime.table_id)
    actions.save(db, _optimizing(runtime))
    table_listing.save(db, runtime)
    return runtime


def rename(db: Connection, table_id: int, identifier: TableIdentifier) -> TableRuntime:
    """Give a table another name, which no other table has. Raises TableNotFound."""
    name = to_json(identifier.namespace), identifier.name
    row = {"table_id": table_id, "namespace_json": name[0], "table_name": name[1]}
    db.update("table_identifier", row, "table_id")
    return save(db, get(db, table_id))


def list_tables(
    db: Connection, catalog: str | None = None, status: OptimizingStatus | None = None
) -> list[TableRuntime]:
    """Tables in order of their names."""
    wanted = {"catalog": catalog, "status": None if status is None else status.value}
    return [_from_row(db, row) for row in db.select(_LIST, wanted)]


def list_of_group(db: Connection, group: str, limit: int) -> list[TableRuntime]:
    """At most `limit` tables that name the group, in order of their names."""
    sql = f"{_SELECT} AND group_name = :of_group ORDER BY catalog_name, namespace_json, table_name LIMIT :most"
    return [_from_row(db, row) for row in db.select(sql, {"of_group": group, "most": limit})]


def list_by_id(db: Connection, table_ids: Sequence[int]) -> list[TableRuntime]:
    """These tables in the order of their ids as given; one that is not known is left out."""
    rows = db.select(
        f"{_SELECT} AND table_id IN (SELECT value FROM json_each(:ids))", {"ids": to_json(list(table_ids))}
    )
    by_id = {row["table_id"]: row for row in rows}
    return [_from_row(db, by_id[table_id]) for table_id in table_ids if table_id in by_id]


def names(db: Connection, table_ids: Iterable[int]) -> dict[int, TableIdentifier]:
    """The names of these tables; one that is not known is left out."""
    sql = "SELECT * FROM table_identifier WHERE table_id IN (SELECT value FROM json_each(:wanted))"
    rows = db.select(sql, {"wanted": to_json(sorted(table_ids))})
    return {row["table_id"]: table_listing.name_of(row) for row in rows}


def list_due(db: Connection, now: datetime) -> list[tuple[int, str]]:
    """Id and catalog of each table that is due for a refresh by then, the longest due first."""
    return [(row["table_id"], row["catalog_name"]) for row in db.select(_DUE, {"now_ms": to_ms(now)})]


def list_turns(db: Connection, group: str = "") -> list[Turn]:
    """The sort values of the tables that wait for a plan, of one group or all; unordered."""
    return _WAITING_TURNS.select(db, _TURNS, {"group": group})


def list_pending(db: Connection, table_ids: Iterable[int] | None = None) -> list[Pending]:
    """The tables that wait for a plan, or those of them with these ids, in order of their names."""
    if table_ids is None:
        rows = db.select(f"{_PENDING} {_IN_ORDER}")
    else:
        sql = f"{_PENDING} AND table_id IN (SELECT value FROM json_each(:wanted)) {_IN_ORDER}"
        rows = db.select(sql, {"wanted": to_json(sorted(table_ids))})
    return [_PENDING_TABLES.from_row(row, identifier=table_listing.name_of(row)) for row in rows]


@dataclass(frozen=True, slots=True)
class StatusCount:
    """Tables of one group in one status, refused for the same word."""

    group: str
    status: OptimizingStatus
    refusal: str
    tables: int
    oldest_since: datetime  # when the first of them came into it


_STATUS_COUNTS = RowMapping(StatusCount, group="group_name")


def count_by_status(db: Connection) -> list[StatusCount]:
    """How many tables stand where, in order of groups and statuses."""
    return _STATUS_COUNTS.select(
        db,
        "SELECT group_name, status, refusal, count(*) AS tables, min(status_since_ms) AS oldest_since_ms "
        "FROM table_runtime GROUP BY group_name, status, refusal ORDER BY group_name, status, refusal",
    )


def count_by_group(db: Connection) -> dict[str, int]:
    """How many tables name each group; a group that none names is left out."""
    rows = db.select("SELECT group_name, count(*) AS tables FROM table_listing GROUP BY group_name")
    return {row["group_name"]: int(row["tables"]) for row in rows}


def formats_by_group(db: Connection) -> dict[str, set[str]]:
    """The formats of the tables that name each group."""
    result: dict[str, set[str]] = {}
    for row in db.select("SELECT DISTINCT group_name, format FROM table_runtime"):
        result.setdefault(row["group_name"], set()).add(row["format"])
    return result


def count(db: Connection) -> int:
    """How many tables are known."""
    return db.count("table_identifier")


def first_of_uuid(db: Connection, table_uuid: str) -> tuple[int, TableIdentifier] | None:
    """The id and the name under which the table was known first; another one that shares it has a greater id."""
    row = db.select_one(_FIRST_OF_UUID, {"uuid": table_uuid})
    return None if row is None else (row["table_id"], table_listing.name_of(row))


#: Of several tables with a location the one that was known first comes last.
_BY_LOCATION = (
    "SELECT catalog_name, namespace_json, table_name, location FROM json_each(:places) AS place "
    "JOIN table_runtime ON location = place.value JOIN table_identifier USING (table_id) ORDER BY table_id DESC"
)


def list_locations(db: Connection) -> list[tuple[int, TableIdentifier, str]]:
    """Number, name and location of each table that was loaded, in order of their names."""
    rows = db.select(
        "SELECT table_id, catalog_name, namespace_json, table_name, location FROM table_runtime "
        "JOIN table_identifier USING (table_id) WHERE location <> '' ORDER BY catalog_name, namespace_json, table_name"
    )
    return [(row["table_id"], table_listing.name_of(row), row["location"]) for row in rows]


def list_by_paths(db: Connection, paths: Iterable[str]) -> dict[str, TableIdentifier]:
    """The table of each path: that with the longest location above it, by whole segments, of several the first known.

    A path below no location is left out.
    """
    above = {path: tuple(_above(normalise(path))) for path in paths}
    places = {text: place for parents in above.values() for place in parents for text in spellings(place)}
    rows = db.select(_BY_LOCATION, {"places": to_json(list(places))})
    names = {places[row["location"]]: table_listing.name_of(row) for row in rows}
    nearest = {path: next((place for place in parents if place in names), "") for path, parents in above.items()}
    return {path: names[place] for path, place in nearest.items() if place}


def _above(place: str) -> Iterator[str]:
    """The folders in which the place lies, the deepest first, down to the bucket."""
    while (place := place.rpartition("/")[0]) and not place.endswith(":/"):
        yield place


def quotas(db: Connection, table_ids: Iterable[int]) -> dict[int, float]:
    """The quota of each of these tables; one that is not known is left out."""
    sql = "SELECT table_id, quota FROM table_runtime WHERE table_id IN (SELECT value FROM json_each(:wanted))"
    rows = db.select(sql, {"wanted": to_json(sorted(table_ids))})
    return {row["table_id"]: row["quota"] for row in rows}


def remove(db: Connection, table_id: int) -> None:
    """Forget the table with its partitions and ended processes.

    Raises TableBusy while a process is active on it, TableNotFound.
    """
    active = "SELECT process_id, status FROM table_process WHERE table_id = :table_id AND finished_at_ms IS NULL"
    row = db.select_one(active, {"table_id": table_id})
    if row is not None:
        raise TableBusy(f"process {row['process_id']} on table {table_id} is {row['status']}; the table stays")
    if not db.execute("DELETE FROM table_identifier WHERE table_id = :table_id", {"table_id": table_id}):
        raise _missing(table_id)


def remove_all(db: Connection, catalog: str) -> int:
    """Forget every table of the catalog; how many there were. Raises TableBusy while a process is active on one."""
    row = db.select_one(_ACTIVE_IN_CATALOG, {"catalog": catalog})
    if row is not None:
        name = table_listing.name_of(row)
        raise TableBusy(
            f"process {row['process_id']} on table {name} is {row['status']}; the catalog stays",
            hint=f"Wait for its end, or cancel it while it runs: amoro process cancel {row['process_id']}",
        )
    return db.execute("DELETE FROM table_identifier WHERE catalog_name = :catalog", {"catalog": catalog})


def _missing(table_id: int) -> TableNotFound:
    return TableNotFound(f"table {table_id} is not known")


def _optimizing(runtime: TableRuntime) -> ActionRecord:
    return ActionRecord(
        table_id=runtime.table_id,
        action=OPTIMIZING_ACTION,
        reason=runtime.status_reason,
        last_at=runtime.last_optimized_at,
        next_at=runtime.next_due_at,
        **{name: getattr(runtime, name) for name in _OF_ACTION},
    )


def _from_row(db: Connection, row: Row) -> TableRuntime:
    return _RUNTIMES.from_row(
        row,
        identifier=table_listing.name_of(row),
        status_reason=row["reason"],
        next_due_at=from_ms_or_none(row["next_at_ms"]),
        failures=row["failures"],
        failure_code=row["failure_code"],
        failing_since=from_ms_or_none(row["failing_since_ms"]),
        retry_at=from_ms_or_none(row["retry_at_ms"]),
        last_optimized_at=from_ms_or_none(row["last_at_ms"]),
        failing=actions.get(db, row["table_id"], row["failing"]) if row["failing"] else None,
    )


_DATA_COMMITS = RowMapping(DataCommit)


def save_data_commit(db: Connection, table_id: int, uuid: str, commit: DataCommit | None) -> None:
    """Store the commit, replacing the previous one; None deletes it."""
    if commit is None:
        db.execute("DELETE FROM table_data_commit WHERE table_id = :table_id", {"table_id": table_id})
        return
    row = {"table_id": table_id, "table_uuid": uuid, **_DATA_COMMITS.to_row(commit)}
    db.upsert("table_data_commit", row, ["table_id"])


def find_data_commit(db: Connection, table_id: int, uuid: str) -> DataCommit | None:
    """The stored commit of the table; None if there is none, or only one of another table (UUID) with its name."""
    sql = "SELECT * FROM table_data_commit WHERE table_id = :table_id AND table_uuid = :uuid"
    return _DATA_COMMITS.find(db, sql, {"table_id": table_id, "uuid": uuid})


_LAST_TIMES = RowMapping(LastOptimized, minor="minor_at_ms", major="major_at_ms", full="full_at_ms")
_LENGTH = struct.Struct(">i")
_NULL = -1


def partitions_last_optimized(db: Connection, table_id: int) -> dict[PartitionKey, LastOptimized]:
    """The last times of each partition that was ever optimized."""
    rows = db.select(
        "SELECT * FROM table_partition WHERE table_id = :table_id ORDER BY spec_id, partition", {"table_id": table_id}
    )
    return {PartitionKey(row["spec_id"], _decode(row["partition"])): _LAST_TIMES.from_row(row) for row in rows}


def record_partitions(db: Connection, table_id: int, keys: Iterable[PartitionKey], type_: str, at: datetime) -> None:
    """Note that these partitions were optimized with this type; the times of other types stay."""
    for key in keys:
        column = f"{OptimizingType(type_).value}_at_ms"  # here: other types come without partitions
        row = {"table_id": table_id, "spec_id": key.spec_id, "partition": _encode(key.partition), column: to_ms(at)}
        db.upsert("table_partition", row, ["table_id", "spec_id", "partition"])


def forget_partitions(db: Connection, table_id: int) -> None:
    """Delete the times of the table's partitions."""
    db.execute("DELETE FROM table_partition WHERE table_id = :table_id", {"table_id": table_id})


def _encode(partition: Partition) -> bytes:
    """Each value after its length in four bytes; a null has the length −1."""
    return b"".join(_LENGTH.pack(_NULL) if value is None else _LENGTH.pack(len(value)) + value for value in partition)


def _decode(blob: bytes) -> Partition:
    values: list[bytes | None] = []
    position = 0
    while position < len(blob):
        (length,) = _LENGTH.unpack_from(blob, position)
        position += _LENGTH.size
        values.append(None if length == _NULL else blob[position : position + length])
        position += max(length, 0)
    return tuple(values)


#: Narrow: this is read of every table of a catalog each time that it is looked over.
_KNOWN = (
    "SELECT table_id, namespace_json, table_name, metadata_location, format, refusal "
    "FROM table_identifier JOIN table_runtime USING (table_id) WHERE catalog_name = :catalog"
)
_DUE_LOCATIONS = (
    "SELECT table_id, metadata_location, refresh_at_ms, refreshed_at_ms, retry_at_ms, "
    "iif(enabled, next_at_ms, NULL) AS next_due_at_ms "
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


@dataclass(frozen=True, slots=True)
class MetadataLocation:
    """Where a table's metadata was at its last refresh."""

    table_id: int
    name: tuple[str, ...]  # in its catalog
    metadata_location: str  # "": never refreshed, or always refused
    format: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class DueTable:
    """A table that rests or waits for its plan, and what it is refreshed for."""

    table_id: int
    metadata_location: str
    refresh_at: datetime
    refreshed_at: datetime
    next_due_at: datetime | None  # None, too, for a table that is only observed
    retry_at: datetime | None


_DUE_TABLES = RowMapping(DueTable)


def list_metadata_locations(db: Connection, catalog: str) -> list[MetadataLocation]:
    """All tables of the catalog, in no order."""
    spaces: dict[str, tuple[str, ...]] = {}
    result = []
    for row in db.select(_KNOWN, {"catalog": catalog}):
        space = row["namespace_json"]
        if space not in spaces:
            spaces[space] = tuple_from_json(space)
        name = (*spaces[space], row["table_name"])
        location = MetadataLocation(row["table_id"], name, row["metadata_location"], row["format"], row["refusal"])
        result.append(location)
    return result


def refresh_at_once(db: Connection, table_ids: Iterable[int], *, evaluates: bool = False) -> None:
    """Let the tables be refreshed now, whether their catalogs report changes or not; `evaluates`: and evaluated."""
    also = ", evaluated_snapshot_id = NULL" if evaluates else ""
    ids = "SELECT value FROM json_each(:ids)"
    sql = f"UPDATE table_runtime SET refresh_at_ms = NULL{also} WHERE table_id IN ({ids})"
    db.execute(sql, {"ids": to_json(sorted(table_ids))})


def list_due_locations(db: Connection, catalog: str, until: datetime, since: datetime) -> list[DueTable]:
    """The catalog's evaluated tables that are refreshed by `until`, and were refreshed since; in no order.

    Not those that are refused or have a process, nor those that are refreshed at once.
    """
    wanted = {"catalog": catalog, "until_ms": to_ms(until), "since_ms": to_ms(since)}
    return _DUE_TABLES.select(db, _DUE_LOCATIONS, wanted)


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

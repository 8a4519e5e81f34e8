"""The demo's writer: it commits rows and deletes like a CDC engine, retrying on conflicts with the optimizer."""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, UpdateMetrics, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate
from pyiceberg.types import IntegerType

from amoro_core.demo.table import FLIGHT_ID, IDENTIFIER, FileCounts, Flights, Ids, Ledger, months_of
from amoro_core.errors import CheckFailed, CommitConflict
from amoro_core.files.deletes.delete_files import write_position_deletes
from amoro_core.files.parquet.writing import ParquetOutput
from amoro_core.files.schema.schemas import arrow_schema, select_ids
from amoro_core.files.schema.write_options import writer_options
from amoro_core.files.storage.io import open_access
from amoro_core.iceberg.manifest.writing import added_entry, new_header, write_manifest
from amoro_core.iceberg.scan import scan
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat

#: More often than a concurrent optimizer can ever conflict.
_ATTEMPTS = 50
#: A commit gives its files their sequence number.
_UNNUMBERED = 0


@dataclass(frozen=True, slots=True)
class RowDelta:
    """New files of one snapshot; they get its sequence number."""

    data: tuple[DataFile, ...] = ()
    deletes: tuple[DeleteFile, ...] = ()


def commit(catalog: Catalog, build: Callable[[Table], RowDelta]) -> FileCounts:
    """Commit what `build` returns for the head, rebuilt for each attempt; returns the added files.

    Raises CommitConflict after too many conflicts.
    """
    for _ in range(_ATTEMPTS):
        table = catalog.load_table(IDENTIFIER.in_catalog)
        delta = build(table)
        if _is_committed(catalog, table, delta):
            counts = FileCounts(f"{file.kind.name}_DELETES" for file in delta.deletes)
            size = sum(file.size_bytes for file in delta.data) + sum(file.size_bytes for file in delta.deletes)
            return counts + FileCounts(DATA=len(delta.data), BYTES=size)
    raise CommitConflict(f"{IDENTIFIER} changed {_ATTEMPTS} times during a commit")


def _is_committed(catalog: Catalog, table: Table, delta: RowDelta) -> bool:
    """Whether the commit was applied; False when the table has changed since it was loaded."""
    metadata = table.metadata
    head = metadata.current_snapshot()
    snapshot_id, name = metadata.new_snapshot_id(), str(uuid.uuid4())
    metrics = UpdateMetrics()
    added = list(_manifests(table, delta, snapshot_id, name, metrics))
    kept = (
        [one for one in head.manifests(table.io) if one.has_added_files() or one.has_existing_files()] if head else []
    )
    path = f"{metadata.location}/metadata/snap-{snapshot_id}-1-{name}.avro"
    parent_id = head.snapshot_id if head else None
    number = metadata.next_sequence_number()
    with write_manifest_list(2, table.io.new_output(path), snapshot_id, parent_id, number, "deflate") as output:
        output.add_manifests([*added, *kept])
    summary = Summary(Operation.OVERWRITE if delta.deletes else Operation.APPEND, **metrics.to_dict())
    previous = head.summary.additional_properties if head and head.summary else None
    snapshot = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent_id,
        "sequence-number": number,
        "timestamp-ms": max(time.time_ns() // 1_000_000, metadata.last_updated_ms + 1),
        "manifest-list": path,
        "summary": update_snapshot_summaries(summary, previous),
        "schema-id": metadata.current_schema_id,
    }
    requirements = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": parent_id}),
    )
    updates = (
        AddSnapshotUpdate(snapshot=Snapshot.model_validate(snapshot)),
        SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}),
    )
    try:
        catalog.commit_table(table, requirements, updates)
    except CommitFailedException:
        for file in (path, *(one.manifest_path for one in added)):
            with suppress(OSError):
                table.io.delete(file)
        return False
    return True


def _manifests(
    table: Table, delta: RowDelta, snapshot_id: int, name: str, metrics: UpdateMetrics
) -> Iterator[ManifestFile]:
    metadata = table.metadata
    header = new_header(metadata, metadata.default_spec_id)
    for content, files in ((ManifestContent.DATA, delta.data), (ManifestContent.DELETES, delta.deletes)):
        numbered = [replace(file, sequence_number=metadata.next_sequence_number()) for file in files]
        entries = [added_entry(file, header, snapshot_id) for file in numbered]
        for entry in entries:
            metrics.add_file(entry.data_file)
        if entries:
            path = f"{metadata.location}/metadata/{name}-{content.name.lower()}.avro"
            yield write_manifest(table.io, path, 2, content, header, snapshot_id, entries)


class TableFiles:
    """Writes and reads files of one table; new files are not part of the table before a commit."""

    def __init__(self, table: Table) -> None:
        metadata = table.metadata
        self._data = f"{metadata.location}/data"
        self._spec_id = metadata.default_spec_id
        self._schema = metadata.schema()
        self._options = writer_options(metadata.properties)
        locations = [metadata.location]
        self._access = open_access({}, metadata.location, read_locations=locations, write_locations=locations)

    def write_rows(self, rows: pa.Table) -> tuple[DataFile, ...]:
        """One new data file for each month of the rows."""
        return tuple(DataFile(**file) for file in self._write(self._schema, rows, months_of(rows)))

    def write_equality_deletes(self, ids: Ids, months: Ids) -> tuple[DeleteFile, ...]:
        """One new equality delete file for each of the months, with the ids of the flights in it."""
        schema = select_ids(self._schema, [FLIGHT_ID])
        return tuple(
            DeleteFile(kind=DeleteKind.EQUALITY, equality_ids=(FLIGHT_ID,), **file)
            for file in self._write(schema, pa.table({"flight_id": ids}), months)
        )

    def write_position_deletes(self, data: DataFile, positions: npt.NDArray[np.int64]) -> DeleteFile:
        """A new delete file for rows of one data file."""
        return write_position_deletes(self._access, self._new_path(), data, positions, _UNNUMBERED, self._options)

    def read_versions(self, data: DataFile) -> tuple[Ids, Ids]:
        """Ids and revisions of all rows of a data file in order, including deleted ones."""
        with self._access.open_input(data.path) as stream:
            rows = pq.read_table(stream, columns=["flight_id", "revision"])
        return rows["flight_id"].to_numpy(), rows["revision"].to_numpy().astype(np.int64)

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
                "spec_id": self._spec_id,
                "partition": (to_bytes(IntegerType(), int(month)),),
                "record_count": written.record_count,
                "size_bytes": written.size_bytes,
                "sequence_number": _UNNUMBERED,
                "metrics": written.metrics,
                "split_offsets": written.split_offsets,
            }

    def _new_path(self) -> str:
        return f"{self._data}/{uuid.uuid4()}.parquet"


HISTORY_MONTHS = 4  # written before the feed begins
HISTORY_COMMITS = 12
_ANNOUNCED = 400  # flights in a commit
_IN_THE_AIR = 2  # announcements between that of a flight and its completion
_CORRECTED = 40
_CORRECTED_MONTHS = 2
_DELETED = 25
_SEED = 2013
_PAUSE_S = 0.8


class Feed:
    """The only writer of rows of a table; it keeps the ledger of the rows that the table must hold."""

    def __init__(self, catalog: Catalog, table: Table, flights: Flights) -> None:
        self._catalog = catalog
        self._flights = flights
        self._files = TableFiles(table)
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
            self._upsert(self._in_the_air.popleft(), self._to_be_corrected())
        else:
            ids = np.arange(self._next, min(self._next + _ANNOUNCED, len(self._flights.months)))
            self._next += len(ids)
            self._in_the_air.append(ids)
            self._append(ids, np.zeros_like(ids))

    def _to_be_corrected(self) -> Ids:
        """Some completed flights of some months."""
        months = self._first_month + self._random.choice(HISTORY_MONTHS, _CORRECTED_MONTHS, replace=False)
        bounds = np.searchsorted(self._flights.months, [[month, month + 1] for month in months])
        return np.concatenate(
            [low + self._random.choice(high - low, _CORRECTED, replace=False) for low, high in bounds]
        )

    def _append(self, ids: Ids, revisions: Ids) -> None:
        if len(ids):
            rows = self._flights.versions(ids, revisions)
            delta = RowDelta(self._files.write_rows(rows))
            self._commit(lambda head: delta)
            self.ledger.put(rows)

    def _upsert(self, ended: Ids, corrected: Ids) -> None:
        """Delete the rows by key and write their next revisions in one commit; cancelled flights are only deleted."""
        ids = np.concatenate([corrected, ended])
        keys = ids[[self.ledger.revision(int(key)) is not None for key in ids]]
        cancelled = self._flights.cancelled[keys]
        kept = keys[~cancelled]
        rows = self._flights.versions(kept, np.array([(self.ledger.revision(int(key)) or 0) + 1 for key in kept]))
        deletes = self._files.write_equality_deletes(keys, self._flights.months[keys])
        delta = RowDelta(self._files.write_rows(rows), deletes)
        self._commit(lambda head: delta)
        self.ledger.remove(keys[cancelled].tolist())
        self.ledger.put(rows)

    def _delete_by_position(self) -> None:
        """Delete some rows of one data file of exactly the head that is committed on.

        The file is of a past month: the month being optimized all the time would conflict with each such delete.
        """
        deleted: list[int] = []

        def build(head: Table) -> RowDelta:
            live_files = scan(head, [head.location()])
            if live_files is None:
                raise CheckFailed(f"{IDENTIFIER} has lost its snapshots")
            past = [file.data for file in live_files.files if self._is_past(file.data)]
            data = past[self._random.integers(len(past))]
            ids, revisions = self._files.read_versions(data)
            # A row whose revision is not the latest was deleted from this file already.
            live = [at for at, key in enumerate(ids) if self.ledger.revision(int(key)) == revisions[at]]
            rows = np.sort(self._random.choice(np.array(live, np.int64), min(_DELETED, len(live)), replace=False))
            deleted[:] = ids[rows].tolist()
            return RowDelta(deletes=(self._files.write_position_deletes(data, rows),) if len(rows) else ())

        self._commit(build)
        self.ledger.remove(deleted)

    def _is_past(self, data: DataFile) -> bool:
        (month,) = data.partition
        return int.from_bytes(month or b"", "little", signed=True) < self._first_month + HISTORY_MONTHS

    def _commit(self, build: Callable[[Table], RowDelta]) -> None:
        self.written = self.written + commit(self._catalog, build)
        self.commits += 1

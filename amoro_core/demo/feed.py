"""Commits of rows and deletes like those of an engine, retried on conflicts with the optimizer."""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

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
from pyiceberg.table.snapshots import Snapshot, UpdateMetrics
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import IntegerType

from amoro_core.demo.table import FLIGHT_ID, IDENTIFIER, FileCounts, Flights, Ids, Ledger, months_of
from amoro_core.errors import CheckFailed, CommitConflict
from amoro_core.files.deletes.delete_files import write_position_deletes
from amoro_core.files.parquet.writing import ParquetOutput, WrittenFile
from amoro_core.files.schema.schemas import arrow_schema, select_ids
from amoro_core.files.schema.write_options import writer_options
from amoro_core.files.storage.io import open_access
from amoro_core.iceberg.manifest.writing import added_entry, new_header, write_manifest
from amoro_core.iceberg.scan import scan
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat, Partition
from amoro_core.model.tables import TableIdentifier

#: More often than a concurrent optimizer can ever conflict.
_ATTEMPTS = 50
_COUNTED = ("data-files", "delete-files", "records", "files-size", "position-deletes", "equality-deletes")


@dataclass(frozen=True, slots=True)
class RowDelta:
    """New files of one snapshot; they get its sequence number."""

    data: tuple[DataFile, ...] = ()
    deletes: tuple[DeleteFile, ...] = ()


def commit(catalog: Catalog, identifier: TableIdentifier, build: Callable[[Table], RowDelta]) -> RowDelta:
    """Commit what `build` makes for the head, rebuilt for each try; returns what was committed.

    Raises CommitConflict after too many conflicts.
    """
    for _ in range(_ATTEMPTS):
        table = catalog.load_table(identifier.in_catalog)
        delta = build(table)
        if _is_committed(catalog, table, delta):
            return delta
    raise CommitConflict(f"{identifier} changed {_ATTEMPTS} times while a commit was made")


def _is_committed(catalog: Catalog, table: Table, delta: RowDelta) -> bool:
    """Whether the commit was applied; False when the table has changed since it was loaded."""
    metadata = table.metadata
    head = metadata.current_snapshot()
    snapshot_id, name = metadata.new_snapshot_id(), str(uuid.uuid4())
    metrics = UpdateMetrics()
    added = list(_manifests(table, delta, snapshot_id, name, metrics))
    kept = [one for one in head.manifests(table.io) if _is_live(one)] if head else []
    path = f"{metadata.location}/metadata/snap-{snapshot_id}-1-{name}.avro"
    parent_id = head.snapshot_id if head else None
    number = metadata.next_sequence_number()
    with write_manifest_list(2, table.io.new_output(path), snapshot_id, parent_id, number, "deflate") as output:
        output.add_manifests([*added, *kept])
    snapshot = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent_id,
        "sequence-number": number,
        "timestamp-ms": max(time.time_ns() // 1_000_000, metadata.last_updated_ms + 1),
        "manifest-list": path,
        "summary": _summary(delta, metrics, head),
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
    parts: tuple[tuple[ManifestContent, Sequence[DataFile | DeleteFile]], ...] = (
        (ManifestContent.DATA, delta.data),
        (ManifestContent.DELETES, delta.deletes),
    )
    header = new_header(metadata, metadata.default_spec_id)
    for content, files in parts:
        if not files:
            continue
        numbered = [replace(file, sequence_number=metadata.next_sequence_number()) for file in files]
        entries = [added_entry(file, header, snapshot_id) for file in numbered]
        for entry in entries:
            metrics.add_file(entry.data_file)
        path = f"{metadata.location}/metadata/{name}-{content.name.lower()}.avro"
        yield write_manifest(table.io, path, 2, content, header, snapshot_id, entries)


def _is_live(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()


def _summary(delta: RowDelta, metrics: UpdateMetrics, head: Snapshot | None) -> dict[str, str]:
    """Counts of what is added and, if the head has totals, the new totals."""
    counts = metrics.to_dict()
    before = head.summary.additional_properties if head and head.summary else {}
    totals = {
        f"total-{name}": str(int(before.get(f"total-{name}", 0)) + int(counts.get(f"added-{name}", 0)))
        for name in _COUNTED
    }
    return {"operation": "overwrite" if delta.deletes else "append", **counts, **totals}


#: A commit gives its files their sequence number.
_UNNUMBERED = 0


class TableFiles:
    """Writes and reads files of one table; new files are not part of the table before a commit."""

    def __init__(self, table: Table) -> None:
        metadata = table.metadata
        self._data = f"{metadata.location}/data"
        self._spec_id = metadata.default_spec_id
        self._schema = metadata.schema()
        self._keys = select_ids(self._schema, [FLIGHT_ID])
        self._options = writer_options(metadata.properties)
        places = [metadata.location]
        self._access = open_access({}, metadata.location, read_locations=places, write_locations=places)

    def write_rows(self, rows: pa.Table) -> list[DataFile]:
        """One new data file for each month of the rows."""
        files = []
        for month, chosen in _by_month(months_of(rows)):
            written = self._write(self._schema, rows.take(pa.array(chosen)))
            files.append(
                DataFile(
                    path=written.path,
                    file_format=FileFormat.PARQUET,
                    spec_id=self._spec_id,
                    partition=_partition(month),
                    record_count=written.record_count,
                    size_bytes=written.size_bytes,
                    sequence_number=_UNNUMBERED,
                    metrics=written.metrics,
                    split_offsets=written.split_offsets,
                )
            )
        return files

    def write_equality_deletes(self, ids: Ids, months: Ids) -> list[DeleteFile]:
        """One new equality delete file for each of the months, with the ids of the flights in it."""
        files = []
        for month, chosen in _by_month(months):
            written = self._write(self._keys, pa.table({"flight_id": ids[chosen]}))
            files.append(
                DeleteFile(
                    path=written.path,
                    kind=DeleteKind.EQUALITY,
                    file_format=FileFormat.PARQUET,
                    spec_id=self._spec_id,
                    partition=_partition(month),
                    record_count=written.record_count,
                    size_bytes=written.size_bytes,
                    sequence_number=_UNNUMBERED,
                    equality_ids=(FLIGHT_ID,),
                    metrics=written.metrics,
                    split_offsets=written.split_offsets,
                )
            )
        return files

    def write_position_deletes(self, data: DataFile, positions: npt.NDArray[np.int64]) -> DeleteFile:
        """A new delete file for rows of one data file."""
        return write_position_deletes(self._access, self._new_path(), data, positions, _UNNUMBERED, self._options)

    def read_versions(self, data: DataFile) -> tuple[Ids, Ids]:
        """Ids and revisions of all rows of a data file in order, including deleted ones."""
        with self._access.open_input(data.path) as stream:
            rows = pq.read_table(stream, columns=["flight_id", "revision"])
        return rows["flight_id"].to_numpy(), rows["revision"].to_numpy().astype(np.int64)

    def _write(self, schema: Schema, rows: pa.Table) -> WrittenFile:
        output = ParquetOutput(self._access, self._new_path(), schema, self._options)
        for batch in rows.cast(arrow_schema(schema)).combine_chunks().to_batches():
            output.write(batch)
        return output.close()

    def _new_path(self) -> str:
        return f"{self._data}/{uuid.uuid4()}.parquet"


def month_of(file: DataFile) -> int:
    """The month of all rows of the file, counted since 1970-01."""
    (value,) = file.partition
    return int.from_bytes(value or b"", "little", signed=True)


def _by_month(months: Ids) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each month with the indexes at which it occurs."""
    for month in np.unique(months):
        yield int(month), np.flatnonzero(months == month)


def _partition(month: int) -> Partition:
    return (to_bytes(IntegerType(), month),)


HISTORY_MONTHS = 4  # written before the feed begins
HISTORY_COMMITS = 12
_ANNOUNCED = 400  # flights in a commit
_IN_THE_AIR = 2  # announcements between that of a flight and its completion
_CORRECTED = 40
_CORRECTED_MONTHS = 2
_DELETED = 25
_SEED = 2013


@dataclass(frozen=True, slots=True)
class Written:
    """What the feed has written so far."""

    commits: int = 0
    files: FileCounts = field(default_factory=FileCounts)
    rows: int = 0  # rows that the table must now hold


class Feed:
    """The only writer of rows of a table; it keeps the ledger of the rows that the table must hold."""

    def __init__(self, catalog: Catalog, table: Table, flights: Flights) -> None:
        self._catalog = catalog
        self._flights = flights
        self._files = TableFiles(table)
        self._random = np.random.default_rng(_SEED)
        self._in_the_air: deque[Ids] = deque()
        self._steps = 0
        self._next = int(np.searchsorted(flights.months, flights.months[0] + HISTORY_MONTHS))
        self.ledger = Ledger()
        self.written = Written()

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
            self._append(*self._announced())

    def _announced(self) -> tuple[Ids, Ids]:
        ids = np.arange(self._next, min(self._next + _ANNOUNCED, len(self._flights.months)))
        self._next += len(ids)
        self._in_the_air.append(ids)
        return ids, np.zeros_like(ids)

    def _to_be_corrected(self) -> Ids:
        """Some completed flights of some months."""
        first = self._flights.months[0]
        months = first + self._random.choice(HISTORY_MONTHS, _CORRECTED_MONTHS, replace=False)
        places = np.searchsorted(self._flights.months, [[month, month + 1] for month in months])
        return np.concatenate(
            [low + self._random.choice(high - low, _CORRECTED, replace=False) for low, high in places]
        )

    def _append(self, ids: Ids, revisions: Ids) -> None:
        if not len(ids):
            return
        rows = self._flights.versions(ids, revisions)
        added = tuple(self._files.write_rows(rows))
        self._commit(RowDelta(data=added))
        self.ledger.put(rows)
        self._note_rows()

    def _upsert(self, ended: Ids, corrected: Ids) -> None:
        """Delete the rows by key and write their next revisions in one commit; cancelled flights are only deleted."""
        asked = np.concatenate([corrected, ended])
        keys = asked[[self.ledger.revision(int(key)) is not None for key in asked]]
        gone = keys[self._flights.cancelled[keys]]
        kept = keys[~self._flights.cancelled[keys]]
        rows = self._flights.versions(kept, np.array([(self.ledger.revision(int(key)) or 0) + 1 for key in kept]))
        deletes = tuple(self._files.write_equality_deletes(keys, self._flights.months[keys]))
        self._commit(RowDelta(tuple(self._files.write_rows(rows)), deletes))
        self.ledger.remove(gone.tolist())
        self.ledger.put(rows)
        self._note_rows()

    def _delete_by_position(self) -> None:
        """Delete some rows of one data file of exactly the head that is committed on.

        The file is of a past month: the month being optimized all the time would conflict with each such delete.
        """
        chosen: list[int] = []

        def build(head: Table) -> RowDelta:
            found = scan(head, [head.location()])
            if found is None:
                raise CheckFailed(f"{IDENTIFIER} has lost its snapshots")
            past = [file.data for file in found.files if self._is_past(file.data)]
            data = past[self._random.integers(len(past))]
            ids, revisions = self._files.read_versions(data)
            # A row whose revision is not the latest was deleted from this file already.
            live = [place for place, key in enumerate(ids) if self.ledger.revision(int(key)) == revisions[place]]
            places = np.sort(self._random.choice(np.array(live, np.int64), min(_DELETED, len(live)), replace=False))
            chosen[:] = ids[places].tolist()
            return RowDelta(deletes=(self._files.write_position_deletes(data, places),) if len(places) else ())

        self._note(commit(self._catalog, IDENTIFIER, build))
        self.ledger.remove(chosen)
        self._note_rows()

    def _is_past(self, data: DataFile) -> bool:
        return month_of(data) < int(self._flights.months[0]) + HISTORY_MONTHS

    def _commit(self, delta: RowDelta) -> None:
        self._note(commit(self._catalog, IDENTIFIER, lambda head: delta))

    def _note(self, delta: RowDelta) -> None:
        kinds = [file.kind.value for file in delta.deletes]
        size = sum(file.size_bytes for file in delta.data) + sum(file.size_bytes for file in delta.deletes)
        added = FileCounts(len(delta.data), kinds.count("equality"), kinds.count("position"), size)
        self.written = replace(self.written, commits=self.written.commits + 1, files=self.written.files + added)

    def _note_rows(self) -> None:
        self.written = replace(self.written, rows=len(self.ledger))


class FeedThread:
    """Runs a feed until it is stopped. An error ends it, and is raised by `require_healthy`.

    It pauses longer when steps take long: a busy machine must do the optimizing too.
    """

    def __init__(self, feed: Feed, pause_s: float) -> None:
        self._feed = feed
        self._pause = pause_s
        self._stopping = threading.Event()
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="feed")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the step that runs now."""
        self._stopping.set()
        self._thread.join()

    def require_healthy(self) -> None:
        """Raise what ended the feed."""
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._feed.step()
            except Exception as error:
                self._failed.append(error)
                return
            self._stopping.wait(max(self._pause, 2 * (time.monotonic() - began)))

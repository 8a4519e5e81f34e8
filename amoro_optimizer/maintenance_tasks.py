"""Maintenance work of optimizers: listing, deleting, sketching."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from amoro_core.errors import AttemptAbandoned, OptimizerError
from amoro_core.failpoints import failpoint
from amoro_core.files.hashing import ThetaSketch
from amoro_core.files.storage.inventory import (
    NO_KEYS,
    Keys,
    StorageRoot,
    inventory,
    merged,
    seeking,
    seeking_places,
    table_uuids,
)
from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.files.storage.stores import PAGE, Pace
from amoro_core.maintenance.orphans import (
    BEYOND,
    OrphanConditions,
    ReferencedFiles,
    Search,
    SearchResult,
    TableLocations,
    by_place,
)
from amoro_core.model.maintenance import ABSENT, Condemned, Ended, FileKind, KeyRange, Removal, StoredFile, Surroundings
from amoro_core.protocol import codec
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.protocol.codec import from_us, to_us
from amoro_optimizer.execution import BlobName, Kind, Run
from amoro_optimizer.rewrite.engine import sketch_rows

_HASH_BYTES = 8


class ListKind(Kind):
    """Work of the kind `list`."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        return access_within(pb.ListWork.FromString(payload).locations, io_properties)

    def blob(self, payload: bytes) -> BlobName:
        named = pb.ListWork.FromString(payload).blob
        return BlobName(named.sha256, named.size_bytes)

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        work = pb.ListWork.FromString(payload)
        columns = dict(_columns(work, run.fetch(self.blob(payload))))
        ground = _ground(work)
        named = {place: keys for (use, place), keys in columns.items() if use == pb.HASH_USE_NAMED}
        search = Search(ground, ReferencedFiles(seeking_places(named)), _terms(work, columns))
        for place, page in _pages(work, access):
            if run.is_cancelled():
                raise AttemptAbandoned(f"attempt {run.attempt} was cancelled")
            search.see(place, page)
            run.on_progress(search.found.files, search.found.files)
        search.opened(table_uuids(access, (file.path for file in search.found.metadata_files)), work.table_uuid)
        return _output(work, search.found).SerializeToString(deterministic=True)


def _pages(work: pb.ListWork, access: FileAccess) -> Iterator[tuple[str, Sequence[StoredFile]]]:
    """Pages of the files in the work's range, each with the location below which they lie."""
    within = KeyRange(work.after, work.until)
    if not work.inventory:
        yield from ((place, page) for place in work.places for page in access.pages(place, within))
        return
    for page in inventory(access, work.inventory, within):
        yield from by_place(work.places, page)


def access_within(locations: pb.Locations, io_properties: Mapping[str, str]) -> FileAccess:
    """Access to the files of the table at these locations."""
    return open_access(
        io_properties, locations.location, read_locations=locations.readable, write_locations=locations.writable
    )


_Column = tuple[int, StorageRoot]


def _columns(work: pb.ListWork, blob: bytes) -> Iterator[tuple[_Column, Keys]]:
    """The hashes by use, scheme and authority. Raises OptimizerError for a blob that does not match the work."""
    if sum(column.count for column in work.columns) * _HASH_BYTES != len(blob):
        raise OptimizerError(f"the blob {work.blob.sha256} has {len(blob)} bytes, and its columns say otherwise")
    values = np.frombuffer(blob, "<u8").astype(np.uint64, copy=False)
    at = 0
    for column in work.columns:
        keys = values[at : at + column.count]
        if len(keys) > 1 and not bool(np.all(keys[:-1] < keys[1:])):
            raise OptimizerError(f"the blob {work.blob.sha256} is not sorted")
        yield (column.use, (column.scheme, column.authority)), keys
        at += column.count


def _of_use(columns: Mapping[_Column, Keys], wanted: int) -> Keys:
    return merged([NO_KEYS, *(keys for (use, _), keys in columns.items() if use == wanted)])


def _ground(work: pb.ListWork) -> TableLocations:
    return TableLocations(
        location=work.locations.location,
        places=tuple(work.places),
        metadata_place=work.metadata_place,
        flink_place="",  # what Flink may commit is among what is needed
        writable=tuple(work.locations.writable),
        partition_fields=tuple(work.partition_fields),
        must_be_listed=tuple(work.must_be_listed),
        same_schemes=dict(work.same_schemes),
        same_authorities=dict(work.same_authorities),
    )


def _terms(work: pb.ListWork, columns: Mapping[_Column, Keys]) -> OrphanConditions:
    now = from_us(work.now_us)
    surroundings = Surroundings(
        active=frozenset(work.active), ended={key: from_us(at_ms * 1000) for key, at_ms in work.ended.items()}
    )
    return OrphanConditions(
        now,
        timedelta(milliseconds=work.age_ms),
        timedelta(milliseconds=work.task_limit_ms),
        surroundings,
        is_needed=seeking(_of_use(columns, pb.HASH_USE_NEEDED)),
        is_condemned=seeking(_of_use(columns, pb.HASH_USE_CONDEMNED)),
        # Files written since the plan are young, and no sign of a wrong clock.
        latest=max(now, datetime.now(UTC)),
        most=work.most_candidates,
        within=KeyRange(work.after, work.until),
    )


def _output(work: pb.ListWork, result: SearchResult) -> pb.ListOutput:
    output = pb.ListOutput(
        files=result.files,
        bytes=result.bytes,
        without_time=result.without_time,
        kept={reason: count for reason, count in result.kept.items() if reason != BEYOND},
        more_files=result.kept[BEYOND],
        more_bytes=result.beyond_bytes,
        seen=[path for path in work.must_be_listed if path not in result.unseen],
    )
    for orphan in result.orphans:
        modified = None if orphan.modified_at is None else to_us(orphan.modified_at)
        output.candidates.add(path=orphan.path, size_bytes=orphan.size_bytes or 0, modified_us=modified)
    return output


_OUTCOMES = {
    Ended.DELETED: pb.DELETE_OUTCOME_DELETED,
    Ended.ABSENT: pb.DELETE_OUTCOME_ABSENT,
    Ended.CHANGED: pb.DELETE_OUTCOME_CHANGED,
    Ended.FAILED: pb.DELETE_OUTCOME_FAILED,
}
_CHANGED = Removal(Ended.CHANGED)


class DeleteKind(Kind):
    """Work of the kind `delete`."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        return access_within(pb.DeleteWork.FromString(payload).locations, io_properties)

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        """Delete the files. They were guarded at the ack, and the guard's answer is valid for a limited time only."""
        work = pb.DeleteWork.FromString(payload)
        files = [_condemned(delete) for batch in work.batches for delete in batch.files]
        pace = Pace(max(1, work.files_per_second))
        output = pb.DeleteOutput()
        for start in range(0, len(files), PAGE):
            if run.is_cancelled():
                raise AttemptAbandoned(f"attempt {run.attempt} was cancelled")
            for path, removal in _deleted(work, files[start : start + PAGE], access, run, pace).items():
                output.files.add(path=path, outcome=_OUTCOMES[removal.ended], why=removal.why)
            run.on_progress(min(start + PAGE, len(files)), len(files))
        return output.SerializeToString(deterministic=True)


def _deleted(
    work: pb.DeleteWork, files: Sequence[Condemned], access: FileAccess, run: Run, pace: Pace
) -> Mapping[str, Removal]:
    """The outcome of each file. Raises OptimizerError, with none of them deleted, when it is too late."""
    result = access.stat_many(file.path for file in files)
    same = [file.path for file in files if file.is_still(result[file.path])]
    failpoint("task.before_delete")
    began = pace.begin()
    if run.age_s() * 1000 > work.begin_within_ms:
        raise OptimizerError(
            f"{len(files)} files were not begun to be deleted within {work.begin_within_ms / 1000:g} s of their ack: "
            "whether the table needs them must be checked again"
        )
    removals = access.delete_many(same) if same else {}
    failpoint("task.after_delete")
    pace.keep(removals, began)
    rest = {file.path: ABSENT if result[file.path] is None else _CHANGED for file in files}
    return {**rest, **removals}


def _condemned(file: pb.FileToDelete) -> Condemned:
    size = file.size_bytes if file.HasField("size_bytes") else None
    modified = from_us(file.modified_us) if file.HasField("modified_us") else None
    return Condemned(file.path, FileKind.OTHER, size, modified, "")


class SketchKind(Kind):
    """Work of the kind `sketch`."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        table = pb.SketchWork.FromString(payload).table
        return open_access(io_properties, table.location, read_locations=table.read_locations, write_locations=())

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        work = pb.SketchWork.FromString(payload)
        columns = frozenset(work.columns)
        sketches = dict.fromkeys(sorted(columns), ThetaSketch())
        for number, reading in enumerate(work.readings):
            reading.table.CopyFrom(work.table)
            result = sketch_rows(
                codec.decode_input(reading),
                access,
                columns,
                memory_limit_bytes=run.memory_bytes,
                is_cancelled=run.is_cancelled,
            )
            sketches = {field_id: sketch.union(result[field_id]) for field_id, sketch in sketches.items()}
            run.on_progress(number + 1, len(work.readings))
        output = pb.SketchOutput()
        for field_id, sketch in sketches.items():
            output.columns.add(field_id=field_id, theta=sketch.theta, hashes=sketch.hashes.astype("<u8").tobytes())
        return output.SerializeToString(deterministic=True)

"""Reading of a task's files: ahead, pruned by statistics, cancelled at any time."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from itertools import islice
from threading import Thread
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.file_readers import SMALL_FILE_BYTES, RowSource
from amoro_core.files.parquet.reading import ParquetInput
from amoro_core.files.schema.projection import Projection, held_columns
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.files import ColumnMetrics, DataFile

#: Arrow types whose stored numbers are those of keys, with no conversion between the two.
_EXACT = (
    pa.int32(),
    pa.int64(),
    pa.date32(),
    pa.time64("us"),
    *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")),
)


def groups_within(
    source: RowSource,
    projection: Projection,
    ranges: Mapping[int, tuple[int, int] | None],
    listed: ColumnMetrics,
) -> tuple[int, ...] | None:
    """The row groups that may have a key within the ranges of all columns (by id); None for all of them.

    Only top-level columns of integers, dates and times are compared, those that were promoted to another unit left out:
    their bounds are exact, whatever the writer. A
    group is pruned only if it has bounds; keys with a null have no range. Since footers have no checksum, a column is
    compared only if the bounds of all its groups together are those `listed` in the manifest.
    """
    known = {field_id: bounds for field_id, bounds in ranges.items() if bounds is not None}
    if not known or not isinstance(source, ParquetInput):
        return None
    metadata = source.file.metadata
    leaves = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    compared = [
        (leaves[name], known[field_id])
        for name, field_id in held_columns(projection, source.schema)
        if field_id in known and name in leaves and "." not in name
        if _is_exact(source.schema.field(name).type, projection.kind_of(field_id))
        if _agrees(metadata, leaves[name], listed, field_id)
    ]
    groups = range(metadata.num_row_groups)
    chosen = tuple(
        group
        for group in groups
        if not any(_is_outside(metadata.row_group(group).column(at), least, most) for at, (least, most) in compared)
    )
    return None if len(chosen) == len(groups) else chosen


def _is_exact(stored: pa.DataType, wanted: pa.DataType | None) -> bool:
    """Whether the stored numbers are those of keys: a date is one of days in a file, and of units as a timestamp."""
    if stored not in _EXACT or wanted is None:
        return False
    if pa.types.is_timestamp(stored):
        return bool(pa.types.is_timestamp(wanted) and wanted.unit == stored.unit)
    return stored == wanted or bool(pa.types.is_integer(stored) and pa.types.is_integer(wanted))


def _agrees(metadata: pq.FileMetaData, at: int, listed: ColumnMetrics, field_id: int) -> bool:
    least, most = listed.lower_bounds.get(field_id), listed.upper_bounds.get(field_id)
    if least is None or most is None:
        return False
    groups = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    stored = [(one.min_raw, one.max_raw) for one in groups if one is not None and one.has_min_max]
    in_order = all(low <= high for low, high in stored)
    lows, highs = {low for low, _ in stored}, {high for _, high in stored}
    return in_order and min(lows, default=None) == _number(least) and max(highs, default=None) == _number(most)


def _number(bound: bytes) -> int:
    """The serialized integer, date or time (Iceberg specification, appendix D)."""
    return int.from_bytes(bound, "little", signed=True)


def _is_outside(chunk: pq.ColumnChunkMetaData, least: int, most: int) -> bool:
    statistics = chunk.statistics
    if statistics is None or chunk.physical_type not in ("INT32", "INT64"):
        return False
    if not statistics.has_min_max:
        return bool(statistics.has_null_count and statistics.null_count == chunk.num_values)
    return bool(statistics.max_raw < least or statistics.min_raw > most)


#: While waiting for a read: the interval of checks whether the attempt was cancelled.
_LOOK_S = 0.1
#: Two files, or as many small ones as make `_TOGETHER_BYTES`, are held twice: those in work and the next.
_FILE_SHARE = 16
_TOGETHER_BYTES = 8 << 20
_LEAST_BYTES = 1 << 20


Result = TypeVar("Result")


def begun(call: Callable[[], Result]) -> "Future[Result]":
    """Start the call in a thread of its own, with the caller's context variables, and return its future."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    # A daemon: a read that hangs does not keep a process that was told to end.
    Thread(target=copy_context().run, args=(run,), name="read", daemon=True).start()
    return future


def waited(future: "Future[Result]", checkpoint: Callable[[], None]) -> Result:
    """Wait for the result. `checkpoint` is called meanwhile and may raise; the call then ends unobserved."""
    while not _is_done(future):
        checkpoint()
    return future.result()


def _is_done(future: "Future[Result]") -> bool:
    """Whether the call has ended, after waiting a moment for it."""
    if not future.done():
        with suppress(TimeoutError):  # of the waiting: what the call raised is returned
            future.exception(_LOOK_S)
    return future.done()


class WatchedAccess(FileAccess):
    """Access whose reads end with the attempt: `checkpoint` is called during a read, and may raise."""

    def __init__(self, access: FileAccess, checkpoint: Callable[[], None]) -> None:
        self._access = access
        self._checkpoint = checkpoint

    def read_bytes(self, path: str) -> bytes:
        return waited(begun(lambda: self._access.read_bytes(path)), self._checkpoint)

    def read_range(self, path: str, offset: int, size_bytes: int) -> bytes:
        return waited(begun(lambda: self._access.read_range(path, offset, size_bytes)), self._checkpoint)

    def open_input(self, path: str) -> Any:
        return pa.PythonFile(self.open_stream(path), mode="r")

    def open_stream(self, path: str) -> "WatchedStream":
        """The file, open and seekable; the caller closes it. Raises DataFileMissing."""
        return WatchedStream(waited(begun(lambda: self._access.open_input(path)), self._checkpoint), self._checkpoint)

    def require_readable(self, path: str) -> None:
        self._access.require_readable(path)


class WatchedStream:
    """A stream whose reads end with the attempt."""

    def __init__(self, stream: Any, checkpoint: Callable[[], None]) -> None:
        self._stream = stream
        self._checkpoint = checkpoint
        self._reading: Future[bytes] | None = None
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """So many bytes, or the rest; fewer at the end. Raises what the checkpoint raises."""
        self._reading = begun(lambda: self._stream.read(size))
        return waited(self._reading, self._checkpoint)

    def seek(self, position: int, whence: int = 0) -> int:
        """Go to that position, and return it."""
        return int(self._stream.seek(position, whence))

    def tell(self) -> int:
        """The present position."""
        return int(self._stream.tell())

    def close(self) -> None:
        """Close it; one that is still being read is closed after that."""
        self.closed = True
        if self._reading is None:
            self._stream.close()
        else:
            self._reading.add_done_callback(lambda _: self._stream.close())


class ReadAhead:
    """Fetches small data files ahead in the expected order, several at once; an unexpected one is read on demand."""

    def __init__(
        self, access: FileAccess, files: Sequence[DataFile], checkpoint: Callable[[], None], memory_bytes: int
    ) -> None:
        """`checkpoint` is called during a read and may raise: the read then ends unobserved."""
        self._access = access
        self._checkpoint = checkpoint
        self._most_bytes = max(_LEAST_BYTES, min(SMALL_FILE_BYTES, memory_bytes // _FILE_SHARE))
        self._files = files
        self._places = {file.path: place for place, file in enumerate(files)}
        self._read: dict[str, bytes] = {}
        self._ahead: tuple[Sequence[DataFile], Future[dict[str, bytes]]] | None = None

    def take(self, file: DataFile) -> bytes | None:
        """The content of a small file; None for one to be read as a stream. Raises DataFileMissing."""
        if file.size_bytes > self._most_bytes:
            return None
        if file.path in self._read:
            return self._read.pop(file.path)
        expected, future = self._expected(file)
        self._read = waited(future, self._checkpoint)
        after = self._places.get(expected[-1].path)
        following = [] if after is None else self._together(after + 1)
        self._ahead = (following, self._begin(following)) if following else None
        return self._read.pop(file.path)

    def _expected(self, file: DataFile) -> tuple[Sequence[DataFile], "Future[dict[str, bytes]]"]:
        """The files that are read with this one: those begun ahead, if it is the first of these."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and file.path == ahead[0][0].path:
            return ahead
        return [file], self._begin([file])

    def _together(self, begin: int) -> Sequence[DataFile]:
        """Small files from that place on: as many as are read in one go."""
        result: list[DataFile] = []
        nbytes = 0
        for file in islice(self._files, begin, None):
            nbytes += file.size_bytes
            if file.size_bytes > self._most_bytes or (result and nbytes > min(_TOGETHER_BYTES, self._most_bytes)):
                break
            result.append(file)
        return result

    def _begin(self, files: Sequence[DataFile]) -> "Future[dict[str, bytes]]":
        return begun(lambda: {file.path: self._access.read_bytes(file.path) for file in files})

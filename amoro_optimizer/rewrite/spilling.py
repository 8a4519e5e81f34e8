"""Memory that a task may plan with, and files on disk for what exceeds it."""

import ctypes
import fcntl
import os
import resource
import shutil
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from amoro_core.errors import WorkFailed
from amoro_core.files.storage.io import translated

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = "/proc/self/statm"
#: Only in glibc.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)

#: Memory of a task beside the rows and keys that it counts: code pages, compressors, fragmentation (measured).
_UNCOUNTED_BYTES = 48 << 20


def budget(limit_bytes: int) -> int:
    """The part of a task's memory limit for rows and keys: at least half of it."""
    return max(limit_bytes // 2, limit_bytes - _UNCOUNTED_BYTES)


def choose_pool() -> None:
    """Let Arrow take its memory from jemalloc where it has that, unless the environment names another pool.

    A rewrite has a lower peak than with Arrow's default, and takes no more CPU; clustering takes a sixth less
    (`tests/bench/README.md`). What reads and writes Parquet goes by the environment alone, as it was when Arrow was
    loaded: `amoro` names jemalloc there.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def give_back() -> None:
    """Return freed memory to the system: allocators keep it for the thread that had it, which may not need it."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


def resident_bytes() -> int:
    """The resident set size of the process; its maximum so far if the system does not report it."""
    try:
        place = os.open(_STATM, os.O_RDONLY)
        try:
            return int(os.read(place, 100).split()[1]) * _PAGE_BYTES
        finally:
            os.close(place)
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_LOCK_SUFFIX = ".lock"
_PREFIX = "rewrite-"
#: Bytes that are collected before they are written.
_COLLECTED_BYTES = 8 << 20
COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def default_spill_root() -> str:
    """The default directory of spill files: one of this user's below the directory of temporary files."""
    return f"{tempfile.gettempdir()}/amoro-{os.getuid()}"


def sweep_spills(root: str) -> int:
    """Delete unlocked directories, of dead processes, in the spill directory `root`; returns their number."""
    swept = 0
    for lock in Path(root).glob(f"{_PREFIX}*{_LOCK_SUFFIX}"):
        with suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink()
                swept += 1
            finally:
                os.close(descriptor)
    return swept


@contextmanager
def spill_directory(root: str) -> Iterator[Path]:
    """A new directory in `root`, locked while this process lives, removed when the block ends. Raises StorageFull.

    Leftovers of killed processes are removed first: an executor of Spark has no startup of its own to do that.
    """
    with translated(root):
        Path(root).mkdir(parents=True, exist_ok=True, mode=0o700)
        if Path(root).stat().st_uid != os.getuid():
            raise WorkFailed(f"the directory {root} for spilled keys belongs to another user")
        sweep_spills(root)
        lock, descriptor = _locked(Path(root))
        directory = lock.with_suffix("")
        try:
            directory.mkdir(mode=0o700)
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            lock.unlink(missing_ok=True)
            os.close(descriptor)


def _locked(root: Path) -> tuple[Path, int]:
    while True:
        path = root / f"{_PREFIX}{uuid.uuid4()}{_LOCK_SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():  # otherwise a sweep removed it in between
            return path, descriptor
        os.close(descriptor)


class SpillFiles:
    """Batches spread over numbered files, in each of which rows keep the order in which they came."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema) -> None:
        """Files are created with their first rows."""
        self.schema = schema
        self.spilled_bytes = 0
        self._directory = directory
        self._name = name
        self._writers: dict[int, pa.RecordBatchFileWriter] = {}
        self._waiting: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch, numbers: npt.NDArray[np.int64]) -> None:
        """Add rows, each to the file of its number. Raises StorageFull."""
        for number, piece in pieces(batch, numbers):
            self._waiting[number].append(piece)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _COLLECTED_BYTES:
            self._flush()

    def close(self) -> None:
        """Close the files for writing, after which they can be read."""
        self._flush()
        for number, writer in self._writers.items():
            with translated(str(self._directory)):
                writer.close()
                self.spilled_bytes += os.stat(self._path(number)).st_size

    def numbers(self) -> list[int]:
        """The files that have rows, ascending."""
        return sorted(self._writers)

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one file, which is deleted once read to its end; none where it has no rows."""
        if number not in self._writers:
            return
        path = self._path(number)
        with translated(path), pa.OSFile(path) as source:
            reader = pa.ipc.open_file(source, options=_READ)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        os.unlink(path)

    def _flush(self) -> None:
        for number, waiting in self._waiting.items():
            path, rows = self._path(number), pa.Table.from_batches(waiting, self.schema).combine_chunks()
            with translated(path):
                if number not in self._writers:
                    self._writers[number] = pa.ipc.new_file(path, self.schema, options=COMPRESSED)
                self._writers[number].write_table(rows)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _path(self, number: int) -> str:
        return str(self._directory / f"{self._name}-{number}.arrow")


def pieces(batch: pa.RecordBatch, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each number, ascending by number, in the order in which they come."""
    if not batch.num_rows:
        return
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    rows = batch if (order[1:] > order[:-1]).all() else batch.take(pa.array(order))
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    for start, end in pairwise([*starts.tolist(), len(ordered)]):
        yield int(ordered[start]), rows.slice(start, end - start)

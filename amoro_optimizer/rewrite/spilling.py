"""Memory that a task may plan with, and partitions of keys on disk beyond it."""

import ctypes
import fcntl
import os
import resource
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from amoro_core.errors import WorkFailed
from amoro_core.files.hashing import Hashes
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
#: Bytes collected before they are partitioned.
_COLLECTED_BYTES = 16 << 20


def default_spill_root() -> str:
    """The default directory of spill files: one of this user's below the directory of temporary files."""
    return f"{tempfile.gettempdir()}/amoro-{os.getuid()}"


def sweep_spills(root: str) -> int:
    """Delete what dead processes left in the spill directory `root`; returns the number of directories.

    Directories of live processes are locked, and stay.
    """
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


class Partitions:
    """Batches with a column of hashes, partitioned into files by the hashes' lowest bits."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema, count: int) -> None:
        """`count` is a power of two. Files are created with their first rows."""
        self.count = count
        self._directory = directory
        self._name = name
        self.schema = schema
        self._writers: dict[int, pa.RecordBatchFileWriter] = {}
        self._pending: list[pa.RecordBatch] = []
        self._hashes: list[Hashes] = []
        self._pending_bytes = 0

    def add(self, hashes: Hashes, columns: Sequence[pa.Array]) -> None:
        """Add rows in the columns of the schema. Raises StorageFull."""
        batch = pa.RecordBatch.from_arrays(list(columns), schema=self.schema)
        self._pending.append(batch)
        self._hashes.append(hashes)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= _COLLECTED_BYTES:
            self._flush()

    def close(self) -> None:
        """Close the files for writing, after which they can be read."""
        self._flush()
        for writer in self._writers.values():
            with translated(str(self._directory)):
                writer.close()

    def batches(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, which is deleted once read to its end."""
        if partition not in self._writers:
            return
        path = self._path(partition)
        with translated(path), pa.OSFile(path) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        os.unlink(path)

    def _flush(self) -> None:
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self.schema)
        places = np.concatenate(self._hashes) & np.uint64(self.count - 1)
        self._pending, self._hashes, self._pending_bytes = [], [], 0
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(1, self.count + 1, dtype=np.uint64))
        start = 0
        for partition, end in enumerate(ends):
            if end > start:
                self._write(partition, table.take(pa.array(order[start:end])))
            start = int(end)

    def _write(self, partition: int, rows: pa.Table) -> None:
        path = self._path(partition)
        with translated(path):
            writer = self._writers.get(partition)
            if writer is None:
                writer = self._writers[partition] = pa.ipc.new_file(path, self.schema)
            writer.write_table(rows.combine_chunks())

    def _path(self, partition: int) -> str:
        return str(self._directory / f"{self._name}-{partition}.arrow")

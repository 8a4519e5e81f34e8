"""A store that fails: reads and writes of this thread's FileIO go wrong while a fault is armed."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFile

_SYNC_BYTES = 16


class Operation(StrEnum):
    READ = "read"
    WRITE = "write"


class Kind(StrEnum):
    """What a file is, by its name."""

    METADATA = "metadata"
    MANIFEST_LIST = "manifest-list"
    MANIFEST = "manifest"
    PARQUET = "parquet"


_NAMES = {
    Kind.METADATA: re.compile(r"\.metadata\.json$"),
    Kind.MANIFEST_LIST: re.compile(r"/snap-[^/]*\.avro$"),
    Kind.MANIFEST: re.compile(r"/(?!snap-)[^/]*\.avro$"),
    Kind.PARQUET: re.compile(r"\.parquet$"),
}


class Trouble(StrEnum):
    FAILS = "fails"  # an error of the disk
    BUSY = "busy"  # a store that answers 503, in Arrow's words
    FULL = "full"
    DENIED = "denied"  # no right to it
    FORBIDDEN = "forbidden"  # a store that answers 403, in Arrow's words
    # Read: the end is missing, at a place where nothing else looks wrong; write: half, then FAILS.
    TRUNCATED = "truncated"
    SLOW = "slow"  # hangs for a while, then times out


@dataclass(slots=True)
class StorageFault:
    """Trouble with the files of a kind: the first `skip` operations pass, then `times` go wrong."""

    operation: Operation
    kind: Kind
    trouble: Trouble
    skip: int = 0
    times: int = 1
    error: BaseException | None = None  # instead of the trouble's own
    struck: list[str] = field(default_factory=list)  # the files it met

    def meets(self, operation: Operation, location: str) -> bool:
        """Count one operation; whether it goes wrong."""
        if operation is not self.operation or not _NAMES[self.kind].search(location):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if len(self.struck) >= self.times:
            return False
        self.struck.append(location)
        return True


#: Threads in which a task's files are read see what the task's own thread sees.
_armed: ContextVar[StorageFault | None] = ContextVar("armed", default=None)


@contextmanager
def failing(fault: StorageFault) -> Iterator[StorageFault]:
    """Let files that this thread opens, or one that reads for it, meet the fault. Within `storage_faults` only."""
    token = _armed.set(fault)
    try:
        yield fault
    finally:
        _armed.reset(token)


@contextmanager
def storage_faults() -> Iterator[None]:
    """Put the faulty store between pyiceberg's FileIO and its file system."""
    opened, created = PyArrowFile.open, PyArrowFile.create

    def open_(file: PyArrowFile, seekable: bool = True) -> Any:
        fault = _met(Operation.READ, file.location)
        stream = opened(file, seekable)
        if fault is None:
            return stream
        with stream:
            if fault.trouble is not Trouble.TRUNCATED:
                raise fault.error or _error(fault.trouble, file.location)
            return _ShortFile(stream.read(), file.location)

    def create(file: PyArrowFile, overwrite: bool = False) -> Any:
        fault = _met(Operation.WRITE, file.location)
        if fault is None:
            return created(file, overwrite)
        if fault.trouble is Trouble.TRUNCATED:
            return _BrokenOutput(created(file, overwrite), file.location)
        raise fault.error or _error(fault.trouble, file.location)

    PyArrowFile.open, PyArrowFile.create = open_, create
    try:
        yield
    finally:
        PyArrowFile.open, PyArrowFile.create = opened, created


def _met(operation: Operation, location: str) -> StorageFault | None:
    fault = _armed.get()
    return fault if fault is not None and fault.meets(operation, location) else None


def _error(trouble: Trouble, location: str) -> OSError:
    match trouble:
        case Trouble.FULL | Trouble.DENIED | Trouble.FAILS | Trouble.TRUNCATED:
            code = {Trouble.FULL: errno.ENOSPC, Trouble.DENIED: errno.EACCES}.get(trouble, errno.EIO)
            return OSError(code, os.strerror(code), location)
        case Trouble.FORBIDDEN:
            return OSError(
                f"When initiating multiple part upload for key '{location}' in bucket 'b': AWS Error ACCESS_DENIED "
                "during CreateMultipartUpload operation: Access Denied"
            )
        case Trouble.BUSY:
            return OSError(
                f"When reading {location}: AWS Error [code 100]: Please reduce your request rate. (HTTP status 503)"
            )
        case Trouble.SLOW:
            threading.Event().wait(0.05)
            return TimeoutError(errno.ETIMEDOUT, "Connection timed out", location)


def shortened(data: bytes, location: str) -> bytes:
    """The data without its end: an Avro file loses its last block and is still one, others lose their half."""
    if not location.endswith(".avro"):
        return data[: len(data) // 2]
    sync = data[-_SYNC_BYTES:]
    return data[: data.rindex(sync, 0, len(data) - _SYNC_BYTES) + _SYNC_BYTES]


class _Around:
    """A stream that does what the one behind it does."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class _ShortFile(_Around):
    """A file that says its size truly and ends before."""

    def __init__(self, data: bytes, location: str) -> None:
        super().__init__(pa.BufferReader(shortened(data, location)))
        self._size = len(data)

    def size(self) -> int:
        return self._size


class _BrokenOutput(_Around):
    """A new file that takes half of the first bytes and no more."""

    def __init__(self, stream: Any, location: str) -> None:
        super().__init__(stream)
        self._location = location

    def write(self, data: Any) -> int:
        if self._stream.tell() == 0:
            whole = bytes(data)
            self._stream.write(whole[: len(whole) // 2])
        raise _error(Trouble.FAILS, self._location)

"""Reads that may take long: small data files are read ahead, and reads are abandoned with their attempt."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from itertools import pairwise
from threading import Thread
from typing import Any, TypeVar

import pyarrow as pa

from amoro_core.files.io import FileAccess
from amoro_core.files.opening import SMALL_FILE_BYTES, fetched
from amoro_core.model.files import DataFile

#: While waiting for a read: the interval of checks whether the attempt was cancelled.
_LOOK_S = 0.1
#: Two files are held at once: the one being decoded and the next.
_FILE_SHARE = 16
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
    while not wait([future], _LOOK_S).done:
        checkpoint()
    return future.result()


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
        stream = waited(begun(lambda: self._access.open_input(path)), self._checkpoint)
        return pa.PythonFile(_Stream(stream, self._checkpoint), mode="r")

    def require_readable(self, path: str) -> None:
        self._access.require_readable(path)


class _Stream:
    """A stream whose reads end with the attempt."""

    def __init__(self, stream: Any, checkpoint: Callable[[], None]) -> None:
        self._stream = stream
        self._checkpoint = checkpoint
        self._reading: Future[bytes] | None = None
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        self._reading = begun(lambda: self._stream.read(size))
        return waited(self._reading, self._checkpoint)

    def seek(self, position: int, whence: int = 0) -> int:
        return int(self._stream.seek(position, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        """Close it; one that is still being read is closed after that."""
        self.closed = True
        if self._reading is None:
            self._stream.close()
        else:
            self._reading.add_done_callback(lambda _: self._stream.close())


class ReadAhead:
    """Fetches data files one ahead in the expected order; an unexpected one is read on demand."""

    def __init__(
        self, access: FileAccess, files: Sequence[DataFile], checkpoint: Callable[[], None], memory_bytes: int
    ) -> None:
        """`checkpoint` is called during a read and may raise: the read then ends unobserved."""
        self._access = access
        self._checkpoint = checkpoint
        self._most_bytes = max(_LEAST_BYTES, min(SMALL_FILE_BYTES, memory_bytes // _FILE_SHARE))
        self._next = {one.path: other for one, other in pairwise(files)}
        self._ahead: tuple[str, Future[bytes | None]] | None = None

    def take(self, file: DataFile) -> bytes | None:
        """The content of a small file; None for one to be read as a stream. Raises DataFileMissing."""
        ahead, self._ahead = self._ahead, None
        future = ahead[1] if ahead is not None and ahead[0] == file.path else self._begin(file)
        content = waited(future, self._checkpoint)
        following = self._next.get(file.path)
        if following is not None:
            self._ahead = (following.path, self._begin(following))
        return content

    def _begin(self, file: DataFile) -> "Future[bytes | None]":
        if file.size_bytes <= self._most_bytes:
            return begun(lambda: fetched(self._access, file, self._most_bytes))
        streamed: Future[bytes | None] = Future()
        streamed.set_result(None)
        return streamed

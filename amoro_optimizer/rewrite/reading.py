"""Reading of a task's files: ahead, and cancelled at any time."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from itertools import islice
from threading import Thread
from typing import Any, TypeVar

import pyarrow as pa

from amoro_core.files.file_readers import SMALL_FILE_BYTES
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.files import DataFile

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
    while not future.done():
        with suppress(TimeoutError):  # of the waiting: what the call raised is returned
            future.exception(_LOOK_S)
        if not future.done():
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

"""The bytes of small data files, fetched while the file before them is decoded."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from itertools import pairwise
from threading import Thread

from amoro_core.files.io import FileAccess
from amoro_core.files.opening import SMALL_FILE_BYTES, fetched
from amoro_core.model.files import DataFile

#: How long a read is waited for until the next look at whether the attempt was cancelled.
_LOOK_S = 0.1
#: Two files are held at once: the one that is decoded and the next.
_FILE_SHARE = 16
_LEAST_BYTES = 1 << 20


class ReadAhead:
    """Fetches data files one ahead, in the order in which they are expected; one that comes otherwise costs a read."""

    def __init__(
        self, access: FileAccess, files: Sequence[DataFile], checkpoint: Callable[[], None], memory_bytes: int
    ) -> None:
        """`checkpoint` is called while a read lasts and may raise: the read is left to its own end."""
        self._access = access
        self._checkpoint = checkpoint
        self._most_bytes = max(_LEAST_BYTES, min(SMALL_FILE_BYTES, memory_bytes // _FILE_SHARE))
        self._next = {one.path: other for one, other in pairwise(files)}
        self._ahead: tuple[str, Future[bytes | None]] | None = None

    def take(self, file: DataFile) -> bytes | None:
        """The content of a small file; None for one that is to be read as a stream. Raises DataFileMissing."""
        ahead, self._ahead = self._ahead, None
        future = ahead[1] if ahead is not None and ahead[0] == file.path else self._begin(file)
        while not wait([future], _LOOK_S).done:
            self._checkpoint()
        content = future.result()
        following = self._next.get(file.path)
        if following is not None:
            self._ahead = (following.path, self._begin(following))
        return content

    def _begin(self, file: DataFile) -> "Future[bytes | None]":
        future: Future[bytes | None] = Future()
        if file.size_bytes > self._most_bytes:
            future.set_result(None)
        else:
            # A daemon: a read that hangs does not keep a process that was told to end.
            Thread(target=self._fetch, args=(file, future), name="read-ahead", daemon=True).start()
        return future

    def _fetch(self, file: DataFile, future: "Future[bytes | None]") -> None:
        try:
            future.set_result(fetched(self._access, file, self._most_bytes))
        except BaseException as error:
            future.set_exception(error)

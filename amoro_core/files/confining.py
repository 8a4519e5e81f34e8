"""A FileIO that opens only files in allowed locations; for local files, with links resolved.

On a local file system a path does not say where a file is: links lead elsewhere. And opening anything but a regular
file, such as a FIFO, may block.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile

from amoro_core.errors import TableRefused
from amoro_core.failpoints import allowed
from amoro_core.files.locations import require_within
from amoro_core.model.paths import is_local, lies_in, normalise

#: The directory of this process's open files; opening an entry opens that very file again.
_OPEN_FILES = next((place for place in ("/proc/self/fd", "/dev/fd") if os.path.isdir(place)), None)
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class ConfinedFileIO(FileIO):
    """A wrapper of another FileIO that restricts it to files below some prefixes.

    Every file must lie below a readable prefix; one that is written or deleted also below a writable one. Local paths
    with links resolved are checked against the readable prefixes only. With `remote`, all that is not local passes.
    Each access raises TableRefused: "location" outside the prefixes, "file" for anything but a regular file.
    """

    def __init__(
        self,
        inner: FileIO,
        readable: Sequence[str],
        writable: Sequence[str],
        *,
        remote: bool = False,
        way_out: str = "",
    ) -> None:
        super().__init__(inner.properties)
        self.inner = inner
        self._readable = tuple(readable)
        self._writable = tuple(writable)
        self._remote = remote
        self._way_out = way_out

    def narrowed(self, readable: Sequence[str], writable: Sequence[str]) -> "ConfinedFileIO":
        """The same FileIO for files below these prefixes."""
        return ConfinedFileIO(self.inner, readable, writable, way_out=self._way_out)

    def require(self, location: str, verb: str) -> str:
        """The normalised location, if `verb` is allowed there. Raises TableRefused("location")."""
        if self._remote and not is_local(location):
            return normalise(location)
        place = require_within(location, self._readable, verb, self._way_out)
        if verb != "read":
            require_within(location, self._writable, verb, self._way_out)
        if is_local(location):
            require_real(place, self._readable, verb, self._way_out)
        return place

    def require_regular(self, location: str) -> None:
        """Raise TableRefused for what may not be read; ("file") for an existing local path that is no regular file."""
        place = self.require(location, "read")
        if is_local(location):
            with suppress(OSError):  # what can't be inspected is reported when it is opened
                require_regular(place, Path(place).stat().st_mode)

    def new_input(self, location: str) -> InputFile:
        place = self.require(location, "read")
        source = self.inner.new_input(location)
        return _RegularInput(source, place, self._readable) if is_local(location) else source

    @contextmanager
    def opened(self, location: str) -> Iterator[int | None]:
        """A descriptor of a local regular file, as `new_input` opens it; None for one that is not local."""
        place = self.require(location, "read")
        if is_local(place):
            with _opened_within(place, self._readable, location) as descriptor:
                yield descriptor
        else:
            yield None

    def new_output(self, location: str) -> OutputFile:
        self.require(location, "write")
        return self.inner.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.require(location if isinstance(location, str) else location.location, "delete")
        self.inner.delete(location)


class _RegularInput(InputFile):
    """A local file, which is opened only if it is a regular one in an allowed location."""

    def __init__(self, source: InputFile, place: str, readable: Sequence[str]) -> None:
        super().__init__(source.location)
        self._source, self._place, self._readable = source, place, readable

    def __len__(self) -> int:
        require_regular(self._place, Path(self._place).stat().st_mode)
        return len(self._source)

    def exists(self) -> bool:
        return self._source.exists()

    def open(self, seekable: bool = True) -> InputStream:
        with _opened_within(self._place, self._readable, self.location) as descriptor:
            if _OPEN_FILES is None or not isinstance(self._source, PyArrowFile):
                return self._source.open(seekable)
            # By its descriptor: by name, another file than the inspected one might be opened.
            open_file = f"{_OPEN_FILES}/{descriptor}"
            return PyArrowFile(self.location, open_file, self._source._filesystem).open(seekable)


def require_real(place: str, prefixes: Sequence[str], verb: str, hint: str = "") -> None:
    """Raise TableRefused("location") for a local path that links lead outside all prefixes."""
    require_among(os.path.realpath(place), prefixes, verb, hint, place)


def require_all_real(places: Iterable[str], prefixes: Sequence[str], verb: str, hint: str = "") -> None:
    """`require_real` of each of many normalised local paths; what lies in one directory is looked up there once."""
    within = tuple(one if one.endswith("/") else f"{one}/" for one in _local(tuple(prefixes)))
    parents = dict[str, str]()
    for place in places:
        parent = place[: place.rfind("/") + 1]
        if parent not in parents:
            parents[parent] = os.path.join(os.path.realpath(parent), "")
        real = parents[parent] + place[len(parent) :]
        real = os.path.realpath(real) if os.path.islink(real) else real
        if not f"{real}/".startswith(within):
            require_among(real, prefixes, verb, hint, place)


@lru_cache(maxsize=1024)
def _local(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(normalise(one) for one in prefixes if is_local(one))


def require_among(real: str, prefixes: Sequence[str], verb: str, hint: str, shown: str) -> None:
    """Raise TableRefused("location") for a local path, free of links, that is outside all prefixes.

    What lies in a prefix as it is written lies in it whatever links it has; only else these are looked up.
    """
    local = _local(tuple(prefixes))
    if not any(lies_in(real, one) for one in local) and not any(lies_in(real, os.path.realpath(one)) for one in local):
        raise TableRefused(
            f"will not {verb} {shown}: links lead to {real}, which is outside the allowed locations",
            reason="location",
            hint=hint,
        )


def require_regular(place: str, mode: int) -> None:
    """Raise TableRefused("file") unless the mode is that of a regular file."""
    if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and allowed("file.pipe")):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise TableRefused(f"{place} is not a regular file but {kind}", reason="file")


@contextmanager
def _opened_within(place: str, prefixes: Sequence[str], shown: str) -> Iterator[int]:
    """As `_opened`. Raises TableRefused("location") for a file that links have led outside meanwhile."""
    with _opened(place) as descriptor:
        open_file = f"{_OPEN_FILES}/{descriptor}"
        if _OPEN_FILES is not None and os.path.islink(open_file):
            require_among(os.readlink(open_file), prefixes, "read", "", shown)
        yield descriptor


@contextmanager
def _opened(place: str) -> Iterator[int]:
    """A descriptor of a local regular file. Raises TableRefused("file") and OSError; never waits for a FIFO."""
    require_regular(place, Path(place).stat().st_mode)
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        require_regular(place, os.fstat(descriptor).st_mode)
        yield descriptor
    finally:
        os.close(descriptor)

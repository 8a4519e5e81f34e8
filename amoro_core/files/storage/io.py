"""Access to files that is confined to a table's locations."""

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table.locations import ObjectStoreLocationProvider
from pyiceberg.typedef import EMPTY_DICT, Properties

from amoro_core.errors import (
    AccessDenied,
    AmoroError,
    DataFileMissing,
    StorageFull,
    TableRefused,
    UnreadableFile,
    WorkFailed,
)
from amoro_core.failpoints import allowed
from amoro_core.files.storage.stores import OBJECT_SCHEMES, PAGE, ArrowStorage, LocalStorage, Storage, each_at_once
from amoro_core.model.maintenance import EVERYWHERE, Ended, KeyRange, Removal, StoredFile
from amoro_core.model.paths import AZURE_SCHEMES, SCHEMES, is_local, lies_in, normalise, scheme_of, split_place
from amoro_core.model.text_sanitizing import briefly

_WAY_OUT = "An administrator can allow a prefix: amoro catalog update --allow-location, or by catalog in amoro.yaml."
#: Paths that are known to lie within: a table's manifests and directories are asked for at each look at it.
_MOST_KNOWN = 16_384


def new_location(
    table_location: str, data_location: str, directory: str, name: str, properties: Mapping[str, str]
) -> str:
    """The location of a new file: in its partition's directory or, with `write.object-storage.enabled`, below
    directories made of a hash of the rest, like those of Iceberg's ObjectStoreLocationProvider in Java.

    Outside the table's location such paths contain the table's name and its parent's, since tables may share the
    directory. Where such paths omit partitions, Java joins hash and name by a hyphen; here they are separate segments.
    """
    prefix = data_location.rstrip("/")
    if not _is_true(properties, "write.object-storage.enabled", default=False):
        return "/".join(part for part in (prefix, directory, name) if part)
    with_partition = directory and _is_true(properties, "write.object-storage.partitioned-paths", default=True)
    rest = f"{directory}/{name}" if with_partition else name
    location = ObjectStoreLocationProvider(prefix, {"write.data.path": prefix}).new_data_location(rest)
    if prefix.startswith(table_location.rstrip("/")):
        return location
    context = "/".join(table_location.rstrip("/").split("/")[-2:])
    return f"{location.removesuffix(rest)}{context}/{rest}"


def _is_true(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    return properties.get(key, str(default)).strip().lower() == "true"


def require_within(path: str, locations: Iterable[str], verb: str, hint: str = "") -> str:
    """The normalised path. Raises TableRefused(reason="location") when it lies in none of the locations."""
    return require_all_within((path,), locations, verb, hint)[0]


def require_all_within(paths: Iterable[str], locations: Iterable[str], verb: str, hint: str = "") -> list[str]:
    """The normalised paths. Raises TableRefused(reason="location") for the first that lies in none of the locations."""
    prefixes = tuple(map(normalise, locations))
    return [_require_within(path, prefixes, verb, hint) for path in paths]


@lru_cache(_MOST_KNOWN)
def _require_within(path: str, prefixes: tuple[str, ...], verb: str, hint: str) -> str:
    place = normalise(path)
    if ".." in place.split("/"):
        raise TableRefused(f"will not {verb} {path}: the path has a '..' segment", reason="location")
    if "\0" in place:
        raise TableRefused(f"will not {verb} {path!r}: the path has a NUL character", reason="location")
    if not any(lies_in(place, prefix) for prefix in prefixes):
        raise TableRefused(
            f"will not {verb} {path}: it is outside the locations allowed for this table",
            reason="location",
            hint=hint or _WAY_OUT,
        )
    return place


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
    within = tuple(prefix if prefix.endswith("/") else f"{prefix}/" for prefix in _local(tuple(prefixes)))
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
    return tuple(normalise(prefix) for prefix in prefixes if is_local(prefix))


def require_among(real: str, prefixes: Sequence[str], verb: str, hint: str, place: str) -> None:
    """Raise TableRefused("location") for a local path, free of links, that is outside all prefixes.

    What lies in a prefix as it is written lies in it whatever links it has; only else these are looked up.
    """
    local = _local(tuple(prefixes))
    if not any(lies_in(real, root) for prefix in local for root in (prefix, os.path.realpath(prefix))):
        raise TableRefused(
            f"will not {verb} {place}: links lead to {real}, which is outside the allowed locations",
            reason="location",
            hint=hint,
        )


def require_regular(place: str, mode: int) -> None:
    """Raise TableRefused("file") unless the mode is that of a regular file."""
    if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and allowed("file.pipe")):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise TableRefused(f"{place} is not a regular file but {kind}", reason="file")


@contextmanager
def _opened_within(place: str, prefixes: Sequence[str], path: str) -> Iterator[int]:
    """As `_opened`. Raises TableRefused("location") for a file that links have led outside meanwhile."""
    with _confined_opened(place) as descriptor:
        open_file = f"{_OPEN_FILES}/{descriptor}"
        if _OPEN_FILES is not None and os.path.islink(open_file):
            require_among(os.readlink(open_file), prefixes, "read", "", path)
        yield descriptor


@contextmanager
def _confined_opened(place: str) -> Iterator[int]:
    """A descriptor of a local regular file. Raises TableRefused("file") and OSError; never waits for a FIFO."""
    require_regular(place, Path(place).stat().st_mode)
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        require_regular(place, os.fstat(descriptor).st_mode)
        yield descriptor
    finally:
        os.close(descriptor)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
#: Arrow's messages for a 403 of an object store: its errors have no number.
_DENIED_WORDS = ("AWS Error ACCESS_DENIED", "AWS Error [code 15]", "HTTP status 403", "Status(PERMISSION_DENIED")


class FileAccess:
    """Reads, writes and deletes files, each only below the locations allowed for it."""

    def __init__(
        self, file_io: FileIO, *, read_locations: Sequence[str], write_locations: Sequence[str], way_out: str = ""
    ) -> None:
        """Files to write must lie below both a read and a write location."""
        self.write_locations = tuple(write_locations)
        #: Called with the path of each file before it is created.
        self.on_create: Callable[[str], None] = lambda path: None
        self._io = ConfinedFileIO(file_io, read_locations, write_locations, way_out=way_out)
        self._storages: dict[tuple[str, str], Storage] = {}

    def read_bytes(self, path: str) -> bytes:
        """The whole file, in one request. Raises DataFileMissing."""
        with translated(path), self._io.new_input(normalise(path)).open() as stream:
            return bytes(stream.read())

    def read_range(self, path: str, offset: int, size_bytes: int) -> bytes:
        """A part of the file, in one request; fewer bytes where the file ends. Raises DataFileMissing."""
        with self.open_input(path) as stream, translated(path):
            stream.seek(offset)
            return bytes(stream.read(size_bytes))

    def open_input(self, path: str) -> Any:
        """The file, open and seekable; the caller closes it. Raises DataFileMissing."""
        with translated(path):
            return self._io.new_input(normalise(path)).open()

    def size(self, path: str) -> int:
        """The file's length in bytes. Raises DataFileMissing."""
        place = self._io.require(path, "read")
        with translated(path):
            return len(self._io.new_input(place))

    def exists(self, path: str) -> bool:
        place = self._io.require(path, "read")
        with translated(path):
            return bool(self._io.new_input(place).exists())

    def require_readable(self, path: str) -> None:
        """Raise TableRefused(reason="location") for a file that may not be read."""
        self._io.require(path, "read")

    def require_regular(self, path: str) -> None:
        """Raise TableRefused for a file that may not be read; ("file") for a local one that is not a regular file."""
        self._io.require_regular(path)

    def create_output(self, path: str) -> Any:
        """A new file, which the caller writes and closes; an existing one is never overwritten."""
        self.on_create(path)
        place = self._io.require(path, "write")
        with translated(path):
            return self._io.new_output(place).create(overwrite=False)

    def write_bytes(self, path: str, content: bytes) -> None:
        """A new file with that content. Raises StorageFull; what was written of it is then deleted, if that works."""
        output = self.create_output(path)
        with self.deleted_on_failure([path]), translated(path), output as stream:
            stream.write(content)

    @contextmanager
    def deleted_on_failure(self, paths: Iterable[str]) -> Iterator[None]:
        """A block; where it fails, these files, which it may still add to, are deleted as far as that works."""
        try:
            yield
        except BaseException:
            for path in paths:
                with suppress(Exception):  # the error of the block matters more
                    self.delete(path)
            raise

    def delete(self, path: str) -> None:
        """Delete the file; does nothing if it is gone already."""
        place = self._io.require(path, "delete")
        try:
            with translated(path):
                self._io.delete(place)
        except DataFileMissing:
            return

    def pages(self, prefix: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
        """All files below a prefix, in pages; no page when there are none. Links are not followed.

        `within`: only paths, without scheme and authority, in the range. Raises TableRefused("location"),
        CatalogUnavailable, WorkFailed: the listing is then incomplete.
        """
        place = self._io.require(prefix, "read")
        with translated(prefix):
            yield from self._storage(place).pages(place, within)

    def folders(self, place: str) -> frozenset[str]:
        """The names of the folders directly below a place. Raises DataFileMissing where there is nothing."""
        where = self._io.require(place, "read")
        scheme, authority, path = _ExactFileIO.parse_location(where)
        if not isinstance(self._io.inner, PyArrowFileIO):
            raise TypeError(f"{place} can't be listed by {type(self._io.inner).__name__}")
        with translated(place):
            entries = self._io.inner.fs_by_scheme(scheme, authority).get_file_info(FileSelector(path))
        return frozenset(entry.base_name for entry in entries if entry.type == FileType.Directory)

    def remove_empty_folders(self, place: str, before: datetime) -> int:
        """Remove folders of a local place that are empty and were changed before that moment; how many."""
        allowed = self._io.require(place, "delete")
        with translated(place):
            storage = self._storage(allowed)
            return storage.remove_empty(allowed, before) if isinstance(storage, LocalStorage) else 0

    def stat_many(self, paths: Iterable[str]) -> dict[str, StoredFile | None]:
        """The present state of each file; None for one that does not exist. Raises like `pages`."""

        def stat(path: str) -> StoredFile | None:
            place = self._io.require(path, "read")
            with translated(path):
                return self._storage(place).stat(place)

        wanted = list(paths)
        for path in wanted:  # before threads start
            self._storage(self._io.require(path, "read"))
        return each_at_once(stat, wanted)

    def delete_many(self, paths: Iterable[str]) -> dict[str, Removal]:
        """Delete regular files, in bulk where the storage can; the outcome of each, also of what may not be deleted."""
        ended: dict[str, Removal] = {}
        places: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for path in dict.fromkeys(paths):
            try:
                place = self._io.require(path, "delete")
            except TableRefused as refusal:
                ended[path] = Removal(Ended.FAILED, refusal.message)
            else:
                places[split_place(place)[:2]][path] = place
        for result in places.values():
            spelled = list(result.items())
            for start in range(0, len(spelled), PAGE):
                ended |= self._delete(dict(spelled[start : start + PAGE]))
        return ended

    def move_many(self, moves: Mapping[str, str]) -> dict[str, Removal]:
        """Rename files within their storage, never over a file; outcomes are those of `Storage.move`."""
        return {source: self._move(source, target) for source, target in moves.items()}

    def _move(self, source: str, target: str) -> Removal:
        try:
            here, there = self._io.require(source, "delete"), self._io.require(target, "write")
            if split_place(here)[:2] != split_place(there)[:2]:
                return Removal(Ended.FAILED, f"{target} lies in another storage: a move would be a copy")
            return self._storage(here).move(here, there)
        except (OSError, AmoroError) as error:
            return Removal(Ended.FAILED, error.message if isinstance(error, AmoroError) else _error_text(error))

    def _delete(self, places: Mapping[str, str]) -> dict[str, Removal]:
        wanted = list(dict.fromkeys(places.values()))
        try:
            done = self._storage(wanted[0]).delete_many(wanted)
        except (OSError, AmoroError) as error:
            why = error.message if isinstance(error, AmoroError) else _error_text(error)
            return {path: Removal(Ended.FAILED, why) for path in places}
        return {path: done[place] for path, place in places.items()}

    def _storage(self, place: str) -> Storage:
        """Raises TableRefused("location"), and OSError for a file system that can't be reached."""
        scheme, authority, _ = split_place(place)
        if (scheme, authority) not in self._storages:
            self._storages[scheme, authority] = _opened(self._io.inner, place)
        return self._storages[scheme, authority]


def _opened(file_io: FileIO, place: str) -> Storage:
    scheme, authority, _ = split_place(place)
    if scheme == "file":
        return LocalStorage()
    if scheme in ("hdfs", "viewfs") and isinstance(file_io, PyArrowFileIO):
        return ArrowStorage(place, file_io.fs_by_scheme(scheme, authority))
    if scheme in OBJECT_SCHEMES:
        # Imported here: whoever only reads and writes files need not have obstore.
        from amoro_core.files.storage.stores import ObjectStorage

        return ObjectStorage(place, file_io.properties)
    raise TableRefused(f"files of the storage {scheme!r} can't be listed or deleted", reason="location")


def open_access(
    properties: Mapping[str, str],
    location: str,
    *,
    read_locations: Sequence[str],
    write_locations: Sequence[str],
    way_out: str = "",
) -> FileAccess:
    """Access to the files of the table at `location`.

    Properties that name a class to import are ignored. Files to write must lie below both a read and a write location.
    Raises TableRefused(reason="location") for an unknown kind of storage.
    """
    scheme = scheme_of(normalise(location))
    if scheme not in SCHEMES:
        raise TableRefused(f"the storage {scheme!r} of {location} is not supported", reason="location")
    harmless = {key: value for key, value in properties.items() if not key.endswith("impl")}
    return FileAccess(
        _ExactFileIO(harmless), read_locations=read_locations, write_locations=write_locations, way_out=way_out
    )


def _error_text(error: OSError) -> str:
    return error.strerror if error.strerror and error.errno else briefly(str(error))


def is_full(error: OSError) -> bool:
    """Whether a disk or quota is full."""
    return error.errno in _FULL


def is_denied(error: OSError) -> bool:
    """Whether the storage denied access: the error is permanent, and nothing was written."""
    return error.errno in _DENIED or any(words in str(error) for words in _DENIED_WORDS)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Translate file system errors about `path` into ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataFileMissing(
            f"{path} does not exist", hint="the table's metadata names it: restore it or remove it from the table"
        ) from error
    except OSError as error:
        if is_full(error):
            raise StorageFull(f"no space left for {path}", hint="free some space and run it again") from error
        if is_denied(error):
            raise AccessDenied(f"access to {path} was denied: {_error_text(error)}") from error
        raise WorkFailed(f"access to {path} failed: {_error_text(error)}") from error


@contextmanager
def reading_file(path: str) -> Iterator[None]:
    """Translate errors of reading the data or delete file `path` into ours, and name the file in them.

    Arrow reports corrupt files as OSError without a number, and failures of a store with the store's name in the text.
    """
    try:
        yield
    except UnreadableFile as error:
        raise error if path in error.message else UnreadableFile(f"{path}: {error.message}") from error.__cause__
    except pa.ArrowMemoryError as error:
        raise WorkFailed(f"not enough memory to read {path}", hint="give the optimizer more with --memory") from error
    except pa.ArrowException as error:
        raise UnreadableFile(f"{path} cannot be read: {briefly(str(error))}") from error
    except FileNotFoundError as error:
        raise DataFileMissing(f"{path} does not exist") from error
    except OSError as error:
        if is_denied(error):
            raise AccessDenied(f"access to {path} was denied: {_error_text(error)}") from error
        if error.errno is None and "Error [code" not in str(error):
            raise UnreadableFile(f"{path} cannot be read: {briefly(str(error))}") from error
        raise WorkFailed(f"access to {path} failed: {_error_text(error)}") from error


class _ExactFileIO(PyArrowFileIO):
    """pyiceberg's FileIO with literal paths: pyiceberg would end the path of a URI at a `#` or `?`.

    It also takes the whole authority `container@account.dfs.core.windows.net` for the container.
    """

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        scheme = scheme_of(location)
        if scheme == "file":
            return "file", "", location
        authority, slash, key = location.removeprefix(f"{scheme}://").partition("/")
        if scheme in ("hdfs", "viewfs"):
            return scheme, authority, slash + key
        bucket = authority.partition("@")[0] if scheme in AZURE_SCHEMES else authority
        return scheme, authority, bucket + slash + key

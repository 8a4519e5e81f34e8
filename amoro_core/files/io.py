"""Access to a table's files: pyiceberg's FileIO behind the allow-lists of classes and of locations."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from amoro_core.errors import DataFileMissing, StorageFull, TableRefused, UnreadableFile, WorkFailed
from amoro_core.files.locations import require_within, same_place, scheme_of
from amoro_core.model.paths import normalise

__all__ = ["FileAccess", "normalise", "open_access", "reading_parquet", "same_place", "translated"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SCHEMES = frozenset(
    ("file", "s3", "s3a", "s3n", "gs", "gcs", "oss", "abfs", "abfss", "wasb", "wasbs", "hdfs", "viewfs")
)


class FileAccess:
    """Reads, writes and deletes files, each only below the locations allowed for it."""

    def __init__(self, file_io: FileIO, *, read_locations: Sequence[str], write_locations: Sequence[str]) -> None:
        self._io = file_io
        self._read_locations = (*read_locations, *write_locations)
        self._write_locations = tuple(write_locations)

    def read_bytes(self, path: str) -> bytes:
        """The whole file, in one request. Raises DataFileMissing."""
        place = self._readable(path)
        with translated(path), self._io.new_input(place).open() as stream:
            return bytes(stream.read())

    def open_input(self, path: str) -> Any:
        """A seekable file, to be closed by the caller. Raises DataFileMissing."""
        place = self._readable(path)
        with translated(path):
            return self._io.new_input(place).open()

    def size(self, path: str) -> int:
        """The file's length in bytes. Raises DataFileMissing."""
        place = self._readable(path)
        with translated(path):
            return len(self._io.new_input(place))

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        place = self._readable(path)
        with translated(path):
            return bool(self._io.new_input(place).exists())

    def require_readable(self, path: str) -> None:
        """Raise TableRefused(reason="location") for a file that may not be read."""
        self._readable(path)

    def create_output(self, path: str) -> Any:
        """A new file to be written and closed by the caller; one that exists is never overwritten."""
        place = self._writable(path, "write")
        with translated(path):
            return self._io.new_output(place).create(overwrite=False)

    def delete(self, path: str) -> None:
        """Delete the file; nothing happens when it is gone already."""
        place = self._writable(path, "delete")
        try:
            with translated(path):
                self._io.delete(place)
        except DataFileMissing:
            return

    def _readable(self, path: str) -> str:
        return require_within(path, self._read_locations, "read")

    def _writable(self, path: str, verb: str) -> str:
        return require_within(path, self._write_locations, verb)


def open_access(
    properties: Mapping[str, str], location: str, *, read_locations: Sequence[str], write_locations: Sequence[str]
) -> FileAccess:
    """Access to the files of the table at `location`.

    Properties that name a class to import are left out. What may be written may be read too.
    Raises TableRefused(reason="location") for a kind of storage that is not known.
    """
    scheme = scheme_of(normalise(location))
    if scheme not in _SCHEMES:
        raise TableRefused(f"the storage {scheme!r} of {location} is not supported", reason="location")
    harmless = {key: value for key, value in properties.items() if not key.endswith("impl")}
    return FileAccess(_ExactFileIO(harmless), read_locations=read_locations, write_locations=write_locations)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn errors of the file system about `path` into ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataFileMissing(
            f"{path} does not exist", hint="the table's metadata names it: restore it or remove it from the table"
        ) from error
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"no space left for {path}", hint="free some space and run it again") from error
        raise WorkFailed(f"access to {path} failed: {error}") from error


@contextmanager
def reading_parquet(path: str) -> Iterator[None]:
    """Turn errors of reading the Parquet file `path` into ours, and name it in those that are.

    Arrow reports corrupt files as OSError without a number, and failures of a store with its name in the text.
    """
    try:
        yield
    except UnreadableFile as error:
        raise error if path in error.message else UnreadableFile(f"{path}: {error.message}") from error.__cause__
    except pa.ArrowMemoryError as error:
        raise WorkFailed(f"not enough memory to read {path}", hint="give the optimizer more with --memory") from error
    except pa.ArrowException as error:
        raise UnreadableFile(f"{path} cannot be read as Parquet: {error}") from error
    except FileNotFoundError as error:
        raise DataFileMissing(f"{path} does not exist") from error
    except OSError as error:
        if error.errno is None and "Error [code" not in str(error):
            raise UnreadableFile(f"{path} cannot be read as Parquet: {error}") from error
        raise WorkFailed(f"access to {path} failed: {error}") from error


class _ExactFileIO(PyArrowFileIO):
    """pyiceberg's FileIO with paths taken literally: there, a `#` or `?` in a URI would end the path."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        scheme = scheme_of(location)
        if scheme == "file":
            return "file", "", location
        authority, slash, key = location.removeprefix(f"{scheme}://").partition("/")
        if scheme in ("hdfs", "viewfs"):
            return scheme, authority, slash + key
        return scheme, authority, authority + slash + key

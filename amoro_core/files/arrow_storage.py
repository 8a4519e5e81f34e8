"""Storage of file systems that only pyarrow supports: HDFS."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from amoro_core.files.storage import PAGE, each_at_once
from amoro_core.model.paths import split_place
from amoro_core.model.stored import ABSENT, DELETED, EVERYWHERE, MOVED, Ended, KeyRange, Removal, StoredFile
from amoro_core.model.texts import briefly


class ArrowStorage:
    """A `Storage` over one of pyarrow's file systems, which has real directories."""

    def __init__(self, place: str, file_system: FileSystem) -> None:
        """`place`: any location in the file system."""
        scheme, authority, _ = split_place(place)
        self._root = "" if scheme == "file" else f"{scheme}://{authority}"
        self._files = file_system

    def pages(self, prefix: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
        """Page by page; one directory is held in memory at a time, since pyarrow lists it whole."""
        waiting = [self._key(prefix)]
        while waiting:
            found = self._files.get_file_info(FileSelector(waiting.pop(), allow_not_found=True))
            waiting.extend(
                one.path for one in found if one.type == FileType.Directory and within.meets(_from_root(one))
            )
            files = [self._stored(one) for one in found if one.type == FileType.File and within.holds(_from_root(one))]
            for start in range(0, len(files), PAGE):
                yield files[start : start + PAGE]

    def stat(self, path: str) -> StoredFile | None:
        """Also None for a directory."""
        found = self._files.get_file_info(self._key(path))
        return self._stored(found) if found.type == FileType.File else None

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """One request for each file, several concurrently."""
        return each_at_once(self._delete, paths)

    def move(self, source: str, target: str) -> Removal:
        """By a rename, after a look at the target: HDFS does not replace a file by another one, but pyarrow does."""
        try:
            found, there = self.stat(source), self._files.get_file_info(self._key(target)).type
            if found is None:
                return MOVED if there == FileType.File else ABSENT
            if there != FileType.NotFound:
                return Removal(Ended.CHANGED, f"{target} exists already")
            self._files.create_dir(self._key(target).rpartition("/")[0], recursive=True)
            self._files.move(self._key(source), self._key(target))
        except OSError as error:
            return Removal(Ended.FAILED, briefly(str(error)))
        return MOVED

    def _delete(self, path: str) -> Removal:
        try:
            if self.stat(path) is None:
                return ABSENT
            self._files.delete_file(self._key(path))
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return Removal(Ended.FAILED, briefly(str(error)))
        return DELETED

    def _stored(self, found: FileInfo) -> StoredFile:
        modified: datetime | None = found.mtime
        return StoredFile(
            self._root + found.path, found.size or 0, None if modified is None else modified.astimezone(UTC)
        )

    def _key(self, path: str) -> str:
        return path.removeprefix(self._root)


def _from_root(found: FileInfo) -> str:
    return f"/{found.path.lstrip('/')}"

"""Files of file systems that only pyarrow reaches: HDFS."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from amoro_core.files.storage import PAGE, each_at_once
from amoro_core.model.paths import split_place
from amoro_core.model.stored import ABSENT, DELETED, Ended, Removal, StoredFile
from amoro_core.model.texts import briefly


class ArrowStorage:
    """A `Storage` by one of pyarrow's file systems, which has directories of its own."""

    def __init__(self, place: str, file_system: FileSystem) -> None:
        """`place`: any in the file system."""
        scheme, authority, _ = split_place(place)
        self._root = "" if scheme == "file" else f"{scheme}://{authority}"
        self._files = file_system

    def pages(self, prefix: str) -> Iterator[Sequence[StoredFile]]:
        """Directory by directory: one is held at a time, as pyarrow lists it."""
        waiting = [self._key(prefix)]
        while waiting:
            found = self._files.get_file_info(FileSelector(waiting.pop(), allow_not_found=True))
            waiting.extend(one.path for one in found if one.type == FileType.Directory)
            files = [self._stored(one) for one in found if one.type == FileType.File]
            for start in range(0, len(files), PAGE):
                yield files[start : start + PAGE]

    def stat(self, path: str) -> StoredFile | None:
        """None for a directory, too."""
        found = self._files.get_file_info(self._key(path))
        return self._stored(found) if found.type == FileType.File else None

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """File by file, several at a time."""
        return each_at_once(self._delete, paths)

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

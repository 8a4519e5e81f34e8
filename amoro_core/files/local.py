"""Files of this machine's file systems. Links are never followed: a link is no file, and leads elsewhere."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from amoro_core.files.storage import PAGE
from amoro_core.model.stored import ABSENT, DELETED, Ended, Removal, StoredFile


class LocalStorage:
    """A `Storage` by the operating system's calls."""

    def pages(self, prefix: str) -> Iterator[Sequence[StoredFile]]:
        """Directory by directory. Files that vanish meanwhile are left out; a directory that can't be read raises."""
        page: list[StoredFile] = []
        waiting = [prefix]
        while waiting:
            directory = waiting.pop()
            try:
                entries = os.scandir(directory)
            except (FileNotFoundError, NotADirectoryError):
                continue  # gone since it was named, or never there
            with entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{directory.rstrip('/')}/{entry.name}")
                        continue
                    if (found := _file(f"{directory.rstrip('/')}/{entry.name}")) is not None:
                        page.append(found)
                    if len(page) >= PAGE:
                        yield page
                        page = []
        if page:
            yield page

    def stat(self, path: str) -> StoredFile | None:
        """None for what is no regular file, too."""
        return _file(path)

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """One after the other; directories, links and devices fail."""
        return {path: _delete(path) for path in paths}


def _file(path: str) -> StoredFile | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return StoredFile(path, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _delete(path: str) -> Removal:
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return Removal(Ended.FAILED, "it is not a regular file")
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        return Removal(Ended.FAILED, error.strerror or type(error).__name__)
    return DELETED

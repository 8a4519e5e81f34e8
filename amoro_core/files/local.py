"""Storage of local file systems. Links are never followed: a link is not a file, and leads elsewhere."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from amoro_core.files.storage import PAGE
from amoro_core.model.stored import ABSENT, DELETED, EVERYWHERE, MOVED, Ended, KeyRange, Removal, StoredFile


def read_cached(handle: int) -> bytes | None:
    """The whole of an open regular file if the page cache has it; None for any other.

    It has the first and the last byte, so that nearly always it has the rest. The system tells it for a read that does
    not wait, `RWF_NOWAIT` of Linux's preadv(2); where it does not tell, the answer is None.
    """
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    size = os.fstat(handle).st_size
    try:
        if not all(os.preadv(handle, [bytearray(1)], at, os.RWF_NOWAIT) == 1 for at in (0, max(0, size - 1))):
            return None
    except OSError:
        return None
    with open(handle, "rb", buffering=0, closefd=False) as file:
        return file.readall()


class LocalStorage:
    """A `Storage` over the local file system."""

    def pages(self, prefix: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
        """Directory by directory. Files that vanish meanwhile are left out; an unreadable directory raises OSError."""
        page: list[StoredFile] = []
        waiting = [prefix]
        while waiting:
            directory = waiting.pop()
            try:
                entries = os.scandir(directory)
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted since it was listed, or never existed
            with entries:
                for entry in entries:
                    path = f"{directory.rstrip('/')}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        if within.meets(path):
                            waiting.append(path)
                        continue
                    if within.holds(path) and (found := _file(path)) is not None:
                        page.append(found)
                    if len(page) >= PAGE:
                        yield page
                        page = []
        if page:
            yield page

    def stat(self, path: str) -> StoredFile | None:
        """Also None for anything but a regular file."""
        return _file(path)

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """One after the other; directories, links and devices fail."""
        return {path: _delete(path) for path in paths}

    def move(self, source: str, target: str) -> Removal:
        """By a second name, and the removal of the first: unlike a rename it never replaces a file."""
        if _file(source) is None:
            return _without_source(source, target)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            if not os.path.lexists(target):
                return Removal(Ended.FAILED, f"a file is in the way of {target}")
            if not _are_one_file(source, target):
                return Removal(Ended.CHANGED, f"{target} exists already")
        except FileNotFoundError:
            return _without_source(source, target)
        except OSError as error:
            return Removal(Ended.FAILED, error.strerror or type(error).__name__)
        return MOVED if _delete(source).ended is not Ended.FAILED else Removal(Ended.FAILED, f"{source} stays as well")

    def remove_empty(self, prefix: str, before: datetime) -> int:
        """Remove folders below the prefix that are empty and were changed before that moment; how many.

        Inner ones first, by the times that all had before any was removed. What is hidden stays, with all below it.
        """
        old: list[str] = []
        for folder, names, files in os.walk(prefix, followlinks=False):
            names[:] = sorted(name for name in names if not name.startswith(("_", ".")))
            if folder != prefix and not files and _is_old_folder(folder, before):
                old.append(folder)
        return sum(_is_removed(folder) for folder in reversed(old))


def _is_old_folder(path: str, before: datetime) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and datetime.fromtimestamp(found.st_mtime, UTC) < before


def _is_removed(folder: str) -> bool:
    try:
        os.rmdir(folder)  # which removes nothing that has anything in it
    except OSError:
        return False
    return True


def _file(path: str) -> StoredFile | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return StoredFile(path, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _without_source(source: str, target: str) -> Removal:
    if os.path.lexists(source):
        return Removal(Ended.FAILED, "it is not a regular file")
    return ABSENT if _file(target) is None else MOVED


def _are_one_file(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


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

"""Files as seen by their storage, and outcomes of deletions."""

from datetime import datetime
from enum import StrEnum

from amoro_core.records import record


@record
class StoredFile:
    """A file in its storage."""

    path: str
    size_bytes: int
    modified_at: datetime | None  # by the storage's clock; None: it does not say


@record
class KeyRange:
    """A range of paths without scheme and authority, as they sort: after the first, and not after the last."""

    after: str = ""
    until: str = ""  # "": to the end

    def holds(self, key: str) -> bool:
        """Whether a path lies in the range."""
        return self.after < key and (not self.until or key <= self.until)

    def meets(self, directory: str) -> bool:
        """Whether paths below a directory may lie in the range."""
        first, end = f"{directory.rstrip('/')}/", f"{directory.rstrip('/')}0"  # "0" is what follows "/"
        return self.after < end and (not self.until or first <= self.until)


EVERYWHERE = KeyRange()


@record
class Reach:
    """Where a table lies, and what may be touched of its files."""

    location: str
    readable: tuple[str, ...]  # prefixes
    writable: tuple[str, ...]


class Ended(StrEnum):
    """The outcome of deleting or moving a file."""

    DELETED = "deleted"  # for bulk requests also when it was gone already: stores don't distinguish the two
    ABSENT = "absent"  # it was gone already
    FAILED = "failed"  # it may still be there
    CHANGED = "changed"  # another file lies there now: it was left alone
    MOVED = "moved"


@record
class Removal:
    """The outcome of deleting a file, with the reason of a failure."""

    ended: Ended
    why: str = ""


DELETED, ABSENT, MOVED = Removal(Ended.DELETED), Removal(Ended.ABSENT), Removal(Ended.MOVED)

"""Files as their storage sees them, and what became of those that were to be deleted."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in its storage."""

    path: str
    size_bytes: int
    modified_at: datetime | None  # by the storage's clock; None: it does not say


class Ended(StrEnum):
    """What became of a file that was to be deleted."""

    DELETED = "deleted"  # by a bulk request also when it was gone already: stores do not tell the two apart
    ABSENT = "absent"  # it was gone already
    FAILED = "failed"  # it may still be there


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of a file that was to be deleted, and why it failed."""

    ended: Ended
    why: str = ""


DELETED, ABSENT = Removal(Ended.DELETED), Removal(Ended.ABSENT)

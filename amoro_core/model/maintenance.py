"""Maintenance: files that are condemned, what a command asks for beside properties, and what stands around a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


class FileKind(StrEnum):
    """What a file is to its table; in this order condemned files are deleted."""

    DATA = "data"
    DELETE = "delete"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest-list"
    STATISTICS = "statistics"
    METADATA = "metadata"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Condemned:
    """A file that nothing of the table needs any more; it is deleted later, unless the guard finds it needed."""

    path: str
    kind: FileKind
    size_bytes: int | None  # None: nobody said
    modified_at: datetime | None  # by the store's clock, where it was listed
    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """A file that a table named and, without some of its snapshots, needs no more."""

    path: str
    kind: FileKind
    size_bytes: int | None  # None: nobody said
    has_equality_deletes: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """What somebody asked of an action beside what the table's properties say; each action names those it lacks."""

    older_than: timedelta | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    locations: tuple[str, ...] = ()
    file_list: str = ""  # an inventory to go by instead of listings
    confirmed: bool = False  # a person has seen the plan and says go

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given, as a command names them; a confirmation is none."""
        named = {
            "--older-than": self.older_than is not None,
            "--retain-last": self.retain_last is not None,
            "--snapshot": bool(self.snapshot_ids),
            "--location": bool(self.locations),
            "--file-list": bool(self.file_list),
        }
        return tuple(name for name, is_given in named.items() if is_given)


NO_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Condemned files of a table that are due to be deleted."""

    batches: int = 0
    files: int = 0
    bytes: int = 0


NOTHING_WAITS = Waiting()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the coordinator knows around a table, as of one moment."""

    pinned: Mapping[int, str] = field(
        default_factory=dict
    )  # snapshots that stay, each with its chain to the branch's head, and why
    since: Mapping[int, str] = field(default_factory=dict)  # snapshots that stay with all newer ones, and why
    paths: frozenset[str] = frozenset()  # files that processes which have not ended read, have written or may commit
    condemned: frozenset[str] = frozenset()
    due: Waiting = NOTHING_WAITS
    neighbours: Mapping[str, str] = field(default_factory=dict)  # locations of all other known tables, by full name
    active: frozenset[str] = frozenset()  # ids of processes that have not ended
    ended: Mapping[str, datetime] = field(default_factory=dict)  # when the table's other known processes ended

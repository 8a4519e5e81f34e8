"""Values of maintenance: ages of rows, stored files, condemned files, late deletes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from amoro_core.errors import InvalidArgument
from amoro_core.model.tables import Blocker


class TimeKind(StrEnum):
    """The type of a column by which rows expire."""

    TIMESTAMP = "timestamp"  # microseconds, with a zone or without
    TIMESTAMP_NS = "timestamp_ns"  # nanoseconds, with a zone or without
    DATE = "date"
    LONG = "long"  # seconds or milliseconds, as configured
    STRING = "string"


@dataclass(frozen=True, slots=True)
class TimePart:
    """A partition field derived from the column."""

    at: int  # among the fields of its spec
    transform: str  # "identity", "year", "month", "day", "hour", "truncate"; "" for one that does not keep the order
    width: int = 0  # of a truncation


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A top-level column with the partition fields derived from it, by spec."""

    name: str
    field_id: int
    kind: TimeKind
    parts: Mapping[int, tuple[TimePart, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataCommit:
    """A commit that added data."""

    snapshot_id: int
    committed_at_ms: int  # since 1970


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in its storage."""

    path: str
    size_bytes: int
    modified_at: datetime | None  # by the storage's clock; None: it does not say


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome of deleting a file, with the reason of a failure."""

    ended: Ended
    why: str = ""


DELETED, ABSENT, MOVED = Removal(Ended.DELETED), Removal(Ended.ABSENT), Removal(Ended.MOVED)


class FileKind(StrEnum):
    """The role of a file in its table; condemned files are deleted in this order."""

    DATA = "data"
    DELETE = "delete"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest-list"
    STATISTICS = "statistics"
    METADATA = "metadata"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Condemned:
    """A file that the table no longer needs; it is deleted later, unless the guard finds that it is needed."""

    path: str
    kind: FileKind
    size_bytes: int | None  # None: unknown
    modified_at: datetime | None  # by the store's clock, where it was listed
    reason: str

    def is_still(self, stored: StoredFile | None) -> bool:
        """Whether the stored file is the one that was condemned, by what was known of it then."""
        if stored is None:
            return False
        if self.size_bytes is not None and stored.size_bytes != self.size_bytes:
            return False
        if self.modified_at is None or stored.modified_at is None:
            return True
        # What was condemned is kept to the millisecond, what storages say is finer.
        return abs(stored.modified_at - self.modified_at) < timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class DueBatch:
    """Condemned files of one kind that are due to be deleted."""

    batch_id: int
    kind: FileKind
    files: tuple[Condemned, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Released:
    """A file that the table no longer needs once some of its snapshots are gone."""

    path: str
    kind: FileKind
    size_bytes: int | None  # None: unknown
    has_equality_deletes: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a request that override the table's properties; each action refuses those it does not have by name."""

    older_than: timedelta | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    locations: tuple[str, ...] = ()
    file_list: str = ""  # an inventory to use instead of listings
    confirmed: bool = False  # a person has seen the plan and confirmed it

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given, by their names in commands; a confirmation does not count."""
        named = {
            "--older-than": self.older_than is not None,
            "--retain-last": self.retain_last is not None,
            "--snapshot": bool(self.snapshot_ids),
            "--location": bool(self.locations),
            "--file-list": bool(self.file_list),
        }
        return tuple(name for name, is_given in named.items() if is_given)


NO_OPTIONS = Options()

#: Our actions, in the order in which those that are due on a table are done: what removes rows or files from the table
#: before what looks for leftovers.
ORDER = (
    "auto-create-tags",
    "expire-data",
    "clean-dangling-delete-files",
    "cluster",
    "rewrite-manifests",
    "expire-snapshots",
    "clean-orphan-files",
    "empty-trash",
    "compute-statistics",
    "hudi-compact",
    "hudi-cluster",
    "hudi-clean",
    "paimon-compact",
    "paimon-expire",
)
#: The actions that an option is for, by its name in commands.
TAKEN_BY: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "--older-than": frozenset({"expire-snapshots", "clean-orphan-files"}),
        "--retain-last": frozenset({"expire-snapshots"}),
        "--snapshot": frozenset({"expire-snapshots"}),
        "--location": frozenset({"clean-orphan-files"}),
        "--file-list": frozenset({"clean-orphan-files"}),
    }
)


def turn(action: str) -> int:
    """The action's place in the order; those of other packages come last."""
    return ORDER.index(action) if action in ORDER else len(ORDER)


def refuse_options(action: str, options: Options) -> None:
    """Raise InvalidArgument for options that are not for this action; another package's says itself what it takes."""
    refused = [name for name in options.given if action not in TAKEN_BY[name]] if action in ORDER else []
    if refused:
        raise InvalidArgument(f"{action} takes no {', '.join(refused)}", hint=f"Leave {', '.join(refused)} out.")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Condemned files of a table that are due to be deleted."""

    batches: int = 0
    files: int = 0
    bytes: int = 0


NOTHING_WAITS = Waiting()


@dataclass(frozen=True, slots=True)
class ReservedFiles:
    """The files that a new plan leaves alone: those of plans which have not ended, and those in blocked partitions."""

    paths: Mapping[str, str] = field(default_factory=dict)  # by normalised path, the holder in words
    processes: frozenset[str] = frozenset()  # ids of those whose files these are
    blockers: tuple[Blocker, ...] = ()  # of some partitions


NOTHING_TAKEN = ReservedFiles()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the coordinator knows about the surroundings of a table, as of one moment."""

    pinned: Mapping[int, str] = field(
        default_factory=dict
    )  # snapshots to keep, each with its chain to the branch's head, and why
    since: Mapping[int, str] = field(default_factory=dict)  # snapshots to keep with all newer ones, and why
    paths: frozenset[str] = frozenset()  # files that processes which have not ended read, have written or may commit
    condemned: frozenset[str] = frozenset()
    due: Waiting = NOTHING_WAITS
    active: frozenset[str] = frozenset()  # ids of processes that have not ended
    ended: Mapping[str, datetime] = field(default_factory=dict)  # when the table's other known processes ended


#: Entries of a snapshot's summary that tell which application wrote it, in the order of preference.
_NAMES = ("engine-name", "app-name", "spark.app.name")
_IDS = ("app-id", "spark.app.id", "flink.job-id", "trino_query_id")


@dataclass(frozen=True, slots=True)
class LateDelete:
    """A snapshot that deletes rows of files which a commit of ours had replaced before: these rows are back."""

    snapshot_id: int
    sequence_number: int
    committed_at: datetime
    application: str  # as `application_of`
    deletes: tuple[str, ...]  # paths of its delete files that name replaced files, in order
    files: tuple[str, ...]  # paths of the replaced files, in order
    process_id: str  # of the last of our commits that replaced one of them
    replaced_by: int  # the snapshot of that commit


def application_of(summary: Mapping[str, str]) -> str:
    """The writer of a snapshot, from its summary: "spark 4.1 (app-id local-17)"; "an unknown application"."""
    name = next((summary[key] for key in _NAMES if summary.get(key)), "")
    if name and summary.get("engine-version"):
        name = f"{name} {summary['engine-version']}"
    ids = [f"{key} {summary[key]}" for key in _IDS if summary.get(key)]
    if not ids:
        return name or "an unknown application"
    return f"{name} ({ids[0]})" if name else ids[0]

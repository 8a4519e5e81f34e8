"""What a table consists of whose services are done by its format's own engine: Hudi's and Paimon's tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amoro_core.model.tables import FileSummary

#: The states of a timeline's entry; Paimon's snapshots are completed.
REQUESTED, INFLIGHT, COMPLETED = "requested", "inflight", "completed"
#: Hudi's setting of the class by which writers exclude each other.
LOCK_PROVIDER = "hoodie.write.lock.provider"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An instant of Hudi's timeline, or a snapshot of a Paimon table."""

    time: str  # Hudi: when it was requested; Paimon: the snapshot's id
    action: str  # commit, deltacommit, compaction, ...; Paimon: the commit's kind
    state: str
    completed: str = ""  # Hudi, from table version 8 on: when it was completed; Paimon: when, in ISO's form
    user: str = ""  # Paimon: the commit user


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """The files of one kind in a file group (Hudi) or a bucket (Paimon) that readers of the head need."""

    partition: str  # its path; "" when unpartitioned
    group: str  # the file group's id, or the bucket
    kind: str  # base, log; Paimon: "level 0", ...
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """The live files of one bucket of a Paimon table's partition."""

    partition: bytes  # as manifests have it
    path: str  # of the partition
    number: int
    files: tuple[tuple[int, int], ...]  # level and size in bytes of each, the lowest level first

    @property
    def sorted_runs(self) -> int:
        """Every file of level 0 is one, and so are all files of each further level."""
        levels = [level for level, _ in self.files]
        return levels.count(0) + len(set(levels) - {0})

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        return sum(size for _, size in self.files)


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column, with its type as the format writes it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table's schema, files and timeline at one moment."""

    columns: tuple[NamedColumn, ...]
    partition_columns: tuple[str, ...]
    files: tuple[StoredFiles, ...]
    timeline: tuple[TimelineEntry, ...]  # the oldest first
    since_compaction: int  # delta commits (Hudi) or snapshots (Paimon) since the last compaction
    superseded_files: int = 0  # that only readers of earlier states need
    superseded_bytes: int = 0
    key_columns: tuple[str, ...] = ()  # Paimon: the primary key; this and the following
    buckets: tuple[Bucket, ...] = ()
    manifest_fields: frozenset[str] = frozenset()  # that have values in any of its manifests
    branches: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[TimelineEntry, ...]:
        """Entries that are not completed, the oldest first."""
        return tuple(entry for entry in self.timeline if entry.state != COMPLETED)

    @property
    def partitions(self) -> int:
        """The number of partitions with files."""
        return len({stored.partition for stored in self.files})

    @property
    def kinds(self) -> Mapping[str, tuple[int, int]]:
        """The number of files and bytes of each kind, in the order of their names."""
        found: dict[str, tuple[int, int]] = {}
        for stored in sorted(self.files, key=lambda stored: stored.kind):
            files, size = found.get(stored.kind, (0, 0))
            found[stored.kind] = (files + stored.files, size + stored.bytes)
        return found

    @property
    def summary(self) -> FileSummary:
        """Files and bytes in sum."""
        return FileSummary(sum(one.files for one in self.files), sum(one.bytes for one in self.files))


def snapshots_since_compaction(timeline: Sequence[TimelineEntry]) -> tuple[TimelineEntry, ...]:
    """Paimon's snapshots after the last COMPACT, the oldest first."""
    snapshots = tuple(entry for entry in timeline if entry.user)
    last = max((at for at, entry in enumerate(snapshots) if entry.action == "COMPACT"), default=-1)
    return snapshots[last + 1 :]

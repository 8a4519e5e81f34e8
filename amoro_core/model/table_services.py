"""What a table consists of whose services are done by its format's own engine: Hudi's and Paimon's tables."""

from collections import defaultdict
from collections.abc import Mapping
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
class FileGroup:
    """The files of a file group (Hudi), or of a bucket of a partition (Paimon), that readers of the head need."""

    partition: str  # its path (Hudi), or its row as manifests have it, in Base64 (Paimon)
    name: str  # the file group's id, or the bucket's number
    files: tuple[tuple[str, int], ...]  # kind (base, log; Paimon: "level 0", ...) and size in bytes of each, in order

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.files)


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table's schema, files and timeline at one moment."""

    columns: Mapping[str, str]  # their types, as the format writes them
    partition_columns: tuple[str, ...]
    groups: tuple[FileGroup, ...]
    timeline: tuple[TimelineEntry, ...]  # the oldest first
    since_compaction: int  # delta commits (Hudi) or snapshots (Paimon) since the last compaction
    superseded_files: int = 0  # that only readers of earlier states need (Hudi); this and the following
    superseded_bytes: int = 0
    key_columns: tuple[str, ...] = ()  # the primary key (Paimon); this and the following
    manifest_fields: frozenset[str] = frozenset()  # that have values in any of its manifests
    branches: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[TimelineEntry, ...]:
        """Entries that are not completed, the oldest first."""
        return tuple(entry for entry in self.timeline if entry.state != COMPLETED)

    @property
    def partitions(self) -> int:
        """The number of partitions with files."""
        return len({group.partition for group in self.groups})

    @property
    def kinds(self) -> Mapping[str, tuple[int, int]]:
        """The number of files and bytes of each kind, in the order of their names."""
        sizes = defaultdict[str, list[int]](list)
        for kind, size in sorted(file for group in self.groups for file in group.files):
            sizes[kind].append(size)
        return {kind: (len(some), sum(some)) for kind, some in sizes.items()}

    @property
    def summary(self) -> FileSummary:
        """Files and bytes in sum."""
        sizes = [size for group in self.groups for _, size in group.files]
        return FileSummary(len(sizes), sum(sizes))

"""What a table consists of whose services are done by its format's own engine: Hudi's and Paimon's tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from amoro_core.model.tables import FileSummary

#: The states of a timeline's entry; Paimon's snapshots are completed.
REQUESTED, INFLIGHT, COMPLETED = "requested", "inflight", "completed"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An instant of Hudi's timeline, or a snapshot of a Paimon table."""

    time: str  # Hudi: when it was requested; Paimon: the snapshot's id
    action: str  # commit, deltacommit, compaction, ...; Paimon: the commit's kind
    state: str
    completed: str = ""  # Hudi, from table version 8 on: when it was completed


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """The files of one kind in a file group (Hudi) or a bucket (Paimon) that readers of the head need."""

    partition: str  # its path; "" when unpartitioned
    group: str  # the file group's id, or the bucket
    kind: str  # base, log; Paimon: "level 0", ...
    files: int
    bytes: int


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

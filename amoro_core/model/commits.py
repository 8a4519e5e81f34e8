"""Values of validation and commits: the plan's record, the head of the table, and the change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.tables import SnapshotFacts, ancestors
from amoro_core.model.task_payload import RewriteInput, RewriteOutput

#: The key of a snapshot's summary that names the process which committed it.
PROCESS_ID = "amoro.process-id"
#: The key that tells the type of optimizing, or clustering, of a snapshot.
OPTIMIZING_TYPE = "amoro.optimizing-type"
#: Lets Polaris roll a replacing snapshot back for a writer that would conflict with it: the key that it reads, and the
#: one that its documentation named first.
ROLLBACK_MARKS = {
    "polaris.internal.conflict-resolution.by-operation-type.replace": "rollback",
    "polaris.internal.rollback.compaction.on-conflict": "true",
}
#: The key in a summary that names the expired snapshot that this one restores.
RESTORED_FROM = "amoro.restored-snapshot-id"


@dataclass(frozen=True, slots=True)
class LookUp:
    """How rows of the inputs are found in outputs that hold them in another order."""

    keys: tuple[int, ...]  # ids of the columns that the outputs are ordered by
    most_rows: int


@dataclass(frozen=True, slots=True)
class Group:
    """One task as it was planned, with its result; groups are committed or dropped independently."""

    number: int  # the task's
    work: RewriteInput
    output: RewriteOutput
    is_reordered: bool = False  # the outputs hold the rows in another order than the inputs
    look_up: LookUp | None = None  # None: rows are followed by the map of positions, or not at all


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The state of the table when the process was planned, as stored; never taken from a reloaded table."""

    process_id: str
    table_uuid: str
    format_version: int
    snapshot_id: int
    sequence_number: int  # S: of that snapshot, never the table's last one
    last_column_id: int  # columns with a greater id came after the plan
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """The table's present state relative to a plan's snapshot."""

    table_uuid: str
    format_version: int
    snapshot_id: int
    sequence_number: int
    descends: bool | None  # whether the plan's snapshot is an ancestor; None: the history is too short to tell
    field_ids: frozenset[int]  # of the current schema, nested ones too
    scan: TableScan
    #: Equality deletes removed by snapshots after the plan's; None when the history is too short to tell.
    removed_equality_deletes: tuple[DeleteFile, ...] | None
    #: By sequence number, the snapshots after the plan's and who wrote them, as far as the history tells.
    authors: Mapping[int, str] = field(default_factory=dict)


def removals_since(
    snapshots: Sequence[SnapshotFacts], head_id: int | None, planned_id: int
) -> list[SnapshotFacts] | None:
    """The commits since the planned one that may have removed data files, the oldest first; None where the head does
    not descend from it, as far as is known: the table was rolled back, or the catalog answers with an older state."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    since = list(takewhile(lambda item: item.snapshot_id != planned_id, ancestors(by_id, head_id)))
    if not since or since[-1].parent_id != planned_id:
        return None
    keys = ("deleted-data-files", "total-data-files")  # every writer tells the second
    return [commit for commit in reversed(since) if keys[0] in commit.summary or keys[1] not in commit.summary]


class Operation(StrEnum):
    """A snapshot's operation (Iceberg specification, "Snapshots")."""

    REPLACE = "replace"  # files change, rows do not
    DELETE = "delete"  # files are removed with their rows
    OVERWRITE = "overwrite"  # files and rows are added and removed


@dataclass(frozen=True, slots=True)
class CommitContent:
    """The change of a snapshot. Added files carry their data sequence number explicitly, but for carried deletes."""

    groups: tuple[int, ...]
    removed_data: tuple[DataFile, ...]
    removed_deletes: tuple[DeleteFile, ...]
    added_data: tuple[DataFile, ...]
    added_deletes: tuple[DeleteFile, ...]
    operation: Operation = Operation.REPLACE
    carried_deletes: tuple[DeleteFile, ...] = ()  # added with the snapshot's own sequence number


@dataclass(frozen=True, slots=True)
class Validation:
    """Whether a rewrite may be committed on a head: not at all, or without some groups.

    `content` is None exactly when nothing is left to commit.
    """

    conflict: str | None
    dropped: Mapping[int, str] = field(default_factory=dict)  # group number to reason
    content: CommitContent | None = None


@dataclass(frozen=True, slots=True)
class StagedCommit:
    """A commit whose manifests are written; its payload can be sent repeatedly, byte for byte."""

    snapshot_id: int
    parent_snapshot_id: int
    sequence_number: int
    manifest_list: str
    payload: bytes
    metadata_files: tuple[str, ...]  # every file written for it, the manifest list included


@dataclass(frozen=True, slots=True)
class SnapshotAdded:
    """A snapshot is in the table, or a file that it adds is reachable."""

    snapshot_id: int
    parent_snapshot_id: int
    sequence_number: int
    files: tuple[str, ...] = ()  # data and delete files that it adds


def rolled_back(
    added: Sequence[SnapshotAdded], snapshots: Sequence[SnapshotFacts], head_id: int | None
) -> list[SnapshotAdded]:
    """Those of the snapshots committed to main that its history does not have, though it goes back to before them.

    Where an expiry has cut the history nothing is known; the child of an expired snapshot still names it.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    history = list(ancestors(by_id, head_id))
    named = {snapshot_id for commit in history for snapshot_id in (commit.snapshot_id, commit.parent_id)}
    last, first = max((commit.sequence_number for commit in history), default=0), history[-1:]
    lost = [
        item
        for item in added
        if item.snapshot_id not in named
        and (item.parent_snapshot_id in named or any(0 < old.sequence_number < item.sequence_number for old in first))
    ]
    # A catalog's replica that lags has not got them yet.
    lags = any(item.parent_snapshot_id == head_id for item in lost) or all(item.sequence_number > last for item in lost)
    return [commit for commit in lost if commit.snapshot_id in by_id or not lags]


@dataclass(frozen=True, slots=True)
class SnapshotsRemoved:
    """None of the snapshots is in the table any more; if there are none, none of the references is unchanged."""

    snapshot_ids: tuple[int, ...]
    refs: tuple[tuple[str, int], ...] = ()  # every branch and tag as validated: required by the change
    gone_refs: tuple[str, ...] = ()  # those that are removed
    sequence_number: int = 0  # the table's last one when validated
    updated_ms: int = 0  # the table's last change when validated
    metadata_location: str = ""  # the only state that it may be applied to; "": any that has the references


@dataclass(frozen=True, slots=True)
class RefAt:
    """A branch or tag points at a snapshot."""

    name: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class StatisticsNamed:
    """The metadata names files with statistics of a snapshot."""

    snapshot_id: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StatisticsRemoved:
    """The metadata names none of these files with statistics of a snapshot any more."""

    snapshot_id: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SortOrderAdded:
    """The metadata has a sort order with these keys."""

    keys: tuple[tuple[int, str, bool, bool], ...]  # field id, transform, whether descending, whether nulls come last
    metadata_location: str = ""  # the only state that it is applied to; "": any


#: How a table shows that a change landed.
Evidence = SnapshotAdded | SnapshotsRemoved | RefAt | StatisticsNamed | StatisticsRemoved | SortOrderAdded


class Trace(StrEnum):
    """The state of an attempt with unknown outcome, according to the table."""

    LANDED = "landed"
    REFUTED = "refuted"  # it can never be applied any more
    OPEN = "open"  # it still may be


@dataclass(frozen=True, slots=True)
class VectorFacts:
    """What was found in a Puffin file about a deletion vector."""

    data_file: str  # the path that it names
    size_bytes: int
    record_count: int
    last_position: int  # −1 of an empty one


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts from the footer of a Parquet file; counts are of leaf columns by field id.

    Of a Puffin file: the size, the positions in all of its vectors, and these by offset.
    """

    size_bytes: int
    record_count: int
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    vectors: Mapping[int, VectorFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ManifestCluster:
    """Manifests of one content and spec to be merged into fewer, sorted by partition."""

    content: str  # "data" or "delete"
    spec_id: int
    paths: tuple[str, ...]
    size_bytes: int  # of all of them
    entries: int  # live files in them
    reason: str


@dataclass(frozen=True, slots=True)
class ManifestsStaged:
    """A staged snapshot with the same files in other manifests."""

    commit: StagedCommit
    created: int
    replaced: int
    kept: int  # manifests that stay as they are
    entries: int  # entries that were rewritten
    dropped: tuple[str, ...] = ()  # why clusters were left out


@dataclass(frozen=True, slots=True)
class ColumnSketch:
    """The serialized sketch of a column's number of distinct values."""

    field_id: int
    ndv: int  # the sketch's estimate
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StatisticsEntry:
    """An entry of the metadata that names a file with statistics of a snapshot."""

    snapshot_id: int
    path: str
    size_bytes: int
    ndv_fields: frozenset[int] = frozenset()  # ids of the columns whose distinct values it counts; empty for partitions


@dataclass(frozen=True, slots=True)
class StatisticsEntries:
    """All entries of a table's metadata."""

    columns: tuple[StatisticsEntry, ...] = ()
    partitions: tuple[StatisticsEntry, ...] = ()

    @property
    def every(self) -> tuple[StatisticsEntry, ...]:
        """All entries: of columns, then of partitions."""
        return (*self.columns, *self.partitions)


@dataclass(frozen=True, slots=True)
class StagedStatistics:
    """Statistics whose files are written, but not referenced by the metadata yet."""

    payload: bytes = field(repr=False)  # can be sent repeatedly, byte for byte
    written: tuple[StatisticsEntry, ...]  # referenced once it is sent
    partitions: int = 0  # rows of the file of partitions

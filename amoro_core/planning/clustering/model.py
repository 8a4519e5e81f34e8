"""Properties, values and messages of clustering plans."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.documents.formatting import many
from amoro_core.model.clustering import Layout, Sorting, Strategy
from amoro_core.model.files import DataFile, ScannedFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import PartitionKey
from amoro_core.model.properties import (
    Parse,
    boolean,
    column_names,
    declared,
    duration,
    fraction,
    one_of,
    optional,
    unless_empty,
    whole,
)
from amoro_core.model.properties import size as properties_size
from amoro_core.model.scan_stats import ColumnChoice, ScanUse
from amoro_core.model.tables import SnapshotFacts

PREFIX = "self-optimizing.cluster."
COLUMNS_KEY = f"{PREFIX}columns"
STRATEGY_KEY = f"{PREFIX}strategy"
PARTITIONS_KEY = f"{PREFIX}partitions"
RELAYOUT_KEY = f"{PREFIX}relayout"
PARTITION_FILTER_KEY = f"{PREFIX}partition-filter"
#: Said in the place of columns: those that queries filter by.
AUTO = ("auto",)


class PartitionOrder(StrEnum):
    """Which partitions come first."""

    NEWEST = "newest"
    OLDEST = "oldest"


class FileChoice(StrEnum):
    """Which files are clustered."""

    ALL = "all"
    SMALL = "small"  # none of target size, as large as it is


class GroupBy(StrEnum):
    """Which files are put in order together."""

    OVERLAP = "overlap"
    KEY_RANGE = "key-range"
    TIME = "time"
    ANY = "any"


class UpdateStrategy(StrEnum):
    """What happens when others delete rows of files that are being clustered."""

    GIVE_WAY = "give-way"
    CARRY_OVER = "carry-over"
    REJECT = "reject"


class Mode(StrEnum):
    """Whether a plan of the clock is started at once."""

    ASYNC = "async"
    SCHEDULED = "scheduled"


class PartitionKind(StrEnum):
    """How partitions are chosen."""

    ALL = "all"
    RECENT = "recent"
    SELECTED = "selected"
    ROLLING = "rolling"


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """Which partitions are clustered: of `recent` the newest `count` after the newest `skip`, of `rolling` one in
    `count`."""

    kind: PartitionKind = PartitionKind.ALL
    count: int = 0
    skip: int = 0


_PARTITIONS = re.compile(r"recent:(?P<recent>\d{1,9})(,\s*skip:(?P<skip>\d{1,9}))?|rolling:(?P<rolling>\d{1,9})", re.A)


def partitions(text: str) -> PartitionChoice:
    """`all`, `recent:N`, `recent:N,skip:M`, `selected` or `rolling:K`. Raises ValueError."""
    word = text.strip().lower()
    if word in (PartitionKind.ALL, PartitionKind.SELECTED):
        return PartitionChoice(PartitionKind(word))
    match = _PARTITIONS.fullmatch(word)
    if match is None:
        raise ValueError("expected all, recent:N, recent:N,skip:M, selected or rolling:K")
    kind = PartitionKind.RECENT if match["recent"] is not None else PartitionKind.ROLLING
    count = int(match[kind.value])
    if count == 0:
        raise ValueError(f"expected {kind}: with a number of at least 1")
    return PartitionChoice(kind, count, int(match["skip"] or 0))


def columns(text: str) -> tuple[str, ...]:
    """The names of columns, with commas between them; none: the table's sort order. Raises ValueError."""
    names = column_names(text)
    if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise ValueError(f"names {twice} twice")
    return names


def strategy(text: str) -> Strategy | None:
    """The strategy; None for an empty text: as many columns say. Raises ValueError."""
    return unless_empty(one_of({strategy.value: strategy for strategy in Strategy}))(text)


def _word(kind: type[StrEnum]) -> Parse[StrEnum]:
    return one_of({member.value: member for member in kind})


def _fanout(text: str) -> int:
    value = whole(0)(text)
    if value == 1:
        raise ValueError("expected 0, or a whole number of at least 2")
    return value


@dataclass(frozen=True, slots=True)
class ClusteringConfig:
    """The properties of one table that steer its clustering; sizes in bytes."""

    enabled: bool = declared(f"{PREFIX}enabled", "false", boolean)
    columns: tuple[str, ...] = declared(COLUMNS_KEY, "", columns)
    strategy: Strategy | None = declared(STRATEGY_KEY, "", strategy)
    partitions: PartitionChoice = declared(PARTITIONS_KEY, "all", partitions)
    partition_filter: str | None = declared(PARTITION_FILTER_KEY, "", optional)
    partition_order: PartitionOrder = declared(f"{PREFIX}partition-order", "newest", _word(PartitionOrder))
    quiet: timedelta = declared(f"{PREFIX}quiet", "10min", duration)
    files: FileChoice = declared(f"{PREFIX}files", "all", _word(FileChoice))
    group_by: GroupBy = declared(f"{PREFIX}group-by", "overlap", _word(GroupBy))
    max_group_bytes: int = declared(f"{PREFIX}max-group-bytes", "64GB", properties_size)
    max_groups: int = declared(f"{PREFIX}max-groups", "30", whole(1))
    max_plan_bytes: int = declared(f"{PREFIX}max-plan-bytes", "512GB", properties_size)
    min_bytes: int | None = declared(f"{PREFIX}min-bytes", "", unless_empty(properties_size))  # None: 4 × target
    trigger_depth_ratio: float = declared(f"{PREFIX}trigger.depth-ratio", "2.0", fraction(1.0))
    trigger_commits: int | None = declared(f"{PREFIX}trigger.commits", "", unless_empty(whole(1)))
    trigger_interval: timedelta | None = declared(f"{PREFIX}trigger.interval", "", unless_empty(duration))
    seal_bytes: int | None = declared(f"{PREFIX}seal-bytes", "", unless_empty(properties_size))  # None: 32 × target
    tier_fanout: int = declared(f"{PREFIX}tier-fanout", "4", _fanout)  # 0: sealed groups stay for ever
    relayout: bool = declared(RELAYOUT_KEY, "false", boolean)
    update_strategy: UpdateStrategy = declared(f"{PREFIX}update-strategy", "carry-over", _word(UpdateStrategy))
    carry_over_max_rows: int = declared(f"{PREFIX}carry-over.max-rows", "100000", whole(0))
    partial_progress: bool = declared(f"{PREFIX}partial-progress", "true", boolean)
    partial_progress_max_commits: int = declared(f"{PREFIX}partial-progress.max-commits", "10", whole(1))
    max_payback: timedelta = declared(f"{PREFIX}max-payback", "30d", duration)
    mode: Mode = declared(f"{PREFIX}mode", "async", _word(Mode))
    plan_ttl: timedelta = declared(f"{PREFIX}plan-ttl", "24h", duration)
    register_sort_order: bool = declared(f"{PREFIX}register-sort-order", "true", boolean)

    def least_bytes(self, target_size: int) -> int:
        """The unclustered bytes of a partition below which nothing is due there."""
        return 4 * target_size if self.min_bytes is None else self.min_bytes

    def sealed_bytes(self, target_size: int) -> int:
        """The bytes of a group from which on it is sealed."""
        return 32 * target_size if self.seal_bytes is None else self.seal_bytes


#: Milliseconds of a core that a MB of input takes until a table's own figure is known: 5 s for 133 MB.
CORE_MS_PER_MB = 40.0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is known of a table for which a plan is made."""

    scan: TableScan | None  # of main's head; None: the table has no snapshot
    sorting: Sorting
    optimizing: OptimizingConfig
    now: datetime
    snapshots: tuple[SnapshotFacts, ...] = ()  # of main's history, as far as the metadata knows it
    properties: Mapping[str, str] = field(default_factory=dict)  # the table's, where metrics are switched off
    groups: Mapping[str, Layout] = field(default_factory=dict)  # the layouts of groups that are known, by group id
    #: Reads the layout from a file's footer, None without one; called for one file of each unknown group.
    learn: Callable[[DataFile], Layout | None] = lambda file: None
    pinned: frozenset[str] = frozenset()  # paths of files that other plans have, data and deletes
    #: A test of partitions made of a condition. Raises InvalidArgument for one that is malformed.
    chooses: Callable[[str], Callable[[PartitionKey], bool]] = lambda condition: lambda key: True
    path_of: Callable[[PartitionKey], str] = lambda key: ""
    selects: Callable[[DataFile], bool] | None = None  # `self-optimizing.filter`: other files are left alone
    scans: tuple[ScanUse, ...] = ()  # reported reads of the table
    choice: ColumnChoice | None = None  # the columns that `auto` chose last
    core_ms_per_mb: float = CORE_MS_PER_MB
    budget_bytes: int | None = None  # what the optimizer group takes of one table at once; None: no bound


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """A request; not `asked`: a scheduled run, for which the triggers decide."""

    asked: bool = False
    columns: tuple[str, ...] = ()
    strategy: Strategy | None = None
    partitions: PartitionChoice | None = None  # None: as the properties say
    where: str = ""  # a condition that chooses whole partitions
    full: bool = False  # groups that are in order already, too
    explain: bool = False  # tell the depth of every partition, also where nothing can be due
    shows: bool = False  # where no columns are set, tell of the groups that there are; nothing is planned then


@dataclass(frozen=True, slots=True)
class ColumnDepth:
    """How many files a point query on one column meets, of those that may be clustered and of all."""

    field_id: int
    name: str
    depth: float  # among unclustered files and open groups
    ideal: float  # what a perfect layout of these reaches, or what an earlier clustering showed to be possible
    all_files: float  # among all files of the partition
    note: str = ""  # why bounds of the column can't tell files apart


@dataclass(frozen=True, slots=True)
class GroupState:
    """Files that were clustered together."""

    group_id: str
    layout: Layout
    is_current: bool  # it has the layout that the table has now
    is_open: bool  # new files are clustered together with it
    tier: int  # of a sealed group: how often `tier-fanout` of them became one
    files: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionDepth:
    """How well one partition is clustered, and why something is due there, or nothing."""

    key: PartitionKey
    is_due: bool
    reason: str
    files: int
    bytes: int
    unclustered_files: int = 0
    unclustered_bytes: int = 0
    groups: tuple[GroupState, ...] = ()
    columns: tuple[ColumnDepth, ...] = ()
    ratio: float = 1.0  # mean of depth ÷ ideal over the columns
    due_at: datetime | None = None
    path: str = ""  # of the partition, for people


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Files of one (spec, partition) that are put in order together: one task, committed or dropped as a whole."""

    key: PartitionKey
    files: tuple[ScannedFile, ...]
    output_count: int
    group_id: str  # of the outputs
    seed: int  # of the sample, below 2**64
    before: tuple[float, ...]  # files that a point query meets now, by column of the layout
    predicted: tuple[float, ...]  # the same of the outputs
    input_bytes: int  # of data and deletes
    cost: int  # these bytes, and what it takes to open the files
    core_ms: int  # predicted
    gain: float  # by which groups are ordered, for each core millisecond


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Groups of one process, all planned on one snapshot, the most worthwhile first."""

    layout: Layout
    sort_order_id: int  # of the sort order in the metadata that says the same; 0: there is none
    groups: tuple[GroupPlan, ...]
    snapshot_id: int
    sequence_number: int  # of that snapshot
    seed: int
    left: int = 0  # groups for which the limits had no room


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """Whether a table is to be clustered, why or why not, partition by partition, and the plan."""

    is_due: bool
    reason: str
    due_at: datetime | None = None
    layout: Layout | None = None  # as it is to be
    layout_name: str = ""  # as people write it
    notes: tuple[str, ...] = ()  # what people should know of the layout
    partitions: tuple[PartitionDepth, ...] = ()
    plan: ClusterPlan | None = None
    learned: Mapping[str, Layout] = field(default_factory=dict)  # of groups that were not known before
    choice: ColumnChoice | None = None  # of `auto`: as it was, or another one, to be kept


NO_SNAPSHOT = "nothing to do: the table has no snapshot"
NO_FILES = "nothing to do: the table has no data files"
NO_COLUMNS = "nothing to do: no columns are set"
#: Why nothing is planned though a trigger fires or a request was made.
NO_GROUPS = "nothing to do: no files that would gain together"
CLUSTERED_OTHERWISE = "nothing to do without --full: files that are clustered by other columns stay as they are"
RESERVED = "nothing to do yet: other plans have the unclustered files"
#: The note on what is shown of a table without columns.
BY_NEWEST_GROUP = (
    f"no columns are set: shown is the layout of the newest group; set {COLUMNS_KEY} for more to be clustered so"
)
_UNITS = (("TB", 1024**4), ("GB", 1024**3), ("MB", 1024**2), ("KB", 1024))


def size(size_bytes: int) -> str:
    """The size with its unit."""
    unit, factor = next(((unit, factor) for unit, factor in _UNITS if size_bytes >= factor), ("bytes", 1))
    return f"{size_bytes} bytes" if factor == 1 else f"{size_bytes / factor:.1f} {unit}".replace(".0 ", " ")


def chosen(choice: ColumnChoice, reason: str) -> str:
    """The columns that `auto` has chosen, with what each of them adds, and why they stand."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in choice.evidence.items())
    return (
        f"auto chose {', '.join(choice.columns)} on {choice.chosen_at:%Y-%m-%d} by {many(choice.scans, 'scan')}, "
        f"which it spares {choice.saved:.0%} of the bytes ({shares}); {reason}"
    )


def of_table(partitions: Sequence[PartitionDepth], path_of: Callable[[PartitionKey], str]) -> str:
    """The reason for the whole table: that of the first due partition, or why there is none."""
    due = [partition_depth for partition_depth in partitions if partition_depth.is_due]
    if due:
        first = due[0]
        more = f"; {len(due)} of {len(partitions)} partitions to be clustered" if len(partitions) > 1 else ""
        return f"{_named(first, path_of)}{more}"
    if len(partitions) == 1:
        return partitions[0].reason
    waiting = [partition_depth for partition_depth in partitions if partition_depth.due_at is not None]
    if waiting:
        first = min(waiting, key=lambda item: (item.due_at, item.key.spec_id))
        return f"nothing to do in {len(partitions)} partitions; {_named(first, path_of)}"
    reasons = {partition_depth.reason for partition_depth in partitions}
    why = next(iter(reasons)).removeprefix("nothing to do") if len(reasons) == 1 else ""
    return f"nothing to do in {len(partitions)} partitions{why}"


def _named(partition: PartitionDepth, path_of: Callable[[PartitionKey], str]) -> str:
    name = path_of(partition.key)
    return f"{name}: {partition.reason}" if name else partition.reason

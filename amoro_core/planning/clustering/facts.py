"""What a plan of clustering is made of, and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime

from amoro_core.model.clustering import Layout, Strategy
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DataFile, ScannedFile, TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.model.scans import ColumnChoice, ScanUse
from amoro_core.model.sorting import Sorting
from amoro_core.model.tables import SnapshotFacts
from amoro_core.planning.clustering.properties import PartitionChoice
from amoro_core.records import record

#: Milliseconds of a core that a MB of input takes until a table's own figure is known: 5 s for 133 MB.
CORE_MS_PER_MB = 40.0


def _nothing_learned(file: DataFile) -> Layout | None:
    return None


def _every_partition(condition: str) -> Callable[[PartitionKey], bool]:
    return lambda key: True


def _no_path(key: PartitionKey) -> str:
    return ""


@record
class ClusterFacts:
    """What is known of a table for which a plan is made."""

    scan: TableScan | None  # of main's head; None: the table has no snapshot
    sorting: Sorting
    optimizing: OptimizingConfig
    now: datetime
    snapshots: tuple[SnapshotFacts, ...] = ()  # all that the metadata knows
    properties: Mapping[str, str] = field(default_factory=dict)  # the table's, where metrics are switched off
    groups: Mapping[str, Layout] = field(default_factory=dict)  # the layouts of groups that are known, by group id
    #: The layout that a file's footer tells, None where it tells none; asked for one file of each unknown group.
    learn: Callable[[DataFile], Layout | None] = _nothing_learned
    pinned: frozenset[str] = frozenset()  # paths of files that other plans have, data and deletes
    #: A test of partitions made of a condition. Raises InvalidArgument for one that is malformed.
    chooses: Callable[[str], Callable[[PartitionKey], bool]] = _every_partition
    path_of: Callable[[PartitionKey], str] = _no_path
    selects: Callable[[DataFile], bool] | None = None  # `self-optimizing.filter`: other files are left alone
    scans: tuple[ScanUse, ...] = ()  # how the table was read, as far as anybody told
    choice: ColumnChoice | None = None  # the columns that `auto` chose last
    core_ms_per_mb: float = CORE_MS_PER_MB
    budget_bytes: int | None = None  # what the optimizer group takes of one table at once; None: no bound


@record
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


@record
class ColumnDepth:
    """How many files a point query on one column meets, of those that may be clustered and of all."""

    field_id: int
    name: str
    depth: float  # among unclustered files and open groups
    ideal: float  # what a perfect layout of these reaches, or what an earlier clustering showed to be possible
    all_files: float  # among all files of the partition
    note: str = ""  # why bounds of the column can't tell files apart


@record
class KeptGroup:
    """Files that were clustered together."""

    group_id: str
    layout: Layout
    is_current: bool  # it has the layout that the table has now
    is_open: bool  # new files are clustered together with it
    tier: int  # of a sealed group: how often `tier-fanout` of them became one
    files: int
    live_bytes: int


@record
class PartitionDepth:
    """How well one partition is clustered, and why something is due there, or nothing."""

    key: PartitionKey
    is_due: bool
    reason: str
    files: int
    bytes: int
    unclustered_files: int = 0
    unclustered_bytes: int = 0
    groups: tuple[KeptGroup, ...] = ()
    columns: tuple[ColumnDepth, ...] = ()
    ratio: float = 1.0  # mean of depth ÷ ideal over the columns
    due_at: datetime | None = None
    path: str = ""  # of the partition, for people


@record
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


@record
class ClusterPlan:
    """Groups of one process, all planned on one snapshot, the most worthwhile first."""

    layout: Layout
    sort_order_id: int  # of the sort order in the metadata that says the same; 0: there is none
    groups: tuple[GroupPlan, ...]
    snapshot_id: int
    sequence_number: int  # of that snapshot
    seed: int
    left: int = 0  # groups for which the limits had no room


@record
class ClusterVerdict:
    """Whether a table is to be clustered, why or why not, partition by partition, and the plan."""

    is_due: bool
    reason: str
    due_at: datetime | None = None
    layout: Layout | None = None  # as it is to be
    notes: tuple[str, ...] = ()  # what people should know of the layout
    partitions: tuple[PartitionDepth, ...] = ()
    plan: ClusterPlan | None = None
    learned: Mapping[str, Layout] = field(default_factory=dict)  # of groups that were not known before
    choice: ColumnChoice | None = None  # of `auto`: as it was, or another one, to be kept

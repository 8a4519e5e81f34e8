"""Tables: names, discovery filters, runtime state, lists, blockers."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.errors import InvalidArgument

#: A catalog's property with the formats of its tables, as in Amoro.
TABLE_FORMATS = "table-formats"
#: The format that a catalog's tables have unless it says otherwise.
ICEBERG = "iceberg"
#: The branch that is a table's own.
MAIN = "main"

_PART = re.compile(r"`((?:[^`]|``)+)`(?!`)|([^`.\s*?\[]+)")


@dataclass(frozen=True, slots=True, order=True)
class TableIdentifier:
    """The full name of a table: catalog, namespace (one part or more), name."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return dotted((self.catalog, *self.namespace, self.name))

    @property
    def in_catalog(self) -> tuple[str, ...]:
        """Namespace and name, as a catalog takes them."""
        return (*self.namespace, self.name)


def dotted(parts: Iterable[str]) -> str:
    """The parts of a name, joined by dots; one with a dot or a space is quoted in backticks."""
    return ".".join(map(_quoted, parts))


def parse_table(text: str, default_catalog: str | None = None) -> TableIdentifier:
    """The identifier in a text like "catalog.namespace.table".

    A part with a dot or a space is quoted in backticks, a backtick in it doubled, as in Spark. Two parts are namespace
    and table of the default catalog, if there is one. Raises InvalidArgument.
    """
    parts = _parts(text)
    if len(parts) == 2 and default_catalog is not None:
        parts.insert(0, default_catalog)
    if len(parts) < 3:
        raise InvalidArgument(
            f"{text!r} is not the name of a table",
            hint="Write catalog.namespace.table; put a part with a dot or a space in backticks.",
        )
    return TableIdentifier(parts[0], tuple(parts[1:-1]), parts[-1])


def parse_namespace(text: str) -> tuple[str, ...]:
    """The parts of a namespace like "sales.eu", quoted as in the name of a table. Raises InvalidArgument."""
    try:
        return tuple(_parts(text))
    except InvalidArgument as error:
        hint = "Separate its parts by dots; put a part with a dot or a space in backticks."
        raise InvalidArgument(f"{text!r} is not a namespace", hint=hint) from error


def _parts(text: str) -> list[str]:
    parts: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            break
        position += 1
    raise InvalidArgument(
        f"{text!r} is not the name of a table",
        hint="Write catalog.namespace.table; put a part with a dot or a space in backticks.",
    )


def _quoted(part: str) -> str:
    return part if re.fullmatch(r"[^`.\s*?\[]+", part) else "`" + part.replace("`", "``") + "`"


#: The class of a table without `self-optimizing.priority`: 0 comes first, 9 last.
DEFAULT_PRIORITY = 5


class OptimizingType(StrEnum):
    """How much of a table is rewritten; the values are stored and sent."""

    MINOR = "minor"
    MAJOR = "major"
    FULL = "full"


class OptimizingStatus(StrEnum):
    """The optimizing status of a table; the values are stored and shown."""

    IDLE = "idle"
    PENDING = "pending"
    PLANNING = "planning"
    MINOR_OPTIMIZING = "minor_optimizing"
    MAJOR_OPTIMIZING = "major_optimizing"
    FULL_OPTIMIZING = "full_optimizing"
    COMMITTING = "committing"
    REFUSED = "refused"


class TableState(StrEnum):
    """What people see of a table; the values are stored and sent."""

    NEW = "new"  # not evaluated yet
    HEALTHY = "healthy"  # nothing is due
    DUE = "due"  # enabled, and waits for its plan, the time of its next try, or what its reason names
    OBSERVED = "observed"  # due, but not enabled
    OPTIMIZING = "optimizing"  # planned, rewritten or committed now
    FAILING = "failing"  # the last try failed, or another action keeps failing
    REFUSED = "refused"


#: A process of the corresponding type runs on the table, and does not commit yet.
OPTIMIZING = frozenset(
    {OptimizingStatus.MINOR_OPTIMIZING, OptimizingStatus.MAJOR_OPTIMIZING, OptimizingStatus.FULL_OPTIMIZING}
)


@dataclass(frozen=True, slots=True)
class FileSummary:
    """Counts over all live files of a table, including healthy ones."""

    data_files: int = 0
    data_bytes: int = 0
    fragment_files: int = 0
    undersized_files: int = 0
    equality_delete_files: int = 0
    position_delete_files: int = 0
    delete_bytes: int = 0
    dangling_delete_files: int = 0
    records: int = 0  # of data files, deletes not subtracted
    health_score: int = -1  # 0 to 100, −1: not evaluated yet
    coarse_files: int = 0  # of target size, of many small row groups that minor copied: major and full encode them
    coarse_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Saving:
    """What optimizing a table now would save."""

    files: int = 0  # fewer, data and delete files
    bytes: int = 0  # to be rewritten for it
    work_s: float = 0.0  # thread seconds that it takes at the first rate


@dataclass(frozen=True, slots=True)
class HealthParts:
    """The parts of the health score: at most 40 for sizes, 40 for equality deletes, 20 for position deletes."""

    small_files: int
    equality_deletes: int
    position_deletes: int

    @property
    def score(self) -> int:
        """0 to 100."""
        return self.small_files + self.equality_deletes + self.position_deletes


#: The health of a table without any fault.
FAULTLESS = HealthParts(small_files=40, equality_deletes=40, position_deletes=20)


@dataclass(frozen=True, slots=True)
class HealthBasis:
    """The parameters with which the health score was computed."""

    weight: float  # the share of their faults charged to partitions, on average: 0 to 1
    fragment_size: int  # a data file up to this size is a fragment, in bytes
    min_target_size: int  # up to this size undersized; a partition of at least as many bytes is charged fully
    full_weight_files: int  # if it also has at least this many data files


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts about a table from its metadata alone, before any manifest is read."""

    identifier: TableIdentifier
    uuid: str
    format_version: int
    location: str
    metadata_location: str
    snapshot_id: int | None  # of main's head
    sequence_number: int  # of main's head, 0 when there is none
    properties: Mapping[str, str]  # the table's own
    snapshot_summary: Mapping[str, str] = field(default_factory=dict)  # of main's head, as its writer set it
    format: str = ICEBERG
    schema_id: int = 0  # the current schema's
    last_column_id: int = 0  # the highest field id ever assigned in the table


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """A column of a table's current schema."""

    field_id: int
    name: str
    type: str  # as Iceberg writes it
    is_required: bool
    doc: str
    identifies: bool  # it is one of the identifier fields


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A field of a table's default partition spec."""

    field_id: int
    name: str
    transform: str  # as Iceberg writes it
    source_id: int
    source: str  # the column's name; "": the current schema lacks it


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's current schema and default partition spec."""

    schema_id: int
    columns: tuple[SchemaColumn, ...]
    spec_id: int
    partition: tuple[PartitionColumn, ...]


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot that the table's metadata knows."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    committed_at: datetime
    operation: str
    summary: Mapping[str, str]
    refs: tuple[str, ...]  # branches and tags that point at it


def ancestors(by_id: Mapping[int, SnapshotFacts], snapshot_id: int | None) -> Iterator[SnapshotFacts]:
    """The snapshot and its ancestors, the newest first, as far as they are known by id."""
    rest = dict(by_id)
    while snapshot_id is not None and (snapshot := rest.pop(snapshot_id, None)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_id


def summary_count(summary: Mapping[str, str], key: str) -> int | None:
    """A count in a snapshot's summary; None if it is missing, malformed or needs more than 64 bits."""
    text = summary.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag of a table, with its own retention."""

    name: str
    snapshot_id: int
    is_branch: bool
    min_snapshots_to_keep: int | None = None  # of a branch
    max_snapshot_age: timedelta | None = None  # of a branch
    max_ref_age: timedelta | None = None  # None: as the table says


@dataclass(frozen=True, slots=True)
class History:
    """All snapshots and references of a table, in one state of it."""

    snapshots: tuple[SnapshotFacts, ...]  # the newest first
    refs: tuple[Ref, ...]  # in order of their names
    properties: Mapping[str, str]  # the table's own
    metadata_location: str


@dataclass(frozen=True, slots=True)
class LastOptimized:
    """When a partition was last optimized, by type; a commit of a heavier type does not count for lighter ones."""

    minor: datetime | None = None
    major: datetime | None = None
    full: datetime | None = None


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """What the coordinator keeps about one action on one table. Times are UTC."""

    table_id: int
    action: str
    reason: str = ""  # why it is due, or why not
    last_at: datetime | None = None  # when it last succeeded, found nothing to do, or was closed
    next_at: datetime | None = None  # when it is due, or evaluated again; None: not known
    failures: int = 0  # in a row
    failure_code: str = ""  # of the last of them
    failing_since: datetime | None = None  # when the first of them happened
    retry_at: datetime | None = None  # back-off after failures
    fruitless: int = 0  # runs in a row that changed nothing though it was planned
    paused_at: datetime | None = None  # since when the clock leaves it alone
    paused_for: str = ""  # why
    properties: str = ""  # a digest of those that it goes by, as they were last seen; "": not seen yet


class Origin(StrEnum):
    """Where a property's value comes from."""

    TABLE = "table"
    POLICY = "policy"  # followed by its name
    CATALOG = "catalog"  # as a default for its tables, under `table.`
    DEFAULT = "default"
    UNKNOWN = "unknown"  # set, but not a property of ours: it has no effect


@dataclass(frozen=True, slots=True)
class TableRuntime:
    """What the coordinator keeps about one table. Times are UTC."""

    table_id: int
    identifier: TableIdentifier
    uuid: str
    format_version: int
    location: str
    group: str
    status: OptimizingStatus
    status_since: datetime
    status_reason: str = ""  # why idle, pending, refused, ...
    refusal: str = ""  # the word in REFUSED(word)
    enabled_override: bool | None = None  # `amoro table enable|disable`; None: neither
    enabled: bool = False  # the effective value at the last refresh
    enabled_origin: str = ""
    veto: Origin | None = None  # whose "false" forbade it then: the table's property or a policy
    snapshot_id: int | None = None  # the head at the last refresh
    metadata_location: str = ""
    evaluated_snapshot_id: int | None = None
    evaluated_at: datetime | None = None
    evaluated_config: str = ""  # the configuration of that evaluation, the catalog's defaults included
    scanned_at: datetime | None = None  # when an evaluation last read its files, not just the totals
    refreshed_at: datetime | None = None
    refresh_at: datetime | None = None  # when it is refreshed next; None: at once
    next_due_at: datetime | None = None  # when an interval trigger comes due without a new commit
    pending_type: OptimizingType | None = None
    quota: float = 0.5
    failures: int = 0  # in a row
    failure_code: str = ""  # of the last of them
    failing_since: datetime | None = None  # when the first of them happened
    retry_at: datetime | None = None  # back-off after failures
    last_optimized_at: datetime | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    format: str = ""  # fixed at the first refresh; "": never refreshed
    summary: FileSummary = FileSummary()
    health: HealthParts | None = None  # None: not evaluated yet
    saving: Saving = Saving()  # by the last evaluation
    load_failure: str = ""  # of the last refresh, with its code; "": it worked
    failing: ActionRecord | None = None  # another action than optimizing that lacks a file, or failed three times
    priority: int = DEFAULT_PRIORITY
    value: float = 0.0  # of what is due: files saved × scans a day ÷ predicted thread seconds
    rate: float = 1.0  # learned: thread seconds that its work takes ÷ those predicted by its files
    planned_snapshot_id: int | None = None  # the base of its last committed plan
    planned_sequence: int = 0  # the sequence number of that

    @property
    def state(self) -> TableState:
        """What people see of it."""
        if self.status is OptimizingStatus.REFUSED:
            return TableState.REFUSED
        if self.status not in (OptimizingStatus.IDLE, OptimizingStatus.PENDING):
            return TableState.OPTIMIZING
        if self.failures or self.failing:
            return TableState.FAILING
        if self.evaluated_at is None:
            return TableState.NEW
        if self.pending_type is None:
            return TableState.HEALTHY
        return TableState.DUE if self.enabled else TableState.OBSERVED


DATABASE_FILTER = "database-filter"
TABLE_FILTER = "table-filter"


@dataclass(frozen=True, slots=True)
class DiscoveryFilter:
    """Patterns that the whole name must match; None: any name matches."""

    database: re.Pattern[str] | None = None
    table: re.Pattern[str] | None = None

    def admits_namespace(self, namespace: tuple[str, ...]) -> bool:
        """Whether tables of the namespace are discovered; nested namespaces are joined by dots."""
        return self.database is None or self.database.fullmatch(".".join(namespace)) is not None

    def admits(self, identifier: TableIdentifier) -> bool:
        named = self.table is None or self.table.fullmatch(identifier.name) is not None
        return named and self.admits_namespace(identifier.namespace)


def discovery_filter(properties: Mapping[str, str]) -> DiscoveryFilter:
    """The filter in a catalog's properties. Raises InvalidArgument for an invalid regular expression."""
    return DiscoveryFilter(*(_pattern(key, properties.get(key, "")) for key in (DATABASE_FILTER, TABLE_FILTER)))


def _pattern(key: str, text: str) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidArgument(f"{key} is not a regular expression: {text!r}: {error}") from error


class TableKey(StrEnum):
    """The sort keys of a list of tables; ties are ordered by table id."""

    NAME = "name"
    STATUS = "status"
    HEALTH = "health"  # tables that were not evaluated follow the healthy ones
    FILES = "files"
    SMALL_FILES = "small-files"  # fragments and undersized ones
    DELETES = "deletes"  # delete files
    SIZE = "size"  # of data files
    LAST_OPTIMIZED = "last-optimized"  # never is before every time
    NEXT_DUE = "next-due"  # tables that nothing is due for follow the others
    GROUP = "group"
    SAVING = "saving"  # files that optimizing would save


class Order(StrEnum):
    """The direction of a list."""

    ASC = "asc"
    DESC = "desc"


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Which tables are listed; "" and None: any."""

    catalog: str = ""
    status: OptimizingStatus | None = None
    group: str = ""
    text: str = ""  # in the name, in any case
    namespace: tuple[str, ...] = ()  # exactly this one
    enabled: bool | None = None
    refusal: str = ""  # the word in REFUSED(word)
    health_below: int | None = None  # evaluated tables with a lower score
    state: TableState | None = None

    @property
    def scope(self) -> tuple[object, ...]:
        """The filters as plain values, for a cursor."""
        return astuple(self)

    @property
    def is_all_of_catalog(self) -> bool:
        return bool(self.catalog) and self == TableFilter(self.catalog)


@dataclass(frozen=True, slots=True)
class TableOrder:
    """The order of a list of tables."""

    key: TableKey = TableKey.NAME
    order: Order = Order.ASC


@dataclass(frozen=True, slots=True)
class Turn:
    """The sort values of a table that waits for a plan."""

    table_id: int
    group: str
    quota: float
    last_optimized_at: datetime | None
    priority: int
    value: float
    since: datetime


@dataclass(frozen=True, slots=True)
class Pending:
    """A table that waits for a plan."""

    table_id: int
    identifier: TableIdentifier
    group: str
    quota: float
    enabled: bool
    since: datetime
    reason: str
    type: OptimizingType | None
    last_optimized_at: datetime | None
    priority: int
    value: float


LONGEST_HOLD = timedelta(days=1)  # from each renewal


class BlockedOperation(StrEnum):
    """A kind of work that can be kept off a table."""

    OPTIMIZE = "optimize"  # new processes of ours
    MAINTAIN = "maintain"  # new processes of maintenance
    BATCH_WRITE = "batch-write"  # writers that ask before they write


@dataclass(frozen=True, slots=True)
class Blocker:
    """Keeps its operations off a table until it is released or expires; at `expires_at` it no longer holds."""

    blocker_id: str  # UUIDv7
    table_id: int
    operations: frozenset[BlockedOperation]
    created_at: datetime
    expires_at: datetime
    held_for: timedelta  # from each renewal
    reason: str = ""  # who holds it and what for
    condition: str = ""  # on partition columns, of the partitions that it blocks; "": the whole table

    @property
    def words(self) -> str:
        """What is blocked, until when and by which blocker; to follow the name of the table in a message."""
        why = f" ({self.reason})" if self.reason else ""
        until = f"{self.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        where = f" where {self.condition}" if self.condition else ""
        return f"blocked for {', '.join(sorted(self.operations))}{where} until {until} by {self.blocker_id}{why}"

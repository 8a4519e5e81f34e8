"""What the Python API returns. Sizes are bytes, times are UTC, what never happened is None."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from amoro_core.api.shown import Shown


@dataclass(frozen=True, slots=True)
class FileSummary(Shown):
    """Counts over all live files of a table."""

    data_files: int
    data_bytes: int
    fragment_files: int
    undersized_files: int
    equality_delete_files: int
    position_delete_files: int
    delete_bytes: int
    dangling_delete_files: int
    records: int  # of data files, deletes not subtracted


@dataclass(frozen=True, slots=True)
class PlannedPartition(Shown):
    """One partition, and what would be done with it; `type` None: nothing."""

    partition: str  # its path, "" when unpartitioned
    spec_id: int
    type: str | None
    reason: str
    data_files: int
    equality_delete_files: int
    position_delete_files: int
    input_bytes: int
    expected_files: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Plan(Shown):
    """What optimizing would rewrite now, and why; `type` None: nothing."""

    table: str
    snapshot_id: int | None
    type: str | None
    reason: str
    partitions: tuple[PlannedPartition, ...]
    tasks: int
    files: FileSummary
    next_at: datetime | None  # when the next optimizing comes by the clock
    health_score: int  # 0 to 100, −1: not evaluated
    enabled: bool  # whether a coordinator optimizes it by itself
    enabled_origin: str
    disputed_deletes: int  # equality deletes on its inputs that Iceberg's Java readers pass over
    _explained: str = field(default="", repr=False, compare=False)

    def explain(self) -> str:
        """Every partition with the reason, as `amoro plan --explain` prints it."""
        return self._explained


@dataclass(frozen=True, slots=True)
class Receipt(Shown):
    """What a commit did."""

    data_files_before: int
    data_files_after: int
    delete_files_before: int
    delete_files_after: int
    bytes_before: int
    bytes_after: int
    rows_before: int
    rows_after: int
    snapshot_id: int
    base_snapshot_id: int
    duration_ms: int
    revertible: bool  # the snapshot is still the head
    disputed_deletes: int  # equality deletes on its inputs that Iceberg's Java readers pass over


@dataclass(frozen=True, slots=True)
class Task(Shown):
    """A set of files that is rewritten together."""

    task_id: int
    status: str
    attempt: int
    optimizer_id: str | None
    partition: str
    input_files: int
    input_bytes: int
    rows_done: int
    rows_total: int
    failure_code: str
    failure: str
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Process(Shown):
    """An optimizing process."""

    process_id: str
    table: str
    type: str
    status: str
    trigger: str
    reason: str
    snapshot_id: int  # planned on
    created_at: datetime
    finished_at: datetime | None
    failure_code: str
    failure: str
    tasks_total: int
    tasks_done: int
    tasks: tuple[Task, ...]
    receipt: Receipt | None
    where: str  # the condition that limits it to partitions, "": none


@dataclass(frozen=True, slots=True)
class Optimizing(Shown):
    """What came of the request to optimize a table.

    `outcome` is "nothing_to_do", "planned" when the end was not waited for, else the status of the process.
    """

    table: str
    outcome: str
    plan: Plan
    process: Process | None

    @property
    def receipt(self) -> Receipt | None:
        """What the commit did, if there was one."""
        return self.process.receipt if self.process else None

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that was committed."""
        return self.receipt.snapshot_id if self.receipt else None


@dataclass(frozen=True, slots=True)
class Maintenance(Shown):
    """What came of the request to maintain a table by an action.

    `outcome` is "nothing_to_do", "due" of a dry run, "planned" when the end was not waited for, else the status of the
    process. `plan` is what would be done or was planned: the items with their reasons.
    """

    table: str
    action: str
    outcome: str
    reason: str
    held: str  # why a person has to confirm it first
    plan: Mapping[str, Any]
    process: Process | None


@dataclass(frozen=True, slots=True)
class ComparedPartition(Shown):
    """One partition before and after; data files that both snapshots have with the same deletes do not count."""

    partition: str
    spec_id: int
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int
    checksum_before: str  # of the multiset of rows
    checksum_after: str
    equal: bool


@dataclass(frozen=True, slots=True)
class Comparison(Shown):
    """The rows of two snapshots."""

    before: int
    after: int
    process_ids: tuple[str, ...]
    files_in_both: int
    rows_before: int
    rows_after: int
    equal: bool
    partitions: tuple[ComparedPartition, ...]
    disputed_deletes: int  # equality deletes on files of before that Iceberg's Java readers pass over


@dataclass(frozen=True, slots=True)
class Verification(Shown):
    """Rewrites compared row by row; `sound`: every comparison is equal, and there is no problem."""

    table: str
    snapshot_id: int | None  # whose files were checked
    sound: bool
    comparisons: tuple[Comparison, ...]
    other_snapshots: tuple[int, ...]  # of other writers in between, which changed rows by intent
    note: str  # why there is nothing to compare
    files: int
    dangling_deletes: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table(Shown):
    """What a coordinator keeps about a table."""

    table: str
    table_uuid: str
    format_version: int
    location: str
    group: str
    status: str
    status_reason: str
    status_since: datetime
    enabled: bool
    enabled_origin: str
    snapshot_id: int | None
    files: FileSummary
    last_optimized_at: datetime | None
    retry_at: datetime | None
    process_id: str | None  # of the active one
    evaluated_at: datetime | None
    health_score: int  # 0 to 100, −1: not evaluated


@dataclass(frozen=True, slots=True)
class Catalog(Shown):
    """Where tables come from; secrets are shown as ***."""

    name: str
    origin: str
    properties: Mapping[str, str]
    allowed_locations: tuple[str, ...]
    commits: bool
    refusal: str


@dataclass(frozen=True, slots=True)
class Optimizer(Shown):
    """What does the rewriting."""

    optimizer_id: str
    group: str
    threads: int
    memory_bytes: int
    registered_at: datetime
    touched_at: datetime | None
    running_tasks: int
    labels: Mapping[str, str]
    draining: bool

"""Results that render themselves: as text like the command line, as HTML in a notebook."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from html import escape
from typing import Any

from amoro_cli.output import Block, Grid, Pairs, brief, plain_lines
from amoro_core.model.clustering import EncodedFiles
from amoro_core.model.processes import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedResult:
    """A result that renders as the command line prints it, or as its fields; `str` returns that text."""

    blocks: tuple[Block, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        return "\n".join(line for block in self._parts() for line in plain_lines(block))

    def _repr_html_(self) -> str:
        return "".join(_html(block) for block in self._parts())

    def _parts(self) -> tuple[Block, ...]:
        own = [item.name for item in fields(self) if item.repr]
        return brief(self.blocks) or (Pairs(tuple((name, str(getattr(self, name))) for name in own)),)


def _html(block: Block) -> str:
    match block:
        case str():
            return f"<p>{escape(block).replace(chr(10), '<br>')}</p>"
        case Grid(header, rows, right):
            flush = [" style='text-align:right'" if title in right else "" for title in header]
            body = "".join(_row("td", row, flush) for row in rows)
            return f"<table><thead>{_row('th', header, flush)}</thead><tbody>{body}</tbody></table>"
        case Pairs(pairs):
            rows_ = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in pairs)
            return f"<table><tbody>{rows_}</tbody></table>"


def _row(tag: str, cells: Iterable[str], flush: Iterable[str]) -> str:
    inner = "".join(f"<{tag}{style}>{escape(cell)}</{tag}>" for cell, style in zip(cells, flush, strict=True))
    return f"<tr>{inner}</tr>"


@dataclass(frozen=True, slots=True)
class FileSummary(RenderedResult):
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
    coarse_files: int  # of target size, of many small row groups that minor copied: major and full encode them
    coarse_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedPartition(RenderedResult):
    """The plan for one partition; `type` None: nothing to do."""

    partition: str  # its path, "" when unpartitioned
    spec_id: int
    type: str | None
    reason: str
    data_files: int
    equality_delete_files: int
    position_delete_files: int  # deletion vectors included
    input_bytes: int
    expected_files: int
    tasks: int
    deletion_vectors: int  # of the position deletes
    files_to_fold: int  # data files whose position delete files are to become vectors
    delete_files_to_fold: int  # these position delete files
    bytes_to_fold: int  # of these position delete files
    data_bytes: int  # of its data files, whether they are read or not
    coarse_files: int  # data files of target size, of many small row groups that minor copied
    coarse_bytes: int  # of these


@dataclass(frozen=True, slots=True)
class Plan(RenderedResult):
    """What optimizing would rewrite now, and why; `type` None: nothing."""

    table: str
    snapshot_id: int | None
    type: str | None
    reason: str
    partitions: tuple[PlannedPartition, ...]
    tasks: int
    files: FileSummary
    next_at: datetime | None  # when the next scheduled optimizing is due
    health_score: int  # 0 to 100, −1: not evaluated
    enabled: bool  # whether a coordinator optimizes it automatically
    enabled_origin: str
    disputed_deletes: int  # equality deletes on its inputs that Iceberg's Java readers skip
    copying: str  # which row groups are copied, or why all rows are encoded; "": no file is rewritten
    _explained: str = field(default="", repr=False, compare=False)

    def explain(self) -> str:
        """Every partition with the reason, as `amoro plan --explain` prints it."""
        return self._explained


@dataclass(frozen=True, slots=True)
class Receipt(RenderedResult):
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
    disputed_deletes: int  # equality deletes on its inputs that Iceberg's Java readers skip
    figures: tuple[Figure, ...] = field(default=(), repr=False)  # these and those of the action's own
    #: Why files were encoded where row groups may be copied, the commonest reason first.
    encoded: tuple[EncodedFiles, ...] = field(default=(), repr=False)
    #: Deletes of others, later than the plan, that hide rows of the outputs: how many, in which file, and who wrote it.
    carried: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Task(RenderedResult):
    """A set of files rewritten together."""

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
class Process(RenderedResult):
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
class Optimizing(RenderedResult):
    """The result of optimizing a table.

    `outcome` is "nothing_to_do", "planned" when the end was not awaited, else the status of the process.
    """

    table: str
    outcome: str
    plan: Plan
    process: Process | None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the commit; None without one."""
        return self.process.receipt if self.process else None

    @property
    def snapshot_id(self) -> int | None:
        """The committed snapshot; None without one."""
        return self.receipt.snapshot_id if self.receipt else None


@dataclass(frozen=True, slots=True)
class Maintenance(RenderedResult):
    """The result of maintaining a table by an action.

    `outcome` is "nothing_to_do", "due" for a dry run, "planned" when the end was not awaited, else the status of the
    process. `plan` holds the items with their reasons.
    """

    table: str
    action: str
    outcome: str
    reason: str
    held: str  # why it needs confirmation first; "" when it does not
    plan: Mapping[str, Any]
    process: Process | None


@dataclass(frozen=True, slots=True)
class ComparedPartition(RenderedResult):
    """One partition before and after, without data files that both snapshots have with the same deletes."""

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
class Comparison(RenderedResult):
    """The rows of two snapshots."""

    before: int
    after: int
    process_ids: tuple[str, ...]
    files_in_both: int
    rows_before: int
    rows_after: int
    equal: bool
    partitions: tuple[ComparedPartition, ...]
    disputed_deletes: int  # equality deletes on the previous files that Iceberg's Java readers skip


@dataclass(frozen=True, slots=True)
class Verification(RenderedResult):
    """Rewrites compared by their rows; `sound`: every comparison is equal, and there is no problem."""

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
class Table(RenderedResult):
    """The state that a coordinator keeps about a table."""

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
    state: str  # new, healthy, due, observed, optimizing, failing or refused
    failures: int  # in a row
    failure_code: str
    failing_since: datetime | None
    saved_files: int  # by optimizing what is due


@dataclass(frozen=True, slots=True)
class Catalog(RenderedResult):
    """Where tables come from; secrets are shown as ***."""

    name: str
    origin: str
    properties: Mapping[str, str]
    allowed_locations: tuple[str, ...]
    commits: bool
    refusal: str


@dataclass(frozen=True, slots=True)
class Optimizer(RenderedResult):
    """A process that executes tasks."""

    optimizer_id: str
    group: str
    threads: int
    memory_bytes: int
    registered_at: datetime
    touched_at: datetime | None
    running_tasks: int
    labels: Mapping[str, str]
    draining: bool


@dataclass(frozen=True, slots=True)
class LearnedColumn(RenderedResult):
    """A column that scans filter by."""

    column: str
    scans: int


@dataclass(frozen=True, slots=True)
class Learned(RenderedResult):
    """What was learned of how a table is read."""

    table: str
    scans: int  # that were kept
    unfiltered_scans: int  # of these by no column that the table has
    old_scans: int  # that are older than is kept
    first_day: str  # such as 2026-11-22, "": nothing was kept
    last_day: str
    columns: tuple[LearnedColumn, ...]  # those filtered by most first
    recent_scans: int  # that count for columns=auto now, from any source
    enough_scans: int  # that columns=auto needs


@dataclass(frozen=True, slots=True)
class SuggestedColumn(RenderedResult):
    """A column that a table may be clustered by."""

    column: str
    reason: str
    files_met: float  # by a point query on it, on average; 0.0: not known


@dataclass(frozen=True, slots=True)
class ChosenColumn(RenderedResult):
    """A column of a choice."""

    column: str
    saved: float  # share of the bytes that it adds


@dataclass(frozen=True, slots=True)
class ChosenColumns(RenderedResult):
    """Columns that are chosen by how the table is read; none: not chosen yet."""

    columns: tuple[ChosenColumn, ...]
    strategy: str
    chosen_at: datetime | None
    scans: int  # that they are chosen by
    saved: float  # share of the bytes that these need not read


@dataclass(frozen=True, slots=True)
class Suggested(RenderedResult):
    """Columns that a table may be clustered by."""

    table: str
    files: int
    columns: tuple[SuggestedColumn, ...]  # the best first
    auto: ChosenColumns
    auto_reason: str

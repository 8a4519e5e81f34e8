"""Whether a table needs optimizing now, partition by partition, and why or why not."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from amoro_core.documents.formatting import many
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.files import DataFile, DeleteIdentity, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import Evaluation, FileDigest, PartitionKey, PartitionVerdict, TaskPlan
from amoro_core.model.tables import FAULTLESS, FileSummary, LastOptimized, OptimizingType, SnapshotFacts, ancestors
from amoro_core.planning.optimizing import forecast, messages
from amoro_core.planning.optimizing.messages import precheck_until
from amoro_core.planning.optimizing.partitions import (
    FileClass,
    PartitionFiles,
    PartitionStats,
    ScoredPartition,
    basis_of,
    classify,
    digest_of,
    live_bytes,
    mean_health,
    needed_by,
    parted,
    partitions_of,
    scores_of,
    summarize,
)
from amoro_core.planning.optimizing.planner import WEIGHT, settled, within_file_count
from amoro_core.planning.optimizing.tasks import PartitionSelection, deletes_of, inputs_of, tasks_of, weigh

#: An interval has passed when it is exceeded; times count milliseconds.
_TICK = timedelta(milliseconds=1)
_NEVER = LastOptimized()
_REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class _Case:
    """One partition under evaluation."""

    partition: PartitionFiles
    config: OptimizingConfig
    last: LastOptimized
    now: datetime
    commits: int  # of other writers, since the table's last plan

    @property
    def stats(self) -> PartitionStats:
        return self.partition.stats


@dataclass(frozen=True, slots=True)
class _Decision:
    type: OptimizingType | None
    reason: str
    tasks: tuple[TaskPlan, ...] = ()
    due_at: datetime | None = None


def evaluate(
    scan: TableScan | None,
    config: OptimizingConfig,
    last: Mapping[PartitionKey, LastOptimized],
    now: datetime,
    requested: OptimizingType | None = None,
    force: bool = False,
    path_of: Callable[[PartitionKey], str] | None = None,
    selects: Callable[[DataFile], bool] | None = None,
    chooses: Callable[[PartitionKey], bool] | None = None,
    clustered: Set[str] = frozenset(),
    commits: int = 0,
) -> Evaluation:
    """The verdict on the table, by its triggers or on request.

    A partition gets a type only if its tasks would gain something. `scan` None: a table without snapshot.
    `force` belongs to a requested full and takes what gains nothing too; `path_of` names partitions in reasons.
    `selects` is the table's filter: other files are left alone, but counted in the summary, and what applies to
    them stays. So it is with `chooses`, by which a request limits the round to whole partitions. `clustered` are the
    ids of groups whose order stays: their files are small for nobody, and are rewritten by themselves or not at all.
    `commits` are those of other writers since the last plan (`foreign_commits`).
    """
    if scan is None:
        summary = FileSummary(health_score=FAULTLESS.score)
        return Evaluation(
            None,
            None,
            "nothing to do: the table has no snapshot",
            (),
            summary,
            health=FAULTLESS,
            basis=basis_of((), config),
            digest=FileDigest(None, config.target_size),
        )
    everything = partitions_of(scan, config, clustered)
    chosen = everything if chooses is None else [partition for partition in everything if chooses(partition.key)]
    partitions, staying = chosen, frozenset[DeleteIdentity]()
    if selects is not None:
        parts = {partition_files.key: parted(partition_files, selects) for partition_files in everything}
        partitions = [part for part in (parts[partition.key][0] for partition in chosen) if len(part.files)]
        # Files outside the filter, which need these equality deletes, are never converted or rewritten.
        staying = staying.union(*(needed_by(part.files.files, part.files.ids) for _, part in parts.values()))
    verdicts = []
    for partition in partitions:
        case = _Case(partition, config, last.get(partition.key, _NEVER), now, commits)
        decision = _prechecked(case, _decide(case)) if requested is None else _grant(case, requested, force)
        verdicts.append(_verdict(case, decision, staying))
    stats = [partition.stats for partition in everything]
    scores = [scores_of(partition_stats, config) for partition_stats in stats]
    health = mean_health(scores)
    scored = [ScoredPartition(partition, sum(points)) for partition, points in zip(everything, scores, strict=True)]
    kinds = [verdict.type for verdict in verdicts if verdict.type is not None]
    outside = messages.OUTSIDE_FILTER if chosen else messages.NOT_CHOSEN
    return Evaluation(
        scan.snapshot_id,
        max(kinds, key=WEIGHT.__getitem__, default=None),
        messages.of_table(verdicts, path_of) if verdicts or not everything else outside,
        tuple(verdicts),
        summarize(scan, everything, health),
        min((verdict.due_at for verdict in verdicts if verdict.due_at is not None), default=None),
        health,
        basis_of(stats, config),
        digest_of(scan, scored, verdicts, config.target_size, path_of),
    )


def _verdict(case: _Case, decision: _Decision, staying: frozenset[DeleteIdentity]) -> PartitionVerdict:
    work = settled(decision.tasks, staying, case.config)
    tasks = within_file_count(work, case.config.max_file_count, case.config)
    stats = case.stats
    written = sum(task.output_count for task in tasks)
    input_bytes, cost = weigh(tasks, case.config)
    return PartitionVerdict(
        key=case.partition.key,
        type=decision.type,
        reason=decision.reason,
        data_files=stats.data_files,
        data_bytes=stats.data_bytes,
        coarse_files=stats.coarse,
        coarse_bytes=stats.coarse_bytes,
        equality_delete_files=len(stats.equality_deletes),
        position_delete_files=len(stats.position_deletes),
        deletion_vectors=stats.vectors,
        files_to_fold=stats.files_to_fold,
        delete_files_to_fold=len(stats.to_fold),
        bytes_to_fold=sum(delete.identity.size for delete in stats.to_fold),
        input_bytes=input_bytes,
        cost=cost,
        due_at=decision.due_at,
        expected_files=stats.data_files - sum(len(task.rewritten) for task in tasks) + written,
        tasks=len(tasks),
        work_s=0.0 if decision.type is None else forecast.work_s(tasks, decision.type, case.config),
        work=work,
    )


def _decide(case: _Case) -> _Decision:
    """The decision of the triggers: full before major before minor, each only if it gains something."""
    if case.config.full_trigger_interval is not None and _full_due_at(case) is None:
        tasks = _tasks(case, OptimizingType.FULL)
        if tasks:
            reason = messages.passed(OptimizingType.FULL, case.config.full_trigger_interval, case.last.full)
            return _Decision(OptimizingType.FULL, reason, tasks)
    major = _major_trigger(case)
    if major and (tasks := _tasks(case, OptimizingType.MAJOR)):
        return _Decision(OptimizingType.MAJOR, major, tasks)
    minor = _minor_trigger(case)
    if minor and (tasks := _tasks(case, OptimizingType.MINOR)):
        if _undersized_enough(_undersized_after(case, tasks), case.config):
            # The outputs would trigger major at once: this way everything is written only once.
            tasks = _tasks(case, OptimizingType.MAJOR)
            return _Decision(OptimizingType.MAJOR, f"{minor}; with undersized files, which they would fill up", tasks)
        if case.stats.too_short:
            # Converted now, they would trigger major at once.
            tasks = _tasks(case, OptimizingType.MAJOR)
            return _Decision(OptimizingType.MAJOR, messages.too_short(case.stats, minor), tasks)
        return _Decision(OptimizingType.MINOR, minor, tasks)
    return _postponed(case)


def _prechecked(case: _Case, decision: _Decision) -> _Decision:
    """The decision, or that it waits because the metadata pre-check holds the partition back."""
    until = None if decision.type is None else precheck_until(case.partition, case.config, case.last, case.now)
    if until is None:
        return decision
    return _Decision(None, messages.delayed(decision.reason, case.config, until), due_at=until)


def _grant(case: _Case, requested: OptimizingType, force: bool) -> _Decision:
    """The decision on a request, regardless of counts, ratios and intervals."""
    selection = PartitionSelection(requested, requested=True, force=force and requested is OptimizingType.FULL)
    tasks = tasks_of(case.partition, selection, case.config)
    stats, folds = case.stats, case.stats.fresh_equality_deletes > 0 or case.stats.files_to_fold > 0
    deserves_minor = stats.fragments > 1 or folds or bool(case.partition.files.combinable.any())
    if not tasks or (requested is OptimizingType.MINOR and not deserves_minor):
        return _Decision(None, messages.nothing_requested(requested, case.partition))
    return _Decision(requested, messages.requested(requested, case.partition, selection.force), tasks)


def _tasks(case: _Case, kind: OptimizingType) -> tuple[TaskPlan, ...]:
    return tasks_of(case.partition, PartitionSelection(kind), case.config)


def _major_trigger(case: _Case) -> str:
    stats, config = case.stats, case.config
    if stats.duplicates:
        ratio = config.major_trigger_duplicate_ratio
        return f"{many(stats.duplicates, 'file')} with more than {ratio:.3g} of the rows deleted"
    if _undersized_enough(stats.undersized, config):
        return messages.undersized(stats, config)
    if stats.coarse and config.coarse_interval is not None and _encoded_at(case) and _coarse_due_at(case) is None:
        return messages.coarse(stats, config)
    return ""


def _undersized_enough(sizes: Sequence[int], config: OptimizingConfig) -> bool:
    return len(sizes) > 1 and sum(sizes) >= config.target_size and sum(sorted(sizes)[:2]) <= config.target_size


def _undersized_after(case: _Case, tasks: Sequence[TaskPlan]) -> list[int]:
    files = case.partition.files
    in_order = set(files.files.columns.paths_of(files.ids[files.in_order]).to_pylist())
    sizes = [
        sum(live_bytes(file) for file in task.rewritten) // task.output_count
        for task in tasks
        if not any(file.data.path in in_order for file in task.rewritten)
        for _ in range(task.output_count)
    ]
    return [*case.stats.undersized, *(size for size in sizes if classify(size, case.config) is FileClass.UNDERSIZED)]


def _minor_trigger(case: _Case) -> str:
    stats, config = case.stats, case.config
    if stats.small_files >= config.minor_trigger_file_count:
        return messages.minor_count(stats, config)
    if stats.combinable:
        return f"{many(stats.combinable, 'file')} with several position deletes"
    if not _waits_for_minor(stats):
        return ""
    if config.minor_trigger_commits is not None and case.commits >= config.minor_trigger_commits:
        return messages.commits(case.commits, config)
    if config.minor_trigger_delete_bytes is not None:
        to_fold = _bytes_to_fold(case)
        if to_fold >= config.minor_trigger_delete_bytes:
            return messages.delete_bytes(to_fold, config)
    # With a count of commits a new partition waits for it, or each first file of a day would be a reason.
    begins = case.last.minor is not None or config.minor_trigger_commits is None
    if begins and config.minor_trigger_interval is not None and _minor_due_at(case) is None:
        return messages.minor_interval(stats, config, case.last)
    return ""


def _bytes_to_fold(case: _Case) -> int:
    """Bytes of the deletes that minor would fold; not of those that name one file, which a conversion has made."""
    files = (file for task in _tasks(case, OptimizingType.MINOR) for file in inputs_of(task))
    return sum(delete.identity.size for delete in deletes_of(files).values() if delete.named_file is None)


def _waits_for_minor(stats: PartitionStats) -> bool:
    """Whether the interval suffices for minor: a single small file is no reason, but what is to be folded is."""
    return stats.small_files > 1 or stats.files_to_fold > 0


def _minor_due_at(case: _Case) -> datetime | None:
    return _due_at(case, case.last.minor, case.config.minor_trigger_interval)


def _full_due_at(case: _Case) -> datetime | None:
    return _due_at(case, case.last.full, case.config.full_trigger_interval)


def _coarse_due_at(case: _Case) -> datetime | None:
    return _due_at(case, _encoded_at(case), case.config.coarse_interval)


def _encoded_at(case: _Case) -> datetime | None:
    """When coarse files of the partition were encoded last; where they never were, when the last may have been made."""
    encoded = [at for at in (case.last.major, case.last.full) if at is not None]
    return max(encoded, default=case.last.minor)


def _due_at(case: _Case, last: datetime | None, interval: timedelta | None) -> datetime | None:
    """When the interval will have passed; None when it has (also if never optimized) or never will."""
    if interval is None or last is None or case.now - last > interval:
        return None
    return last + interval + _TICK


def _postponed(case: _Case) -> _Decision:
    coming: list[tuple[datetime, OptimizingType]] = []
    if (due := _minor_due_at(case)) and _waits_for_minor(case.stats) and _tasks(case, OptimizingType.MINOR):
        coming.append((due, OptimizingType.MINOR))
    if case.stats.coarse and (due := _coarse_due_at(case)) and _tasks(case, OptimizingType.MAJOR):
        coming.append((due, OptimizingType.MAJOR))
    if (due := _full_due_at(case)) and _tasks(case, OptimizingType.FULL):
        coming.append((due, OptimizingType.FULL))
    due_at, kind = min(coming, default=(None, None))
    return _Decision(None, messages.nothing(case.stats, case.config, due_at, kind, case.commits), due_at=due_at)


def foreign_commits(
    snapshots: Iterable[SnapshotFacts],
    head_id: int | None,
    planned_id: int | None,
    planned_sequence: int,
    own: Set[int],
) -> int:
    """How many commits of other writers main has since the last plan, which was made on `planned_id`.

    `own` are the snapshots of our commits since then. Replacing commits don't count. Each commit raises the table's
    sequence number by one: this tells how many snapshots have expired since, of which those in `own` don't count
    either. Format 1 has no sequence numbers: there, snapshots that are gone don't count.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    head = by_id.get(head_id) if head_id is not None else None
    if head is None:
        return 0
    main = takewhile(lambda item: item.snapshot_id != planned_id, ancestors(by_id, head_id))
    later = [snapshot for snapshot in main if snapshot.sequence_number > planned_sequence or not head.sequence_number]
    foreign = sum(PROCESS_ID not in snapshot.summary and snapshot.operation != _REPLACE for snapshot in later)
    if not head.sequence_number:
        return foreign
    present = sum(planned_sequence < snapshot.sequence_number <= head.sequence_number for snapshot in by_id.values())
    return foreign + max(0, head.sequence_number - planned_sequence - present - len(own - by_id.keys()))

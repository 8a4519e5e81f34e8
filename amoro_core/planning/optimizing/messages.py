"""Pre-checks, reasons and messages of optimizing, and plans that exclude reserved files.

Amoro's metadata pre-check holds tables and partitions back by cheap figures, for the time of
`self-optimizing.evaluation.fallback-interval`, if that is set.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.documents.formatting import many
from amoro_core.model.files import DataFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.paths import normalise
from amoro_core.model.plans import Evaluation, PartitionKey, PartitionVerdict
from amoro_core.model.tables import FAULTLESS, FileSummary, LastOptimized, OptimizingType, summary_count
from amoro_core.planning.clustering.layouts import preserved_groups
from amoro_core.planning.optimizing.partitions import PartitionFiles, PartitionStats, order_of
from amoro_core.scan.live_files import LiveFiles


@dataclass(frozen=True, slots=True)
class TableTotals:
    """The totals of all live files in a snapshot's summary."""

    data_files: int
    delete_files: int
    bytes: int


def totals_of(summary: Mapping[str, str]) -> TableTotals | None:
    """The totals of a snapshot's summary; None if one is missing or invalid."""
    files, deletes, size = (
        summary_count(summary, key) for key in ("total-data-files", "total-delete-files", "total-files-size")
    )
    return None if files is None or deletes is None or size is None else TableTotals(files, deletes, size)


def evaluate_totals(
    snapshot_id: int,
    totals: TableTotals | None,
    config: OptimizingConfig,
    last_scanned_at: datetime | None,
    now: datetime,
    last: FileSummary,
) -> Evaluation | None:
    """The verdict where totals alone show that nothing is to be done, by the last summary `last`; None: read files."""
    interval = config.evaluation_fallback_interval
    health = None
    if interval is None or totals is None or last_scanned_at is None or now - last_scanned_at >= interval:
        return None
    if totals.data_files == 0:
        reason = "the table has no data files"
        summary = FileSummary(health_score=FAULTLESS.score, dangling_delete_files=totals.delete_files)
        health = FAULTLESS
    elif totals.delete_files == 0 and totals.bytes > config.min_target_size * totals.data_files:
        reason = "no deletes, and data files are large on average"
        summary = replace(
            last,
            data_files=totals.data_files,
            data_bytes=totals.bytes,
            equality_delete_files=0,
            position_delete_files=0,
            delete_bytes=0,
            dangling_delete_files=0,
        )
    else:
        return None
    due_at = last_scanned_at + interval
    return Evaluation(
        snapshot_id, None, f"nothing to do: {reason}; {next_evaluation(due_at)}", (), summary, due_at, health
    )


def precheck_until(
    partition: PartitionFiles, config: OptimizingConfig, last: LastOptimized, now: datetime
) -> datetime | None:
    """Until when a partition is held back because its small files are too few, or their mean squared distance to the
    target is below the tolerance; None: it is not."""
    interval = config.evaluation_fallback_interval
    latest = max((at for at in (last.minor, last.major, last.full) if at is not None), default=None)
    if interval is None or latest is None or now - latest >= interval:
        return None
    files, target = partition.files, config.min_target_size
    small = files.is_fragment | (files.is_undersized & ~files.duplicates)
    short = [target - min(size, target) for size in files.sizes[small].tolist()]
    squares = sum(distance * distance for distance in short)
    is_uneven = len(short) > 1 and squares >= config.mse_tolerance**2 * len(short)
    return None if is_uneven else latest + interval


def next_evaluation(due_at: datetime) -> str:
    """When the check no longer holds anything back, as a phrase."""
    return f"next evaluation at {due_at:%Y-%m-%d %H:%M} UTC by fallback interval"


#: Why a table has no verdict on any partition although it has files.
OUTSIDE_FILTER = "nothing to do: the table has no data files in its filter"
NOT_CHOSEN = "nothing to do: no partition satisfies the condition"
_MIB = 1024 * 1024


def minor_count(stats: PartitionStats, config: OptimizingConfig) -> str:
    """Why minor is due by its count."""
    return f"{_small_files(stats)}, {config.minor_trigger_file_count} are enough for minor"


def minor_interval(stats: PartitionStats, config: OptimizingConfig, last: LastOptimized) -> str:
    """Why minor is due by its interval."""
    return f"{_small_files(stats)}, {passed(OptimizingType.MINOR, config.minor_trigger_interval, last.minor)}"


def commits(count: int, config: OptimizingConfig) -> str:
    """Why minor is due by the commits of other writers."""
    return f"{many(count, 'commit')} since the last plan, {config.minor_trigger_commits} are enough for minor"


def delete_bytes(size_bytes: int, config: OptimizingConfig) -> str:
    """Why minor is due by the bytes of deletes."""
    enough = _size(config.minor_trigger_delete_bytes or 0)
    return f"deletes of {_size(size_bytes)} to fold, {enough} are enough for minor"


def deferred_tasks(tasks: int, config: OptimizingConfig) -> str:
    """That a plan leaves work to the next one."""
    limit = _size(config.max_plan_bytes or 0)
    return f"{many(tasks, 'task')} left to the next plan by self-optimizing.max-plan-bytes ({limit})"


def too_short(stats: PartitionStats, minor: str) -> str:
    """Why what is due as minor becomes major: a single deleted row of a file would exceed the ratio."""
    files = many(stats.too_short, "file")
    return f"{minor}; on {files} of which one deleted row is too many, so they are rewritten at once"


def undersized(stats: PartitionStats, config: OptimizingConfig) -> str:
    """Why major is due by undersized files."""
    sizes = stats.undersized
    return f"{many(len(sizes), 'undersized file')} of {_size(sum(sizes))} in all, target {_size(config.target_size)}"


def coarse(stats: PartitionStats, config: OptimizingConfig) -> str:
    """Why major is due by files whose row groups were copied."""
    files = f"{many(stats.coarse, 'file')} with small row groups, {_size(stats.coarse_bytes)} in all"
    return f"{files}, and nothing was encoded for more than {config.coarse_interval}"


def passed(kind: OptimizingType, interval: timedelta | None, last: datetime | None) -> str:
    """Why the type is due by its interval."""
    return f"never {kind} optimized" if last is None else f"last {kind} more than {interval} ago"


def requested(kind: OptimizingType, partition: PartitionFiles, force: bool) -> str:
    """The reason for a requested type."""
    stats = partition.stats
    phrases = [
        many(stats.fragments, "fragment"),
        many(len(stats.undersized), "undersized file") if kind is not OptimizingType.MINOR else "",
        _coarse_files(stats) if kind is not OptimizingType.MINOR else "",
        many(len(stats.equality_deletes), "equality delete"),
        many(len(stats.position_deletes) - stats.vectors, "position delete"),
        many(stats.vectors, "deletion vector"),
        many(partition.dangling, "dangling delete") if kind is OptimizingType.FULL else "",
    ]
    words = ", ".join(words for words in phrases if words and not words.startswith("0 ")) or many(
        stats.data_files, "file"
    )
    return f"{kind} requested{' by force' if force else ''}: {words}"


def nothing_requested(kind: OptimizingType, partition: PartitionFiles) -> str:
    """Why a requested type has nothing to do in a partition."""
    match kind:
        case OptimizingType.MINOR:
            several = partition.stats.fragments > 1
            deletes = _carried(partition.stats) or "no equality deletes"
            if partition.folds:
                deletes += ", no position delete files"
            fragments = "no two fragments that fit together" if several else "fewer than two fragments"
            return f"nothing to do: {fragments}, {deletes}"
        case OptimizingType.MAJOR:
            deletes = "no deletes that apply" if partition.dangling else "no deletes"
            return f"nothing to do: no small files that fit together, {deletes}"
        case OptimizingType.FULL:
            return "nothing to do: no fewer files possible, no deletes"


def nothing(
    stats: PartitionStats,
    config: OptimizingConfig,
    due_at: datetime | None,
    kind: OptimizingType | None,
    commits: int = 0,
) -> str:
    """Why no trigger fires, and which one comes next."""
    phrases = []
    if stats.small_files:
        enough = stats.small_files >= config.minor_trigger_file_count
        lacking = "no two fit together" if enough else f"{config.minor_trigger_file_count} needed"
        phrases.append(f"{_small_files(stats)}, {lacking}")
    if stats.undersized:
        size, target = sum(stats.undersized), _size(config.target_size)
        lacking = f"{target} needed" if size < config.target_size else f"no two fit into {target}"
        phrases.append(f"{many(len(stats.undersized), 'undersized file')} of {_size(size)}, {lacking}")
    if stats.coarse:
        phrases.append(_coarse_files(stats))
    if not phrases:
        has_deletes = stats.position_deletes or stats.equality_deletes
        phrases.append("no small files" if has_deletes else "no small files, no deletes")
    if carried := _carried(stats):
        phrases.append(carried)
    if within := len(stats.position_deletes) - stats.vectors - len(stats.to_fold):
        phrases.append(f"{many(within, 'position delete')} within bounds")
    if stats.vectors:
        phrases.append(f"{many(stats.vectors, 'deletion vector')} within bounds")
    if config.minor_trigger_commits is not None:
        phrases.append(f"{many(commits, 'commit')} since the last plan, {config.minor_trigger_commits} needed")
    if due_at is not None and kind is not None:
        phrases.append(f"next {kind} at {due_at:%Y-%m-%d %H:%M} UTC by interval")
    return f"nothing to do: {'; '.join(phrases)}"


def delayed(reason: str, config: OptimizingConfig, until: datetime) -> str:
    """Why the metadata pre-check holds back what is due."""
    near = f" or all within {_size(config.mse_tolerance)} of {_size(config.min_target_size)}"
    check = f"fewer than two small files{near if config.mse_tolerance else ''}"
    return f"nothing to do yet: {reason}, but {check}; {next_evaluation(until)}"


def of_table(verdicts: Sequence[PartitionVerdict], path_of: Callable[[PartitionKey], str] | None) -> str:
    """The reason for the whole table: that of its costliest partition, or when the next trigger fires."""
    if not verdicts:
        return "nothing to do: the table has no data files"
    due = [verdict for verdict in verdicts if verdict.type is not None]
    if due:
        first = min(due, key=lambda verdict: (-verdict.cost, order_of(verdict.key)))
        more = f"; {len(due)} of {len(verdicts)} partitions to be optimized" if len(verdicts) > 1 else ""
        return f"{_named(first, path_of)}{more}"
    if len(verdicts) == 1:
        return verdicts[0].reason
    waiting = [verdict for verdict in verdicts if verdict.due_at is not None]
    if not waiting:
        return f"nothing to do in {len(verdicts)} partitions"
    first = min(waiting, key=lambda verdict: (verdict.due_at, order_of(verdict.key)))
    coming = first.reason.rpartition("; ")[2]
    name = path_of(first.key) if path_of else ""
    return f"nothing to do in {len(verdicts)} partitions; {coming}{f' in {name}' if name else ''}"


def _named(verdict: PartitionVerdict, path_of: Callable[[PartitionKey], str] | None) -> str:
    name = path_of(verdict.key) if path_of else ""
    return f"{name}: {verdict.reason}" if name else verdict.reason


def _coarse_files(stats: PartitionStats) -> str:
    return f"{many(stats.coarse, 'file')} with small row groups, {_size(stats.coarse_bytes)}"


def _small_files(stats: PartitionStats) -> str:
    words = many(stats.small_files, "small file")
    among = []
    if stats.fresh_equality_deletes:
        among.append(many(stats.fresh_equality_deletes, "equality delete"))
    if stats.to_fold:
        files = many(stats.files_to_fold, "file")
        among.append(f"{many(len(stats.to_fold), 'position delete')} of {files} to convert")
    return f"{words} ({', '.join(among)} among them)" if among else words


def _carried(stats: PartitionStats) -> str:
    """The equality deletes that remain after conversions, because other files still need them."""
    carried = len(stats.equality_deletes) - stats.fresh_equality_deletes
    return f"{many(carried, 'equality delete')} held by position deletes" if carried else ""


def _size(size_bytes: int) -> str:
    if size_bytes >= _MIB:
        return f"{size_bytes / _MIB:.1f} MiB".replace(".0 MiB", " MiB")
    return f"{size_bytes} bytes"


Selects = Callable[[DataFile], bool]


def excluding_reserved(reserved: Mapping[str, str], selects: Selects | None) -> Selects | None:
    """The filter of a table's files without those of other plans, by normalised path; None: all files."""
    if not reserved:
        return selects
    if selects is None:
        return lambda file: normalise(file.path) not in reserved
    return lambda file: normalise(file.path) not in reserved and selects(file)


def with_reserved(evaluation: Evaluation, scan: TableScan | None, reserved: Mapping[str, str]) -> Evaluation:
    """The evaluation, which says in its reason how many live files were left to other plans."""
    if scan is None or not reserved:
        return evaluation
    count = len(LiveFiles.of(scan.files).ids_of(reserved))
    if not count:
        return evaluation
    plans = "; ".join(sorted(set(reserved.values())))
    files = f"{count} {'file is' if count == 1 else 'files are'}"
    if evaluation.reason == OUTSIDE_FILTER:
        return replace(evaluation, reason=f"nothing to do: {files} in the plan of {plans}")
    return replace(evaluation, reason=f"{evaluation.reason}; {files} left to {plans}")


def ordered_groups(scan: TableScan | None) -> frozenset[str]:
    """The groups of live files whose order rewriting leaves as it is; their ids."""
    return (
        frozenset() if scan is None else frozenset(preserved_groups(LiveFiles.of(scan.files).columns.parts, {}, None))
    )

"""Pre-checks: cheap figures that make the evaluation of a table or partition unnecessary.

This is Amoro's metadata pre-check, active only if `self-optimizing.evaluation.fallback-interval` is set. What it holds
back is evaluated in full once that interval has passed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.plans import Evaluation
from amoro_core.model.tables import FAULTLESS, FileSummary, LastOptimized
from amoro_core.planning.partitions import PartitionFiles
from amoro_core.records import record


@record
class TableTotals:
    """The totals of all live files in a snapshot's summary."""

    data_files: int
    delete_files: int
    bytes: int


#: A count with this many digits does not fit into 64 bits, so it is invalid.
_ABSURD_DIGITS = 19


def totals_of(summary: Mapping[str, str]) -> TableTotals | None:
    """The totals of a snapshot's summary; None if one is missing or invalid."""
    keys = ("total-data-files", "total-delete-files", "total-files-size")
    found = [summary.get(key, "") for key in keys]
    if not all(text.isascii() and text.isdigit() and len(text) < _ABSURD_DIGITS for text in found):
        return None
    return TableTotals(*map(int, found))


def evaluate_totals(
    snapshot_id: int,
    totals: TableTotals | None,
    config: OptimizingConfig,
    last_scanned_at: datetime | None,
    now: datetime,
    known: FileSummary,
) -> Evaluation | None:
    """The verdict on a table whose totals alone show that there is nothing to do; None: its files must be read.

    `known` is the summary of the last evaluation, updated by the totals. The files were last read at `last_scanned_at`.
    """
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
            known,
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


def held_until(
    partition: PartitionFiles, config: OptimizingConfig, last: LastOptimized, now: datetime
) -> datetime | None:
    """Until when a partition is held back because its small files are too few or near the target; None: it is not."""
    interval = config.evaluation_fallback_interval
    latest = max((at for at in (last.minor, last.major, last.full) if at is not None), default=None)
    if interval is None or latest is None or now - latest >= interval:
        return None
    return None if _is_uneven(partition.small_sizes, config) else latest + interval


def next_evaluation(due_at: datetime) -> str:
    """When the check no longer holds anything back, as a phrase."""
    return f"next evaluation at {due_at:%Y-%m-%d %H:%M} UTC by fallback interval"


def _is_uneven(sizes: Iterable[int], config: OptimizingConfig) -> bool:
    """Whether there are several small files, and their mean squared distance to the target reaches the tolerance."""
    short = [config.min_target_size - min(size, config.min_target_size) for size in sizes]
    squares = sum(distance * distance for distance in short)
    return len(short) > 1 and squares >= config.mse_tolerance**2 * len(short)

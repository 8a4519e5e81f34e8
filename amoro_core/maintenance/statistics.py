"""Whether a table's statistics must be computed again, and which."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from amoro_core.errors import misconfigured
from amoro_core.model.commits import StatisticsEntries
from amoro_core.model.properties import boolean, column_names, declared, fraction
from amoro_core.model.tables import SnapshotFacts, summary_count

_COLUMNS_KEY = "maintenance.compute-statistics.columns"
#: The counts in a snapshot's summary from which the number of changed rows is estimated.
_CHANGES = ("added-records", "deleted-records", "added-position-deletes", "added-equality-deletes")
_REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class StatisticsConfig:
    """The properties of a table for computing statistics."""

    enabled: bool = declared("maintenance.compute-statistics.enabled", "false", boolean)
    #: None named: all top-level columns of a primitive type.
    columns: tuple[str, ...] = declared(_COLUMNS_KEY, "", lambda text: tuple(dict.fromkeys(column_names(text))))
    partition: bool = declared("maintenance.compute-statistics.partition", "true", boolean)
    min_change: float = declared("maintenance.compute-statistics.min-change", "0.1", fraction(0))

    def field_ids(self, ids: Mapping[str, int]) -> tuple[int, ...]:
        """The ids of the wanted columns; `ids`: of all, by name. Raises TableRefused("configuration") for others."""
        for name in self.columns:
            if name not in ids:
                raise misconfigured(
                    f"property {_COLUMNS_KEY} names {name!r}, which is no top-level column of a primitive type",
                    hint=f"One of: {', '.join(sorted(ids))}.",
                )
        return tuple(sorted(ids[name] for name in self.columns or ids))


@dataclass(frozen=True, slots=True)
class StatisticsVerdict:
    """Whether to compute statistics of the head, and why or why not."""

    reason: str
    is_due: bool = False
    due_at: datetime | None = None  # nothing but another commit makes them due


def evaluate_statistics(
    config: StatisticsConfig,
    columns: Sequence[int],
    history: Sequence[SnapshotFacts],
    present: StatisticsEntries,
    *,
    partitions: bool,
    by_request: bool,
    force: bool,
) -> StatisticsVerdict:
    """Whether the head's statistics are due: there are none in its history, or too many rows have changed since.

    `history` is main's, from the head back; `columns` and `partitions` are what to compute. `by_request`: those of the
    head were requested, however few rows have changed; `force`: even if it has some.
    """
    if not history:
        return StatisticsVerdict("the table has no snapshot")
    if not columns and not partitions:
        return StatisticsVerdict("the table has no columns of a primitive type and no partitions")
    head = history[0]
    at = next((at for at, item in enumerate(history) if _has(item.snapshot_id, columns, partitions, present)), None)
    if at is None:
        return StatisticsVerdict(f"snapshot {head.snapshot_id} has no statistics, nor have its ancestors", True)
    if force:
        return StatisticsVerdict(f"statistics of snapshot {head.snapshot_id} are computed again", True)
    if at == 0:
        return StatisticsVerdict(f"snapshot {head.snapshot_id} has its statistics")
    share = _changed(history[:at], history[at])
    since = f"since the statistics of snapshot {history[at].snapshot_id}"
    if share is None:
        return StatisticsVerdict(f"it is not known how many rows have changed {since}", True)
    reason = f"{share:.1%} of the rows have changed {since}"
    if share >= config.min_change:
        return StatisticsVerdict(reason, True)
    return StatisticsVerdict(reason if by_request else f"{reason}, less than {config.min_change:.1%}", by_request)


def _has(snapshot_id: int, columns: Sequence[int], partitions: bool, present: StatisticsEntries) -> bool:
    counted = (entry.ndv_fields for entry in present.columns if entry.snapshot_id == snapshot_id)
    has_partitions = any(statistics_entry.snapshot_id == snapshot_id for statistics_entry in present.partitions)
    return (has_partitions or not partitions) and (not columns or any(fields.issuperset(columns) for fields in counted))


def _changed(since: Sequence[SnapshotFacts], base: SnapshotFacts) -> float | None:
    """The share of the base's rows that the snapshots added or deleted; None if their summaries lack counts."""
    changed = 0
    for snapshot in since:
        if snapshot.operation == _REPLACE:
            continue
        counts = [summary_count(snapshot.summary, key) for key in _CHANGES]
        if all(count is None for count in counts):
            return None
        changed += sum(count or 0 for count in counts)
    total = summary_count(base.summary, "total-records")
    return None if total is None else changed / max(total, 1)

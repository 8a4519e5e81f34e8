"""The properties of a table about its clustering."""

import re
from datetime import timedelta
from enum import StrEnum

from amoro_core.model.clustering import Strategy
from amoro_core.model.properties import (
    Parse,
    boolean,
    declared,
    duration,
    fraction,
    one_of,
    optional,
    size,
    unless_empty,
    whole,
)
from amoro_core.records import record

PREFIX = "self-optimizing.cluster."
COLUMNS_KEY = f"{PREFIX}columns"
STRATEGY_KEY = f"{PREFIX}strategy"
PARTITIONS_KEY = f"{PREFIX}partitions"
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


@record
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
    found = _PARTITIONS.fullmatch(word)
    if found is None:
        raise ValueError("expected all, recent:N, recent:N,skip:M, selected or rolling:K")
    kind = PartitionKind.RECENT if found["recent"] is not None else PartitionKind.ROLLING
    count = int(found[kind.value])
    if count == 0:
        raise ValueError(f"expected {kind}: with a number of at least 1")
    return PartitionChoice(kind, count, int(found["skip"] or 0))


def columns(text: str) -> tuple[str, ...]:
    """The names of columns, with commas between them; none: the table's sort order. Raises ValueError."""
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    if "" in names:
        raise ValueError("expected names of columns with commas between them")
    if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise ValueError(f"names {twice} twice")
    return names


def strategy(text: str) -> Strategy | None:
    """The strategy; None for an empty text: as many columns say. Raises ValueError."""
    return unless_empty(one_of({one.value: one for one in Strategy}))(text)


def _fanout(text: str) -> int:
    value = whole(0)(text)
    if value == 1:
        raise ValueError("expected 0, or a whole number of at least 2")
    return value


def _word(kind: type[StrEnum]) -> Parse[StrEnum]:
    return one_of({one.value: one for one in kind})


@record
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
    max_group_bytes: int = declared(f"{PREFIX}max-group-bytes", "64GB", size)
    max_groups: int = declared(f"{PREFIX}max-groups", "30", whole(1))
    max_plan_bytes: int = declared(f"{PREFIX}max-plan-bytes", "512GB", size)
    min_bytes: int | None = declared(f"{PREFIX}min-bytes", "", unless_empty(size))  # None: 4 × target
    trigger_depth_ratio: float = declared(f"{PREFIX}trigger.depth-ratio", "2.0", fraction(1.0))
    trigger_commits: int | None = declared(f"{PREFIX}trigger.commits", "", unless_empty(whole(1)))
    trigger_interval: timedelta | None = declared(f"{PREFIX}trigger.interval", "", unless_empty(duration))
    seal_bytes: int | None = declared(f"{PREFIX}seal-bytes", "", unless_empty(size))  # None: 32 × target
    tier_fanout: int = declared(f"{PREFIX}tier-fanout", "4", _fanout)  # 0: sealed groups stay for ever
    relayout: bool = declared(f"{PREFIX}relayout", "false", boolean)
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

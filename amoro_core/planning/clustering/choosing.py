"""Which partitions are clustered now, and which of them wait."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key
from hashlib import blake2b

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.model.plans import PartitionKey
from amoro_core.model.sorting import SortKey
from amoro_core.model.tables import SnapshotFacts
from amoro_core.planning.clustering.facts import ClusterFacts, ClusterRequest
from amoro_core.planning.clustering.properties import (
    PARTITION_FILTER_KEY,
    PARTITIONS_KEY,
    ClusteringConfig,
    PartitionChoice,
    PartitionKind,
    PartitionOrder,
)
from amoro_core.planning.partitions import order_of
from amoro_core.records import record

_HOUR = timedelta(hours=1)
_REPLACE = "replace"


@record
class Chosen:
    """Partitions in the order in which they are clustered, and why the others are not, by when that may change."""

    order: tuple[PartitionKey, ...]
    left: Mapping[PartitionKey, tuple[str, datetime | None]]


def choose(
    keys: Sequence[PartitionKey], facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest
) -> Chosen:
    """The partitions that properties and request choose.

    Raises TableRefused("configuration") for a malformed `partition-filter`, InvalidArgument for a malformed condition
    of the request.
    """
    newest = sorted(keys, key=cmp_to_key(_comparing(facts)), reverse=True)
    choice = request.partitions or config.partitions
    tests = [_choosing(choice, newest, facts, config)]
    if request.where:
        fulfils = facts.chooses(request.where)
        tests.append(lambda key: None if fulfils(key) else ("it does not fulfil the condition", None))
    left: dict[PartitionKey, tuple[str, datetime | None]] = {}
    for key in newest:
        why = next((found for found in (test(key) for test in tests) if found is not None), None)
        if why is not None:
            left[key] = why
    ordered = newest if config.partition_order is PartitionOrder.NEWEST else newest[::-1]
    return Chosen(tuple(key for key in ordered if key not in left), left)


_Test = Callable[[PartitionKey], tuple[str, datetime | None] | None]


def _choosing(
    choice: PartitionChoice, newest: Sequence[PartitionKey], facts: ClusterFacts, config: ClusteringConfig
) -> _Test:
    match choice.kind:
        case PartitionKind.ALL:
            return lambda key: None
        case PartitionKind.RECENT:
            window = frozenset(newest[choice.skip : choice.skip + choice.count])
            which = f"the newest {choice.count}{f' after {choice.skip}' if choice.skip else ''}"
            return lambda key: None if key in window else (f"it is not among {which} partitions", None)
        case PartitionKind.ROLLING:
            hour = int(facts.now.timestamp()) // 3600
            return lambda key: _turn(key, hour, choice.count, facts.now)
        case PartitionKind.SELECTED:
            selects = _selection(facts, config)
            return lambda key: None if selects(key) else (f"{PARTITION_FILTER_KEY} does not select it", None)


def _turn(key: PartitionKey, hour: int, count: int, now: datetime) -> tuple[str, datetime | None] | None:
    text = repr((key.spec_id, key.partition)).encode()
    wait = (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") - hour) % count
    if wait == 0:
        return None
    begun = now.replace(minute=0, second=0, microsecond=0)
    return f"its turn of {count} hours comes in {wait}", begun + wait * _HOUR


def _selection(facts: ClusterFacts, config: ClusteringConfig) -> Callable[[PartitionKey], bool]:
    if config.partition_filter is None:
        raise TableRefused(
            f"property {PARTITIONS_KEY} has the value 'selected', and {PARTITION_FILTER_KEY} selects nothing",
            reason="configuration",
            hint=f"Set {PARTITION_FILTER_KEY} to a condition on partition columns.",
        )
    try:
        return facts.chooses(config.partition_filter)
    except InvalidArgument as error:
        raise TableRefused(
            f"property {PARTITION_FILTER_KEY} has the malformed value {config.partition_filter!r}: {error.message}",
            reason="configuration",
            hint=error.hint,
        ) from error


def _comparing(facts: ClusterFacts) -> Callable[[PartitionKey, PartitionKey], int]:
    """Older specs come first; partitions of one spec by their values, those that tell a time before others."""
    values: dict[PartitionKey, tuple[tuple[int, SortKey], ...]] = {}

    def order(key: PartitionKey) -> tuple[tuple[int, SortKey], ...]:
        if key not in values:
            values[key] = facts.sorting.partition_order(key)
        return values[key]

    def compare(one: PartitionKey, other: PartitionKey) -> int:
        if one.spec_id != other.spec_id:
            return -1 if one.spec_id < other.spec_id else 1
        here, there = order(one), order(other)
        if here != there:
            return -1 if here < there else 1
        return -1 if order_of(one) < order_of(other) else 1

    return compare


def last_written(numbers: Sequence[int], snapshots: Sequence[SnapshotFacts]) -> datetime | None:
    """When others wrote last, given the data sequence numbers of what they wrote; None: longer ago than is known."""
    newest = max(numbers, default=None)
    times = (one.committed_at for one in snapshots if one.sequence_number == newest and one.operation != _REPLACE)
    return max(times, default=None)


def commits_since(last: datetime | None, snapshots: Sequence[SnapshotFacts]) -> int:
    """How many known commits since then brought or removed rows; None: all."""
    return sum(one.operation != _REPLACE and (last is None or one.committed_at > last) for one in snapshots)

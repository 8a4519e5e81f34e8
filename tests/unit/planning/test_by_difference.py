"""Looking at a table by difference says what looking at each of its files says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.iceberg.known_manifests import UNKNOWN, KnownTable
from amoro_core.live.matching import match
from amoro_core.model.files import TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.evaluating import evaluate
from tests.tiers import seeds
from tests.unit.planning.builders import NOW, data
from tests.unit.planning.differences import TICK, lived
from tests.unit.planning.test_evaluating import CONFIG

HOUR = timedelta(hours=1)


def test_random_histories_by_difference_are_as_they_are_file_by_file() -> None:
    """`make prove` goes on with other seeds."""
    seen: Counter[str] = Counter()
    for seed in seeds(full=40, small=15):
        seen += lived(seed)
    assert min(seen[what] for what in ("same", "anew", "None", "minor", "major", "full")) > 0, seen


def test_a_verdict_that_is_kept_knows_of_times_and_of_what_was_optimized() -> None:
    files = [data(f"f{at}", 1000) for at in range(2)]
    config = replace(CONFIG, minor_trigger_interval=HOUR, full_trigger_interval=None)
    live, dangling = match(files, [], frozenset({0}))
    UNKNOWN.followed_by(KnownTable(unpartitioned=frozenset({0})), (live, dangling))
    by_rows, scan = (TableScan(7, 9, some, dangling) for some in (tuple(live), live))
    key = PartitionKey(files[0].spec_id, files[0].partition)
    kinds = set()
    for last, now in (
        (None, NOW),
        (NOW, NOW),
        (NOW, NOW + HOUR),
        (NOW, NOW + HOUR + TICK),
        (NOW + HOUR, NOW + HOUR + TICK),  # optimized meanwhile
        (NOW, NOW + 2 * HOUR),
        (NOW, NOW),  # the clock goes back
    ):
        optimized = {} if last is None else {key: LastOptimized(minor=last)}
        found = evaluate(scan, config, optimized, now)
        assert found == evaluate(by_rows, config, optimized, now), (last, now)
        kinds.add(found.type)
    assert kinds == {None, OptimizingType.MINOR}


def test_verdicts_with_many_files_are_made_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [data(f"f{at}", 1000, partition=(bytes([at % 3]),), spec_id=1) for at in range(60)]
    live, dangling = match(files, [], frozenset())
    UNKNOWN.followed_by(KnownTable(), (live, dangling))
    monkeypatch.setattr("amoro_core.planning.remembering.MOST_FILES", 40)
    first = evaluate(TableScan(7, 9, live, dangling), CONFIG, {}, NOW)
    again = evaluate(TableScan(7, 9, live, dangling), CONFIG, {}, NOW)
    assert again == first
    assert [one.type for one in first.partitions] == [OptimizingType.MINOR] * 3
    same = [one is its for one, its in zip(first.partitions, again.partitions, strict=True)]
    assert same == [True, True, False]


def test_files_without_stamps_are_not_remembered() -> None:
    live, dangling = match([data("f", 1000)], [], frozenset())
    evaluate(TableScan(7, 9, live, dangling), CONFIG, {}, NOW)
    assert live.memory.found == {}

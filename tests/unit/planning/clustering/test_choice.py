"""Which columns auto chooses, how steady it is, and what is told of a table whose columns nobody has set."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from amoro_core.errors import TableRefused
from amoro_core.model.clustering import Column, Strategy
from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.planning.clustering.auto_columns import decide
from amoro_core.planning.clustering.model import ClusteringConfig, ClusterRequest
from tests.tiers import count
from tests.unit.planning.clustering.test_planning import rng
from tests.unit.planning.clustering.world import (
    COLUMNS,
    START,
    TARGET,
    Table,
    changes_of_choice,
    config,
    of_size,
    sorting,
    whole,
)


def uses(*some: tuple[str, int], at: datetime = START) -> tuple[ScanUse, ...]:
    """Scans of one day by the columns that they filter."""
    return tuple(
        ScanUse(at.date(), tuple(ColumnFilter(name, Operator.EQUAL) for name in columns), count)
        for columns, count in some
    )


def facts(scans: tuple[ScanUse, ...], choice: ColumnChoice | None = None, *, now: datetime = START, **more: object):  # type: ignore[no-untyped-def]
    table = Table(config())
    table.append(of_size(whole(rng(), 256, points=2), TARGET))
    return table.facts(scans=scans, choice=choice, now=now, **more)


def chosen(*some: tuple[str, int], **more: object) -> tuple[str, ...]:
    found = decide(facts(uses(*some), **more)).choice
    assert found is not None
    return found.columns


def test_the_columns_that_spare_most_are_taken_while_each_adds_a_tenth() -> None:
    assert chosen(("a", 100), ("b", 100)) == ("a", "b")
    assert chosen(("b", 120), ("a", 100)) == ("b", "a")
    assert chosen(("ab", 200)) == ("a",)  # both are filtered by at once: one is enough
    assert chosen(("a", 100), ("b", 100), ("c", 100), ("d", 100), ("e", 100)) == ("a", "b", "c", "d")
    assert chosen(("a", 100), ("b", 100), ("c", 20)) == ("a", "b")
    assert chosen(("a", 415), ("b", 415), ("c", 170)) == ("a", "b")  # the third would add 8 %
    assert decide(facts(uses(("z", 100)))).choice is None
    assert chosen(("a", 500), ("b", 100), sorting=sorting(partitioned_by=frozenset({1}))) == ("b",)


def test_one_column_with_nearly_all_is_linear() -> None:
    found = decide(facts(uses(("a", 900), ("b", 100)))).choice
    assert found is not None
    assert (found.columns, found.strategy, found.scans) == (("a",), Strategy.LINEAR, 1000)
    two = decide(facts(uses(("a", 700), ("b", 300)))).choice
    assert two is not None
    assert two.strategy is Strategy.HILBERT
    assert list(two.evidence) == ["a", "b"]
    assert two.saved == sum(two.evidence.values())


def test_fewer_scans_than_a_hundred_in_a_week_are_too_few() -> None:
    assert decide(facts(uses(("a", 99)))).choice is None
    assert decide(facts(uses(("a", 99)))).reason == "auto needs 100 scans in 7 d to choose columns, and knows 99"
    assert decide(facts(uses(("a", 100)))).choice is not None
    old = uses(("a", 1000), at=START - timedelta(days=7))
    assert decide(facts(old)).choice is None
    assert decide(facts(uses(("a", 1000), at=START - timedelta(days=6)))).choice is not None


def test_a_column_with_one_value_in_all_files_is_passed_over() -> None:
    table = Table(config())
    table.append(of_size([np.array([[7, at], [7, at + 9]]) for at in range(16)], TARGET))

    def chosen_of(*some: tuple[str, int]) -> ColumnChoice | None:
        return decide(table.facts(scans=uses(*some), now=START)).choice

    found = chosen_of(("a", 500), ("b", 100))
    assert found is not None
    assert found.columns == ("b",)
    assert chosen_of(("a", 500)) is None
    one_file = Table(config())
    one_file.append(of_size([np.array([[7, 1], [7, 9]])], TARGET))
    found = decide(one_file.facts(scans=uses(("a", 500)), now=START)).choice
    assert found is not None, "one file tells nothing of others to come"


def test_another_choice_has_to_spare_enough_and_to_wait_a_week() -> None:
    before = ColumnChoice(("a",), Strategy.LINEAR, START - timedelta(days=7), 100, 0.9)
    better = decide(facts(uses(("b", 900), ("a", 100)), before))
    assert better.choice is not None
    assert better.choice.columns == ("b",)
    young = ColumnChoice(("a",), Strategy.LINEAR, START - timedelta(days=7) + timedelta(seconds=1), 100, 0.9)
    assert decide(facts(uses(("b", 900), ("a", 100)), young)).choice is young
    alike = ColumnChoice(("a", "b"), Strategy.HILBERT, START - timedelta(days=30), 100, 0.9)
    assert decide(facts(uses(("b", 420), ("a", 380)), alike)).choice is alike
    near = decide(facts(uses(("c", 400), ("a", 380), ("b", 10)), alike))
    assert near.choice is not alike  # the same bytes are spared without b as with it, and those of c as well
    kept = decide(facts(uses(("c", 150), ("a", 380), ("b", 120)), alike))
    assert kept.choice is alike
    assert kept.reason.endswith("×, 1.3 × needed")


def test_what_may_be_chance_is_no_better_choice() -> None:
    before = ColumnChoice(("a",), Strategy.LINEAR, START - timedelta(days=30), 100, 0.9)
    few = decide(facts(uses(("ab", 900), ("a", 2), ("b", 4), ("c", 94)), replace(before, columns=("d",))))
    assert few.choice is not None
    assert few.choice.columns != ("d",)
    rare = decide(facts(uses(("", 976), ("a", 8), ("b", 16)), before))
    assert rare.choice is before
    assert rare.reason == "b, a may be better by chance alone, by 1000 scans"
    often = decide(facts(uses(("", 97600), ("a", 800), ("b", 1600)), before))
    assert often.choice is not before


def test_a_choice_stays_while_too_little_is_known_and_goes_with_its_columns() -> None:
    before = ColumnChoice(("a",), Strategy.LINEAR, START - timedelta(days=30), 100, 0.9)
    assert decide(facts((), before)).choice is before
    gone = sorting(columns=COLUMNS[1:])
    assert decide(facts((), before, sorting=gone)).choice is None


def test_random_queries_never_make_it_flap_in_sixty_days() -> None:
    # In 51 the first choice was once of two columns, by few scans, and four were better a week later.
    assert [changes_of_choice(seed) for seed in (*range(count(0, 5)), 51)] == [0] * count(1, 6)


# Columns that nobody has set


SHOW = ClusterRequest(asked=True, shows=True)


def arrived(table: Table, seed: int) -> None:
    random = np.random.default_rng(seed)
    table.append([(random.integers(0, 1 << 16, (200, 3)), TARGET // 2) for _ in range(16)])


def clustered(*names: tuple[str, ...]) -> Table:
    """A table that was clustered by these columns, one after the other, each with its own files."""
    table = Table(ClusteringConfig())
    for seed, columns in enumerate(names):
        arrived(table, seed)
        made = table.plan(ClusterRequest(asked=True, columns=columns))
        assert made.plan is not None
        table.apply(made.plan)
        table.now += timedelta(hours=1)
    return table


def test_groups_are_shown_under_the_layout_of_the_newest_and_it_is_said_that_no_columns_are_set() -> None:
    table = clustered(("a",), ("b", "c"))
    arrived(table, 9)
    shown = table.plan(SHOW)
    assert shown.layout is not None
    assert (shown.layout.strategy, [key.field_id for key in shown.layout.keys]) == (Strategy.HILBERT, [2, 3])
    assert (shown.is_due, shown.plan, shown.due_at) == (False, None, None)
    assert shown.reason == "nothing to do: no columns are set"
    assert shown.notes == (
        "no columns are set: shown is the layout of the newest group; set self-optimizing.cluster.columns for more to "
        "be clustered so",
    )
    (partition,) = shown.partitions
    assert (partition.is_due, partition.reason) == (False, shown.reason)
    assert (partition.unclustered_files, [column.name for column in partition.columns]) == (16, ["b", "c"])
    assert {group.is_current for group in partition.groups} == {False, True}


def test_a_layout_one_of_whose_columns_is_gone_is_not_shown() -> None:
    table = clustered(("a",), ("b",))
    left = sorting(columns=tuple(one for one in COLUMNS if one.name != "b"))
    shown = table.plan(SHOW, sorting=left)
    assert shown.layout is not None
    assert [key.field_id for key in shown.layout.keys] == [1]
    none = sorting(columns=(Column(9, "i", "long"),))
    with pytest.raises(TableRefused, match="names no columns"):
        table.plan(SHOW, sorting=none)


def test_columns_that_are_set_are_shown_as_ever_and_nothing_else_is_planned_without() -> None:
    table = clustered(("a",))
    arrived(table, 3)
    shown = replace(table, config=ClusteringConfig(columns=("b",))).plan(SHOW)
    assert shown.layout is not None
    assert [key.field_id for key in shown.layout.keys] == [2]
    assert shown.plan is not None
    with pytest.raises(TableRefused, match="names no columns"):
        table.plan(ClusterRequest(asked=True))

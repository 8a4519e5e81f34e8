"""What is told of a table that was clustered by columns which nobody has set."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from amoro_core.errors import TableRefused
from amoro_core.model.clustering import Strategy
from amoro_core.model.sorting import Column
from amoro_core.planning.clustering.facts import ClusterRequest
from amoro_core.planning.clustering.properties import ClusteringConfig
from tests.unit.planning.clustering.world import COLUMNS, TARGET, Table, sorting

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


def test_a_table_that_was_never_clustered_is_told_how_to_name_columns() -> None:
    table = Table(ClusteringConfig())
    for _ in range(2):
        with pytest.raises(TableRefused, match="names no columns") as raised:
            table.plan(SHOW)
        assert raised.value.reason == "configuration"
        arrived(table, 1)


def test_columns_that_are_set_are_shown_as_ever_and_nothing_else_is_planned_without() -> None:
    table = clustered(("a",))
    arrived(table, 3)
    shown = replace(table, config=ClusteringConfig(columns=("b",))).plan(SHOW)
    assert shown.layout is not None
    assert [key.field_id for key in shown.layout.keys] == [2]
    assert shown.plan is not None
    with pytest.raises(TableRefused, match="names no columns"):
        table.plan(ClusterRequest(asked=True))

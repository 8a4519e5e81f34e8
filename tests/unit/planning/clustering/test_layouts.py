"""Which layout a table is to have, by properties, a request or a sort order; and which columns are suggested."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.model.clustering import Column, Layout, LayoutKey, SortOrder, Strategy
from amoro_core.model.properties import parse_into
from amoro_core.planning.clustering.auto_columns import Suggested, Suggestion, suggest
from amoro_core.planning.clustering.layouts import Resolved, resolve, sort_order_id
from amoro_core.planning.clustering.model import (
    ClusteringConfig,
    ClusterRequest,
    PartitionChoice,
    PartitionKind,
    partitions,
)
from tests.unit.planning.builders import equality_delete
from tests.unit.planning.clustering.test_planning import rng
from tests.unit.planning.clustering.world import COLUMNS, TARGET, Table, config, of_size, sorting, whole

LINEAR, HILBERT, ZORDER = Strategy.LINEAR, Strategy.HILBERT, Strategy.ZORDER
LISTED = Column(40, "tags.element", "string", "lies within a list, whose values have no bounds")
BUCKETED = SortOrder(3, (LayoutKey(1, "bucket[16]", True, True), LayoutKey(2)))


def resolved(
    columns: str = "", *, request: ClusterRequest | None = None, properties: dict[str, str] | None = None, **more: Any
) -> Resolved:
    known = {one: more.pop(one) for one in ("strategy",) if one in more}
    names = tuple(name for name in columns.split(",") if name)
    facts = Table(config()).facts(
        sorting=replace(sorting(**more), columns=(*COLUMNS, LISTED)), properties=properties or {}
    )
    return resolve(facts, config(columns=names, **known), request or ClusterRequest())


def ids(found: Resolved) -> tuple[Strategy, list[int]]:
    return found.layout.strategy, [key.field_id for key in found.layout.keys]


def test_one_column_is_linear_and_two_to_four_are_a_curve() -> None:
    assert ids(resolved("b")) == (LINEAR, [2])
    assert ids(resolved("b,a")) == (HILBERT, [2, 1])
    assert ids(resolved("a,b,c,d")) == (HILBERT, [1, 2, 3, 4])
    assert ids(resolved("a,b", strategy=ZORDER)) == (ZORDER, [1, 2])
    assert ids(resolved("a,b,c,d,e", strategy=LINEAR)) == (LINEAR, [1, 2, 3, 4, 5])
    found = resolved("b", strategy=HILBERT)
    assert ids(found) == (LINEAR, [2])
    assert found.notes == ("one column is linear, whatever hilbert says",)
    assert resolved("a,b").counted == (1, 2)
    assert resolved("a,b", strategy=LINEAR).counted == (1,)
    found = resolved("a,b", partitioned_by=frozenset({1}))
    assert ids(found) == (LINEAR, [2])
    assert found.notes == ("column a is left out: it has one value in a whole partition",)
    assert ids(resolved("a,b", strategy=ZORDER, request=ClusterRequest(True, columns=("c",)))) == (LINEAR, [3])
    assert ids(resolved("a,b", request=ClusterRequest(True, strategy=LINEAR))) == (LINEAR, [1, 2])


def test_without_columns_the_sort_order_counts_with_all_that_it_says() -> None:
    found = resolved(orders=(BUCKETED,), default_order_id=3)
    assert found.layout == Layout(LINEAR, BUCKETED.keys)
    plain = SortOrder(4, (LayoutKey(2, descending=True), LayoutKey(1)))
    assert resolved(orders=(plain,), default_order_id=4).layout == Layout(HILBERT, (LayoutKey(2), LayoutKey(1)))
    assert resolved(orders=(plain,), default_order_id=4, strategy=LINEAR).layout == Layout(LINEAR, plain.keys)
    five = SortOrder(5, tuple(LayoutKey(at) for at in range(1, 6)))
    assert ids(resolved(orders=(five,), default_order_id=5)) == (LINEAR, [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("columns", "more", "told"),
    [
        ("a,nope", {}, "property self-optimizing.cluster.columns has the value 'a,nope': the table has no column nope"),
        ("tags.element", {}, "column tags.element lies within a list"),
        ("a", {"partitioned_by": frozenset({1})}, "'a': each of them has one value in a whole partition"),
        ("a,b,c,d,e", {}, "'a,b,c,d,e': a curve takes at most 4 columns, these are 5"),
        ("a,b,c,d,e", {"strategy": ZORDER}, "has the value 'zorder': a curve takes at most 4 columns, a,b,c,d,e has 5"),
        ("", {}, "property self-optimizing.cluster.columns names no columns, and the table has no sort order"),
        ("", {"orders": (BUCKETED,), "default_order_id": 3, "strategy": HILBERT}, "a curve takes no transforms"),
        (
            "",
            {"orders": (SortOrder(7, (LayoutKey(1, "zap"),), "has the transform 'zap' of a"),), "default_order_id": 7},
            "the table's sort order 7 has the transform 'zap' of a",
        ),
        (
            "",
            {"orders": (BUCKETED,), "default_order_id": 3, "partitioned_by": frozenset({1, 2})},
            "the table's sort order 3 names only columns with one value in a whole partition",
        ),
    ],
)
def test_properties_that_cannot_be_followed_are_refused_with_key_and_value(
    columns: str, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(TableRefused) as caught:
        resolved(columns, **more)
    assert caught.value.reason == "configuration"
    assert told in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("value", ["none", " NONE ", "counts"])
def test_a_column_without_metrics_is_refused_by_the_key_that_switches_them_off(value: str) -> None:
    key = "write.metadata.metrics.column.b"
    with pytest.raises(TableRefused, match=f"property {key} has the value") as caught:
        resolved("a,b", properties={key: value})
    assert caught.value.reason == "configuration"
    assert ids(resolved("a", properties={key: value})) == (LINEAR, [1])
    assert ids(resolved("a,b", properties={key: "full"})) == (HILBERT, [1, 2])


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (ClusterRequest(True, columns=("a", "bb")), "'a,bb': the table has no column bb"),
        (ClusterRequest(True, columns=tuple("abcde"), strategy=HILBERT), "'hilbert': a curve takes at most 4"),
    ],
)
def test_what_a_request_says_wrong_is_an_argument(request_: ClusterRequest, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        resolved("a", request=request_)
    with pytest.raises(InvalidArgument, match="a curve takes no transforms"):
        resolved("", orders=(BUCKETED,), default_order_id=3, request=ClusterRequest(True, strategy=HILBERT))


def test_a_linear_layout_has_the_sort_order_that_says_the_same() -> None:
    orders = (SortOrder(0), SortOrder(1, (LayoutKey(1, nulls_last=True),)), SortOrder(2, (LayoutKey(1),)), BUCKETED)
    assert sort_order_id(Layout(LINEAR, (LayoutKey(1),)), orders) == 2
    assert sort_order_id(Layout(LINEAR, (LayoutKey(1), LayoutKey(2))), orders) == 0
    assert (
        sort_order_id(Layout(HILBERT, (LayoutKey(1), LayoutKey(2))), (SortOrder(5, (LayoutKey(1), LayoutKey(2))),)) == 0
    )
    assert sort_order_id(Layout(LINEAR, (LayoutKey(1),)), (SortOrder(9, (LayoutKey(1),), "is broken"),)) == 0


PREFIX = "self-optimizing.cluster."


def parsed(**values: str) -> ClusteringConfig:
    return parse_into(
        ClusteringConfig, {PREFIX + key.replace("__", ".").replace("_", "-"): text for key, text in values.items()}
    )


def test_sizes_have_units_and_what_may_be_empty_is() -> None:
    default = ClusteringConfig()
    assert (default.max_group_bytes, default.max_plan_bytes) == (64 * 1024**3, 512 * 1024**3)
    assert (default.least_bytes(100), default.sealed_bytes(100)) == (400, 3200)
    own = parsed(min_bytes="1000", seal_bytes="2kb", max_group_bytes="3 GB")
    assert (own.least_bytes(100), own.sealed_bytes(100), own.max_group_bytes) == (1000, 2048, 3 * 1024**3)
    found = parsed(
        columns="", strategy="", partition_filter=" ", min_bytes="", trigger__commits="", trigger__interval=""
    )
    assert found == ClusteringConfig()
    assert parsed(trigger__interval="6h", trigger__commits="3").trigger_interval == timedelta(hours=6)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("all", PartitionChoice()),
        (" SELECTED ", PartitionChoice(PartitionKind.SELECTED)),
        ("recent:3", PartitionChoice(PartitionKind.RECENT, 3)),
        ("recent:3, skip:0", PartitionChoice(PartitionKind.RECENT, 3, 0)),
        ("rolling:24", PartitionChoice(PartitionKind.ROLLING, 24)),
    ],
)
def test_partitions_are_chosen_in_words(text: str, choice: PartitionChoice) -> None:
    assert partitions(text) == choice


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("partitions", "recent:0"),
        ("partitions", "recent:1,skip"),
        ("partitions", "recent:٣"),
        ("columns", "a,,b"),
        ("columns", "a,b,a"),
        ("strategy", "peano"),
        ("max_group_bytes", "1.5GB"),
        ("tier_fanout", "1"),
        ("trigger__depth_ratio", "0.5"),
        ("update_strategy", "carry"),
    ],
)
def test_what_is_malformed_is_refused_with_key_and_value(key: str, text: str) -> None:
    with pytest.raises(TableRefused) as caught:
        parsed(**{key: text})
    name = PREFIX + key.replace("__", ".").replace("_", "-")
    assert caught.value.message.startswith(f"property {name} has the malformed value {text!r}: ")


def table() -> Table:
    found = Table(config())
    points = whole(rng(), 4, 3)
    for at, one in enumerate(points):
        one[:, 2] = at  # c is in order
    found.append(of_size(points, TARGET))
    return found


def names(found: Suggested) -> list[str]:
    return [one.column for one in found.columns]


def test_what_the_table_says_of_its_rows_comes_before_what_lies_deep() -> None:
    some = table()
    some.deletes = [equality_delete("e")]
    order = SortOrder(1, (LayoutKey(4),))
    known = sorting(identifiers=(5,), orders=(order,), default_order_id=1)
    found = suggest(some.facts(sorting=known), filtered={"f"})
    assert found.columns == (
        Suggestion("e", "it is an identifier field"),
        Suggestion("a", "equality deletes go by it", 4.0),
        Suggestion("d", "the table's sort order names it"),
        Suggestion("f", "self-optimizing.filter names it"),
        Suggestion("b", "its values are spread over many files", 4.0),
    )
    assert found.files == 4
    assert found.auto.choice is None

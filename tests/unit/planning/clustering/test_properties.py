"""Properties of clustering, as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from amoro_core.errors import TableRefused
from amoro_core.model.properties import parse_into
from amoro_core.planning.clustering.properties import ClusteringConfig, PartitionChoice, PartitionKind, partitions

PREFIX = "self-optimizing.cluster."


def parsed(**values: str) -> ClusteringConfig:
    return parse_into(
        ClusteringConfig, {PREFIX + key.replace("__", ".").replace("_", "-"): text for key, text in values.items()}
    )


def test_sizes_have_units_and_default_to_multiples_of_the_target() -> None:
    default = ClusteringConfig()
    assert (default.max_group_bytes, default.max_plan_bytes) == (64 * 1024**3, 512 * 1024**3)
    assert (default.least_bytes(100), default.sealed_bytes(100)) == (400, 3200)
    own = parsed(min_bytes="1000", seal_bytes="2kb", max_group_bytes="3 GB")
    assert (own.least_bytes(100), own.sealed_bytes(100), own.max_group_bytes) == (1000, 2048, 3 * 1024**3)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("all", PartitionChoice()),
        (" SELECTED ", PartitionChoice(PartitionKind.SELECTED)),
        ("recent:3", PartitionChoice(PartitionKind.RECENT, 3)),
        ("recent:3,skip:1", PartitionChoice(PartitionKind.RECENT, 3, 1)),
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
        ("partitions", "rolling:0"),
        ("partitions", "recent:-1"),
        ("partitions", "recent:1,skip"),
        ("partitions", "recent:٣"),
        ("columns", "a,,b"),
        ("columns", "a,b,a"),
        ("strategy", "peano"),
        ("max_groups", "0"),
        ("max_group_bytes", "0"),
        ("max_group_bytes", "1.5GB"),
        ("tier_fanout", "1"),
        ("trigger__depth_ratio", "0.5"),
        ("quiet", "10"),
        ("update_strategy", "carry"),
        ("mode", "inline"),
    ],
)
def test_what_is_malformed_is_refused_with_key_and_value(key: str, text: str) -> None:
    with pytest.raises(TableRefused) as caught:
        parsed(**{key: text})
    name = PREFIX + key.replace("__", ".").replace("_", "-")
    assert caught.value.message.startswith(f"property {name} has the malformed value {text!r}: ")


def test_what_may_be_empty_is() -> None:
    found = parsed(
        columns="", strategy="", partition_filter=" ", min_bytes="", trigger__commits="", trigger__interval=""
    )
    assert found == ClusteringConfig()
    assert parsed(trigger__interval="6h", trigger__commits="3").trigger_interval == timedelta(hours=6)

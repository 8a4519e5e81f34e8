"""Which snapshots stay and go, as Iceberg Java selects them in `java_expires`; which manifests are written anew."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amoro_core.errors import TableRefused
from amoro_core.maintenance import manifests
from amoro_core.maintenance.manifests import (
    Box,
    Listed,
    box_of,
    is_halved,
    key_of,
    layout,
    manifests_per_partition,
    small_ones,
    wide_ones,
)
from amoro_core.maintenance.snapshots import (
    KeepReason,
    RetentionConfig,
    SnapshotSelection,
    Target,
    Writer,
    select,
    writers_of,
)
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import MAIN, Ref, SnapshotFacts
from tests.tiers import count

NOW = datetime(2026, 3, 10, tzinfo=UTC)
DAY = timedelta(days=1)
DEFAULT = RetentionConfig()


def snapshot(
    snapshot_id: int, parent_id: int | None, age: float, summary: Mapping[str, str] | None = None
) -> SnapshotFacts:
    return SnapshotFacts(snapshot_id, parent_id, snapshot_id, NOW - age * DAY, "append", summary or {}, ())


def history(*ages: float) -> list[SnapshotFacts]:
    """Snapshots 1, 2, … in a row, so many days old."""
    return [snapshot(at, at - 1 or None, age) for at, age in enumerate(ages, 1)]


def main(snapshot_id: int) -> Ref:
    return Ref(MAIN, snapshot_id, True)


def gone(
    snapshots: Sequence[SnapshotFacts], refs: Sequence[Ref], config: RetentionConfig = DEFAULT, **target: object
) -> set[int]:
    return set(select(snapshots, refs, config, Target(**target), NOW).go)


def java_expires(
    snapshots: Sequence[SnapshotFacts], refs: Sequence[Ref], config: RetentionConfig, named: Sequence[int]
) -> tuple[set[int], set[str]]:
    """The snapshots and refs that Java removes; raises ValueError where it refuses."""
    known = {one.snapshot_id: one for one in snapshots}

    def ancestors(at: int | None) -> list[SnapshotFacts]:
        found = []
        while at is not None and at in known:
            found.append(known[at])
            at = known[at].parent_id
        return found

    def is_kept(ref: Ref) -> bool:
        age = config.max_ref_age if ref.max_ref_age is None else ref.max_ref_age
        return ref.name == MAIN or age is None or NOW - known[ref.snapshot_id].committed_at <= age

    kept = [ref for ref in refs if is_kept(ref)]
    if {ref.snapshot_id for ref in kept} & set(named):
        raise ValueError("still referenced")
    older_than = NOW - config.max_age
    retain, referenced = {ref.snapshot_id for ref in kept}, set()
    for ref in kept:
        if not ref.is_branch:
            referenced.add(ref.snapshot_id)
            continue
        referenced |= {one.snapshot_id for one in ancestors(ref.snapshot_id)}
        than = older_than if ref.max_snapshot_age is None else NOW - ref.max_snapshot_age
        least = config.min_count if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
        mine: set[int] = set()
        for one in ancestors(ref.snapshot_id):
            if len(mine) >= least and one.committed_at < than:
                break
            mine.add(one.snapshot_id)
        retain |= mine
    retain |= {
        one.snapshot_id for one in snapshots if one.snapshot_id not in referenced and one.committed_at >= older_than
    }
    removed = {one for one in known if one not in retain} | (set(named) & known.keys())
    return removed, {ref.name for ref in refs if not is_kept(ref)}


AGES = st.integers(0, 30).map(lambda half_days: half_days / 2)
SPANS = st.none() | st.integers(1, 20).map(lambda half_days: half_days * DAY / 2)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[SnapshotFacts], list[Ref]]:
    """Trees with gaps, clocks that go back, staged snapshots, several branches and tags."""
    number = draw(st.integers(1, 12))
    ages = sorted(draw(st.lists(AGES, min_size=number, max_size=number)), reverse=True)
    if draw(st.booleans()):
        ages = draw(st.permutations(ages))
    snapshots = []
    for at, age in enumerate(ages, 1):
        parent = draw(st.sampled_from([None, *range(1, at), at - 1 or None, at - 1 or None]))
        snapshots.append(snapshot(at, parent, age, draw(SUMMARIES)))
    left_out = draw(st.sets(st.integers(1, number), max_size=3))
    snapshots = [one for one in snapshots if one.snapshot_id not in left_out] or snapshots
    ids = [one.snapshot_id for one in snapshots]
    refs = []
    for at in range(draw(st.integers(0, 4))):
        on, is_branch = draw(st.sampled_from(ids)), draw(st.booleans()) or at == 0
        ref = Ref(MAIN if at == 0 else f"ref{at}", on, is_branch, max_ref_age=draw(SPANS))
        if is_branch:
            least = draw(st.none() | st.integers(1, 4))
            ref = replace(ref, min_snapshots_to_keep=least, max_snapshot_age=draw(SPANS))
        refs.append(ref)
    return snapshots, refs


SUMMARIES: st.SearchStrategy[dict[str, str]] = st.sampled_from(
    [
        {},
        {},
        {"flink.job-id": "j", "flink.operator-id": "o", "flink.max-committed-checkpoint-id": "1"},
        {"flink.job-id": "j", "flink.operator-id": "p", "flink.max-committed-checkpoint-id": "1"},
        {"spark.sql.streaming.queryId": "q", "spark.sql.streaming.epochId": "2"},
        {"kafka.connect.offsets.control.group": "{}", "kafka.connect.valid-through-ts": "5"},
    ]
)
CONFIGS = st.builds(
    RetentionConfig,
    amoro_age=SPANS,
    iceberg_age=SPANS,
    amoro_count=st.integers(0, 4),
    max_ref_age=SPANS,
    writer_retention=st.sampled_from([timedelta(0), 7 * DAY]),
)


@settings(max_examples=count(150, 300))
@given(tables(), CONFIGS, st.lists(st.integers(1, 12), max_size=2))
def test_what_java_does_not_protect_goes_exactly_as_it_does_there(
    table: tuple[list[SnapshotFacts], list[Ref]], config: RetentionConfig, named: list[int]
) -> None:
    snapshots, refs = table
    plain = [replace(one, summary={}) for one in snapshots]
    selected = select(plain, refs, config, Target(snapshot_ids=tuple(named)), NOW)
    assert {*selected.stay, *selected.go} == {one.snapshot_id for one in snapshots}
    assert not selected.stay.keys() & selected.go.keys()
    try:
        removed, dropped = java_expires(plain, refs, config, named)
    except ValueError:
        assert selected.refused
        return
    assert (set(selected.go), set(selected.refs), selected.refused) == (removed, dropped, {})


@settings(max_examples=count(150, 300))
@given(
    tables(),
    CONFIGS,
    st.dictionaries(st.integers(1, 12), st.just("process 7"), max_size=2),
    st.dictionaries(st.integers(1, 12), st.just("lease 3 of bob"), max_size=1),
)
def test_what_writers_processes_and_leases_need_only_keeps_more(
    table: tuple[list[SnapshotFacts], list[Ref]], config: RetentionConfig, pinned: dict[int, str], since: dict[int, str]
) -> None:
    snapshots, refs = table
    known = {one.snapshot_id: one for one in snapshots}
    plain, dropped = java_expires([replace(one, summary={}) for one in snapshots], refs, config, ())
    selected = select(snapshots, refs, config, Target(pinned=pinned, since=since), NOW)
    assert set(selected.go) <= plain
    assert set(selected.refs) == dropped
    assert {one for one in plain if one in selected.stay} == {
        one for one, why in selected.stay.items() if why.ground in (KeepReason.CHAIN, KeepReason.PIN, KeepReason.LEASE)
    }
    assert not {*pinned, *since} & selected.go.keys()
    for ref in refs:
        if not ref.is_branch or ref.name in dropped:
            continue
        # As committers walk: from the head, by parents, over what is left, to what they left behind.
        at: int | None = ref.snapshot_id
        before: dict[Writer, int] = {}
        while at is not None and at in known:
            for writer in writers_of(known[at].summary):
                before.setdefault(writer, at)
            at = known[at].parent_id
        left, at = set(), ref.snapshot_id
        while at is not None and at in selected.stay:
            left.add(at)
            at = known[at].parent_id
        needed = {one for one in before.values() if known[one].committed_at >= NOW - config.writer_retention}
        assert needed <= left


def test_of_the_two_ages_and_the_two_counts_the_larger_one_counts() -> None:
    said = {"snapshot.keep.duration": "1440", "history.expire.max-snapshot-age-ms": str(3 * 86400000)}
    assert parse_into(RetentionConfig, said).max_age == 3 * DAY
    said["snapshot.keep.duration"] = "4d"
    assert parse_into(RetentionConfig, said).max_age == 4 * DAY
    counts = {"snapshot.keep.min-count": "0", "history.expire.min-snapshots-to-keep": "0"}
    assert (parse_into(RetentionConfig, counts).min_count, parse_into(RetentionConfig, {}).max_age) == (1, 5 * DAY)
    counts["history.expire.min-snapshots-to-keep"] = "3"
    assert parse_into(RetentionConfig, counts).min_count == 3
    assert parse_into(RetentionConfig, {"snapshot.keep.duration": "720min"}).max_age == DAY / 2


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("snapshot.keep.duration", "3 weeks"),
        ("snapshot.keep.min-count", "-1"),
        ("maintenance.expire-snapshots.writer-keys", "a,,b"),
    ],
)
def test_a_malformed_property_is_refused_by_name(key: str, text: str) -> None:
    with pytest.raises(TableRefused, match=key):
        parse_into(RetentionConfig, {key: text})


def test_what_goes_has_its_reason_and_the_oldest_goes_first() -> None:
    chain = [snapshot(1, None, 7), snapshot(2, 1, 8), snapshot(3, 1, 9), snapshot(4, 2, 2), snapshot(5, 4, 1)]
    selected = select(chain, [main(5)], DEFAULT, Target(snapshot_ids=(4,)), NOW)
    assert list(selected.go.items()) == [
        (3, "no branch or tag reaches it"),
        (2, "past its retention"),
        (1, "past its retention"),
        (4, "named"),
    ]


def test_a_tag_protects_its_snapshot_up_to_the_last_moment_of_its_age() -> None:
    tag = Ref("t", 1, False, max_ref_age=5 * DAY)
    held = select(history(5, 1), [main(2), tag], DEFAULT, Target(), NOW)
    assert (held.refs, held.go, held.stay[1].ground) == ({}, {}, KeepReason.TAG)
    expired = select(history(5.01, 1), [main(2), tag], DEFAULT, Target(), NOW)
    assert (expired.refs, set(expired.go)) == ({"t": "tag t is older than 5d"}, {1})


# What Java does not protect


FLINK = {"flink.job-id": "3f2a", "flink.operator-id": "sink", "flink.max-committed-checkpoint-id": "11"}
SPARK = {"spark.sql.streaming.queryId": "q1", "spark.sql.streaming.epochId": "4"}
KAFKA = {"kafka.connect.offsets.control-t.group-1": '{"0":9}', "kafka.connect.valid-through-ts": "1"}


@pytest.mark.parametrize(
    ("summary", "writer"),
    [
        (FLINK, "Flink 3f2a sink"),
        (SPARK, "Spark q1"),
        (KAFKA, "Kafka Connect control-t.group-1"),
        ({"own.at": "7"}, "own.at"),
    ],
)
def test_the_whole_chain_down_to_a_writers_newest_snapshot_stays(summary: dict[str, str], writer: str) -> None:
    config = RetentionConfig(writer_keys=("own.at",))
    chain = history(9, 6.9, 6.8, 6.7, 6)
    chain[0], chain[1] = replace(chain[0], summary=summary), replace(chain[1], summary=summary)
    selected = select(chain, [main(5)], config, Target(), NOW)
    assert set(selected.go) == {1}
    assert {selected.stay[one].reason for one in (2, 3, 4)} == {f"chain of {writer}"}
    assert selected.staying == f"4 stay (1 branch, 3 chain of {writer})"


def test_a_writer_that_was_silent_for_its_retention_holds_nothing() -> None:
    for age, expected in ((7.0, set[int]()), (7.01, {1, 2, 3})):
        chain = history(age, 6.5, 6.4, 6)
        chain[0] = replace(chain[0], summary=FLINK)
        assert gone(chain, [main(4)]) == expected


def test_each_branch_and_each_operator_has_a_writer_of_its_own() -> None:
    other = {**FLINK, "flink.operator-id": "second"}
    chain = [snapshot(1, None, 6.9, FLINK), snapshot(2, 1, 6.8, other), snapshot(3, 2, 6.7), snapshot(4, 1, 6, FLINK)]
    assert gone(chain, [main(3), Ref("b", 4, True)]) == set()
    assert gone(chain, [main(3)]) == {4}
    assert gone([replace(chain[0], summary=other), *chain[1:]], [main(3)]) == {1, 4}


def test_a_snapshot_of_a_flink_job_without_operator_is_every_operators() -> None:
    chain = [snapshot(1, None, 6.9, FLINK), snapshot(2, 1, 6.8, {**FLINK, "flink.operator-id": ""}), snapshot(3, 2, 6)]
    assert gone(chain, [main(3)]) == set()


def test_a_snapshot_that_does_not_say_how_far_a_writer_came_is_not_its_state() -> None:
    for key in ("flink.max-committed-checkpoint-id", "spark.sql.streaming.epochId"):
        said = {**FLINK, **SPARK}
        del said[key]
        assert len(list(writers_of(said))) == 1


def test_what_a_process_works_on_stays_with_its_chain_also_on_another_branch() -> None:
    chain = [*history(9, 8, 7, 6), snapshot(5, 2, 6)]
    selected = select(chain, [main(4), Ref("b", 5, True)], DEFAULT, Target(pinned={2: "process 01a"}), NOW)
    assert (set(selected.go), selected.stay[3].reason) == ({1}, "process 01a")
    alone = select([*history(9, 8), snapshot(3, 1, 7)], [main(2)], DEFAULT, Target(pinned={3: "process 01a"}), NOW)
    assert set(alone.go) == {1}


def test_a_lease_holds_its_snapshot_and_all_newer_ones_wherever_they_are() -> None:
    chain = [*history(9, 8, 7, 6), snapshot(5, 1, 6.5)]
    selected = select(chain, [main(4)], DEFAULT, Target(since={2: "lease 3 of bob"}), NOW)
    assert (set(selected.go), selected.stay[5].reason) == ({1}, "lease 3 of bob")
    behind = [*chain, replace(snapshot(6, 1, 9.5), sequence_number=6)]  # by a clock that is behind
    assert set(select(behind, [main(4)], DEFAULT, Target(since={2: "lease 3"}), NOW).go) == {1}
    numberless = [replace(one, sequence_number=0) for one in chain]
    assert set(select(numberless, [main(4)], DEFAULT, Target(since={2: "lease 3"}), NOW).go) == {1}


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (Target(snapshot_ids=(2,), pinned={1: "process 01a"}), "process 01a"),
        (Target(snapshot_ids=(2,), since={1: "lease 3 of bob"}), "lease 3 of bob"),
    ],
)
def test_a_named_snapshot_that_something_needs_is_refused_with_its_reason(target: Target, reason: str) -> None:
    selected = select(history(3, 2, 1), [main(3)], DEFAULT, target, NOW)
    assert (selected.refused, set(selected.go)) == ({2: reason}, set())


def test_a_table_without_snapshots_or_with_a_circle_of_parents_ends() -> None:
    assert select([], [], DEFAULT, Target(), NOW) == SnapshotSelection({}, {}, {}, {})
    assert gone([snapshot(1, 2, 9), snapshot(2, 1, 8)], [main(2)]) == {1}


def test_a_branch_of_a_snapshot_that_is_not_there_is_left_alone() -> None:
    selected = select(history(9, 8), [main(2), Ref("lost", 77, True, max_ref_age=DAY)], DEFAULT, Target(), NOW)
    assert (selected.refs, set(selected.go), set(selected.stay)) == ({}, {1}, {2})


# Which manifests are written anew, and how their entries are laid out


TARGET = 1000


def listed(size: int, entries: int = 10, low: int | None = None, high: int | None = None) -> Listed:
    box = None if low is None or high is None else Box((key_of(low),), (key_of(high),))
    return Listed(size, entries, box)


def points(*values: int) -> list[manifests.Point]:
    return [(key_of(value),) for value in values]


def test_so_many_small_ones_are_due_and_one_fewer_is_not() -> None:
    some = [listed(100)] * 4 + [listed(499), listed(500), listed(2000)]
    assert small_ones(some, TARGET, 5) == (0, 1, 2, 3, 4)
    assert small_ones(some, TARGET, 6) == ()


def test_small_ones_that_would_stay_as_many_are_left_alone() -> None:
    assert small_ones([listed(499)] * 2, TARGET, 2) == (0, 1)  # one will do
    assert small_ones([listed(499)] * 3, TARGET, 2) == ()  # two would


def test_a_process_takes_no_more_than_100_000_entries_and_is_due_all_the_same() -> None:
    many = 40_000
    some = [listed(30, many), listed(10, many), listed(20, many), listed(5, many)]
    assert small_ones(some, TARGET, 4) == (3, 1)
    wide = [listed(100, many, 0, 9), listed(100, many, 0, 20), listed(100, many, 0, 30)]
    assert wide_ones(wide, 2) == (2, 1)


def test_wide_are_those_that_hold_most_corners_where_they_overlap() -> None:
    assert wide_ones([listed(100, 10, 0, 1), listed(100, 10, 0, 9), listed(100, 10, 0, 5)], 3) == (1, 2, 0)
    assert wide_ones([listed(100, 10, at, at) for at in range(9)], 3) == ()
    assert wide_ones([listed(100, 10, 0, 9)] * 2, 3) == ()
    assert wide_ones([listed(100, 10, 0, 9)] * 3 + [listed(100)], 3) == ()  # bounds are missing


def test_a_new_manifest_ends_with_a_partition_where_it_is_full_enough() -> None:
    assert layout(points(1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3), 10) == [(0, 9), (9, 11)]
    assert layout(points(1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2), 10) == [(0, 10), (10, 11)]  # at 2 it would be too empty
    assert layout(points(1, 1, 2), 3) == [(0, 3)]
    assert layout(points(*[1] * 7), 3) == [(0, 3), (3, 6), (6, 7)]
    assert layout([], 3) == []


def test_every_layout_takes_all_entries_once_in_manifests_that_are_not_too_full() -> None:
    chance = random.Random(7)
    for _ in range(count(40, 200)):
        some = points(*sorted(chance.randrange(chance.randint(1, 30)) for _ in range(chance.randint(0, 200))))
        most = chance.randint(1, 40)
        found = layout(some, most)
        assert [at for start, end in found for at in range(start, end)] == list(range(len(some)))
        assert all(0 < end - start <= most for start, end in found)
        assert all(end - start >= max(1, int(most * 0.7)) for start, end in found[:-1])


def test_how_many_manifests_a_reader_of_one_partition_opens() -> None:
    boxes = [
        Box((key_of(0), key_of(None)), (key_of(9), key_of("b"))),
        Box((key_of(5), key_of("a")), (key_of(5), key_of("z"))),
    ]
    some = [(key_of(5), key_of("b")), (key_of(5), key_of("c")), (key_of(5), key_of(None)), (key_of(7), key_of("a"))]
    assert manifests_per_partition(boxes, some) == (2 + 1 + 1 + 1) / 4


def test_bounds_have_nulls_first_and_nan_last_and_tell_zeros_apart() -> None:
    values = [float("nan"), 1.5, -0.0, 0.0, None, -1.0]
    assert sorted(map(key_of, values)) == [key_of(value) for value in (None, -1.0, -0.0, 0.0, 1.5, float("nan"))]
    assert box_of([(key_of(2), key_of("b")), (key_of(None), key_of("a"))]) == Box(
        (key_of(None), key_of("a")), (key_of(2), key_of("b"))
    )


def test_clustering_is_worth_it_where_it_halves_what_readers_open_beyond_two() -> None:
    assert is_halved(4, 2)
    assert not is_halved(3.9, 2)
    assert not is_halved(2, 1)  # as a partition lies across the end of a manifest

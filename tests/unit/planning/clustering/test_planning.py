"""What is clustered, what waits, and why; and that it comes to rest."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.model.clustering import Column, Layout, LayoutKey, Strategy, group_of
from amoro_core.model.files import DeleteFile, DeleteKind, FileFormat
from amoro_core.model.plans import PartitionKey
from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.planning.clustering.auto_columns import suggest
from amoro_core.planning.clustering.layouts import clustered_at, group_ids
from amoro_core.planning.clustering.model import (
    ClusterRequest,
    ClusterVerdict,
    FileChoice,
    PartitionChoice,
    PartitionKind,
    PartitionOrder,
)
from amoro_core.scan.columns import FEW
from tests.tiers import count
from tests.unit.planning.clustering.world import (
    COLUMNS,
    START,
    TARGET,
    Table,
    config,
    of_size,
    partition,
    place,
    planned,
    random_table,
    sorting,
    whole,
)

ASKED = ClusterRequest(asked=True)
FULL = ClusterRequest(asked=True, full=True)


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def wide(count: int = 16, size: int = TARGET, **values: object) -> Table:
    """A table of files that each hold everything."""
    table = Table(config(**values))
    table.append(of_size(whole(rng(), count), size))
    return table


def clustered(count: int = 16, **values: object) -> Table:
    table = wide(count, **values)
    table.settle()
    return table


def test_files_that_lie_anywhere_are_one_group_of_the_layout() -> None:
    table = wide()
    verdict = table.plan()
    plan = verdict.plan
    assert plan is not None
    assert verdict.is_due
    assert plan.layout == Layout(Strategy.HILBERT, (LayoutKey(1), LayoutKey(2)))
    (group,) = plan.groups
    assert sorted(file.data.path for file in group.files) == sorted(table.files)
    assert (group.output_count, group.input_bytes) == (16, 16 * TARGET)
    assert (plan.snapshot_id, plan.sequence_number, plan.left, plan.sort_order_id) == (1, 1, 0, 0)
    assert group.before == (16.0, 16.0)
    assert group.predicted == pytest.approx((5.2, 5.2))
    assert group.core_ms == 16 * 128 * 40
    assert verdict.reason == "a point query meets 4.0 × the files of a perfect layout, more than 2 ×"


def test_a_second_run_has_nothing_to_do_not_even_when_somebody_asks() -> None:
    table = clustered()
    assert table.plan().reason == "nothing to do: no unclustered files"
    assert table.plan(ASKED).plan is None
    assert table.plan(ASKED).reason == "nothing to do: no unclustered files"
    assert planned(table.plan(FULL).plan) == sorted(table.files)


def test_one_footer_is_read_of_each_unknown_group_and_none_of_known_ones() -> None:
    table = clustered()
    asked: list[str] = []

    def learn(file: object) -> Layout | None:
        asked.append(file.path)  # type: ignore[attr-defined]
        return None

    table.plan(ASKED, learn=learn)
    assert asked == []
    unknown = table.plan(ASKED, learn=learn, groups={})
    assert unknown.partitions[0].unclustered_files == 16  # what nothing tells of is not clustered
    assert len(asked) == 1


def test_plans_are_disjoint_whatever_is_pinned() -> None:
    for seed in range(count(10, 25)):
        choice, table = random.Random(seed), random_table(seed)
        table.settle()
        table.append(of_size(whole(rng(), 12, 3), TARGET), partition(0))
        pinned = frozenset(path for path in table.files if choice.random() < choice.choice([0.1, 0.9]))
        for request in (ClusterRequest(), ASKED, FULL):
            taken = planned(table.plan(request, pinned=pinned).plan)
            assert not pinned.intersection(taken)
            assert len(set(taken)) == len(taken)
        first = planned(table.plan(ASKED).plan)
        assert not set(first) & set(planned(table.plan(ASKED, pinned=frozenset(first)).plan))


def test_pins_are_found_however_spelled_and_an_open_group_with_a_pin_is_left_alone() -> None:
    table = wide()
    pinned = frozenset(f"file://{path}" for path in table.files)
    verdict = table.plan(pinned=pinned)
    assert verdict.plan is None
    assert table.plan(ASKED, pinned=pinned).reason == "nothing to do yet: other plans have the unclustered files"
    table = clustered()
    kept = frozenset(table.files)
    table.append(of_size(whole(rng(), 16), TARGET))
    assert kept < set(planned(table.plan().plan))
    assert not kept & set(planned(table.plan(pinned=frozenset([min(kept)])).plan))


def test_a_sealed_group_is_not_planned() -> None:
    seen = 0
    for seed in range(count(10, 20)):
        table = random_table(seed)
        table.settle()
        table.append(of_size(whole(rng(), 16, 3), TARGET), partition(0))
        verdict = table.plan(ASKED)
        sealed = {one.group_id for part in verdict.partitions for one in part.groups if not one.is_open}
        taken = {group_of(path) for path in planned(verdict.plan)}
        if table.config.tier_fanout == 0:
            assert not sealed & taken
        seen += len(sealed)
    assert seen


def test_a_sealed_group_of_which_half_is_deleted_is_open_again() -> None:
    table = clustered(16, seal_bytes=16 * TARGET)
    assert not table.plan(ClusterRequest(explain=True)).partitions[0].groups[0].is_open
    for share, is_open in ((0.4, False), (0.6, True)):
        table.deletes = [deletes_of(file.path, int(file.record_count * share)) for file in table.files.values()]
        assert table.plan(ClusterRequest(explain=True)).partitions[0].groups[0].is_open is is_open


def deletes_of(path: str, rows: int, sequence_number: int = 9) -> DeleteFile:
    return DeleteFile(
        f"{path}.delete",
        DeleteKind.POSITION,
        FileFormat.PARQUET,
        0,
        (),
        rows,
        1000,
        sequence_number,
        referenced_data_file=path,
    )


def test_sealed_groups_of_a_tier_become_one_though_nothing_new_came() -> None:
    table = Table(config(seal_bytes=8 * TARGET))
    for _ in range(3):
        table.append(of_size(whole(rng(), 8), TARGET))
        table.settle()
    assert len(table.groups) == 3
    assert table.plan().reason == "nothing to do: no unclustered files"
    table.append(of_size(whole(rng(), 8), TARGET))
    first, second = table.settle()
    assert (len(first.groups[0].files), len(second.groups[0].files)) == (8, 32)
    told = table.plan(ClusterRequest(explain=True))
    assert [(one.tier, one.layout) for one in told.partitions[0].groups] == [(1, told.layout)]


def test_a_clustered_file_with_deletes_is_left_to_others() -> None:
    table = wide(8, TARGET // 8, min_bytes=1)
    table.settle()
    (path,) = table.files
    table.deletes = [deletes_of(path, 5)]
    assert table.plan(ASKED).plan is None
    assert planned(table.plan(FULL).plan) == [path]


def test_the_depth_that_was_reached_counts_as_ideal() -> None:
    """Where values have no bounds that tell them apart no layout helps: nothing is done again and again."""
    table = Table(config(columns=("a",)))
    same = [np.array([[0, 0], [9, 9]])] * 8
    table.append(of_size(same, TARGET))
    table.settle()
    for path in table.points:  # as if bounds were cut off
        table.files[path] = replace(table.files[path], metrics=table.files[path].metrics.__class__())
    table.append(of_size(same, TARGET))
    verdict = table.plan()
    assert verdict.plan is None
    assert verdict.partitions[0].ratio == pytest.approx(2.0)
    assert verdict.reason == "nothing to do: a point query meets 2.0 × the files of a perfect layout, above 2 × is due"


def test_group_ids_are_told_by_names_alone_for_few_paths_and_for_many() -> None:
    table = clustered(8)
    paths = [*table.files, "/t/data/part-0.parquet", "/t/data/x-g0123456789ab", "/t/data/x-g0123456789AB.parquet"]
    assert group_ids(pa.chunked_array([paths])).tolist() == [group_of(path) for path in paths]
    assert {clustered_at(path) for path in table.files} == {START}
    assert clustered_at("/t/data/part-g0123456789ab.parquet") is None
    assert clustered_at("/t/data/0198c0de-0000-7000-8000-000000000001-1-1-x.parquet") is None
    ends = ("", ".parquet", ".PARQUET", ".parquet\n", "./x", "\n.orc", ".par-quet")
    hexes = ("0123456789ab", "0123456789AB", "0123456789a", "00123456789ab")
    paths = [f"{start}-g{one}{end}" for start in ("", "s3://b/\nä") for one in hexes for end in ends]
    assert len(paths) > FEW
    assert group_ids(pa.array(paths)).tolist() == [group_ids(pa.array([path]))[0] for path in paths]


def test_files_in_order_or_below_the_least_bytes_are_not_due() -> None:
    assert wide(3).plan().reason == "nothing to do: 384 MB unclustered, 512 MB needed"
    assert wide(4).plan().plan is None  # the bytes are enough, the depth is not
    assert wide(3, min_bytes=1).plan(ASKED).plan is not None
    assert wide(5).plan().is_due
    table = Table(config(columns=("a",)))
    points = [one // 2**10 + at * 2**41 for at, one in enumerate(whole(rng(), 16))]
    table.append(of_size(points, TARGET))
    verdict = table.plan()
    assert verdict.reason == "nothing to do: a point query meets 1.0 × the files of a perfect layout, above 2 × is due"
    assert [one.is_due for one in verdict.partitions] == [False]
    (column,) = verdict.partitions[0].columns
    assert (column.name, column.depth, column.ideal, column.all_files) == ("a", 1.0, 1.0, 1.0)
    table = Table(config())
    assert table.plan().reason == "nothing to do: the table has no snapshot"
    table.append([])
    assert table.plan().reason == "nothing to do: the table has no data files"


def test_commits_and_intervals_are_due_though_the_depth_is_bearable() -> None:
    values = {"trigger_depth_ratio": 100.0}
    assert wide(**values).plan().plan is None
    assert wide(**values, trigger_commits=1).plan().reason == "1 commit since it was clustered; 1 are enough"
    assert wide(**values, trigger_commits=2).plan().plan is None
    assert wide(**values, trigger_interval=timedelta(days=1)).plan().reason == "never clustered"
    table = clustered(8)
    table.config = config(**values, trigger_commits=2, trigger_interval=timedelta(days=1))
    table.now += timedelta(hours=1)
    table.append(of_size(whole(rng(), 8), TARGET))
    assert (table.plan().plan, table.plan().due_at) == (None, START + timedelta(days=1))
    table.now = START + timedelta(days=1)
    assert table.plan().reason == "clustered more than 1 day, 0:00:00 ago"


def test_what_gains_too_little_is_not_due_whatever_triggers_say() -> None:
    # Two files of target size: a curve of two files meets 1.4 of them at best, 1.8 as predicted.
    table = wide(2, trigger_commits=1, min_bytes=1)
    verdict = table.plan()
    assert verdict.plan is None
    assert verdict.reason.endswith("× the files of a perfect layout, clustering reaches about 1.3 ×")
    assert table.plan(ASKED).plan is not None  # who asks is content with less


def test_a_partition_waits_until_others_have_been_quiet() -> None:
    table = wide(quiet=timedelta(minutes=10))
    table.now = START + timedelta(minutes=10) - timedelta(seconds=1)
    verdict = table.plan()
    assert (verdict.plan, verdict.due_at) == (None, START + timedelta(minutes=10))
    assert verdict.reason == "nothing to do yet: others wrote within 0:10:00; at 2026-03-01 00:10 UTC"
    assert table.plan(ASKED).is_due
    table.now = START + timedelta(minutes=10)
    assert table.plan().is_due
    table.deletes = [deletes_of(min(table.files), 1, sequence_number=2)]
    table.snapshots.append(replace(table.snapshots[0], sequence_number=2, committed_at=table.now))
    assert table.plan().due_at == table.now + timedelta(minutes=10)
    table.snapshots[-1] = replace(table.snapshots[-1], operation="replace")
    assert table.plan().is_due


def parted(days: int, **values: object) -> Table:
    table = Table(config(**values))
    for day in range(days):
        table.append(of_size(whole(rng(), 8), TARGET), partition(day))
    return table


def taken(verdict: ClusterVerdict) -> list[PartitionKey]:
    return [] if verdict.plan is None else [group.key for group in verdict.plan.groups]


def test_partitions_are_chosen_by_age_and_come_in_order() -> None:
    table = parted(5)
    assert taken(table.plan()) == [place(day) for day in (4, 3, 2, 1, 0)]
    table.config = config(partition_order=PartitionOrder.OLDEST)
    assert taken(table.plan()) == [place(day) for day in range(5)]
    table.config = config(partitions=PartitionChoice(PartitionKind.RECENT, 2, 1))
    verdict = table.plan()
    assert taken(verdict) == [place(3), place(2)]
    left = {one.key: one.reason for one in verdict.partitions if not one.is_due}
    assert left == {place(day): "nothing to do: it is not among the newest 2 after 1 partitions" for day in (0, 1, 4)}
    asked = ClusterRequest(True, partitions=PartitionChoice(PartitionKind.RECENT, 1))
    assert taken(table.plan(asked)) == [place(4)]


def test_partitions_take_turns_by_the_hour() -> None:
    table = parted(12, partitions=PartitionChoice(PartitionKind.ROLLING, 4))
    seen = []
    for hour in range(4):
        table.now = START + timedelta(hours=hour, minutes=7)
        found = taken(table.plan())
        seen += found
        waiting = [one.due_at for one in table.plan().partitions if one.key not in found]
        soon, late = (START + timedelta(hours=one) for one in (hour, hour + 3))
        assert [one for one in waiting if one is None or not soon < one <= late] == []
    assert sorted(seen) == sorted(place(day) for day in range(12))


def test_partitions_are_selected_by_an_expression() -> None:
    table = parted(4, partitions=PartitionChoice(PartitionKind.SELECTED), partition_filter="day > 1")

    def chooses(condition: str) -> object:
        if condition == "day >":
            raise InvalidArgument("the condition 'day >' is malformed", hint="Write it whole.")
        return lambda key: key in ((place(2), place(3)) if condition == "day > 1" else (place(0), place(3)))

    assert taken(table.plan(chooses=chooses)) == [place(3), place(2)]
    assert taken(table.plan(ClusterRequest(True, where="day = 0 or 3"), chooses=chooses)) == [place(3)]
    with pytest.raises(InvalidArgument, match="malformed"):
        table.plan(ClusterRequest(True, where="day >"), chooses=chooses)
    table.config = replace(table.config, partition_filter="day >")
    with pytest.raises(TableRefused, match=r"partition-filter has the malformed value 'day >'") as caught:
        table.plan(chooses=chooses)
    assert (caught.value.reason, caught.value.hint) == ("configuration", "Write it whole.")
    table.config = replace(table.config, partition_filter=None)
    with pytest.raises(TableRefused, match="selects nothing"):
        table.plan(chooses=chooses)


def test_files_are_chosen_by_size_by_the_filter_and_by_the_largest_group() -> None:
    table = wide(8, files=FileChoice.SMALL)
    small = [one.path for one in table.append(of_size(whole(rng(), 40), TARGET // 4))]
    assert sorted(planned(table.plan().plan)) == sorted(small)
    table = wide()
    some = set(sorted(table.files)[:8])
    assert set(planned(table.plan(selects=lambda file: file.path in some).plan)) == some
    table = wide(16, max_group_bytes=40 * TARGET)
    large = table.append(of_size(whole(rng(), 1), 41 * TARGET))
    taken = planned(table.plan(ASKED).plan)
    assert large[0].path not in taken
    assert len(taken) == 16


def test_a_single_file_is_planned_only_to_be_split_or_for_its_deletes() -> None:
    table = wide(1, TARGET, min_bytes=1)
    assert table.plan(ASKED).reason == "nothing to do: no files that would gain together"
    assert table.plan(FULL).plan is None
    path = next(iter(table.files))
    table.deletes = [deletes_of(path, 1)]
    assert planned(table.plan(ASKED).plan) == [path]
    large = wide(1, 40 * TARGET, min_bytes=1).plan()
    assert large.plan is not None
    assert large.plan.groups[0].output_count == 40


def test_a_plan_holds_what_its_limits_say_and_counts_what_it_left() -> None:
    table = parted(6, max_groups=4)
    plan = table.plan().plan
    assert plan is not None
    assert ([group.key for group in plan.groups], plan.left) == ([place(5), place(4), place(3), place(2)], 2)
    table.config = config(max_plan_bytes=17 * TARGET)
    assert len(taken(table.plan())) == 2
    table.config = config()
    assert len(taken(table.plan(budget_bytes=9 * TARGET))) == 2
    assert len(taken(table.plan(budget_bytes=0))) == 1
    plan = wide(40, max_group_bytes=10 * TARGET).plan().plan
    assert plan is not None
    assert [len(group.files) for group in plan.groups] == [10, 10, 10, 10]
    assert len({group.group_id for group in plan.groups}) == len({group.seed for group in plan.groups}) == 4


def test_groups_that_gain_much_more_come_before_newer_partitions() -> None:
    table = Table(config(max_groups=1))
    table.append(of_size(whole(rng(), 128), TARGET), partition(0))
    table.append(of_size(whole(rng(), 8), TARGET), partition(1))
    assert taken(table.plan(ASKED)) == [place(0)]  # 88 % of the files against 54 %
    table.append(of_size(whole(rng(), 120), TARGET), partition(1))
    assert taken(table.plan(ASKED)) == [place(1)]


def test_deletes_are_read_once_and_outputs_count_what_lives() -> None:
    table = wide(16)
    table.deletes = [deletes_of(path, table.files[path].record_count // 2) for path in table.files]
    plan = table.plan(ASKED).plan
    assert plan is not None
    (group,) = plan.groups
    assert all(len(file.deletes) == 1 for file in group.files)
    assert (group.output_count, group.input_bytes) == (8, 16 * TARGET + 16 * 1000)


@pytest.mark.parametrize("count", [2, 16])
def test_a_column_with_one_value_in_all_files_is_refused(count: int) -> None:
    table = Table(config(columns=("a", "b")))
    table.append(of_size([np.array([[7, at], [7, at + 9]]) for at in range(count)], TARGET))
    with pytest.raises(TableRefused, match=rf"column a, by which .* has one value in all {count} files") as caught:
        table.plan(ASKED)
    assert caught.value.reason == "configuration"


def test_texts_whose_bounds_are_cut_within_what_they_share_are_told() -> None:
    table = wide(8)
    for path, file in table.files.items():
        bounds = file.metrics
        cut = {1: b"https://example.", 2: bounds.lower_bounds[2]}, {1: b"https://example/", 2: bounds.upper_bounds[2]}
        table.files[path] = replace(file, metrics=replace(bounds, lower_bounds=cut[0], upper_bounds=cut[1]))
    texts = sorting(columns=(Column(1, "a", "string"), *COLUMNS[1:]))
    alike = "values of a share the first 16 characters or more, where their bounds end"
    column, default = "write.metadata.metrics.column.a", "write.metadata.metrics.default"
    useless = f"so readers skip no file by a: set {column}=full, or truncate(n) with a greater n"
    for properties, expected in (
        ({}, f"{alike}: clustered files get longer ones"),
        ({column: "full", default: "truncate(16)"}, f"{alike}: clustered files get longer ones"),
        ({default: "truncate(30)"}, f"{alike}: clustered files get longer ones"),
        ({default: "truncate(16)"}, f"{alike}, {useless}"),
        ({column: "truncate(8)"}, f"{alike}, {useless}"),
    ):
        verdict = table.plan(ASKED, sorting=texts, properties=properties)
        assert [one.note for one in verdict.partitions[0].columns] == [expected, ""]


def test_files_clustered_by_other_columns_are_told_with_the_way_to_cluster_them_anew() -> None:
    table = clustered(columns=("a", "b"))
    other = replace(table, config=config(columns=("c",)))
    because = "nothing to do without --full: files that are clustered by other columns stay as they are"
    note = (
        "16 files clustered by hilbert(a, b) stay as they are: to cluster them by linear(c), too, use --full, or "
        "self-optimizing.cluster.relayout=true"
    )
    for request in (ClusterRequest(), ASKED, ClusterRequest(asked=True, shows=True)):
        verdict = other.plan(request)
        assert (verdict.plan, verdict.reason, verdict.notes) == (None, because, (note,))
    for more in (other.plan(FULL), replace(table, config=config(columns=("c",), relayout=True)).plan()):
        assert planned(more.plan) == sorted(table.files)
        assert more.notes == ()
    table.append(of_size(whole(rng(), 4), TARGET))
    mixed = other.plan(ASKED)
    assert (len(planned(mixed.plan)), mixed.notes) == (4, (note,))
    assert other.plan(replace(ASKED, columns=("a", "b"))).notes == ()


def test_what_is_suggested_says_how_files_are_clustered() -> None:
    table = clustered(columns=("b",))
    found = [(one.column, one.reason) for one in suggest(table.facts(groups={})).columns]
    assert found == [
        ("b", "files are clustered by linear(b); another choice needs --full"),
        ("a", "its values are spread over many files"),
    ]


def scans(column: str, a_day: int) -> tuple[ScanUse, ...]:
    filters = (ColumnFilter(column, Operator.EQUAL),)
    return tuple(ScanUse((START - timedelta(days=day)).date(), filters, a_day) for day in range(7))


def test_where_scans_are_known_only_what_pays_back_is_due() -> None:
    table = wide()
    assert table.plan(scans=scans("a", 100)).is_due
    verdict = table.plan(scans=scans("c", 100))
    assert verdict.plan is None
    assert verdict.reason == (
        "nothing to do: about 82 CPU s, of which scans would spare 0.0 s a day, and not all within 30 d"
    )
    # 82 s of work pay back in 30 days when 2.7 s a day are spared: 16 files of 128 MiB read in 21 s, two thirds spared.
    assert not table.plan(scans=scans("a", 1), core_ms_per_mb=400.0).is_due
    assert table.plan(scans=scans("a", 1)).is_due
    assert table.plan(ASKED, scans=scans("c", 100)).is_due  # who asks is not asked back


def test_a_choice_whose_column_has_one_value_by_now_gains_nothing_and_refuses_nothing() -> None:
    table = Table(config(columns=("auto",)))
    table.append(of_size([np.array([[7, at], [7, at + 9]]) for at in range(16)], TARGET))
    choice = ColumnChoice(("a",), Strategy.LINEAR, START, 100, 0.9)
    verdict = table.plan(choice=choice)
    assert (verdict.is_due, verdict.plan, verdict.choice) == (False, None, choice)
    assert verdict.reason == (
        "nothing to gain: column a, by which the table is to be clustered, has one value in all 16 files"
    )


def test_random_tables_are_idle_after_two_plans() -> None:
    for seed in range(count(10, 36)):
        table = random_table(seed)
        plans = table.settle()
        assert len(plans) <= 2, seed
        assert table.plan().plan is None

"""A group clustered: its rows, their order, the files' names and footers; in memory and through disk alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, UUIDType

from amoro_core.errors import AttemptAbandoned, CheckFailed, StorageFull
from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.clustering import (
    METADATA_KEY,
    ClusterInput,
    Layout,
    LayoutKey,
    Strategy,
    group_of,
    group_suffix,
    layout_text,
    parse_layout_text,
)
from amoro_optimizer.cluster.engine import planning_bytes
from amoro_optimizer.cluster.range_partitioner import UNEVENNESS, Cuts, parse_cuts, sample_rows
from amoro_optimizer.cluster.sort_keys import Order, sort_rows
from tests.tiers import count as tier_count
from tests.tiers import sample
from tests.unit.rewrite.builders import col, equality_deletes, position_deletes, written_under

from .builders import GROUP, curve, files_of, group, linear, rows_of, run, table_of, tables, with_seed

SCHEMA = Schema(
    NestedField(1, "number", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "ratio", DoubleType(), required=False),
    NestedField(4, "id", UUIDType(), required=False),
)
#: What makes the memory too small for more than a few rows.
SMALL = 2 << 20
LAYOUTS = {
    "linear": linear(1),
    "linear of several": linear(LayoutKey(2, "truncate[1]", True, True), LayoutKey(3, descending=True), LayoutKey(4)),
    "zorder": curve(Strategy.ZORDER, 1, 2, 4),
    "hilbert": curve(Strategy.HILBERT, 1, 3),
    "hilbert of four": curve(Strategy.HILBERT, 1, 2, 3, 4),
}


def random_rows(rows: int, seed: int = 1) -> pa.Table:
    chance = np.random.default_rng(seed)
    names = [None if one < 5 else f"{'p' * 40}{one:03}" for one in chance.integers(0, 100, rows)]
    ratios = chance.choice([0.0, -0.0, np.nan, np.inf, 1.5, -2.5], rows)
    ids = [bytes(one) for one in chance.integers(0, 256, (rows, 16), dtype=np.uint8)]
    return table_of(SCHEMA, [chance.integers(0, 1000, rows), names, ratios, ids])


def assert_ordered(work: ClusterInput, output: Any, files: list[pa.Table]) -> None:
    """Fail unless rows are in the order of the cuts, equal ones by their place, and files as the cuts divide them."""
    order = Order(Schema.model_validate_json(work.rewrite.table.schema_json), work.layout)
    cuts = parse_cuts(order, output.cuts)
    everything = pa.concat_tables([_table(order, table) for table in files]).combine_chunks()
    (batch,) = everything.to_batches()
    tagged = cuts.tagged(batch, np.arange(batch.num_rows, dtype=np.uint64))
    *keys, _ = cuts.tagged_keys(tagged)
    assert sort_rows(keys, cuts.descending).tolist() == list(range(batch.num_rows))
    assert len(files) <= work.rewrite.output_count


def _table(order: Order, table: pa.Table) -> pa.Table:
    return pa.Table.from_arrays(table.columns, schema=arrow_schema(order.schema))


@pytest.mark.parametrize("name", sample(list(LAYOUTS), every=2))
@pytest.mark.parametrize("memory", [512 << 20, SMALL], ids=["in memory", "through disk"])
def test_all_rows_are_there_in_order_in_even_files(tmp_path: Path, name: str, memory: int) -> None:
    rows, layout = random_rows(20_000), LAYOUTS[name]
    work = group(tmp_path, SCHEMA, layout, files_of(tmp_path, SCHEMA, rows, 3), outputs=4)
    output = run(work, memory_limit_bytes=memory)
    found = tables(output)
    assert Counter(map(repr, rows_of(output))) == Counter(map(repr, rows.to_pylist()))
    assert_ordered(work, output, found)
    assert len(found) == 4
    # Outputs of curves end with cells of the curve; samples are not exact.
    factor = 1.15 if layout.strategy is Strategy.LINEAR else 1.15 * UNEVENNESS
    assert all(5000 / factor <= table.num_rows <= 5000 * factor for table in found)
    made = output.rewrite
    assert (made.rows_read, made.rows_deleted, made.rows_written) == (20_000, 0, 20_000)
    assert (output.spill_bytes > 0) == (memory == SMALL)
    assert not list((tmp_path / "spill").glob("*")) if (tmp_path / "spill").exists() else memory != SMALL


def test_every_limit_leaves_memory_for_rows() -> None:
    """What else is in memory takes the less of a limit the larger it is, and never more than three quarters."""
    limits = [SMALL, 64 << 20, 96 << 20, 128 << 20, 512 << 20, 8 << 30]
    left = [planning_bytes(limit) for limit in limits]
    assert all(limit // 4 <= memory < limit for limit, memory in zip(limits, left, strict=True))
    assert left[-1] == limits[-1] - (72 << 20)


@pytest.mark.parametrize("name", sample(list(LAYOUTS), every=2))
def test_through_disk_the_same_files_are_written_as_in_memory(tmp_path: Path, name: str) -> None:
    files = files_of(tmp_path, SCHEMA, random_rows(20_000), 4, row_group_size=3000)
    work = group(tmp_path, SCHEMA, LAYOUTS[name], files, outputs=3)
    in_memory, through_disk, again = run(work), run(work, memory_limit_bytes=SMALL), run(work, memory_limit_bytes=SMALL)
    assert in_memory.cuts == through_disk.cuts == again.cuts
    assert through_disk.spill_bytes > 0
    for one, other, third in zip(tables(in_memory), tables(through_disk), tables(again), strict=True):
        assert repr(one.to_pydict()) == repr(other.to_pydict()) == repr(third.to_pydict())


def test_a_sample_is_of_the_same_rows_again_and_of_others_by_another_seed(tmp_path: Path) -> None:
    rows = random_rows(60_000)
    assert rows.num_rows > 2 * sample_rows(3)
    work = group(tmp_path, SCHEMA, linear(4), files_of(tmp_path, SCHEMA, rows, 1), outputs=3)
    cuts = run(work).cuts
    assert run(work).cuts == run(work, memory_limit_bytes=SMALL).cuts == cuts
    assert run(with_seed(work, 8)).cuts != cuts


def test_files_tell_group_layout_sort_order_and_bounds(tmp_path: Path) -> None:
    layout = linear(LayoutKey(2, "truncate[1]", True), LayoutKey(1))
    properties = {"write.metadata.metrics.default": "none", "write.metadata.metrics.max-inferred-column-defaults": "1"}
    files = files_of(tmp_path, SCHEMA, random_rows(100), 2)
    work = group(tmp_path, SCHEMA, layout, files, outputs=2, properties=properties, sort_order_id=3)
    for file in run(work).rewrite.data_files:
        assert group_of(file.path) == GROUP
        assert file.path.endswith(f"-g{GROUP}.parquet")
        assert Path(file.path).name.startswith("01890000-0000-7000-8000-000000000001-3-2-")
        footer = pq.read_metadata(file.path)
        assert parse_layout_text(footer.metadata[METADATA_KEY.encode()].decode()) == (GROUP, layout)
        assert file.sort_order_id == 3
        assert set(file.metrics.lower_bounds) == set(file.metrics.upper_bounds) == {1, 2}
        assert footer.row_group(0).column(0).has_column_index
        assert file.sequence_number == work.rewrite.sequence_number


@pytest.mark.parametrize("memory", [512 << 20, SMALL], ids=["in memory", "through disk"])
def test_rows_that_deletes_remove_are_neither_written_nor_sampled(tmp_path: Path, memory: int) -> None:
    rows = random_rows(20_000)
    files = files_of(tmp_path, SCHEMA, rows, 2)
    by_position = position_deletes(tmp_path, [(files[0].path, at) for at in range(9_000)])
    keys = equality_deletes(
        tmp_path, [1], [col("number", pa.int64(), 1, nullable=False)], {"number": list(range(0, 1000, 2))}
    )
    work = group(tmp_path, SCHEMA, linear(1), files, outputs=2, deletes=[by_position, keys])
    output = run(work, memory_limit_bytes=memory)
    expected = [row for at, row in enumerate(rows.to_pylist()) if at >= 9_000 and row["number"] % 2]
    assert Counter(map(repr, rows_of(output))) == Counter(map(repr, expected))
    made = output.rewrite
    assert (made.rows_read, made.rows_deleted) == (20_000, 20_000 - len(expected))
    assert made.rows_written == len(expected)
    assert max(table.num_rows for table in tables(output)) <= 1 + -(-len(expected) // 2), (
        "the sample is of all live rows"
    )


PAIR = Schema(NestedField(1, "key", LongType(), required=False), NestedField(2, "row", LongType(), required=True))
SKEWS: dict[str, Callable[[], list[int | None]]] = {
    "one value in 60 %": lambda: list(np.random.default_rng(1).permutation([7] * 24_000 + list(range(16_000)))),
    "all equal": lambda: [7] * 40_000,
    "all null": lambda: [None] * 40_000,
    "sorted already": lambda: list(range(40_000)),
    "backwards": lambda: list(range(40_000, 0, -1)),
}


@pytest.mark.parametrize("name", sample(list(SKEWS), every=2))
@pytest.mark.parametrize("layout", [linear(1), curve(Strategy.HILBERT, 1, 2), curve(Strategy.ZORDER, 1)], ids=str)
@pytest.mark.parametrize("memory", [512 << 20, SMALL], ids=["in memory", "through disk"])
def test_skewed_values_are_spread_over_even_files(tmp_path: Path, name: str, layout: Layout, memory: int) -> None:
    keys = [None if key is None else int(key) for key in SKEWS[name]()]
    work = group(tmp_path, PAIR, layout, files_of(tmp_path, PAIR, table_of(PAIR, [keys, range(40_000)]), 2), outputs=8)
    found = tables(run(work, memory_limit_bytes=memory))
    rows = [(key, row) for table in found for key, row in zip(*table.to_pydict().values(), strict=True)]
    assert sorted(row for _, row in rows) == list(range(40_000))
    assert all(keys[row] == key for key, row in rows)
    assert len(found) == 8
    # Outputs of curves end with cells of the curve; samples are not exact.
    factor = 1.15 if layout.strategy is Strategy.LINEAR else 1.15 * UNEVENNESS
    assert all(5000 / factor <= table.num_rows <= 5000 * factor for table in found)
    if layout == linear(1):  # equal keys by their place: files in their order, rows in theirs
        assert rows == sorted(rows, key=lambda one: (one[0] is not None, one[0], one[1]))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_make_few_files(tmp_path: Path, rows: int) -> None:
    work = group(
        tmp_path, SCHEMA, curve(Strategy.HILBERT, 1, 2), files_of(tmp_path, SCHEMA, random_rows(rows), 1), outputs=3
    )
    output = run(work)
    assert [table.num_rows for table in tables(output)] == [1] * rows
    assert parse_cuts(Order(SCHEMA, work.layout), output.cuts).serialized() == output.cuts


def test_values_that_are_too_large_for_the_cuts_are_shortened_and_stay_in_order(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    texts = [f"{number:05}" + "x" * 30_000 for number in chance.permutation(300)]
    rows = table_of(SCHEMA, [range(300), texts, [0.5] * 300, [bytes(16)] * 300])
    for layout in sample([linear(2, 1), curve(Strategy.ZORDER, 2, 1)], every=2):
        work = group(tmp_path, SCHEMA, layout, files_of(tmp_path, SCHEMA, rows, 1), outputs=80)
        output = run(work)
        assert len(output.cuts) < 5 << 20
        assert_ordered(work, output, tables(output))
        small = run(work, memory_limit_bytes=SMALL)
        assert repr(rows_of(small)) == repr(rows_of(output))


def test_a_range_that_is_too_large_is_split_again(tmp_path: Path) -> None:
    """Its points are of a sample of its own, and the sample above says nothing of its heavy rows."""
    count = tier_count(60_000, 200_000)
    keys = np.random.default_rng(2).permutation(count)
    rows = table_of(PAIR, [keys, range(count)])
    work = group(tmp_path, PAIR, linear(1), files_of(tmp_path, PAIR, rows, 2), outputs=1)
    output = run(work, memory_limit_bytes=100_000)
    assert [row["key"] for row in rows_of(output)] == list(range(count))
    assert not list((tmp_path / "spill").iterdir())


@pytest.mark.parametrize("layout", [linear(1, 2), linear(1, 4), curve(Strategy.HILBERT, 1, 2)], ids=str)
def test_no_more_is_sorted_at_once_than_an_array_holds_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout
) -> None:
    """Arrow refuses to join texts of more than 2 GiB."""
    monkeypatch.setattr("amoro_optimizer.cluster.writing._MOST_HELD", 500_000)
    files = files_of(tmp_path, SCHEMA, random_rows(20_000), 2, row_group_size=2000)
    output = run(group(tmp_path, SCHEMA, layout, files, outputs=2))
    assert output.spill_bytes > 0
    assert output.rewrite.rows_written == 20_000


def test_too_little_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    work = group(tmp_path, SCHEMA, linear(1), files_of(tmp_path, SCHEMA, random_rows(20_000), 2), outputs=2)
    with pytest.raises(StorageFull, match=r"needs about [\d,]{6,} bytes of spill in .*, and 1,234 are free"):
        run(work, memory_limit_bytes=SMALL, free=lambda root: 1234)
    assert written_under(tmp_path) == []
    assert len(run(work, free=lambda root: 0).rewrite.data_files) == 2, "in memory no disk is needed"


def test_a_disk_that_is_full_in_the_middle_of_a_spill_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = group(tmp_path, SCHEMA, linear(1), files_of(tmp_path, SCHEMA, random_rows(20_000), 2), outputs=2)
    monkeypatch.setattr("amoro_optimizer.cluster.writing.pa.ipc.new_file", lambda path, *_, **__: _FullFile(path))
    with pytest.raises(StorageFull, match="no space left for"):
        run(work, memory_limit_bytes=SMALL, free=lambda root: 1 << 40)
    assert written_under(tmp_path) == []
    assert not list((tmp_path / "spill").iterdir())


class _FullFile:
    def __init__(self, path: Any) -> None:
        self.is_mock = not isinstance(path, str)

    def __enter__(self) -> _FullFile:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def write_batch(self, batch: pa.RecordBatch) -> None:
        return

    def write_table(self, rows: pa.Table) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("memory", [512 << 20, SMALL], ids=["in memory", "through disk"])
def test_it_ends_soon_after_it_is_cancelled_and_leaves_nothing(tmp_path: Path, memory: int) -> None:
    files = files_of(tmp_path, SCHEMA, random_rows(20_000), 2, row_group_size=1000)
    work = group(tmp_path, SCHEMA, curve(Strategy.HILBERT, 1, 2), files, outputs=4)
    asked = 0

    def count() -> bool:
        nonlocal asked
        asked += 1
        return False

    counts = []
    for _ in range(2):  # who waits long for a read asks more often
        asked = 0
        run(work, memory_limit_bytes=memory, is_cancelled=count)
        counts.append(asked)
    before = written_under(tmp_path)
    for moment in range(1, min(counts), max(1, min(counts) // tier_count(4, 12))):
        seen = 0

        def is_cancelled(limit: int = moment) -> bool:
            nonlocal seen
            seen += 1
            return seen >= limit

        with pytest.raises(AttemptAbandoned):
            run(work, memory_limit_bytes=memory, is_cancelled=is_cancelled)
        assert written_under(tmp_path) == before
        assert not (tmp_path / "spill").exists() or not list((tmp_path / "spill").iterdir())


def test_progress_tells_each_stage_and_the_core_time(tmp_path: Path) -> None:
    work = group(tmp_path, SCHEMA, linear(1), files_of(tmp_path, SCHEMA, random_rows(20_000), 2), outputs=2)
    told: list[tuple[str, int]] = []
    rows: list[tuple[int, int]] = []
    output = run(
        work,
        memory_limit_bytes=SMALL,
        on_stage=lambda stage, core_ms: told.append((stage, core_ms)),
        on_progress=lambda done, total: rows.append((done, total)),
    )
    assert {stage for stage, _ in told} == {"sample", "split", "write"}
    times = [core_ms for _, core_ms in told]
    assert times == sorted(times)
    assert {total for _, total in rows} == {20_000}
    assert rows == sorted(rows)  # no stage begins at zero again
    assert rows[-1] == (20_000, 20_000)
    assert {fact.name: fact.rows for fact in output.stages} == {"split": 20_000, "sample": 20_000, "write": 20_000}
    assert sum(fact.core_ms for fact in output.stages) >= times[-1] - len(output.stages)


def test_rows_that_got_lost_and_converted_files_fail_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = group(tmp_path, SCHEMA, linear(1), files_of(tmp_path, SCHEMA, random_rows(9), 1))
    with pytest.raises(CheckFailed, match="none is converted"):
        run(replace(work, rewrite=replace(work.rewrite, converted=work.rewrite.rewritten)))
    work = group(tmp_path, SCHEMA, linear(1), files_of(tmp_path, SCHEMA, random_rows(9), 1))
    whole = Cuts.tagged
    monkeypatch.setattr(Cuts, "tagged", lambda cuts, batch, places: whole(cuts, batch, places).slice(1))
    with pytest.raises(CheckFailed, match="9 rows read, 0 deleted, but 8 written"):
        run(work)
    assert written_under(tmp_path) == []


def test_ranks_of_the_range_of_a_column_do_not_matter(tmp_path: Path) -> None:
    """A column of a wide range does not outvote one of a narrow: both are ranked."""
    chance = np.random.default_rng(4)
    rows = table_of(PAIR, [chance.integers(0, 2**60, 30_000), chance.integers(0, 1000, 30_000)])
    work = group(tmp_path, PAIR, curve(Strategy.HILBERT, 1, 2), files_of(tmp_path, PAIR, rows, 1), outputs=64)
    for name in ("key", "row"):
        found = [table.to_pydict()[name] for table in tables(run(work))]
        chosen = chance.choice(rows.to_pydict()[name], 200)
        met = np.mean([[min(one) <= point <= max(one) for one in found] for point in chosen])
        assert met < 0.22  # ideal 1/8


def test_the_group_is_read_from_the_end_of_a_name_of_ours_and_the_layout_from_a_text() -> None:
    assert group_of(f"s3://b/t/data/p=1/0198-1-1-aa{group_suffix('0123456789ab')}.parquet") == "0123456789ab"
    others = ("0198-1-1-aa", "a-g0123456789ab-deletes", "a-g0123456789AB", "a-g0123456789abc")
    assert [group_of(f"{name}.parquet") for name in others] == [None] * len(others)
    for wrong in ("", "0123", "0123456789AB", "0123456789ab/"):
        with pytest.raises(ValueError, match="12 lower-case hexadecimal digits"):
            group_suffix(wrong)
    later = Layout(Strategy.HILBERT, (LayoutKey(1), LayoutKey(2)), 7)
    assert parse_layout_text(layout_text(later, "0123456789ab")) == ("0123456789ab", later)
    for text in ("", "[]", "{}", '{"group": "x", "strategy": "spiral", "columns": []}'):
        with pytest.raises(ValueError, match="no description of a layout"):
            parse_layout_text(text)

"""Which rows a rewrite leaves out, told with its result; and deletes that a commit carries over to its outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from amoro_core.errors import AttemptAbandoned, UnreadableFile
from amoro_core.files.deletes.vectors import read_omitted_rows
from amoro_core.files.schema.write_options import WriterOptions
from amoro_core.formats.iceberg import write_carried
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import MAP_ENDING, CopyRule, PositionMap, RewriteInput, RewriteOutput
from amoro_core.validation.view import CarriedRows, translate
from tests.tiers import count

from .builders import access_to, col, context, data_file, equality_deletes, position_deletes, run, task, written_under

SCHEMA = Schema(NestedField(1, "n", LongType()))
COLUMNS = [col("n", pa.int64(), 1), col("m", pa.int64(), 1)]  # files of the second name are written apart


def work_of(
    root: Path, rows: list[int], by_position: set[int], by_key: set[int], *, outputs: int, copies: bool
) -> RewriteInput:
    """Files with rows numbered throughout, small row groups, and deletes of both kinds."""
    starts = [sum(rows[:at]) for at in range(len(rows))]
    files = [
        data_file(root, [COLUMNS[at % 2]], {"nm"[at % 2]: range(start, start + count)}, row_group_size=4)
        for at, (start, count) in enumerate(zip(starts, rows, strict=True))
    ]
    deletes = []
    if by_position:
        entries = [
            (file.path, number - start)
            for file, start, count in zip(files, starts, rows, strict=True)
            for number in sorted(by_position)
            if start <= number < start + count
        ]
        deletes.append(position_deletes(root, entries))
    if by_key:
        deletes.append(equality_deletes(root, [1], COLUMNS[:1], {"n": sorted(by_key)}))
    made = replace(
        task(context(root, SCHEMA), files, deletes, output_count=outputs), tells_left_out=True, may_reorder=True
    )
    return replace(made, copy=CopyRule(0, 100)) if copies else made


def left_out(work: RewriteInput, output: RewriteOutput) -> dict[int, PositionSet]:
    assert output.position_map is not None
    rows = [one.data.record_count for one in work.rewritten]
    return dict(read_omitted_rows(access_to(Path(work.table.location)), output.position_map, rows))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], set[int], set[int], int, bool]:
    rows = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    some = st.sets(st.integers(0, sum(rows) - 1))
    return rows, draw(some), draw(some), draw(st.integers(1, 3)), draw(st.booleans())


@settings(max_examples=count(25, 100))
@given(cases())
def test_each_row_is_found_where_the_map_says(case: tuple[list[int], set[int], set[int], int, bool]) -> None:
    rows, by_position, by_key, outputs, copies = case
    with TemporaryDirectory() as name:
        root = Path(name)
        work = work_of(root, rows, by_position, by_key, outputs=outputs, copies=copies)
        output = run(work)
        found = left_out(work, output)
        every = {at: PositionSet.first(count) for at, count in enumerate(rows)}
        written = [pq.read_table(file.path).column(0).to_pylist() for file in output.data_files]
        assert output.position_map is not None
        order = output.position_map.order
        for at in range(len(rows)):
            start = sum(rows[:at])
            for position in range(rows[at]):
                one = {at: PositionSet.of([position])}
                places = translate(rows, found, one, [file.record_count for file in output.data_files], order)
                read = [written[number][where] for number, some in places.items() for where in some.ascending()]
                assert read == ([] if start + position in by_position | by_key else [start + position])
        gone = translate(rows, found, every, [file.record_count for file in output.data_files], order)
        assert sum(map(len, gone.values())) == sum(rows) - len(by_position | by_key)


def test_a_map_is_written_where_something_is_left_out_and_somebody_asked(tmp_path: Path) -> None:
    output = run(work_of(tmp_path, [5, 5], set(), set(), outputs=1, copies=False))
    assert output.position_map == PositionMap("", 0, ())
    assert len(written_under(tmp_path)) == 1
    work = work_of(tmp_path, [5], {1}, set(), outputs=1, copies=False)
    assert run(replace(work, tells_left_out=False)).position_map is None
    assert not any(name.endswith(MAP_ENDING) for name in written_under(tmp_path))


def test_a_map_has_a_bit_for_each_row_at_most(tmp_path: Path) -> None:
    rows = 6 * 2**16  # whole blocks of the bitmap
    work = work_of(tmp_path, [10], set(), set(), outputs=1, copies=False)
    file = data_file(tmp_path, COLUMNS[:1], {"n": range(rows)})
    delete = position_deletes(tmp_path, [(file.path, at) for at in range(0, rows, 2)])
    work = replace(task(work.table, [file], [delete]), tells_left_out=True)
    output = run(work)
    assert output.position_map is not None
    assert output.position_map.size_bytes <= rows / 8 + 1000
    assert left_out(work, output) == {0: PositionSet.of(range(0, rows, 2))}


def test_an_attempt_that_is_abandoned_leaves_no_map(tmp_path: Path) -> None:
    work = work_of(tmp_path, [5], {1}, set(), outputs=1, copies=False)

    def cancelled() -> Iterator[bool]:
        while True:
            yield any(name.endswith(MAP_ENDING) for name in written_under(tmp_path))

    asked = cancelled()
    with pytest.raises(AttemptAbandoned):
        run(work, is_cancelled=lambda: next(asked))
    assert written_under(tmp_path) == []


@pytest.mark.parametrize("change", [{"size_bytes": 1}, {"left_out": "elsewhere"}])
def test_a_map_that_is_not_as_told_is_not_read(tmp_path: Path, change: dict[str, object]) -> None:
    work = work_of(tmp_path, [5], {1}, set(), outputs=1, copies=False)
    found = run(work).position_map
    assert found is not None
    if "left_out" in change:
        change = {"left_out": (replace(found.left_out[0], content_offset=5),)}
    with pytest.raises(UnreadableFile):
        read_omitted_rows(access_to(tmp_path), replace(found, **change), [5])


@pytest.mark.parametrize(("options", "files", "ending"), [(WriterOptions(), 2, "parquet"), (None, 1, "puffin")])
def test_carried_deletes_lie_beside_the_outputs_and_name_their_process(
    tmp_path: Path, options: WriterOptions | None, files: int, ending: str
) -> None:
    columns = [col("n", pa.int64(), 1)]
    outputs = [
        replace(data_file(tmp_path, columns, {"n": range(5)}), path=f"{tmp_path}/data/p={number}/out.parquet")
        for number in range(2)
    ]
    rows = [CarriedRows(7, output, PositionSet.of([number])) for number, output in enumerate(outputs)]
    written = write_carried(access_to(tmp_path), rows, "process", options)
    assert [one.referenced_data_file for one in written] == [output.path for output in outputs]
    paths = sorted({one.path for one in written})
    assert len(paths) == files
    assert all(Path(path).exists() for path in paths)
    for path, output in zip(paths, outputs, strict=False):
        assert Path(path).parent == Path(output.path).parent
        assert re.fullmatch(rf"process-7-[0-9a-f-]{{36}}-carried\.{ending}", Path(path).name)

"""Minor, major and full leave the order of clustered files alone, and rows in any order keep their lineage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from amoro_core.errors import AttemptAbandoned, DataFileMissing
from amoro_core.files.parquet import reading
from amoro_core.model.clustering import METADATA_KEY, ClusterInput, Layout, Strategy, group_of, parse_layout_text
from amoro_core.model.files import LINEAGE_NAMES, DataFile
from amoro_core.model.task_payload import RewriteInput, RewriteOutput
from amoro_optimizer.cluster.engine import rewrite_in_order
from tests.unit.rewrite.builders import (
    ATTEMPT,
    access_to,
    context,
    position_deletes,
    renamed,
    rows_of,
    task,
    written_under,
)

from .builders import GROUP, curve, files_of, group, linear, run, table_of

SCHEMA = Schema(NestedField(1, "key", LongType(), required=True), NestedField(2, "row", LongType(), required=True))


def clustered(root: Path, layout: Layout, *, outputs: int = 3, sort_order_id: int = 3) -> list[DataFile]:
    """Files of one group."""
    keys = np.random.default_rng(3).permutation(3000)
    files = files_of(root, SCHEMA, table_of(SCHEMA, [keys, range(3000)]), 2)
    work = group(root, SCHEMA, layout, files, outputs=outputs, sort_order_id=sort_order_id)
    return list(run(work).rewrite.data_files)


def rewritten(work: RewriteInput, **options: Any) -> RewriteOutput:
    access = access_to(Path(work.table.location))
    given = {"on_progress": lambda done, total: None, "is_cancelled": lambda: False, **options}
    return rewrite_in_order(work, access, ATTEMPT, memory_limit_bytes=512 << 20, **given)


def assert_marked(output: RewriteOutput, layout: Layout, sort_order_id: int) -> None:
    for file in output.data_files:
        assert group_of(file.path) == GROUP
        text = pq.read_metadata(file.path).metadata[METADATA_KEY.encode()].decode()
        assert parse_layout_text(text) == (GROUP, layout)
        assert file.sort_order_id == sort_order_id


def keys_of(output: RewriteOutput) -> list[int]:
    return [row["key"] for row in rows_of(output)]


@pytest.mark.parametrize("chosen", [[0], [1, 0], [2, 0, 1]])
def test_files_of_one_group_stay_in_it_and_in_order(tmp_path: Path, chosen: Sequence[int]) -> None:
    files = clustered(tmp_path, linear(1))
    inputs = [files[number] for number in chosen]
    deletes = position_deletes(tmp_path, [(file.path, at) for file in inputs for at in range(0, 100, 3)])
    table = context(tmp_path, SCHEMA, properties={"write.metadata.metrics.default": "none"})
    output = rewritten(task(table, inputs, [deletes], output_count=2))
    keys = keys_of(output)
    assert keys == sorted(keys)
    assert len(keys) == sum(file.record_count for file in inputs) - 34 * len(inputs)
    assert len(output.data_files) == 2
    assert_marked(output, linear(1), 3)
    assert all(set(file.metrics.lower_bounds) == {1} for file in output.data_files)


def test_files_of_a_curve_keep_its_order(tmp_path: Path) -> None:
    layout = curve(Strategy.HILBERT, 1, 2)
    file = clustered(tmp_path, layout)[1]
    before = pq.read_table(file.path).to_pylist()
    deletes = position_deletes(tmp_path, [(file.path, 5)])
    output = rewritten(task(context(tmp_path, SCHEMA), [file], [deletes]))
    assert rows_of(output) == before[:5] + before[6:]
    assert_marked(output, layout, 0)
    layout = curve(Strategy.ZORDER, 1, 2)
    files = clustered(tmp_path, layout)
    output = rewritten(task(context(tmp_path, SCHEMA), files, output_count=3))
    again = rewritten(task(context(tmp_path, SCHEMA), files, output_count=3))
    assert sorted(keys_of(output)) == list(range(3000))
    assert keys_of(output) == keys_of(again)
    assert_marked(output, layout, 0)


def test_sort_order_ids_that_differ_are_not_claimed(tmp_path: Path) -> None:
    one, other, _ = clustered(tmp_path, linear(1))
    output = rewritten(task(context(tmp_path, SCHEMA), [one, replace(other, sort_order_id=None)]))
    assert_marked(output, linear(1), 0)


def test_converted_files_beside_a_group_get_their_position_deletes(tmp_path: Path) -> None:
    one, other, third = clustered(tmp_path, linear(1))
    deletes = position_deletes(tmp_path, [(third.path, 1), (one.path, 0)])
    work = task(context(tmp_path, SCHEMA), [one, other], [deletes], converted=[third])
    output = rewritten(work)
    assert_marked(output, linear(1), 3)
    assert [file.referenced_data_file for file in output.delete_files] == [third.path]
    assert (output.positions_written, output.rows_deleted) == (1, 1)
    before = written_under(tmp_path)
    gone = replace(work, converted=(replace(work.converted[0], data=renamed(third, f"{tmp_path}/data/gone.parquet")),))
    with pytest.raises(DataFileMissing):
        rewritten(gone)
    assert written_under(tmp_path) == before, "what was sorted already is removed again"


@pytest.mark.parametrize(
    "why",
    [
        "another group",
        "no group",
        "a footer of another group",
        "a footer without layout",
        "a column that is gone",
        "a curve of later",
    ],
)
def test_other_files_are_rewritten_as_ever_in_their_order(
    tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = linear(2) if why == "a column that is gone" else linear(1)
    one, other, _ = clustered(tmp_path, layout)
    schema = SCHEMA
    if why in ("another group", "no group"):
        path = other.path.replace(f"-g{GROUP}", "-g0123456789ff" if why == "another group" else "")
        Path(other.path).rename(path)
        other = renamed(other, path)
    elif why == "a footer of another group":
        for file in (one, other):
            Path(file.path).rename(file.path.replace(GROUP, "0123456789ff"))
        one, other = (renamed(file, file.path.replace(GROUP, "0123456789ff")) for file in (one, other))
    elif why == "a footer without layout":
        for file in (one, other):
            pq.write_table(pq.read_table(file.path), file.path, store_schema=False)
        one, other = (replace(file, size_bytes=Path(file.path).stat().st_size) for file in (one, other))
    elif why == "a column that is gone":
        schema = Schema(SCHEMA.fields[0])
    else:
        layout_of_later = replace(curve(Strategy.HILBERT, 1, 2), curve_version=9)
        monkeypatch.setattr("amoro_optimizer.cluster.engine.read_layout", lambda access, path: (GROUP, layout_of_later))
    expected = [row["key"] for file in (other, one) for row in pq.read_table(file.path).to_pylist()]
    output = rewritten(task(context(tmp_path, schema), [other, one]))
    assert keys_of(output) == expected
    assert [group_of(file.path) for file in output.data_files] == [None]
    assert [file.sort_order_id for file in output.data_files] == [0]


def test_work_that_was_cancelled_does_not_read_the_footer(tmp_path: Path) -> None:
    (file,) = clustered(tmp_path, linear(1), outputs=1)
    before = written_under(tmp_path)
    with pytest.raises(AttemptAbandoned):
        rewritten(task(context(tmp_path, SCHEMA), [file]), is_cancelled=lambda: True)
    assert written_under(tmp_path) == before


ROWS = 20_000
#: What makes the memory too small for more than a few rows.
SMALL = 2 << 20


def given_files(root: Path, rows: int = ROWS) -> list[DataFile]:
    """Rows with their number in the second column, in three files that have ids from 1,000,000 on, as numbered."""
    keys = np.random.default_rng(3).permutation(rows)
    files = files_of(root, SCHEMA, table_of(SCHEMA, [keys, range(rows)]), 3, row_group_size=3000)
    first, found = 1_000_000, []
    for number, file in enumerate(files):
        found.append(replace(file, first_row_id=first, sequence_number=2 + number))
        first += file.record_count
    return found


def in_format_3(work: RewriteInput) -> RewriteInput:
    return replace(work, table=replace(work.table, format_version=3))


def lineage_of(output: RewriteOutput) -> dict[int, tuple[int, int]]:
    """Id and last update of each row by its number."""
    found: dict[int, tuple[int, int]] = {}
    for made in output.data_files:
        columns = pq.read_table(made.path, columns=["row", *LINEAGE_NAMES]).to_pydict()
        for number, *lineage in zip(*columns.values(), strict=True):
            assert number not in found
            found[number] = (lineage[0], lineage[1])
    return found


def expected(files: list[DataFile], gone: set[int]) -> dict[int, tuple[int, int]]:
    found, number = {}, 0
    for file in files:
        for _ in range(file.record_count):
            if number not in gone:
                found[number] = (1_000_000 + number, file.sequence_number)
            number += 1
    return found


@pytest.mark.parametrize("layout", [linear(1), curve(Strategy.HILBERT, 1, 2)], ids=["linear", "hilbert"])
@pytest.mark.parametrize("memory", [512 << 20, SMALL], ids=["in memory", "through disk"])
def test_clustered_rows_keep_their_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout, memory: int
) -> None:
    monkeypatch.setattr(reading, "MAX_BATCH_ROWS", 1000)
    files = given_files(tmp_path)
    deletes = [position_deletes(tmp_path, [(files[0].path, at) for at in range(0, 5000, 3)])]
    work: ClusterInput = group(tmp_path, SCHEMA, layout, files, outputs=4, deletes=deletes)
    work = replace(work, rewrite=in_format_3(work.rewrite))
    output = run(work, memory_limit_bytes=memory)
    assert (output.spill_bytes > 0) == (memory == SMALL)
    assert len(output.rewrite.data_files) == 4
    assert lineage_of(output.rewrite) == expected(files, set(range(0, 5000, 3)))
    assert all(set(file.metrics.value_counts) == {1, 2} for file in output.rewrite.data_files)
    assert repr(run(work, memory_limit_bytes=512 << 20).cuts) == repr(output.cuts)


@pytest.mark.parametrize("count", [1, 3])
def test_files_of_a_group_keep_their_lineage_when_they_are_rewritten_in_its_order(tmp_path: Path, count: int) -> None:
    files = given_files(tmp_path, 3000)
    work: ClusterInput = group(tmp_path, SCHEMA, linear(1), files, outputs=3)
    clustered = list(run(replace(work, rewrite=in_format_3(work.rewrite))).rewrite.data_files)
    # What the commit gives these files is not what their rows have.
    inputs = [replace(file, first_row_id=5, sequence_number=9) for file in clustered[:count]]
    output = rewritten(in_format_3(task(context(tmp_path, SCHEMA), inputs)))
    assert GROUP in output.data_files[0].path
    known: dict[int, Any] = expected(files, set())
    found = lineage_of(output)
    assert found == {number: known[number] for number in found}
    assert len(found) == sum(file.record_count for file in inputs)

"""Rows that are put into another order keep their ids and the sequence numbers of their last updates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from amoro_core.files import parquet
from amoro_core.model.clustering import ClusterInput, Layout, Strategy
from amoro_core.model.files import DataFile
from amoro_core.model.lineage import LINEAGE_NAMES
from amoro_core.model.rewrite import RewriteInput, RewriteOutput
from tests.unit.cluster.builders import GROUP, curve, files_of, group, linear, run, table_of
from tests.unit.cluster.test_keeping import rewritten
from tests.unit.rewrite.builders import context, position_deletes, task

SCHEMA = Schema(NestedField(1, "key", LongType(), required=True), NestedField(2, "row", LongType(), required=True))
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
    monkeypatch.setattr(parquet, "MAX_BATCH_ROWS", 1000)
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

"""Rows that a Spark application puts into order keep their lineage, also those of files that it reads in pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amoro_core.model.clustering import CLUSTER
from amoro_core.model.lineage import LINEAGE_NAMES
from amoro_optimizer.backends.spark import clustering
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.backends.spark.worker import Assignment
from amoro_optimizer.backends.standalone import InProcess
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.engine.files import Layout as FileLayout
from tests.services.world import World
from tests.spark_backend.groups import LINEAR, another, clustered, group_of, rows_of
from tests.spark_backend.test_clustering import with_offsets


def test_rows_of_files_and_of_pieces_keep_their_lineage(
    backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = writer.make_table(world.catalog, "db.lineage", SCHEMA)
    groups = FileLayout(row_group_rows=50)
    writer.append(table, [row(number, value=f"{number * 7 % 300}") for number in range(300)], layout=groups)
    writer.append(table, [row(300 + number, value=f"{number * 11 % 300}") for number in range(300)], layout=groups)
    writer.delete_where(table, lambda record: record["id"] % 5 == 3)
    attempt, work = group_of(world, table, LINEAR, outputs=3)
    files = [with_offsets(file) for file in work.rewrite.rewritten]
    # Ids of rows are 10,000 above the values of the column that numbers them.
    firsts = {file.data.path: 10_000 + 300 * (file.data.sequence_number - 1) for file in files}
    files = [replace(file, data=replace(file.data, first_row_id=firsts[file.data.path])) for file in files]
    format_3 = replace(work.rewrite.table, format_version=3)
    work = replace(work, rewrite=replace(work.rewrite, rewritten=tuple(files), table=format_3))
    monkeypatch.setattr(clustering, "_LEAST_SLICE_BYTES", 1)
    monkeypatch.setattr(clustering, "SLICE_BYTES", 1000)
    slices = clustering.slices_of(work, Assignment(b"", CLUSTER, b"", {}, 1, ("127.0.0.1", 1), b"", ""), 2)
    assert len([one for one in slices if one.piece is not None]) > 2
    made = rows_of(clustered(backend, work, attempt))
    assert made == rows_of(clustered(InProcess(), work, another(attempt)))
    found = [record for rows in made for record in rows]
    assert sorted(record["id"] for record in found) == [number for number in range(600) if number % 5 != 3]
    for record in found:
        assert [record[name] for name in LINEAGE_NAMES] == [10_000 + record["id"], 1 + record["id"] // 300]

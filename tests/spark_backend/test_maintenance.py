"""Work of maintenance in Spark's workers: each kind as in any optimizer."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions import sketch_tasks
from amoro_core.errors import OptimizerError
from amoro_core.model.maintenance import FileKind
from amoro_core.model.processes import ProcessStatus
from amoro_optimizer.backends.spark.driver import SparkBackend
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.large import Worker, count_as_large
from tests.services import test_large_orphans as orphans
from tests.services import test_large_statistics as statistics
from tests.services import test_sweeping as sweeping
from tests.services.test_orphans import Place
from tests.services.world import World


def test_files_are_listed(backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    count_as_large(monkeypatch, files_of_a_task=3)
    place = Place(world)
    other = place.put("data/part=b/y.parquet")
    assert Worker(world, backend=backend).run(orphans.NAME).status is ProcessStatus.SUCCESS
    assert orphans.condemned_now(place) == sorted([place.orphan, other])


def test_values_are_counted(backend: SparkBackend, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    count_as_large(monkeypatch)
    monkeypatch.setattr(sketch_tasks, "FILES_OF_A_TASK", 2)
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    writer.append(table, [row(number, "a" if number < 5 else "b", f"value {number % 3}") for number in range(10)])
    writer.upsert(table, [row(1, "a", "new")], ["id"])
    assert Worker(world, backend=backend).run(statistics.NAME).status is ProcessStatus.SUCCESS
    assert statistics.ndv(table) == {1: 10, 2: 2, 3: 4}


def test_files_are_deleted_and_none_that_is_begun_too_late(
    backend: SparkBackend, tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker asks the driver, whose optimizer has sent the ack, how old it is."""
    count_as_large(monkeypatch)
    home = tmp_path / "home"
    home.mkdir()
    place = sweeping.Place(home, catalog)
    place.action.keep = timedelta()
    place.stray(3, FileKind.DATA)
    place.run()
    worker = Worker(place.world, backend=backend)
    process_id = place.world.maintaining.begin(place.table_id, "empty-trash", trigger="request").process_id
    (task,) = worker.poll()
    assert worker.ack(task)
    worker.age_s = 601.0
    with pytest.raises(OptimizerError, match="were not begun to be deleted within 600 s of their ack"):
        worker.execute(task)
    assert len(place.left()) == 3
    worker.age_s = 300.0
    assert worker.complete(task, worker.execute(task))
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert sweeping.figures(place.of(process_id))["data_files_deleted"] == 3
    assert place.left() == []

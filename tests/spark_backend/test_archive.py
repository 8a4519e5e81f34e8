"""A cluster whose machines lack amoro, to which `amoro optimizer package` brings it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import assert_optimized_once, is_optimized, look, name_of, unreferenced_files
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.spark_backend.cluster import start_cluster
from tests.spark_backend.spark import descendants, spark_optimizer

PARTS = ("a", "b")


def test_executors_rewrite_with_what_the_archive_holds(
    shared: Installation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("bare")
    archive = directory / "amoro.tar.gz"
    made = shared.ask("optimizer", "package", "--file", str(archive))
    assert (made["path"], made["size_bytes"]) == (str(archive), archive.stat().st_size)
    table = writer.make_table(shared.catalog, "db.archive", SCHEMA, BY_PART)
    for commit in range(4):
        writer.append(table, [row(commit * 10 + number, part, "x") for number in range(10) for part in PARTS])
    writer.upsert(table, [row(3, part, "new") for part in PARTS], ["id"])
    before = look(table)
    cluster = start_cluster(directory, workers=1, cores=2, bare=True)
    try:
        optimizer = spark_optimizer(
            shared,
            address_of(shared.up()),
            cluster.master_url,
            settings={
                "spark.executor.memory": "512m",
                "spark.archives": f"{archive}#amoro",
                "spark.pyspark.python": "./amoro/bin/python",
            },
            environment={"SPARK_LOCAL_IP": "127.0.0.1"},
        )
        planned = shared.ask("optimize", name_of(table), "--type", "full")
        wait_until(lambda: is_optimized(table), "the process commits", 120.0)
        process = wait_until(lambda: shared.ended(planned["process_id"]), "the process ends")
        assert (process["status"], process["tasks_done"]) == ("success", len(PARTS))
        assert_optimized_once(table, before, files=len(PARTS))
        assert unreferenced_files(table) == set()
        # Python of the executor is the archive's, unpacked below the worker's directory.
        pythons = {os.readlink(f"/proc/{pid}/exe") for pid in descendants(cluster.workers[0].pid)}
        pythons = {path for path in pythons if Path(path).name.startswith("python")}
        assert len(pythons) == 1
        assert Path(pythons.pop()).is_relative_to(directory / "work")
        assert optimizer.terminate() == 0
    finally:
        cluster.close()

"""What is rewritten is committed though Spark deletes rows by vector after every task."""

from __future__ import annotations

import random

from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import commits

from .matching import assert_deletes_match_as_in_java
from .optimizing import Services
from .test_lineage import lineage_of

ROWS, PARTS, ROUNDS = 400, 4, 2


def test_vectors_that_spark_writes_while_files_are_rewritten_cost_no_work(services: Services) -> None:
    catalog, spark, world = services.catalog, services.catalog.spark, services.world
    table = catalog.full_name("db.kept")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, part BIGINT) USING iceberg PARTITIONED BY (part)"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    for first in range(0, ROWS, ROWS // 2):
        spark.sql(f"INSERT INTO {table} SELECT id, id % {PARTS} FROM range({first}, {first + ROWS // 2}, 1, 1)")
    live, chance, optimizer = lineage_of(spark, table), random.Random(1), world.optimizer(1)
    assert len(live) == ROWS

    for number in range(ROUNDS):
        process_id, tasks = world.begin(OptimizingType.FULL, table, force=True), 0
        while world.status(process_id) is ProcessStatus.RUNNING:
            world.run_one(optimizer)
            tasks += 1
            gone = chance.choice(sorted(live))
            spark.sql(f"DELETE FROM {table} WHERE id = {gone}")
            del live[gone]
        vectors = spark.sql(f"SELECT count(*) FROM {table}.delete_files WHERE file_format = 'PUFFIN'").collect()[0][0]
        assert (tasks, vectors > 0) == (PARTS, True)
        services.finish(process_id)
        (landed,) = world.store.read(lambda db, process_id=process_id: commits.list_for_process(db, process_id))
        assert (landed.outcome, len(landed.groups)) == (CommitOutcome.DONE, PARTS)
        figures = {figure.name: figure.value for figure in landed.receipt.figures}
        assert figures["rows_carried_over"] == PARTS, number
        assert_deletes_match_as_in_java(catalog, table)
        assert lineage_of(spark, table) == live

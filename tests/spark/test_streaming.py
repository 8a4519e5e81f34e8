"""A Structured Streaming job stands still while its table is rewritten and expired, and goes on by its checkpoint."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amoro_core.actions.expiring import NAME
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine.aging import aged

from .catalogs import SharedCatalog
from .optimizing import Services

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 6


def stream(spark: SparkSession, source: Path, checkpoint: Path, table: str) -> None:
    """Let the job take all that is new, file by file, and stop."""
    query = (
        spark.readStream.schema("id BIGINT, note STRING")
        .option("maxFilesPerTrigger", "1")
        .json(source.as_uri())
        .writeStream.format("iceberg")
        .outputMode("append")
        .option("checkpointLocation", checkpoint.as_uri())
        .trigger(availableNow=True)
        .toTable(table)
    )
    query.awaitTermination()


def offer(source: Path, *numbers: int) -> None:
    for number in numbers:
        source.mkdir(exist_ok=True)
        (source / f"{number:03d}.json").write_text(json.dumps({"id": number, "note": "streamed"}), encoding="utf-8")


def a_day_passes(services: Services, table: str, number: int) -> None:
    """Another writer adds rows, files are rewritten, and what is past its time goes."""
    services.catalog.spark.sql(f"INSERT INTO {table} VALUES ({1000 + number}, 'other')")
    services.world.now = datetime.now(UTC) + timedelta(seconds=5)
    services.finish(services.begin(table, OptimizingType.FULL))
    begun = services.world.maintaining.begin(services.world.table(table).table_id, NAME, trigger="request")
    if begun.process_id:
        assert services.world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    aged(services.catalog.load(table), 1)
    services.catalog.spark.sql(f"REFRESH TABLE {table}")


@pytest.mark.parametrize(("retention", "times"), [("7d", 1), ("0d", 2)], ids=["with its chain", "without"])
def test_a_job_that_was_stopped_for_six_days_writes_no_row_twice(
    spark: SparkSession, catalog: SharedCatalog, services: Services, tmp_path: Path, retention: str, times: int
) -> None:
    """It died after the commit to the table and before it noted that: it finds its epoch in the table's history.

    amoro #930, iceberg #5846: without the chain it writes its last rows again.
    """
    table, source, checkpoint = catalog.full_name("db.streamed"), tmp_path / "source", tmp_path / "checkpoint"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ("
        f"'snapshot.keep.duration' = '1h', 'snapshot.keep.flink.checkpoint-retention' = '{retention}')"
    )
    offer(source, 1, 2, 3)
    stream(spark, source, checkpoint, table)
    noted = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    noted.unlink()
    noted.with_name(f".{noted.name}.crc").unlink(missing_ok=True)
    snapshots = len(catalog.load(table).metadata.snapshots)
    for number in range(DAYS):
        a_day_passes(services, table, number)
    left = catalog.load(table).metadata.snapshots
    assert len(left) < snapshots + 2 * DAYS
    offer(source, 4)
    stream(spark, source, checkpoint, table)
    rows = Counter(one.id for one in spark.sql(f"SELECT id FROM {table} WHERE note = 'streamed'").collect())
    assert (set(rows), max(rows.values()), rows.total()) == ({1, 2, 3, 4}, times, 3 + times)
    assert spark.sql(f"SELECT id FROM {table} WHERE note = 'other'").count() == DAYS

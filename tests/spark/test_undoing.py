"""What was taken back, as Spark reads it: rewrites with their files and deletes, expired snapshots with their rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine.aging import aged

from .catalogs import SharedCatalog
from .matching import assert_deletes_match_as_in_java
from .optimizing import Services
from .rows import spark_rows
from .tables import MERGE_ON_READ, file_counts, make_mixed_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def undo(services: Services, process_id: str) -> None:
    begun = services.world.maintaining.undo(process_id)
    status = services.world.committing.commit(begun.process_id)
    assert status is ProcessStatus.SUCCESS, services.world.optimizing.find_process(begun.process_id).process.failure


def test_a_rewrite_that_was_taken_back_beside_commits_of_spark(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_mixed_table(catalog)
    files = file_counts(spark, table)
    process_id = services.begin(table, OptimizingType.FULL)
    services.finish(process_id)
    assert file_counts(spark, table) != files
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id % 10 = 3")
    added = file_counts(spark, table)
    rows = spark_rows(spark, table)
    undo(services, process_id)
    assert spark_rows(spark, table) == rows
    assert all(file_counts(spark, table)[key] >= count for key, count in files.items())
    assert file_counts(spark, table) != added
    assert_deletes_match_as_in_java(catalog, table)
    # Java goes on from there: it deletes rows, by position, in files that came back.
    spark.sql(f"DELETE FROM {table} WHERE id BETWEEN 20 AND 25")
    assert_deletes_match_as_in_java(catalog, table)
    assert spark.sql(f"SELECT count(*) FROM {table} WHERE id BETWEEN 20 AND 25").first() == (0,)


@pytest.mark.parametrize("version", [1, 2])
def test_expired_snapshots_that_came_back_outlive_the_next_expiry_of_spark(
    spark: SparkSession, catalog: SharedCatalog, services: Services, version: int
) -> None:
    table = catalog.full_name("db.t")
    properties = MERGE_ON_READ if version == 2 else "'format-version' = '1'"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ({properties})")
    for number in range(3):
        spark.sql(f"INSERT INTO {table} VALUES ({number}, 'first'), ({number + 10}, 'second')")
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    loaded = aged(catalog.load(table), 30)
    rows = {
        one.snapshot_id: sorted(spark.sql(f"SELECT * FROM {table} VERSION AS OF {one.snapshot_id}").collect())
        for one in loaded.metadata.snapshots
    }
    services.world.now = datetime.now(UTC) + timedelta(seconds=1)
    table_id = services.world.table(table).table_id
    begun = services.world.maintaining.begin(table_id, "expire-snapshots", trigger="request")
    services.world.committing.commit(begun.process_id)
    left = {one.snapshot_id for one in catalog.load(table).metadata.snapshots}
    gone = rows.keys() - left
    assert len(gone) == 3
    undo(services, begun.process_id)
    spark.sql(
        f"CALL {catalog.name}.system.expire_snapshots(table => 'db.t', older_than => now(), retain_last => 1)"
    ).collect()
    for snapshot_id in gone:
        found = sorted(spark.sql(f"SELECT * FROM {table} VERSION AS OF 'restored-{snapshot_id}'").collect())
        assert found == rows[snapshot_id]

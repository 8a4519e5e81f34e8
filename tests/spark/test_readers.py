"""A query of Spark that began before its snapshot expired: its files wait in their places, so that it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine.aging import aged

from .catalogs import SharedCatalog
from .optimizing import Services

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, ROWS = 6, 200


@pytest.mark.parametrize(("keep", "ends"), [("1d", True), ("0", False)], ids=["in the trash", "without trash"])
def test_a_query_that_began_before_an_expiry_ends(
    spark: SparkSession, catalog: SharedCatalog, services: Services, keep: str, ends: bool
) -> None:
    """It is planned, has read one file, and reads the others once the snapshot has gone and what was due is deleted."""
    table = catalog.full_name("db.read")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ("
        f"'maintenance.expire-snapshots.trash-keep' = '{keep}', 'read.split.open-file-cost' = '134217728')"
    )
    for number in range(FILES):
        first = number * ROWS
        spark.range(first, first + ROWS, 1, 1).selectExpr("id", "'before' AS note").writeTo(table).append()
    running = spark.sql(f"SELECT id FROM {table}").toLocalIterator(prefetchPartitions=False)
    seen = [next(running).id]

    services.world.now = datetime.now(UTC) + timedelta(seconds=5)
    services.finish(services.begin(table, OptimizingType.FULL))
    loaded = aged(catalog.load(table), 30)
    table_id = services.world.table(table).table_id
    begun = services.world.maintaining.begin(table_id, "expire-snapshots", trigger="request")
    assert services.world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    assert len(loaded.refresh().metadata.snapshots) == 1
    emptied = services.world.maintaining.begin(table_id, "empty-trash", trigger="request")
    assert bool(emptied.process_id) is not ends
    if emptied.process_id:
        services.world.committing.commit(emptied.process_id)

    if ends:
        assert sorted([*seen, *(one.id for one in running)]) == list(range(FILES * ROWS))
    else:
        with pytest.raises(Exception, match=r"does not exist|FileNotFound|FAILED_READ"):
            list(running)

"""Random files of Iceberg's Java writer, Spark's own and others are copied: no reader finds other rows.

`AMORO_SPARK_COPIES` says how many tables, `AMORO_SEED` the first one's seed, which is its number.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from .catalogs import SharedCatalog
from .optimizing import Services
from .random_copies import CopyStory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = int(os.environ.get("AMORO_SPARK_COPIES", "2"))
FIRST = int(os.environ.get("AMORO_SEED", "0"))


@pytest.fixture
def moments(spark: SparkSession) -> Iterator[None]:
    """Spark's own writer writes moments in microseconds, not as int96, which nobody copies."""
    key = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(key, "TIMESTAMP_MICROS")
    yield
    spark.conf.unset(key)


@pytest.mark.usefixtures("moments")
def test_random_files_of_java_and_others_keep_their_rows_when_they_are_copied(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    totals: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + TABLES):
        story = CopyStory(spark, catalog, services, seed)
        for _ in range(2):
            story.grow(8)
            story.optimize()
        totals += story.totals
    assert totals["files"] == 16 * TABLES
    assert totals["files of java"] >= 4 * TABLES
    # The second time, the first output is among them. It is most of them that are not decoded.
    assert totals["files copied whole"] >= totals["files rewritten"] * 2 // 3
    # Of groups that were copied whole, in their outputs as in their files.
    assert totals["page indexes kept"] > 0
    assert totals["bloom filters kept"] > 0

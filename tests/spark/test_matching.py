"""Our matcher against Iceberg's Java runtime, over random tables of metadata alone.

AMORO_SEED names the first table and AMORO_TABLES how many there are, so that a failing one can be made again.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

from amoro_core.errors import TableRefused
from amoro_core.iceberg.disputed import disputed_deletes
from amoro_core.iceberg.scan import scan
from amoro_core.model.files import DeleteKind, ScannedFile, TableScan
from amoro_core.model.paths import normalise

from .java_plans import java_plans
from .matching import as_java_lists, may_meet, planned_deletes
from .random_tables import TRAITS, make_random_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = int(os.environ.get("AMORO_TABLES", "500"))
SEED = int(os.environ.get("AMORO_SEED") or secrets.randbits(32))


@pytest.mark.timeout(0)  # the size is the caller's
def test_random_tables_have_the_same_deletes_for_each_file_as_in_java(spark: SparkSession, tmp_path: Path) -> None:
    # pyspark has no public way to the JVM.
    plans = java_plans(spark.sparkContext._gateway)
    seen: Counter[str] = Counter()
    for seed in range(SEED, SEED + TABLES):
        print(f"replay with AMORO_SEED={seed} AMORO_TABLES=1")
        made = make_random_table(tmp_path, seed)
        table = StaticTable.from_metadata(made.metadata_location)
        of_java = planned_deletes(plans, static_java_table(spark, made.metadata_location))
        places = {normalise(path): place for path, place in made.places.items()}
        is_astray = any(
            places.get(delete, places[path]) != places[path] for path, here in of_java.items() for delete in here
        )
        found = scanned(table, made.location)
        if is_astray:
            assert found == "position-delete-partition"
            seen["refused: a position delete in another partition than its file"] += 1
            continue
        assert isinstance(found, TableScan)
        assert as_java_lists(table.metadata, found) == of_java
        seen.update(made.traits)
        for file in found.files:
            ours = {normalise(delete.path) for delete in file.deletes}
            theirs = of_java[normalise(file.data.path)]
            seen["pairs of both"] += len(ours & theirs)
            seen["pairs that Java leaves out by bounds or nulls"] += len(ours - theirs)
            seen["pairs that we leave out by bounds"] += len(theirs - ours)
            for delete in file.deletes:
                if delete.kind is DeleteKind.EQUALITY:
                    of_spec = may_meet(table.metadata.schema(), file.data, delete, as_java=False)
                    disputed = of_spec and normalise(delete.path) not in theirs
                    pair = ScannedFile(file.data, (delete,))
                    assert disputed_deletes(table.metadata, [pair]) == ({delete.identity} if disputed else set())
                    seen["pairs in dispute"] += disputed
    print("  ".join(f"{name}: {number}" for name, number in sorted(seen.items())))
    if TABLES >= 500:
        assert set(seen) >= TRAITS
        assert min(seen[name] for name in seen if name.startswith(("pairs", "refused"))) > 0


def scanned(table: StaticTable, location: str) -> TableScan | str | None:
    """Our scan, or the word by which the table is refused."""
    try:
        return scan(table, [location])
    except TableRefused as refused:
        return refused.reason


def static_java_table(spark: SparkSession, metadata_location: str) -> Any:
    """The table as Java reads it from its metadata, without a catalog."""
    iceberg = spark.sparkContext._gateway.jvm.org.apache.iceberg
    io = iceberg.hadoop.HadoopFileIO(spark.sparkContext._jsc.hadoopConfiguration())
    return iceberg.BaseTable(iceberg.StaticTableOperations(metadata_location, io), "random")

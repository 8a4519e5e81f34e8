"""Schedules of the row model at whose end Spark reads every ref. AMORO_SEED and AMORO_SCHEDULES choose others."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Snapshot

from tests.engine import oracle
from tests.engine.parquet_rows import local_path
from tests.engine.values import rows_of
from tests.model.lake import Lake
from tests.model.machine import Optimizing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEDULES = int(os.environ.get("AMORO_SCHEDULES", "12"))
SEED = int(os.environ.get("AMORO_SEED") or secrets.randbits(32))


@pytest.mark.timeout(0)  # the size is the caller's
def test_spark_reads_the_rows_of_every_ref_at_the_end_of_random_schedules(spark: SparkSession) -> None:
    print(f"replay with AMORO_SEED={SEED} AMORO_SCHEDULES={SCHEDULES}")
    reads = 0

    class ReadBySpark(Optimizing):
        """Reads with all deletes that are left, and once more when everything was optimized."""

        def _finish(self) -> None:
            nonlocal reads
            reads += require_read_by_spark(spark, self.lake)
            super()._finish()
            reads += require_read_by_spark(spark, self.lake)

    run_state_machine_as_test(
        seed(SEED)(ReadBySpark),
        settings=settings(
            max_examples=SCHEDULES,
            stateful_step_count=20,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{reads} reads of refs")
    assert reads >= 2 * SCHEDULES


def require_read_by_spark(spark: SparkSession, lake: Lake) -> int:
    """Fail unless Spark reads the model's rows of each ref; returns how many refs there are.

    A branch is read under the table's schema, a tag under that of its snapshot.
    """
    lake.observe()
    metadata = lake.table.metadata
    with tempfile.TemporaryDirectory() as copy:
        # Spark loads by path what looks like a table of a Hadoop catalog; its metadata names the files.
        (Path(copy) / "metadata").mkdir()
        shutil.copy(local_path(lake.table.metadata_location), Path(copy) / "metadata" / "v1.metadata.json")
        for name, ref in metadata.refs.items():
            snapshot = metadata.snapshot_by_id(ref.snapshot_id)
            assert snapshot is not None
            is_branch = ref.snapshot_ref_type == "branch"
            schemas = {schema.schema_id: schema for schema in metadata.schemas}
            schema = metadata.schema() if is_branch else schemas[snapshot.schema_id or 0]
            frame = spark.read.format("iceberg").option("branch" if is_branch else "tag", name).load(copy)
            assert frame.columns == [field.name for field in schema.fields]
            expected = [{field.name: one.get(field.field_id) for field in schema.fields} for one in lake.rows[name]]
            try:
                collected = frame.collect()
            except Exception as error:
                # Java (1.11) does not look for a dropped key column in earlier schemas.
                if "Cannot find required field" in str(error) and keys_of(lake, snapshot) - set(schema.field_ids):
                    continue
                raise
            found = rows_of(schema, [one.asDict() for one in collected])
            oracle.assert_same_rows(rows_of(schema, expected), found)
    return len(metadata.refs)


def keys_of(lake: Lake, snapshot: Snapshot) -> set[int]:
    """The columns by which equality deletes of a snapshot delete."""
    io = lake.table.io
    return {
        field_id
        for manifest in snapshot.manifests(io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(io)
        for field_id in entry.data_file.equality_ids or ()
    }

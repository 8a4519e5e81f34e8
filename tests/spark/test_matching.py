"""Our matcher against Iceberg's Java runtime over random tables, and the row model's refs as Spark reads them."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from amoro_core.errors import TableRefused
from amoro_core.iceberg.scan import scan
from amoro_core.iceberg.table_support import disputed_deletes
from amoro_core.model.files import DeleteKind, ScannedFile
from amoro_core.model.paths import normalise
from tests.engine import oracle
from tests.engine.parquet_rows import local_path
from tests.engine.values import rows_of
from tests.model.lake import Lake
from tests.model.machine import Optimizing
from tests.tiers import seeds

from .java import at_metadata
from .matching import as_java_lists, java_deletes, may_meet
from .random_tables import make_random_table

#: Tables that have all kinds of pairs among them.
MANY = 500


def test_random_tables_have_the_same_deletes_for_each_file_as_in_java(spark: SparkSession, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    chosen = seeds(30, MANY)
    for seed in chosen:
        print(f"table of seed {seed}")
        made = make_random_table(tmp_path, seed)
        table = StaticTable.from_metadata(made.metadata_location)
        # pyspark has no public way to the JVM.
        of_java = java_deletes(at_metadata(spark.sparkContext._gateway, made.metadata_location))
        places = {normalise(path): place for path, place in made.places.items()}
        is_astray = any(
            places.get(delete, places[path]) != places[path] for path, here in of_java.items() for delete in here
        )
        if is_astray:
            with pytest.raises(TableRefused) as refused:
                scan(table, [made.location])
            assert refused.value.reason == "position-delete-partition"
            seen["refused: a position delete in another partition than its file"] += 1
            continue
        found = scan(table, [made.location])
        assert found is not None
        assert as_java_lists(table.metadata, found) == of_java
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
    if len(chosen) >= MANY:
        assert min(seen[name] for name in seen if name.startswith(("pairs", "refused"))) > 0


def test_spark_reads_the_rows_of_every_ref_at_the_end_of_random_schedules(spark: SparkSession) -> None:
    schedules, reads = seeds(2, 8), 0

    class ReadBySpark(Optimizing):
        """Reads with all deletes that are left, and once more when everything was optimized."""

        def _finish(self) -> None:
            nonlocal reads
            reads += require_read_by_spark(spark, self.lake)
            super()._finish()
            reads += require_read_by_spark(spark, self.lake)

    run_state_machine_as_test(
        seeded(schedules[0])(ReadBySpark),
        settings=settings(
            max_examples=len(schedules),
            stateful_step_count=20,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{reads} reads of refs")
    assert reads >= 2 * len(schedules)


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

"""Tables of Iceberg's Java runtime, optimized by our services beside other writers: Spark reads the same rows, and
writes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingType
from tests.engine.aging import aged
from tests.engine.parquet_rows import local_path

from .java import java_upsert, load_java_table
from .matching import assert_deletes_match_as_in_java, java_deletes, scan_of
from .optimizing import Services
from .session import set_for_now
from .tables import (
    AFTER,
    DATA,
    EQUALITY_DELETES,
    MERGE_ON_READ,
    MIXED_ROWS,
    POSITION_DELETES,
    SEGMENTS,
    Rows,
    append_notes,
    create,
    delete,
    delete_notes,
    make_mixed_table,
    make_notes,
    notes,
    notes_without,
    upsert_notes,
    written_as,
)

MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL


def set_properties(services: Services, properties: str) -> None:
    services.sql(f"ALTER TABLE {services.table} SET TBLPROPERTIES ({properties})")


def maintain_by_spark(services: Services) -> None:
    """Let Iceberg's own procedures rewrite files and manifests and expire all but the head."""
    services.rewrite_by_spark()
    services.call("rewrite_manifests", "use_caching => false")
    services.call("expire_snapshots", "older_than => TIMESTAMP'2100-01-01 00:00:00'", "retain_last => 1")


# Deletes and formats


def test_equality_deletes_on_segments_become_position_deletes_under_minor(services: Services) -> None:
    spark, table = services.spark, services.table
    make_notes(spark, table, rows_per_file=60)
    set_properties(services, SEGMENTS)
    upsert_notes(spark, table, range(10, 30), "second")
    upsert_notes(spark, table, range(20, 80, 3), "third")
    for some in ((2, 63, 124, 999), (3,), (25,)):
        delete_notes(spark, table, *some)
    delete(spark, table, 125)
    paths = services.paths()
    third = {*range(20, 80, 3)}
    second = {*range(10, 30)} - third
    first = {*range(180)} - second - third
    rows = notes(first - {2, 3, 63, 124, 125}) + notes(second - {25}, "second") + notes(third, "third")
    assert services.rows() == rows
    assert services.optimize(MINOR).equality_delete_files_after == 0
    # One for each file that lost rows; Spark's own, which names its file by equal bounds, went into one of them.
    assert services.counts() == {(DATA, 0): 5, (POSITION_DELETES, 0): 4}
    assert services.paths() == paths
    assert services.has_nothing_to_do(MINOR)

    # Each of ours is scoped to one file: Spark replaces it where it deletes more of that file.
    delete(spark, table, 4, 126)
    assert services.counts() == {(DATA, 0): 5, (POSITION_DELETES, 0): 4}
    append_notes(spark, table, 200, 220)
    upsert_notes(spark, table, [*range(150, 170), 206], "fourth")
    rows = rows - notes([4, 126, *range(150, 170)])
    rows = rows + notes({*range(200, 220)} - {206}) + notes([*range(150, 170), 206], "fourth")
    assert services.rows() == rows
    paths = services.paths()
    assert services.optimize(MINOR).equality_delete_files_after == 0
    assert services.paths() == paths
    assert services.has_nothing_to_do(MINOR)

    services.optimize(FULL)
    assert services.counts() == {(DATA, 0): 1}
    maintain_by_spark(services)
    assert services.rows() == rows


def test_position_deletes_of_a_partition_each_that_name_one_file_are_combined(services: Services) -> None:
    spark, table, world = services.spark, services.table, services.world
    make_notes(spark, table, files=1, rows_per_file=300)
    one_for_each_partition = "'write.delete.granularity' = 'partition'"
    set_properties(services, f"{SEGMENTS}, {one_for_each_partition}, 'self-optimizing.min-target-size-ratio' = '0'")
    gone = range(0, 150, 10)
    for number in gone:
        delete(spark, table, number)
    deletes = services.sql(f"SELECT referenced_data_file FROM {table}.delete_files")
    assert [one.referenced_data_file for one in deletes] == [None] * 15
    paths = services.paths()

    begun = world.planning.begin(world.table(table).table_id, trigger="evaluation")
    assert (begun.evaluation.type, begun.evaluation.reason) == (MINOR, "1 file with several position deletes")
    assert begun.process_id is not None
    world.run_all(begun.process_id)
    services.finish(begun.process_id)
    services.require(notes_without(300, *gone), {(DATA, 0): 1, (POSITION_DELETES, 0): 1})
    assert services.paths() == paths
    assert services.has_nothing_to_do(MINOR)


def test_conversions_split_over_processes_leave_marks_that_go_with_the_last_one(services: Services) -> None:
    spark, table = services.spark, services.table
    make_notes(spark, table, files=5, rows_per_file=60)
    set_properties(services, f"{SEGMENTS}, 'self-optimizing.max-file-count' = '4'")
    delete_notes(spark, table, 3)
    delete_notes(spark, table, 250)
    paths = services.paths()
    for left, positions in ((2, [0, 1]), (2, [0, 0, 0, 1]), (0, [1, 1])):
        assert services.optimize(MINOR).equality_delete_files_after == left
        found = services.sql(f"SELECT content, record_count FROM {table}.delete_files ORDER BY record_count")
        assert [one.record_count for one in found if one.content == POSITION_DELETES] == positions
    assert services.paths() == paths
    assert services.has_nothing_to_do(MINOR)
    maintain_by_spark(services)
    assert services.rows() == notes_without(300, 3, 250)


def test_a_table_of_format_one_is_optimized_and_upgraded_later(services: Services) -> None:
    spark, table = services.spark, services.table
    make_notes(spark, table, properties="'format-version' = '1'")
    delete(spark, table, 3, 14)
    services.optimize(MINOR)
    assert services.counts() == {(DATA, 0): 1}
    delete(spark, table, 5)
    append_notes(spark, table, 30, 40)
    services.optimize(FULL)
    services.require(notes_without(40, 3, 14, 5), {(DATA, 0): 1})

    set_properties(services, MERGE_ON_READ)
    assert services.catalog.load(table).format_version == 2
    delete(spark, table, 7)
    delete_notes(spark, table, 8, 39)
    services.optimize(FULL)
    assert services.counts() == {(DATA, 0): 1}
    services.sql(f"INSERT INTO {table} VALUES (8, 'note 8')")
    maintain_by_spark(services)
    assert services.rows() == notes_without(40, 3, 14, 5, 7, 39)


def test_files_of_all_formats_in_one_table_are_merged(services: Services) -> None:
    spark, table = services.spark, services.table
    make_mixed_table(spark, table, "orc")
    set_properties(
        services, "'write.avro.compression-codec' = 'zstd', 'write.delete.avro.compression-codec' = 'snappy'"
    )
    for start, file_format in ((200, "avro"), (210, "parquet")):
        set_properties(services, written_as(file_format))
        services.sql(f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=start, end=start + 9, **AFTER)}")
        delete(spark, table, start, start - 100)
    assert {kind for _, kind in services.formats()} == {"avro", "orc", "parquet"}
    codecs = set()
    for file in services.sql(f"SELECT file_path FROM {table}.files WHERE file_format = 'AVRO'"):
        with open(local_path(file.file_path), "rb") as source:
            codecs.add(fastavro.block_reader(source).metadata["avro.codec"])
    assert codecs == {"zstandard", "snappy"}
    services.optimize(FULL)
    assert services.formats() == {(DATA, "parquet")}


def import_files(services: Services, columns: str, source: Path, partitioned: str = "") -> None:
    """A table of the Parquet files in the directory."""
    services.sql(f"CREATE TABLE {services.table} ({columns}) {partitioned} TBLPROPERTIES ('format-version' = '2')")
    services.call("add_files", f"source_table => '`parquet`.`{source}`'")


def test_imported_files_of_legacy_writers_keep_their_rows(services: Services) -> None:
    spark, source = services.spark, services.catalog.root / "warehouse" / "imported"  # what lies elsewhere is not read
    settings = {"spark.sql.parquet.writeLegacyFormat": "true", "spark.sql.parquet.outputTimestampType": "INT96"}
    with set_for_now(spark, settings):
        for start in (0, 20):
            spark.sql(
                f"""SELECT id,
                IF(id % 4 = 0, NULL, IF(id % 4 = 1, array(), array('a', NULL, concat('tag ', id)))) AS tags,
                IF(id % 3 = 0, NULL, map('one', id, 'none', NULL)) AS marks,
                timestamp_micros(id * 3600123456 - 7200000001) AS at,
                IF(id % 2 = 0, 'even ü', 'odd') AS kind FROM range({start}, {start + 20}, 1, 1)"""
            ).write.mode("append").partitionBy("kind").parquet(source.as_uri())
    columns = "id BIGINT, tags ARRAY<STRING>, marks MAP<STRING, BIGINT>, at TIMESTAMP, kind STRING"
    import_files(services, columns, source, "PARTITIONED BY (kind)")
    files = list(source.rglob("*.parquet"))
    repeated = {leaf.split(".")[1] for file in files for leaf in _leaves(file) if leaf.startswith("tags")}
    assert repeated == {"bag"}  # not "list", as the specification has it now
    assert "schema.name-mapping.default" in services.catalog.load(services.table).properties
    assert services.rows().total() == 40
    assert services.optimize(FULL).data_files_before == len(files)
    assert len(services.paths()) == 2


#: Numbers are narrower than in the table, since Python gives small ones to Java as such.
OLD_LAYOUTS = """message old {
  required int32 id;
  optional group numbers (LIST) { repeated int32 array; }
  optional group pairs (LIST) { repeated group pairs_tuple { required int32 a; } }
  optional group objects (LIST) { repeated group array { required int32 a; } }
  optional group wide (LIST) { repeated group element { required int32 a; optional binary b (UTF8); } }
  optional group nested (LIST) { repeated group array (LIST) { repeated int32 array; } }
  optional group marks (MAP) { repeated group map (MAP_KEY_VALUE) {
    required binary key (UTF8); optional int32 value; } }
  optional int96 at;
  optional binary text;
  optional binary price (DECIMAL(20, 2));
}"""
OLD_COLUMNS = """id BIGINT, numbers ARRAY<INT>, pairs ARRAY<STRUCT<a: BIGINT>>, objects ARRAY<STRUCT<a: BIGINT>>,
    wide ARRAY<STRUCT<a: BIGINT, b: STRING>>, nested ARRAY<ARRAY<BIGINT>>, marks MAP<STRING, BIGINT>,
    at TIMESTAMP, text STRING, price DECIMAL(20, 2)"""


def test_lists_and_maps_of_every_old_layout_are_read(services: Services) -> None:
    spark, table, source = services.spark, services.table, services.catalog.root / "warehouse" / "old"
    for number in range(2):
        write_old(spark, source / f"{number}.parquet", range(number * 20, number * 20 + 20))
    paths = {path for file in source.glob("*.parquet") for path in _leaves(file)}
    assert {"numbers.array", "pairs.pairs_tuple.a", "objects.array.a", "nested.array.array", "marks.map.key"} < paths
    import_files(services, OLD_COLUMNS, source)
    java_upsert(spark, table, ["id"], [{"id": 3}, {"id": 32}], [])

    # Iceberg's own Java reader fails on lists of two levels: what was written is known without it.
    assert services.rewrite(FULL).data_files_before == 2

    found = [row.asDict(recursive=True) for row in services.sql(f"SELECT * FROM {table} ORDER BY id")]
    assert found == [old_row(number) for number in range(40) if number not in (3, 32)]
    (file,) = services.paths()
    assert "nested.list.element.list.element" in _leaves(Path(local_path(file)))


def old_row(number: int) -> dict[str, Any]:
    """Every third row has nulls."""
    if number % 3 == 0:
        return {**dict.fromkeys(old_row(1)), "id": number}
    return {
        "id": number,
        "numbers": list(range(number % 4)),
        "pairs": [{"a": number}],
        "objects": [{"a": number}, {"a": -number}],
        "wide": [{"a": number, "b": f"b{number}" if number % 2 else None}],
        "nested": [[number, 1], [], [2]],
        "marks": {"one": number, "none": None} if number % 2 else {},
        "at": datetime(1970, 1, 1) + timedelta(days=-number, microseconds=number),
        "text": f"text {number}",
        "price": Decimal(number - 256).scaleb(-2),
    }


def write_old(spark: SparkSession, path: Path, ids: range) -> None:
    """A file as old writers lay out lists and maps, by Java's own Parquet writer."""
    jvm: Any = spark._jvm
    parquet = jvm.org.apache.parquet
    schema = parquet.schema.MessageTypeParser.parseMessageType(OLD_LAYOUTS)
    groups = parquet.example.data.simple.SimpleGroupFactory(schema)
    binary = parquet.io.api.Binary
    target = jvm.org.apache.hadoop.fs.Path(path.as_uri())
    writer = parquet.hadoop.example.ExampleParquetWriter.builder(target).withType(schema).build()
    for number in ids:
        row, value = groups.newGroup(), old_row(number)
        _fill(row, {"id": number})
        if value["text"] is not None:
            repeated = {
                "numbers": {"array": value["numbers"]},
                "pairs": {"pairs_tuple": value["pairs"]},
                "objects": {"array": value["objects"]},
                "wide": {"element": value["wide"]},
                "nested": {"array": [{"array": one} for one in value["nested"]]},
                "marks": {"map": [{"key": key, "value": mark} for key, mark in value["marks"].items()]},
            }
            _fill(row, repeated)
            row.add("at", parquet.example.data.simple.NanoTime(2_440_588 - number, number * 1000))
            row.add("text", binary.fromString(value["text"]))
            row.add("price", binary.fromConstantByteArray(bytes([255, number])))
        writer.write(row)
    writer.close()


def _fill(group: Any, values: Mapping[str, Any]) -> None:
    """Add the values to the group, each of a list and group by group."""
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                _fill(group.addGroup(name), one)
            elif one is not None:
                group.add(name, one)


def _leaves(file: Path) -> list[str]:
    schema = pq.read_metadata(file).schema
    return [schema.column(at).path for at in range(len(schema))]


# Other writers between our plan and our commit, after it and after an undo


def test_tasks_of_which_spark_s_copy_on_write_replaced_the_inputs_are_cancelled(services: Services) -> None:
    table, world = services.table, services.world
    services.sql(f"CREATE TABLE {table} (id BIGINT, part BIGINT) USING iceberg PARTITIONED BY (part)")
    for start in range(0, 120, 10):
        services.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, id % 2 FROM range({start}, {start + 10})")
    process_id = world.begin(MINOR, table)
    services.sql(f"UPDATE {table} SET id = id + 1000 WHERE part = 0")
    expected = services.rows()
    world.refresh(table)
    world.starting.check_files(world.table(table).table_id)
    (given_up,) = (task for task in world.tasks(process_id) if task.status is TaskStatus.CANCELED)
    assert given_up.partition == "part=0"
    assert f"snapshot {services.snapshots()[-1].snapshot_id} (overwrite) of spark" in given_up.failure
    world.run_all(process_id)
    assert world.committing.commit(process_id) is ProcessStatus.PARTIAL
    assert services.rows() == expected


@pytest.mark.parametrize(("version", "kind"), [(2, FULL), (3, MINOR), (3, FULL)])
def test_rows_that_spark_deletes_while_files_are_rewritten_or_converted_stay_deleted(
    services: Services, version: int, kind: OptimizingType
) -> None:
    spark, table = services.spark, services.table
    segments = ", 'self-optimizing.fragment-ratio' = '1000000000'"
    create(spark, table, *range(0, 80, 20), by="", version=version, more=segments)
    delete(spark, table, 3, 25)
    java_upsert(spark, table, ["id"], [{"id": 41}, {"id": 6}], [])
    process_id = services.begin(kind)
    delete(spark, table, 7, 26, 61)
    services.sql(f"UPDATE {table} SET value = 'later' WHERE id = 8")
    rows = services.rows()
    services.finish(process_id)
    services.require(rows)
    found = scan_of(services.catalog, table)
    assert all(len([one for one in file.deletes if one.is_vector]) <= 1 for file in found.files)
    delete(spark, table, 9, 27, 62)
    rows = services.rows()
    services.rewrite(FULL)
    services.require(rows)


def test_equality_deletes_committed_after_the_plan_go_on_covering_our_outputs(services: Services) -> None:
    spark, table = services.spark, services.table
    make_notes(spark, table)
    delete_notes(spark, table, 4)
    process_id = services.begin(MINOR)
    delete_notes(spark, table, 5, 15, 99)
    services.finish(process_id)
    services.require(notes_without(30, 4, 5, 15), {(DATA, 0): 1, (EQUALITY_DELETES, 0): 1})

    # A commit of Java that opens a manifest of deletes, as merging does, drops from it what is older than the least
    # sequence number that the manifests of data give.
    set_properties(services, "'commit.manifest.min-count-to-merge' = '1'")
    for number in (20, 21):
        delete(spark, table, number)
    assert services.rows() == notes_without(30, 4, 5, 15, 20, 21)
    services.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (100, 'note 100'), (5, 'note 5')")
    expected = notes_without(30, 4, 5, 15, 20, 21) + notes([100, 5])
    services.require(expected, {(DATA, 0): 2, (EQUALITY_DELETES, 0): 1, (POSITION_DELETES, 0): 1})
    services.optimize(MINOR)
    services.require(expected, {(DATA, 0): 1})


def test_deletes_that_java_left_without_a_file_go_with_our_next_commit(services: Services) -> None:
    table = services.table
    services.sql(
        f"CREATE TABLE {table} (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part)"
        " TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'copy-on-write')"
    )
    services.sql(f"INSERT INTO {table} VALUES (0, 'a'), (1, 'a'), (2, 'a'), (0, 'b'), (1, 'b'), (2, 'b')")
    java_upsert(services.spark, table, ["id"], [{"id": 1, "part": "b"}], [])
    services.sql(f"DELETE FROM {table} WHERE part = 'b' AND id = 2")
    assert services.counts() == {(DATA, 0): 2, (EQUALITY_DELETES, 0): 1}
    assert set(java_deletes(load_java_table(services.spark, table)).values()) == {frozenset()}

    services.optimize(FULL)
    services.require(Rows([(0, "a"), (1, "a"), (2, "a"), (0, "b")]), {(DATA, 0): 2})
    assert services.has_nothing_to_do(FULL)


def test_a_rewrite_by_spark_between_plan_and_commit_wins(services: Services) -> None:
    make_notes(services.spark, services.table)
    delete_notes(services.spark, services.table, 4)
    process_id = services.begin(FULL)
    services.rewrite_by_spark()
    theirs = services.snapshots()
    assert services.world.committing.commit(process_id) is ProcessStatus.FAILED
    assert services.snapshots() == theirs
    assert services.rows() == notes_without(30, 4)


def test_a_delete_committed_beside_our_rewrite_outlives_a_commit_of_spark_that_opens_its_manifest(
    services: Services,
) -> None:
    """All data that is left has come by our commit, after the delete, with the number from before it.

    Spark's removal of partition c opens the manifest of the deletes, which covers a to c, and leaves out what is older
    than the least number of all data manifests: ours must state the number of its entries, not that of its commit.
    """
    table = services.table
    services.sql(f"CREATE TABLE {table} (part STRING, id BIGINT) PARTITIONED BY (part) TBLPROPERTIES ({MERGE_ON_READ})")
    for first in (0, 10, 20):
        services.sql(f"INSERT INTO {table} SELECT 'a', id FROM range({first}, {first + 10})")
    process_id = services.begin(FULL)
    java_upsert(services.spark, table, ["id"], [{"part": "a", "id": 5}, {"part": "c", "id": 1}], [])
    services.finish(process_id)
    services.sql(f"INSERT INTO {table} VALUES ('c', 100)")
    services.sql(f"DELETE FROM {table} WHERE part = 'c'")
    rows = Rows(("a", number) for number in range(30) if number != 5)
    services.require(rows, {(DATA, 0): 1, (EQUALITY_DELETES, 0): 1})


def test_manifests_that_our_commit_merged_are_read_and_written_by_spark(services: Services) -> None:
    """A conversion carries over all data files, with sequence numbers that decide what the deletes apply to."""
    spark, table = services.spark, services.table
    make_notes(spark, table, files=6, properties=f"{MERGE_ON_READ}, {SEGMENTS}")
    delete_notes(spark, table, 5, 15, 25)
    services.sql(f"INSERT INTO {table} VALUES (5, 'again')")
    services.sql(f"DELETE FROM {table} WHERE id = 5 AND note = 'again'")
    set_properties(services, "'commit.manifest.min-count-to-merge' = '2'")
    services.optimize(MINOR)
    rows = notes_without(60, 5, 15, 25)
    (manifest,) = services.sql(f"SELECT * FROM {table}.manifests WHERE content = 0")
    assert manifest.added_data_files_count + manifest.existing_data_files_count == 6
    assert services.counts() == {(DATA, 0): 6, (POSITION_DELETES, 0): 3}

    delete(spark, table, 6, 16, 59)
    delete_notes(spark, table, 7)
    rows = rows - notes([6, 16, 59, 7])
    services.require(rows)
    services.call("rewrite_manifests")
    assert services.rows() == rows
    services.optimize(FULL)
    services.require(rows, {(DATA, 0): 1})


def test_a_rewrite_that_was_taken_back_beside_commits_of_spark(services: Services) -> None:
    table = services.table
    make_mixed_table(services.spark, table)
    files = services.counts()
    process_id = services.begin(FULL)
    services.finish(process_id)
    assert services.counts() != files
    services.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id % 10 = 3")
    added, rows = services.counts(), services.rows()
    services.undo(process_id)
    services.require(rows)
    assert all(services.counts()[key] >= count for key, count in files.items())
    assert services.counts() != added
    # Java goes on from there: it deletes rows, by position, in files that came back.
    services.sql(f"DELETE FROM {table} WHERE id BETWEEN 20 AND 25")
    assert_deletes_match_as_in_java(services.catalog, table)
    assert services.sql(f"SELECT count(*) FROM {table} WHERE id BETWEEN 20 AND 25") == [(0,)]


@pytest.mark.parametrize("version", [1, 2])
def test_expired_snapshots_that_came_back_outlive_the_next_expiry_of_spark(services: Services, version: int) -> None:
    table, world = services.table, services.world
    properties = MERGE_ON_READ if version == 2 else "'format-version' = '1'"
    services.sql(f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ({properties})")
    for number in range(3):
        services.sql(f"INSERT INTO {table} VALUES ({number}, 'first'), ({number + 10}, 'second')")
    services.sql(f"DELETE FROM {table} WHERE id = 1")
    loaded = aged(services.catalog.load(table), 30)
    rows = {one.snapshot_id: services.rows(one.snapshot_id) for one in loaded.metadata.snapshots}
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    process_id = world.begin_action("expire-snapshots", table)
    world.committing.commit(process_id)
    gone = rows.keys() - {one.snapshot_id for one in services.catalog.load(table).metadata.snapshots}
    assert len(gone) == 3
    services.undo(process_id)
    services.call("expire_snapshots", "older_than => now()", "retain_last => 1")
    for snapshot_id in gone:
        found = services.sql(f"SELECT * FROM {table} VERSION AS OF 'restored-{snapshot_id}'")
        assert Rows(map(tuple, found)) == rows[snapshot_id]

"""Tables of Iceberg's Java runtime, optimized by our services: Spark reads the same rows, and writes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow.parquet as pq

from amoro_core.model.tables import OptimizingType
from tests.engine.parquet_rows import local_path

from .java import java_upsert
from .optimizing import Services, rewrite_all
from .session import SharedCatalog
from .tables import (
    AFTER,
    DATA,
    MERGE_ON_READ,
    MIXED_ROWS,
    POSITION_DELETES,
    SEGMENTS,
    delete_notes,
    file_counts,
    formats,
    make_mixed_table,
    make_notes,
    notes,
    notes_without,
    spark_rows,
    upsert_notes,
    written_as,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL


def set_properties(spark: SparkSession, table: str, properties: str) -> None:
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({properties})")


def data_paths(spark: SparkSession, table: str) -> set[str]:
    return {one.file_path for one in spark.sql(f"SELECT file_path FROM {table}.data_files").collect()}


def maintain_by_spark(spark: SparkSession, table: str) -> None:
    """Let Iceberg's own procedures rewrite files and manifests and expire all but the head."""
    catalog, name = table.split(".", 1)
    rewrite_all(spark, table)
    for call in (
        f"rewrite_manifests(table => '{name}', use_caching => false)",
        f"expire_snapshots(table => '{name}', older_than => TIMESTAMP'2100-01-01 00:00:00', retain_last => 1)",
    ):
        spark.sql(f"CALL {catalog}.system.{call}").collect()


ONE_DELETE_FOR_EACH_PARTITION = "'write.delete.granularity' = 'partition'"


def test_equality_deletes_on_segments_become_position_deletes_under_minor(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog, rows_per_file=60)
    set_properties(spark, table, SEGMENTS)
    upsert_notes(catalog, table, range(10, 30), "second")
    upsert_notes(catalog, table, range(20, 80, 3), "third")
    delete_notes(catalog, table, 2, 63, 124, 999)
    delete_notes(catalog, table, 3)
    delete_notes(catalog, table, 25)
    spark.sql(f"DELETE FROM {table} WHERE id = 125")
    paths = data_paths(spark, table)
    third = {*range(20, 80, 3)}
    second = {*range(10, 30)} - third
    first = {*range(180)} - second - third
    rows = notes(first - {2, 3, 63, 124, 125}) + notes(second - {25}, "second") + notes(third, "third")
    assert spark_rows(spark, table) == rows
    assert services.optimize(table, MINOR).equality_delete_files_after == 0
    # One for each file that lost rows; Spark's own, which names its file by equal bounds, went into one of them.
    assert file_counts(spark, table) == {(DATA, 0): 5, (POSITION_DELETES, 0): 4}
    assert data_paths(spark, table) == paths
    assert services.has_nothing_to_do(table, MINOR)

    # Each of ours is scoped to one file: Spark replaces it where it deletes more of that file.
    spark.sql(f"DELETE FROM {table} WHERE id IN (4, 126)")
    assert file_counts(spark, table) == {(DATA, 0): 5, (POSITION_DELETES, 0): 4}
    spark.sql(f"INSERT INTO {table} SELECT id, concat('note ', id) FROM range(200, 220, 1, 1)")
    upsert_notes(catalog, table, [*range(150, 170), 206], "fourth")
    rows = rows - notes([4, 126, *range(150, 170)])
    rows = rows + notes({*range(200, 220)} - {206}) + notes([*range(150, 170), 206], "fourth")
    assert spark_rows(spark, table) == rows
    paths = data_paths(spark, table)
    assert services.optimize(table, MINOR).equality_delete_files_after == 0
    assert data_paths(spark, table) == paths
    assert services.has_nothing_to_do(table, MINOR)

    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    maintain_by_spark(spark, table)
    assert spark_rows(spark, table) == rows


def test_position_deletes_of_a_partition_each_that_name_one_file_are_combined(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog, files=1, rows_per_file=300)
    set_properties(spark, table, f"{SEGMENTS}, {ONE_DELETE_FOR_EACH_PARTITION}")
    set_properties(spark, table, "'self-optimizing.min-target-size-ratio' = '0'")
    gone = range(0, 150, 10)
    for number in gone:
        spark.sql(f"DELETE FROM {table} WHERE id = {number}")
    deletes = spark.sql(f"SELECT referenced_data_file FROM {table}.delete_files").collect()
    assert [one.referenced_data_file for one in deletes] == [None] * 15
    paths = data_paths(spark, table)

    begun = services.world.planning.begin(services.world.table(table).table_id, trigger="evaluation")
    assert (begun.evaluation.type, begun.evaluation.reason) == (MINOR, "1 file with several position deletes")
    assert begun.process_id is not None
    services.world.run_all(begun.process_id)
    services.finish(begun.process_id)
    assert file_counts(spark, table) == {(DATA, 0): 1, (POSITION_DELETES, 0): 1}
    assert data_paths(spark, table) == paths
    assert spark_rows(spark, table) == notes_without(300, *gone)
    assert services.has_nothing_to_do(table, MINOR)


def test_a_position_delete_of_a_partition_that_spans_two_files_is_not_taken_for_one_of_a_single_file(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    """Java leaves its bounds out, so that all three files of the partition are read with it, and converted together."""
    table = make_notes(catalog, files=3, rows_per_file=100)
    set_properties(spark, table, f"{SEGMENTS}, {ONE_DELETE_FOR_EACH_PARTITION}")
    spark.sql(f"DELETE FROM {table} WHERE id IN (1, 101)")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    assert file_counts(spark, table) == {(DATA, 0): 3, (POSITION_DELETES, 0): 2}
    paths = data_paths(spark, table)
    services.optimize(table, MINOR)
    assert spark_rows(spark, table) == notes_without(300, 1, 2, 101)
    assert data_paths(spark, table) == paths
    assert file_counts(spark, table) == {(DATA, 0): 3, (POSITION_DELETES, 0): 2}
    assert services.has_nothing_to_do(table, MINOR)


def test_conversions_split_over_processes_leave_marks_that_go_with_the_last_one(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog, files=5, rows_per_file=60)
    set_properties(spark, table, f"{SEGMENTS}, 'self-optimizing.max-file-count' = '4'")
    delete_notes(catalog, table, 3)
    delete_notes(catalog, table, 250)
    paths = data_paths(spark, table)

    def positions() -> list[int]:
        found = spark.sql(f"SELECT content, record_count FROM {table}.delete_files ORDER BY record_count").collect()
        return [one.record_count for one in found if one.content == POSITION_DELETES]

    assert services.optimize(table, MINOR).equality_delete_files_after == 2
    assert positions() == [0, 1]
    assert services.optimize(table, MINOR).equality_delete_files_after == 2
    assert positions() == [0, 0, 0, 1]
    assert services.optimize(table, MINOR).equality_delete_files_after == 0
    assert positions() == [1, 1]
    assert data_paths(spark, table) == paths
    assert spark_rows(spark, table) == notes_without(300, 3, 250)
    assert services.has_nothing_to_do(table, MINOR)
    maintain_by_spark(spark, table)
    assert spark_rows(spark, table) == notes_without(300, 3, 250)


def test_a_table_of_format_one_is_optimized_and_upgraded_later(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog, properties="'format-version' = '1'")
    spark.sql(f"DELETE FROM {table} WHERE id IN (3, 14)")
    services.optimize(table, MINOR)
    assert file_counts(spark, table) == {(DATA, 0): 1}

    spark.sql(f"DELETE FROM {table} WHERE id = 5")
    spark.sql(f"INSERT INTO {table} SELECT id, concat('note ', id) FROM range(30, 40, 1, 1)")
    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    assert spark_rows(spark, table) == notes_without(40, 3, 14, 5)

    set_properties(spark, table, MERGE_ON_READ)
    assert catalog.load(table).format_version == 2
    spark.sql(f"DELETE FROM {table} WHERE id = 7")
    delete_notes(catalog, table, 8, 39)
    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    spark.sql(f"INSERT INTO {table} VALUES (8, 'note 8')")
    assert spark_rows(spark, table) == notes_without(40, 3, 14, 5, 7, 39)
    maintain_by_spark(spark, table)
    assert spark_rows(spark, table) == notes_without(40, 3, 14, 5, 7, 39)


def avro_codecs(spark: SparkSession, table: str) -> set[str]:
    """How Java has compressed the table's Avro files."""
    found = set()
    for file in spark.sql(f"SELECT file_path FROM {table}.files WHERE file_format = 'AVRO'").collect():
        with open(local_path(file.file_path), "rb") as source:
            found.add(fastavro.block_reader(source).metadata["avro.codec"])
    return found


def test_files_of_all_formats_in_one_table_are_merged(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_mixed_table(catalog, file_format="orc")
    codecs = "'write.avro.compression-codec' = 'zstd', 'write.delete.avro.compression-codec' = 'snappy'"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({codecs})")
    for start, file_format in ((200, "avro"), (210, "parquet")):
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({written_as(file_format)})")
        spark.sql(f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=start, end=start + 9, **AFTER)}")
        spark.sql(f"DELETE FROM {table} WHERE id = {start} OR id = {start - 100}")
    assert {kind for _, kind in formats(spark, table)} == {"avro", "orc", "parquet"}
    assert avro_codecs(spark, table) == {"zstandard", "snappy"}
    rows = spark_rows(spark, table)

    services.optimize(table, OptimizingType.FULL)

    assert formats(spark, table) == {(DATA, "parquet")}
    assert spark_rows(spark, table) == rows


def test_imported_files_of_legacy_writers_keep_their_rows(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    source = catalog.root / "warehouse" / "imported"  # what lies elsewhere is not read
    settings = {"spark.sql.parquet.writeLegacyFormat": "true", "spark.sql.parquet.outputTimestampType": "INT96"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        for start in (0, 20):
            spark.sql(
                f"""SELECT id,
                IF(id % 4 = 0, NULL, IF(id % 4 = 1, array(), array('a', NULL, concat('tag ', id)))) AS tags,
                IF(id % 3 = 0, NULL, map('one', id, 'none', NULL)) AS marks,
                timestamp_micros(id * 3600123456 - 7200000001) AS at,
                IF(id % 2 = 0, 'even ü', 'odd') AS kind FROM range({start}, {start + 20}, 1, 1)"""
            ).write.mode("append").partitionBy("kind").parquet(source.as_uri())
    finally:
        for key in settings:
            spark.conf.unset(key)
    table = catalog.full_name("db.imported")
    spark.sql(
        f"""CREATE TABLE {table} (id BIGINT, tags ARRAY<STRING>, marks MAP<STRING, BIGINT>, at TIMESTAMP, kind STRING)
        USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ('format-version' = '2')"""
    )
    spark.sql(
        f"CALL {catalog.name}.system.add_files(table => 'db.imported', source_table => '`parquet`.`{source}`')"
    ).collect()
    files = list(source.rglob("*.parquet"))
    repeated = {chunk.split(".")[1] for file in files for chunk in _leaves(file) if chunk.startswith("tags")}
    assert repeated == {"bag"}  # not "list", as the specification has it now
    assert "schema.name-mapping.default" in catalog.load("db.imported").properties
    rows = spark_rows(spark, table)
    assert rows.total() == 40

    assert services.optimize(table, OptimizingType.FULL).data_files_before == len(files)

    assert spark_rows(spark, table) == rows
    assert spark.sql(f"SELECT count(*) FROM {table}.data_files").collect()[0][0] == 2


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


def test_lists_and_maps_of_every_old_layout_are_read(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    source = catalog.root / "warehouse" / "old"
    for number in range(2):
        write_old(spark, source / f"{number}.parquet", range(number * 20, number * 20 + 20))
    paths = {path for file in source.glob("*.parquet") for path in _leaves(file)}
    assert {"numbers.array", "pairs.pairs_tuple.a", "objects.array.a", "nested.array.array", "marks.map.key"} < paths
    table = catalog.full_name("db.old")
    spark.sql(f"CREATE TABLE {table} ({OLD_COLUMNS}) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    spark.sql(
        f"CALL {catalog.name}.system.add_files(table => 'db.old', source_table => '`parquet`.`{source}`')"
    ).collect()
    java_upsert(spark, catalog.name, "db.old", ["id"], [{"id": 3}, {"id": 32}], [])

    # Iceberg's own Java reader fails on lists of two levels: what was written is known without it.
    assert services.finish(services.begin(table, OptimizingType.FULL)).data_files_before == 2

    found = [row.asDict(recursive=True) for row in spark.sql(f"SELECT * FROM {table} ORDER BY id").collect()]
    assert found == [old_row(number) for number in range(40) if number not in (3, 32)]
    (file,) = spark.sql(f"SELECT file_path FROM {table}.data_files").collect()
    assert "nested.list.element.list.element" in _leaves(Path(local_path(file.file_path)))


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
        row.add("id", number)
        if value["text"] is not None:
            _add_all(row.addGroup("numbers"), "array", value["numbers"])
            for name, repeated in (("pairs", "pairs_tuple"), ("objects", "array"), ("wide", "element")):
                outer = row.addGroup(name)
                for one in value[name]:
                    _add_all(outer.addGroup(repeated), "a", [one["a"]])
            if value["wide"][0]["b"] is not None:
                row.getGroup("wide", 0).getGroup("element", 0).add("b", value["wide"][0]["b"])
            nested = row.addGroup("nested")
            for one in value["nested"]:
                _add_all(nested.addGroup("array"), "array", one)
            marks = row.addGroup("marks")
            for key, mark in value["marks"].items():
                pair = marks.addGroup("map")
                pair.add("key", key)
                if mark is not None:
                    pair.add("value", mark)
            row.add("at", parquet.example.data.simple.NanoTime(2_440_588 - number, number * 1000))
            row.add("text", binary.fromString(value["text"]))
            row.add("price", binary.fromConstantByteArray(bytes([255, number])))
        writer.write(row)
    writer.close()


def _add_all(group: Any, name: str, values: list[int]) -> None:
    for one in values:
        group.add(name, one)


def _leaves(file: Path) -> list[str]:
    schema = pq.read_metadata(file).schema
    return [schema.column(at).path for at in range(len(schema))]

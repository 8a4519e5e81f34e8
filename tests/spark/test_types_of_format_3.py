"""Types and defaults of format 3 that Java has written: our rewrites leave the rows that Java reads as they are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from amoro_core.model.tables import OptimizingType
from tests.engine.oracle import live_rows

from .catalogs import SharedCatalog
from .java_writer import java_upsert, load_java_table
from .optimizing import Services
from .rows import spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = [OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL]


def make(catalog: SharedCatalog, columns: str, partitioned_by: str = "") -> str:
    table = catalog.full_name("db.t")
    by = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    catalog.spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg {by} TBLPROPERTIES ('format-version' = '3')")
    return table


def evolved(catalog: SharedCatalog, *columns: tuple[str | None, str, str, Any]) -> None:
    """Add columns through Java's library: the struct that has it, its name, the type as Java names it, its default."""
    java = load_java_table(catalog.spark, catalog.name, "db.t")
    change = java.table.updateSchema()
    for parent, name, kind, default in columns:
        made = java.iceberg.types.Types.fromPrimitiveString(kind)
        literal = None if default is None else java.iceberg.expressions.Literal.of(default).to(made)
        if parent is None:
            change = change.addColumn(name, made, literal) if default is not None else change.addColumn(name, made)
        else:
            change = change.addColumn(parent, name, made, None, literal)
    change.commit()


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_java_are_read_from_old_files_and_as_keys_of_deletes(
    spark: SparkSession, catalog: SharedCatalog, services: Services, kind: OptimizingType
) -> None:
    table = make(catalog, "id BIGINT, s STRUCT<a: BIGINT>")
    for first in range(0, 20, 10):
        spark.sql(f"INSERT INTO {table} SELECT id, named_struct('a', id) FROM range({first}, {first + 5})")
    spark.sql(f"INSERT INTO {table} VALUES (50, NULL)")
    evolved(
        catalog,
        (None, "c", "string", "x"),
        (None, "day", "date", 20_455),
        (None, "price", "decimal(9,2)", "1.50"),
        (None, "at", "timestamp", "2026-01-02T03:04:05.000006"),
        ("s", "d", "long", 7),
    )
    spark.sql(f"REFRESH TABLE {table}")
    spark.sql(
        f"INSERT INTO {table} VALUES (60, named_struct('a', 1, 'd', NULL), 'x', NULL, 2, NULL),"
        " (61, NULL, NULL, NULL, NULL, NULL)"
    )
    java_upsert(
        spark, catalog.name, "db.t", ["id", "c"], [{"id": 0, "c": "x"}, {"id": 1, "c": None}, {"id": 60, "c": "x"}], []
    )
    before = spark_rows(spark, table)
    assert sorted(row[0] for row in before) == [1, 2, 3, 4, *range(10, 15), 50, 61]

    services.optimize(table, kind)

    spark.sql(f"UPDATE {table} SET c = 'y' WHERE id = 2")
    spark.sql(f"DELETE FROM {table} WHERE s.d = 7 AND id = 3")
    found = spark_rows(spark, table)
    assert found.total() == before.total() - 1


def test_defaults_of_every_type_are_those_of_java(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make(catalog, "id BIGINT")
    for number in range(3):
        spark.sql(f"INSERT INTO {table} VALUES ({number})")
    evolved(
        catalog,
        (None, "boolean", "boolean", True),
        (None, "int", "int", -(2**31)),
        (None, "long", "long", 2**53 + 1),
        (None, "float", "float", 0.1),
        (None, "double", "double", -1e-300),
        (None, "date", "date", "1582-10-04"),
        (None, "time", "time", "23:59:59.999999"),
        (None, "at", "timestamp", "0001-01-01T00:00:00.000001"),
        (None, "there", "timestamptz", "2026-01-02T03:04:05.000006+02:00"),
        (None, "string", "string", "é\U0001f600'\\"),
        (None, "uuid", "uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        (None, "fixed", "fixed[3]", bytearray(b"\0\xfe\xff")),
        (None, "binary", "binary", bytearray(b"\0\xfe\xff\x01")),
        (None, "decimal", "decimal(38,3)", "-12345678901234567890123456789012345.678"),
    )
    before = generic_rows(spark, catalog)
    assert before.total() == 3

    services.finish(services.begin(table, OptimizingType.FULL))

    assert generic_rows(spark, catalog) == before


def test_columns_of_the_type_unknown_stay_null(spark: SparkSession, catalog: SharedCatalog, services: Services) -> None:
    table = make(catalog, "id BIGINT")
    spark.sql(f"INSERT INTO {table} VALUES (1), (2)")
    evolved(catalog, (None, "u", "unknown", None))
    java_upsert(spark, catalog.name, "db.t", ["id"], [{"id": 1}], [{"id": 3}, {"id": 4}])

    services.optimize(table, OptimizingType.FULL)

    assert generic_rows(spark, catalog) == Counter({"2, None": 1, "3, None": 1, "4, None": 1})


@pytest.mark.parametrize(("kind", "by"), [("timestamptz_ns", "day"), ("timestamp_ns", "bucket")])
def test_nanoseconds_of_java_stay_exact(
    spark: SparkSession, catalog: SharedCatalog, services: Services, kind: str, by: str
) -> None:
    make(catalog, "id BIGINT")
    evolved(catalog, (None, "at", kind, None))
    java = load_java_table(spark, catalog.name, "db.t")
    terms = java.iceberg.expressions.Expressions  # not by the value itself: Java's generic reader fails on that
    java.table.updateSpec().addField(terms.day("at") if by == "day" else terms.bucket("at", 4)).commit()
    zone = "+00:00" if kind == "timestamptz_ns" else ""
    moments = [f"{moment}{zone}" for moment in ("1969-12-31T23:59:59.999999999", "2026-01-02T00:00:00.000000001")]
    rows = [{"id": number, "at": moment} for number, moment in enumerate(moments * 3)]
    for at in range(0, 6, 2):
        java_upsert(spark, catalog.name, "db.t", ["id", "at"], [], rows[at : at + 2])
    java_upsert(spark, catalog.name, "db.t", ["id", "at"], [rows[0], {**rows[1], "at": moments[0]}], [])
    before = generic_rows(spark, catalog)
    assert before.total() == 5

    process_id = services.begin(catalog.full_name("db.t"), OptimizingType.FULL)
    services.finish(process_id)

    assert generic_rows(spark, catalog) == before


def test_java_plans_partitions_by_nanoseconds_that_we_wrote(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    """Java's reader of generic records fails on such partitions, its manifests and plans do not."""
    table = make(catalog, "id BIGINT")
    evolved(catalog, (None, "at", "timestamp_ns", None))
    java = load_java_table(spark, catalog.name, "db.t")
    java.table.updateSpec().addField(java.iceberg.expressions.Expressions.ref("at")).commit()
    moments = ["1969-12-31T23:59:59.999999999", "2026-01-02T00:00:00.000000001"]
    for number in range(3):
        java_upsert(spark, catalog.name, "db.t", ["id"], [], [{"id": number, "at": moment} for moment in moments])
    places = planned(spark, catalog)
    rows = live_rows(catalog.load("db.t"))
    assert (places, rows.total()) == (
        Counter({"PartitionData{at=-1}": 3, "PartitionData{at=1767312000000000001}": 3}),
        6,
    )

    services.finish(services.begin(table, OptimizingType.FULL))

    assert planned(spark, catalog) == Counter(dict.fromkeys(places, 1))
    assert live_rows(catalog.load("db.t")) == rows


def planned(spark: SparkSession, catalog: SharedCatalog) -> Counter[str]:
    """The partitions of the files that Java would read."""
    tasks = load_java_table(spark, catalog.name, "db.t").table.newScan().planFiles()
    found, each = Counter[str](), tasks.iterator()
    while each.hasNext():
        found[each.next().file().partition().toString()] += 1
    tasks.close()
    return found


def generic_rows(spark: SparkSession, catalog: SharedCatalog) -> Counter[str]:
    """The rows as Java's own reader gives them: Spark has no nanoseconds."""
    java = load_java_table(spark, catalog.name, "db.t")
    java.table.refresh()
    records = java.iceberg.data.IcebergGenerics.read(java.table).build()
    found, rows = Counter[str](), records.iterator()
    while rows.hasNext():
        row = rows.next()
        found[", ".join(shown(row.get(at)) for at in range(row.size()))] += 1
    records.close()
    return found


def shown(value: Any) -> str:
    """The value as Java shows it, bytes by their digits."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if type(value).__name__ != "JavaObject":
        return repr(value)
    if value.getClass().getSimpleName() == "HeapByteBuffer":
        return shown(value.array())
    return str(value.toString())

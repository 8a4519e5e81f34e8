import datetime as dt
import decimal
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from amoro_core.errors import TableRefused
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.ports import AnyTable, Role, TableFormat, with_roles
from amoro_core.formats.tables import MAX_NAMING_BYTES, MAX_NAMING_ROWS, FileReadCache
from amoro_core.iceberg.metadata import read_locations
from amoro_core.iceberg.scan import scan
from amoro_core.iceberg.table_support import disputed_deletes
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteKind, FileFormat, ScannedFile, TableScan
from amoro_core.model.location_policy import Grant
from amoro_core.model.paths import normalise
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.tables import TableFacts, TableIdentifier
from amoro_core.model.task_payload import TableContext
from tests.engine import files as engine_files
from tests.engine.commits import Change, commit
from tests.engine.oracle import live_rows_with_positions
from tests.engine.writer import EqualityDelete, append, delete_where, make_catalog, make_table, row_delta
from tests.iceberg.rewriting import scanned
from tests.iceberg.scenarios import port, sql_config

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "amount", DecimalType(9, 2), required=False),
)


BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


def seen(found: TableScan) -> list[tuple[int, int, int, list[tuple[DeleteKind, int]]]]:
    """Each data file as spec, number, records, and its deletes as kind and number."""
    return [
        (
            file.data.spec_id,
            file.data.sequence_number,
            file.data.record_count,
            [(delete.kind, delete.sequence_number) for delete in file.deletes],
        )
        for file in found.files
    ]


def test_a_data_file_is_what_its_manifest_says(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_REGION)
    append(table, [{"id": 7, "region": "é", "amount": None}])
    [entry] = table.inspect.entries().to_pylist()
    written = entry["data_file"]
    file = scanned(table).files[0].data
    assert file == DataFile(
        path=written["file_path"],
        file_format=FileFormat.PARQUET,
        spec_id=0,
        partition=("é".encode(),),
        record_count=1,
        size_bytes=Path(written["file_path"].removeprefix("file://")).stat().st_size,
        sequence_number=1,
        metrics=file.metrics,
        split_offsets=(4,),
    )
    assert dict(file.metrics.value_counts) == {1: 1, 2: 1, 3: 1}
    assert dict(file.metrics.null_value_counts) == {1: 0, 2: 0, 3: 1}
    assert dict(file.metrics.lower_bounds) == {1: (7).to_bytes(8, "little"), 2: "é".encode()}
    assert dict(file.metrics.upper_bounds) == {1: (7).to_bytes(8, "little"), 2: "é".encode()}


def test_deletes_stand_with_the_files_they_apply_to(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_REGION)
    append(table, [{"id": 1, "region": "a"}, {"id": 2, "region": "b"}])
    row_delta(table, [{"id": 1, "region": "a"}], [EqualityDelete(["id"], [{"id": 1, "region": "a"}])])
    delete_where(table, lambda row: row["id"] == 2)
    found = scanned(table)
    assert [(file.data.partition, *one[1:]) for file, one in zip(found.files, seen(found), strict=True)] == [
        ((b"a",), 1, 1, [(DeleteKind.EQUALITY, 2)]),
        ((b"b",), 1, 1, [(DeleteKind.POSITION, 3)]),
        ((b"a",), 2, 1, []),
    ]
    assert found.dangling == ()
    equality, position = found.files[0].deletes[0], found.files[1].deletes[0]
    assert equality.equality_ids == (1,)
    assert position.path_bounds == (found.files[1].data.path, found.files[1].data.path)


def test_files_keep_their_own_spec_when_the_spec_evolves(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [{"id": 1, "region": "a"}])
    with table.update_spec() as update:
        update.add_field("region", IdentityTransform(), "region")
    row_delta(table, [{"id": 2, "region": "a"}], [EqualityDelete(["id"], [{"id": 1, "region": "a"}])])
    with table.update_spec() as update:
        update.remove_field("region")
    row_delta(table, [{"id": 3}], [EqualityDelete(["id"], [{"id": 2}])])
    found = scanned(table)
    newest = table.metadata.default_spec_id
    # The second commit's delete is of a partitioned spec and meets no older file of it; the third one's is global.
    assert seen(found) == [
        (0, 1, 1, [(DeleteKind.EQUALITY, 3)]),
        (1, 2, 1, [(DeleteKind.EQUALITY, 3)]),
        (newest, 3, 1, []),
    ]
    assert [(delete.spec_id, delete.partition) for delete in found.dangling] == [(1, (b"a",))]


def test_a_void_only_spec_of_format_1_is_unpartitioned(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_REGION, format_version=1)
    append(table, [{"id": 1, "region": "a"}])
    with table.update_spec() as update:
        update.remove_field("region")
    append(table, [{"id": 2, "region": "a"}])
    with table.transaction() as transaction:
        transaction.upgrade_table_version(format_version=2)
    row_delta(table, (), [EqualityDelete(["id"], [{"id": 1}], partition=(None,))])
    found = scanned(table)
    assert {file.data.partition for file in found.files} == {(b"a",), (None,)}
    assert sorted(seen(found)) == [(0, 0, 1, [(DeleteKind.EQUALITY, 1)]), (1, 0, 1, [(DeleteKind.EQUALITY, 1)])]
    assert port(table).partition_path(PartitionKey(1, (None,))) == ""


def test_partitions_outlive_the_columns_they_were_made_of(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_REGION)
    append(table, [{"id": 1, "region": "a b"}])
    with table.update_spec() as update:
        update.remove_field("region")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("region")
    [file] = scanned(table).files
    assert file.data.partition == (b"a b",)
    assert port(table).partition_path(PartitionKey(0, file.data.partition)) == "region=a+b"


#: Name, type, transform and value of a column, and the stored value of its partition field.
PARTED = (
    ("flag", BooleanType(), IdentityTransform(), True, b"\x01"),
    ("day", DateType(), IdentityTransform(), dt.date(1970, 1, 2), b"\x01\x00\x00\x00"),
    ("at", TimestampType(), DayTransform(), dt.datetime(1970, 1, 3, 4, 5, 6), b"\x02\x00\x00\x00"),
    ("key", UUIDType(), IdentityTransform(), uuid.UUID(int=5), uuid.UUID(int=5).bytes),
    ("price", DecimalType(9, 2), IdentityTransform(), decimal.Decimal("-1.50"), b"\xff\x6a"),
    ("ratio", DoubleType(), IdentityTransform(), float("nan"), b"\x00\x00\x00\x00\x00\x00\xf8\x7f"),
    ("name", StringType(), TruncateTransform(2), "iceberg", b"ic"),
)


def test_every_type_of_partition_value_is_read_and_written_as_iceberg_does(catalog: SqlCatalog) -> None:
    schema = Schema(*(NestedField(at, name, kind) for at, (name, kind, *_) in enumerate(PARTED, 1)))
    fields = [PartitionField(at, 999 + at, one[2], f"of_{one[0]}") for at, one in enumerate(PARTED, 1)]
    spec = PartitionSpec(*fields, PartitionField(7, 1007, BucketTransform(16), "b"))
    table = make_table(catalog, "ns.t", schema, spec)
    row = {name: value for name, _, _, value, _ in PARTED}
    append(table, [row, {**row, "name": None, "ratio": -0.0}])
    partitions = {file.data.partition[7]: file.data.partition for file in scanned(table).files}
    nameless = partitions.pop(None)
    [named] = partitions.values()
    assert named[:7] == tuple(stored for *_, stored in PARTED)
    assert nameless[5:] == (b"\x00\x00\x00\x00\x00\x00\x00\x80", None, None)
    assert port(table).partition_path(PartitionKey(0, nameless)) == (
        "of_flag=true/of_day=1970-01-02/of_at=1970-01-03/of_key=00000000-0000-0000-0000-000000000005/of_price=-1.50"
        "/of_ratio=-0.0/of_name=null/b=null"
    )


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (1, "{table}/../secret.parquet", "location"),
        (1, "{table}2/data/x.parquet", "location"),  # a neighbour
        (1, "{elsewhere}/x.parquet", "location"),
        (12, b"key", "encryption"),
    ],
)
def test_a_file_that_must_not_be_read_is_refused_by_its_path(
    catalog: SqlCatalog, tmp_path: Path, field: int, value: str | bytes, reason: str
) -> None:
    table, elsewhere = make_table(catalog, "ns.t", SCHEMA), f"{tmp_path}/elsewhere"
    [file] = engine_files.write_data_files(table, [{"id": 1}])
    file[field] = value.format(table=table.location(), elsewhere=elsewhere) if isinstance(value, str) else value
    commit(table, lambda head: Change((file,)), "main")
    with pytest.raises(TableRefused, match=Path(file.file_path).name) as refused:
        scanned(table)
    assert refused.value.reason == reason


def test_a_file_in_the_data_path_of_the_table_may_be_read_where_that_is_granted(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    apart = f"file://{tmp_path}/apart"
    table = make_table(catalog, "ns.t", SCHEMA, properties={"write.data.path": apart})
    append(table, [{"id": 1}])
    with pytest.raises(TableRefused, match=apart):
        scanned(table)
    found = scan(table, read_locations(table.metadata, Grant((table.location(), apart))))
    assert [file.data.path.rpartition("/")[0] for file in found.files] == [apart]


def test_a_position_delete_of_another_partition_is_refused(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_REGION)
    append(table, [{"id": 1, "region": "a"}])
    [file] = scanned(table).files
    delete = engine_files.write_position_deletes(table, 0, ("b",), [(file.data.path, 0)])
    assert delete.content == DataFileContent.POSITION_DELETES
    commit(table, lambda head: Change((delete,)), "main")
    with pytest.raises(TableRefused, match=delete.file_path) as refused:
        scanned(table)
    assert refused.value.reason == "position-delete-partition"


# Tables behind the port


GOING = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "gone", LongType(), required=False),
)
TABLE = TableIdentifier("cat", ("ns",), "t")
FORMAT: TableFormat = IcebergFormat()


@pytest.fixture
def config(tmp_path: Path, catalog: SqlCatalog) -> CatalogConfig:
    more = {"s3.endpoint": "http://store", "token": "not to be vended"}
    return sql_config(tmp_path, f"file://{tmp_path}/allowed", **more)


def opened(config: CatalogConfig) -> AnyTable:
    return with_roles(FORMAT.load(config, TABLE), set(Role) - {Role.SERVICE}, "these tests")


def read(config: CatalogConfig) -> tuple[AnyTable, TableScan]:
    found = opened(config)
    scanned = found.scan()
    assert scanned is not None
    return found, scanned


def test_tables_of_all_namespaces_are_listed_in_order(config: CatalogConfig, catalog: SqlCatalog) -> None:
    for name in ("ns.t", "ns.a", "a.b.c.deep", "a.z", "ns_.like", "nsx.like"):
        make_table(catalog, name, GOING)
    catalog.create_namespace("empty")
    assert [str(found) for found in FORMAT.list_tables(config)] == [
        "cat.a.z",
        "cat.a.b.c.deep",
        "cat.ns.a",
        "cat.ns.t",
        "cat.ns_.like",
        "cat.nsx.like",
    ]


def test_the_facts_of_a_table_before_and_after_its_first_snapshot(config: CatalogConfig, catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", GOING, properties={"self-optimizing.group": "g"})
    facts = TableFacts(
        identifier=TABLE,
        uuid=str(table.metadata.table_uuid),
        format_version=2,
        location=table.location(),
        metadata_location=table.metadata_location,
        snapshot_id=None,
        sequence_number=0,
        properties={"self-optimizing.group": "g"},
        last_column_id=3,
    )
    before = opened(config)
    assert (before.facts, before.scan()) == (facts, None)
    append(table, [{"id": 1}])
    after = opened(config).facts
    assert (after.snapshot_id, after.sequence_number) == (table.metadata.current_snapshot_id, 1)
    assert after.metadata_location != facts.metadata_location


def test_a_context_says_what_executors_need(config: CatalogConfig, catalog: SqlCatalog, tmp_path: Path) -> None:
    properties = {
        "write.parquet.compression-codec": "zstd",
        "self-optimizing.enabled": "true",
        "client.region": "eu",
        "credential": "secret",
        "schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}]',
    }
    table = make_table(catalog, "ns.t", GOING, BY_REGION, properties=properties)
    append(table, [{"id": 1, "region": "a", "gone": 5}])
    row_delta(table, (), [(["gone"], [{"gone": 7}], ("a",))])
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("gone")
    assert opened(config).io_properties() == {"client.region": "eu", "s3.endpoint": "http://store"}
    found = opened(config).context(0)
    location = table.location()
    assert found == TableContext(
        catalog="cat",
        table="cat.ns.t",
        table_uuid=str(table.metadata.table_uuid),
        format_version=2,
        location=location,
        data_location=f"{location}/data",
        schema_json=found.schema_json,
        spec_json=found.spec_json,
        name_mapping_json=table.properties["schema.name-mapping.default"],
        dropped_fields_json=found.dropped_fields_json,
        sort_order_json=None,
        properties={"write.parquet.compression-codec": "zstd"},
        read_locations=(f"file://{tmp_path}/warehouse", f"file://{tmp_path}/allowed"),
    )
    assert Schema.model_validate_json(found.schema_json) == table.schema()
    assert PartitionSpec.model_validate_json(found.spec_json) == table.spec()
    assert [json.loads(one) for one in found.dropped_fields_json] == [
        {"id": 3, "name": "gone", "type": "long", "required": False}
    ]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"write.data.path": "PREFIX/own/", "write.folder-storage.path": "PREFIX/x"}, "PREFIX/own"),
        ({"write.folder-storage.path": "PREFIX/folder"}, "PREFIX/folder"),
        ({"write.object-storage.path": "PREFIX/objects"}, "LOCATION/data"),
        ({"write.object-storage.path": "PREFIX/objects", "write.object-storage.enabled": "true"}, "PREFIX/objects"),
        ({}, "LOCATION/data"),
    ],
)
def test_data_is_written_where_the_table_says(
    config: CatalogConfig, catalog: SqlCatalog, tmp_path: Path, properties: dict[str, str], expected: str
) -> None:
    prefix = f"file://{tmp_path}/warehouse"
    given = {key: value.replace("PREFIX", prefix) for key, value in properties.items()}
    table = make_table(catalog, "ns.t", GOING, properties=given)
    wanted = expected.replace("PREFIX", prefix).replace("LOCATION", table.location())
    assert opened(config).context(0).data_location == wanted


def deletes_of(scanned: TableScan) -> list[DeleteFile]:
    return sorted({one for file in scanned.files for one in file.deletes}, key=lambda one: one.path)


def test_what_a_position_delete_names_is_read_from_its_file(config: CatalogConfig, catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", GOING)
    append(table, [{"id": 1}, {"id": 2}, {"id": 3}], files=3)
    delete_where(table, lambda item: item["id"] != 2, with_bounds=False)
    found, scanned = read(config)
    kept = {one.path for one in live_rows_with_positions(table) if one.record["id"] == 2}
    files = [scanned_file.data for scanned_file in scanned.files]
    [delete] = deletes_of(scanned)
    gone, first = {normalise(file.path) for file in files} - {normalise(path) for path in kept}, PositionSet.of([0])
    assert FileReadCache().positions(found, [delete], files) == {delete.identity: dict.fromkeys(gone, first)}
    assert len(kept) == 1


def test_a_position_behind_the_end_of_a_file_deletes_nothing(config: CatalogConfig, catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", GOING)
    append(table, [{"id": 1}, {"id": 2}])
    [path] = {one.path for one in live_rows_with_positions(table)}
    row_delta(table, position_deletes=[(path, [1, 2, 3])])
    found, scanned = read(config)
    [delete] = deletes_of(scanned)
    positions = FileReadCache().positions(found, [delete], [scanned_file.data for scanned_file in scanned.files])
    assert positions == {delete.identity: {normalise(path): PositionSet.of([1])}}


def test_what_files_say_is_read_once_and_never_from_large_ones(config: CatalogConfig, catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", GOING)
    append(table, [{"id": 1}])
    delete_where(table, lambda item: item["id"] == 1, with_bounds=False)
    (found, scanned), known = read(config), FileReadCache()
    [data] = [file.data for file in scanned.files]
    [delete] = deletes_of(scanned)
    beyond = [replace(delete, size_bytes=MAX_NAMING_BYTES + 1), replace(delete, record_count=MAX_NAMING_ROWS + 1)]
    gone = replace(delete, path=f"{delete.path}.gone")
    assert known.positions(found, [*beyond, gone], [data]) == {}
    once = known.facts(found, data.path), known.positions(found, [delete], [data])
    assert once[1] == {delete.identity: {normalise(data.path): PositionSet.of([0])}}
    for path in (data.path, delete.path):
        Path(path.removeprefix("file://")).unlink()
    assert (known.facts(found, data.path), known.positions(found, [delete, gone], [data])) == once


def test_what_deletes_say_is_read_again_for_files_that_were_not_asked_for(
    config: CatalogConfig, catalog: SqlCatalog
) -> None:
    """Groups are committed one after the other: what a delete says of the first tells nothing of the second."""
    table = make_table(catalog, "ns.t", GOING)
    append(table, [{"id": 1}, {"id": 2}], files=2)
    delete_where(table, lambda item: True, with_bounds=False)
    (found, scanned), known = read(config), FileReadCache()
    first, second = (file.data for file in scanned.files)
    [delete] = deletes_of(scanned)
    assert known.positions(found, [delete], [first])[delete.identity].keys() == {normalise(first.path)}
    assert known.positions(found, [delete], [second])[delete.identity].keys() == {normalise(second.path)}
    Path(delete.path.removeprefix("file://")).unlink()
    assert known.positions(found, [delete], [first]) == {}, "what can't be read again tells nothing"


# Equality deletes that Java passes over; tests/spark/test_matching.py holds the same function against Java itself


KEYED = Schema(
    NestedField(1, "uid", UUIDType(), required=False),
    NestedField(2, "number", LongType(), required=False),
    NestedField(3, "box", StructType(NestedField(4, "inner", LongType(), required=True)), required=False),
)
LOW, MIDDLE, HIGH, TOP = ("00" + "0" * 30, "7f" + "0" * 30, "80" + "0" * 30, "f0" + "0" * 30)
#: Equal first halves, second halves on both sides.
LEFT, RIGHT = ("00" * 8 + "7f" + "0" * 14, "00" * 8 + "80" + "0" * 14)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    catalog = make_catalog(tmp_path_factory.mktemp("lake"))
    made = make_table(catalog, "db.t", KEYED)
    assert made.schema().find_field("box.inner").field_id == 4
    yield made
    catalog.close()


def uuids(low: str, high: str, nulls: int | None = 0) -> ColumnMetrics:
    counts = {} if nulls is None else {1: nulls}
    return ColumnMetrics(
        value_counts={1: 10},
        null_value_counts=counts,
        lower_bounds={1: uuid.UUID(low).bytes},
        upper_bounds={1: uuid.UUID(high).bytes},
    )


def numbers(field_id: int, low: int, high: int, nulls: int = 0) -> ColumnMetrics:
    bounds = [{field_id: one.to_bytes(8, "little", signed=True)} for one in (low, high)]
    return ColumnMetrics(
        value_counts={field_id: 10}, null_value_counts={field_id: nulls}, lower_bounds=bounds[0], upper_bounds=bounds[1]
    )


def both(one: ColumnMetrics, other: ColumnMetrics) -> ColumnMetrics:
    return ColumnMetrics(
        value_counts={**one.value_counts, **other.value_counts},
        null_value_counts={**one.null_value_counts, **other.null_value_counts},
        lower_bounds={**one.lower_bounds, **other.lower_bounds},
        upper_bounds={**one.upper_bounds, **other.upper_bounds},
    )


SOME = uuids(LOW, TOP)


@pytest.mark.parametrize(
    ("ids", "held", "deleted", "expected"),
    [
        # By UUID: where bounds with a sign are the wrong way round
        ((1,), SOME, SOME, True),  # both on both sides
        ((1,), uuids(LOW, MIDDLE), SOME, True),
        ((1,), uuids(HIGH, TOP), SOME, True),
        ((1,), SOME, uuids(MIDDLE, MIDDLE), True),
        ((1,), uuids(LEFT, RIGHT), uuids(LEFT, RIGHT), True),
        ((1,), uuids(LOW, MIDDLE), uuids(LOW, MIDDLE), False),  # one side: the order is the same
        ((1,), uuids(HIGH, TOP), uuids(TOP, TOP), False),
        ((1,), uuids(LOW, LOW), uuids(MIDDLE, TOP), False),  # no value in common: nothing is deleted, whoever reads
        ((1,), uuids(MIDDLE, MIDDLE), uuids(LOW, LOW), False),
        # Without bounds nobody passes over a delete; with nulls on both sides everybody applies it
        ((1,), ColumnMetrics(), SOME, False),
        ((1,), SOME, ColumnMetrics(lower_bounds={1: uuid.UUID(LOW).bytes}), False),
        ((1,), uuids(LOW, TOP, 1), uuids(LOW, TOP, 1), False),
        ((1,), uuids(LOW, TOP, None), uuids(LOW, TOP, 2), False),
        ((1,), SOME, uuids(LOW, TOP, 1), True),
        # Another key that cannot match ends the dispute
        ((1, 2), both(SOME, numbers(2, 0, 9)), both(SOME, numbers(2, 5, 6)), True),
        ((1, 2), both(SOME, numbers(2, 0, 9)), both(SOME, numbers(2, -9, -1)), False),
        # A required column may be null with the struct around it
        ((4,), numbers(4, 0, 9, 3), numbers(4, 20, 30, 1), True),
        ((4,), numbers(4, 0, 9, 10), numbers(4, 20, 30, 10), True),
        ((4,), numbers(4, 0, 9, 3), numbers(4, 5, 6, 1), False),  # Java applies it for other reasons
        ((4,), numbers(4, 0, 9), numbers(4, 20, 30, 1), False),
        # By other columns
        ((2,), numbers(2, 0, 9), numbers(2, -5, 5), False),
        ((99,), numbers(2, 0, 9), numbers(2, -5, 5), False),
    ],
)
def test_deletes_that_java_passes_over_by_bounds_are_disputed(
    keyed: Table, ids: tuple[int, ...], held: ColumnMetrics, deleted: ColumnMetrics, expected: bool
) -> None:
    data = DataFile("d", FileFormat.PARQUET, 0, (), 10, 1, 1, held)
    delete = DeleteFile("e", DeleteKind.EQUALITY, FileFormat.PARQUET, 0, (), 10, 1, 2, ids, metrics=deleted)
    position = DeleteFile("p", DeleteKind.POSITION, FileFormat.PARQUET, 0, (), 10, 1, 2)
    found = disputed_deletes(keyed.metadata, [ScannedFile(data, (delete, position)), ScannedFile(data)])
    assert found == ({delete.identity} if expected else frozenset())

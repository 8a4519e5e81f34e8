import datetime as dt
import decimal
import uuid
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from amoro_core.errors import TableRefused
from amoro_core.iceberg.metadata import read_locations
from amoro_core.iceberg.scan import scan
from amoro_core.model.files import DataFile, DeleteKind, FileFormat, TableScan
from amoro_core.model.location_policy import Grant
from amoro_core.model.plans import PartitionKey
from tests.engine import files as engine_files
from tests.engine.commits import Change, commit
from tests.engine.writer import EqualityDelete, append, delete_where, make_table, remove_files, row_delta
from tests.iceberg.rewriting import scanned
from tests.iceberg.scenarios import port

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "amount", DecimalType(9, 2), required=False),
)


def by_region() -> PartitionSpec:
    return PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


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
    table = make_table(catalog, "ns.t", SCHEMA, by_region())
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
    table = make_table(catalog, "ns.t", SCHEMA, by_region())
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


def test_files_removed_from_the_table_are_gone_and_leave_dangling_deletes(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [{"id": 1}])
    first = scanned(table).files[0].data.path
    row_delta(table, [{"id": 2}], [(["id"], [{"id": 1}])])
    remove_files(table, [first])
    found = scanned(table)
    assert seen(found) == [(0, 2, 1, [])]
    assert [(delete.kind, delete.sequence_number) for delete in found.dangling] == [(DeleteKind.EQUALITY, 2)]


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
    table = make_table(catalog, "ns.t", SCHEMA, by_region(), format_version=1)
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
    table = make_table(catalog, "ns.t", SCHEMA, by_region())
    append(table, [{"id": 1, "region": "a b"}])
    with table.update_spec() as update:
        update.remove_field("region")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("region")
    [file] = scanned(table).files
    assert file.data.partition == (b"a b",)
    assert port(table).partition_path(PartitionKey(0, file.data.partition)) == "region=a+b"


def test_every_type_of_partition_value_is_read_and_written_as_iceberg_does(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "flag", BooleanType()),
        NestedField(2, "day", DateType()),
        NestedField(3, "at", TimestampType()),
        NestedField(4, "key", UUIDType()),
        NestedField(5, "price", DecimalType(9, 2)),
        NestedField(6, "ratio", DoubleType()),
        NestedField(7, "name", StringType()),
    )
    transforms = [
        (1, IdentityTransform(), "flag"),
        (2, IdentityTransform(), "day"),
        (3, DayTransform(), "at_day"),
        (4, IdentityTransform(), "key"),
        (5, IdentityTransform(), "price"),
        (6, IdentityTransform(), "ratio"),
        (7, TruncateTransform(2), "name_trunc"),
        (7, BucketTransform(16), "name_bucket"),
    ]
    spec = PartitionSpec(
        *(
            PartitionField(source_id=source, field_id=1000 + at, transform=transform, name=name)
            for at, (source, transform, name) in enumerate(transforms)
        )
    )
    table = make_table(catalog, "ns.t", schema, spec)
    row = {
        "flag": True,
        "day": dt.date(1970, 1, 2),
        "at": dt.datetime(1970, 1, 3, 4, 5, 6),
        "key": uuid.UUID(int=5),
        "price": decimal.Decimal("-1.50"),
        "ratio": float("nan"),
        "name": "iceberg",
    }
    append(table, [row, {**row, "name": None, "ratio": -0.0}])
    partitions = {file.data.partition[7]: file.data.partition for file in scanned(table).files}
    nameless = partitions.pop(None)
    [named] = partitions.values()
    assert named[:7] == (
        b"\x01",
        b"\x01\x00\x00\x00",
        b"\x02\x00\x00\x00",
        uuid.UUID(int=5).bytes,
        b"\xff\x6a",
        b"\x00\x00\x00\x00\x00\x00\xf8\x7f",
        b"ic",
    )
    assert nameless[5:] == (b"\x00\x00\x00\x00\x00\x00\x00\x80", None, None)
    assert port(table).partition_path(PartitionKey(0, nameless)) == (
        "flag=true/day=1970-01-02/at_day=1970-01-03/key=00000000-0000-0000-0000-000000000005/price=-1.50/ratio=-0.0"
        "/name_trunc=null/name_bucket=null"
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
    assert found is not None
    assert [file.data.path.rpartition("/")[0] for file in found.files] == [apart]


def test_a_position_delete_of_another_partition_is_refused(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, by_region())
    append(table, [{"id": 1, "region": "a"}])
    [file] = scanned(table).files
    delete = engine_files.write_position_deletes(table, 0, ("b",), [(file.data.path, 0)])
    assert delete.content == DataFileContent.POSITION_DELETES
    commit(table, lambda head: Change((delete,)), "main")
    with pytest.raises(TableRefused, match=delete.file_path) as refused:
        scanned(table)
    assert refused.value.reason == "position-delete-partition"

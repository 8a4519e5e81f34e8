import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.ports import AnyTable, Role, TableFormat, with_roles
from amoro_core.formats.tables import MAX_NAMING_BYTES, MAX_NAMING_ROWS, FileReadCache
from amoro_core.model.commits import FileFacts
from amoro_core.model.files import DeleteFile, TableScan
from amoro_core.model.paths import normalise
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.tables import TableFacts, TableIdentifier
from amoro_core.model.task_payload import TableContext
from tests.engine.oracle import live_rows_with_positions
from tests.engine.writer import append, delete_where, make_table, row_delta
from tests.iceberg.scenarios import sql_config

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "gone", LongType(), required=False),
)
SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region"))
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
        make_table(catalog, name, SCHEMA)
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
    table = make_table(catalog, "ns.t", SCHEMA, properties={"self-optimizing.group": "g"})
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
        "schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}]',
    }
    table = make_table(catalog, "ns.t", SCHEMA, SPEC, properties=properties)
    append(table, [{"id": 1, "region": "a", "gone": 5}])
    row_delta(table, (), [(["gone"], [{"gone": 7}], ("a",))])
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("gone")
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
    table = make_table(catalog, "ns.t", SCHEMA, properties=given)
    wanted = expected.replace("PREFIX", prefix).replace("LOCATION", table.location())
    assert opened(config).context(0).data_location == wanted


def test_only_properties_of_file_ios_are_vended(config: CatalogConfig, catalog: SqlCatalog) -> None:
    make_table(catalog, "ns.t", SCHEMA, properties={"client.region": "eu", "credential": "secret"})
    assert opened(config).io_properties() == {"client.region": "eu", "s3.endpoint": "http://store"}


def test_a_files_facts_come_from_its_footer(config: CatalogConfig, catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [{"id": 1}, {"id": None}])
    found, scanned = read(config)
    [file] = scanned.files
    assert found.file_facts(file.data.path) == FileFacts(
        file.data.size_bytes, 2, {1: 2, 2: 2, 3: 2}, {1: 1, 2: 2, 3: 2}
    )


def deletes_of(scanned: TableScan) -> list[DeleteFile]:
    return sorted({one for file in scanned.files for one in file.deletes}, key=lambda one: one.path)


def test_what_a_position_delete_names_is_read_from_its_file(config: CatalogConfig, catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
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
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [{"id": 1}, {"id": 2}])
    [path] = {one.path for one in live_rows_with_positions(table)}
    row_delta(table, position_deletes=[(path, [1, 2, 3])])
    found, scanned = read(config)
    [delete] = deletes_of(scanned)
    positions = FileReadCache().positions(found, [delete], [scanned_file.data for scanned_file in scanned.files])
    assert positions == {delete.identity: {normalise(path): PositionSet.of([1])}}


def test_what_files_say_is_read_once_and_never_from_large_ones(config: CatalogConfig, catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
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
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [{"id": 1}, {"id": 2}], files=2)
    delete_where(table, lambda item: True, with_bounds=False)
    (found, scanned), known = read(config), FileReadCache()
    first, second = (file.data for file in scanned.files)
    [delete] = deletes_of(scanned)
    assert known.positions(found, [delete], [first])[delete.identity].keys() == {normalise(first.path)}
    assert known.positions(found, [delete], [second])[delete.identity].keys() == {normalise(second.path)}
    Path(delete.path.removeprefix("file://")).unlink()
    assert known.positions(found, [delete], [first]) == {}, "what can't be read again tells nothing"

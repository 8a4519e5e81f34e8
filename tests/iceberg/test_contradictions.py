"""Metadata that contradict themselves, or have what the model lacks, are refused by name."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField

from amoro_core.errors import TableRefused
from amoro_core.iceberg.catalog.catalogs import load_table
from amoro_core.iceberg.metadata import read_locations
from amoro_core.iceberg.pyiceberg_sandbox import refuse_lost, refuse_unmodelled
from amoro_core.iceberg.scan import scan
from amoro_core.iceberg.table_support import _flaw, refuse_contradictions, refuse_files, refuse_table, refuse_unreadable
from amoro_core.model.files import TableScan
from amoro_core.model.location_policy import Grant
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, make_table, row_delta
from tests.iceberg.rewriting import current, manifests
from tests.iceberg.scenarios import changed, http_server, rewrite_avro, sql_config

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", LongType(), required=False))
SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Two data files of one manifest, and an equality delete on them, each snapshot with a number of its own."""
    made = make_table(catalog, "ns.t", SCHEMA, SPEC)
    append(made, [{"id": 1, "p": 1}, {"id": 2, "p": 2}])
    row_delta(made, (), [(["id"], [{"id": 2, "p": 2}], (2,))])
    made.refresh()
    return made


def with_first_twice(key: str) -> Change:
    return lambda metadata: metadata[key].append(metadata[key][0])


def with_main_elsewhere(metadata: dict[str, Any]) -> None:
    metadata["refs"]["main"]["snapshot-id"] = metadata["snapshots"][0]["snapshot-id"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.update({"current-snapshot-id": 5, "refs": {}}), "the table has no snapshot 5"),
        (
            lambda one: one["refs"].update({"b": {"snapshot-id": 6, "type": "branch"}}),
            "the branch b names snapshot 6, which the table lacks",
        ),
        (lambda one: one["refs"].update({"v": {"snapshot-id": 7, "type": "tag"}}), "the tag v names snapshot 7"),
        (with_main_elsewhere, r"main is at snapshot \d+, but current-snapshot-id says \d+"),
        (lambda one: one.update({"last-sequence-number": 1}), r"sequence number 2, but the table's last one is 1"),
        (lambda one: one["snapshots"][0].update({"sequence-number": -1}), "sequence number -1, but"),
        (
            lambda one: one["snapshots"][0].update({"timestamp-ms": 2**62}),
            r"snapshot \d+ has the timestamp 46\d+, which",
        ),
        (with_first_twice("snapshots"), r"two snapshots have the id \d+"),
        (with_first_twice("schemas"), "two schemas have the id 0"),
        (with_first_twice("partition-specs"), "two partition specs have the id 0"),
        (with_first_twice("sort-orders"), "two sort orders have the id 0"),
        (lambda one: one["schemas"][0]["fields"][1].update({"id": 1}), "two columns of schema 0 have the field id 1"),
        (
            lambda one: one["schemas"][0]["fields"][1].update(
                {"type": {"type": "list", "element-id": 1, "element": "long", "element-required": False}}
            ),
            "two columns of schema 0 have the field id 1",
        ),
        (
            lambda one: one["partition-specs"][0]["fields"].append(
                {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "q"}
            ),
            "two fields of partition spec 0 have the id 1000",
        ),
    ],
)
def test_metadata_that_contradict_themselves_are_refused(table: Table, change: Change, message: str) -> None:
    metadata = changed(table, change)
    for refuse in (refuse_table, refuse_unreadable):
        with pytest.raises(TableRefused, match=message) as refused:
            refuse(metadata)
        assert refused.value.reason == "metadata"


def test_a_data_file_among_deletes_is_refused(table: Table) -> None:
    refuse_contradictions(table.metadata)
    assert scanned(table).sequence_number == 2
    change_manifest(table, of_file(content=0), deletes=True)
    assert refusal(table).endswith("it is a data file among deletes")


def test_an_entry_without_a_number_that_it_could_inherit_or_of_another_spec_is_refused(table: Table) -> None:
    change_list(table, lambda one: one.update({"added_files_count": 0, "existing_files_count": 2}))
    change_manifest(table, lambda entry: entry.update({"status": 0, "sequence_number": None}))
    assert refusal(table).endswith("lacks its sequence number")
    change_manifest(table, lambda entry: None, **{"partition-spec-id": "4"})
    assert "says that it is of partition spec 4, but its list says 0" in refusal(table)


def test_a_manifest_that_lost_an_entry_is_refused(table: Table) -> None:
    """Carried over by a commit, the entry would be lost for ever."""
    first: list[int] = []
    change_manifest(table, lambda entry: entry.clear() if not first and not first.append(1) else None)
    assert "has 1 live files, but its list says 2" in refusal(table)


def each(change: Change) -> Callable[[list[Any]], list[Any]]:
    """Change each record, and leave out those that are empty then."""

    def run(records: list[Any]) -> list[Any]:
        for one in records:
            change(one)
        return [one for one in records if one]

    return run


def change_list(table: Table, change: Change, *, deletes: bool = False) -> None:
    """Change what the current list says of the manifests of data, or of deletes."""
    own = each(lambda one: change(one) if one["content"] == int(deletes) else None)
    rewrite_avro(current(table).manifest_list, own)


def change_manifest(table: Table, change: Change, *, deletes: bool = False, **header: str) -> str:
    """Change the entries of the manifest of data, or of deletes; its path."""
    [path] = [one.manifest_path for one in manifests(table) if int(one.content) == int(deletes)]
    rewrite_avro(path, each(change), **header)
    length = Path(local_path(path)).stat().st_size
    change_list(table, lambda one: one.update({"manifest_length": length}), deletes=deletes)
    return path


def scanned(table: Table) -> TableScan:
    found = scan(table, read_locations(table.metadata, Grant((table.location(),))))
    assert found is not None
    refuse_files(table.metadata, found)
    return found


def refusal(table: Table) -> str:
    with pytest.raises(TableRefused) as refused:
        scanned(table)
    assert refused.value.reason == "metadata"
    return refused.value.message


def of_file(**values: Any) -> Change:
    return lambda entry: entry["data_file"].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_file(record_count=-1), "it has -1 rows"),
        (of_file(record_count=2**62), f"it has {2**62} rows"),
        (of_file(file_size_in_bytes=-5), "it has -5 bytes"),
        (of_file(file_size_in_bytes=2**62), f"it has {2**62} bytes"),
        (of_file(file_size_in_bytes=0), "it has 1 rows in 0 bytes"),
        (of_file(content=1), "it is a delete file among data files"),
        (lambda entry: entry.update({"sequence_number": 2}), "its sequence number is 2, that of the manifest 1"),
        (lambda entry: entry.update({"sequence_number": -1}), "its sequence number is -1, that of the manifest 1"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_with_its_manifest_and_file(
    table: Table, change: Change, message: str
) -> None:
    path = change_manifest(table, change)
    said = refusal(table)
    assert said.startswith(f"the manifest {path} contradicts itself about {table.location()}/data/")
    assert said.endswith(f".parquet: {message}")


def test_a_number_beyond_a_long_is_refused() -> None:
    """Avro's numbers may have more bits than the specification's."""
    file = DataFile.from_args(content=DataFileContent.DATA, record_count=1, file_size_in_bytes=1)
    listed = ManifestFile.from_args(content=ManifestContent.DATA, sequence_number=2**64)
    for number, is_refused in ((2**63 - 1, False), (2**63, True)):
        entry = ManifestEntry.from_args(sequence_number=number, data_file=file)
        assert (_flaw(entry, listed) is not None) is is_refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"added_files_count": 3}, "has 2 live files, but its list says 3"),
        ({"existing_files_count": 1}, "has 2 live files, but its list says 3"),
        ({"partition_spec_id": 9}, "is of partition spec 9, which the table lacks"),
        ({"sequence_number": 3}, r"has the sequence number 3, but that of its snapshot \d+ is 2"),
        ({"content": 1}, "says that it holds data, but its list says deletes"),
    ],
)
def test_a_list_that_contradicts_the_manifest_is_refused(table: Table, change: dict[str, int], message: str) -> None:
    change_list(table, lambda one: one.update(change))
    assert re.search(message, refusal(table))


FIELD = {"source-id": 2, "field-id": 1000, "transform": "identity", "name": "p"}


def test_partitions_of_another_width_or_type_than_the_specs_are_refused(table: Table, catalog: SqlCatalog) -> None:
    plain = make_table(catalog, "ns.plain", SCHEMA)
    append(plain, [{"id": 1}])
    plain.refresh()
    plain.metadata = changed(plain, lambda one: one["partition-specs"][0].update(fields=[{**FIELD}]))
    assert "has partitions of 0 fields, but partition spec 0 has 1" in refusal(plain)
    table.metadata = changed(table, lambda one: one["schemas"][0]["fields"][1].update({"type": "string"}))
    said = refusal(table)
    assert said.startswith(f"{table.location()}/data/p=")
    assert " in its partition, which is no string" in said


def test_a_list_that_names_a_manifest_twice_is_refused(table: Table) -> None:
    rewrite_avro(current(table).manifest_list, lambda records: [*records, records[0]])
    assert "twice" in refusal(table)


def test_a_file_that_is_live_twice_is_refused(table: Table) -> None:
    paths: list[str] = []

    def same(entry: dict[str, Any]) -> None:
        paths.append(entry["data_file"]["file_path"])
        entry["data_file"]["file_path"] = paths[0].replace("file:///", "file:/") if len(paths) > 1 else paths[0]

    change_manifest(table, same)
    assert refusal(table).startswith(f"{local_path(paths[0])} is live more than once in snapshot ")


# What pyiceberg's model of metadata fails on or loses is refused by name, wherever a table is loaded


Rewrite = Callable[[dict[str, Any]], None]
PLAIN = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "d", DateType(), required=False))


@pytest.fixture
def plain(catalog: SqlCatalog) -> Table:
    return make_table(catalog, "ns.t", PLAIN)


def column(kind: Any, name: str = "c", **more: Any) -> Rewrite:
    def add(metadata: dict[str, Any]) -> None:
        field = {"id": 50, "name": name, "required": False, "type": kind, **more}
        metadata["schemas"][0]["fields"].append(field)

    return add


def spec_field(**field: Any) -> Rewrite:
    full = {"field-id": 1000, "name": "p", "transform": "bucket[4]", **field}
    return lambda metadata: metadata["partition-specs"][0]["fields"].append(full)


def order_field(**field: Any) -> Rewrite:
    full = {"transform": "identity", "direction": "asc", "null-order": "nulls-first", **field}
    return lambda metadata: metadata["sort-orders"].append({"order-id": 1, "fields": [full]})


def struct(*kinds: Any, first: int = 60) -> dict[str, Any]:
    fields = [{"id": first + at, "name": f"f{at}", "required": False, "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "struct", "fields": fields}


def list_of(kind: Any) -> dict[str, Any]:
    return {"type": "list", "element-id": 70, "element": kind, "element-required": False}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "key-id": 71, "key": key, "value-id": 72, "value": value, "value-required": False}


def with_snapshot(**more: Any) -> Rewrite:
    def add(metadata: dict[str, Any]) -> None:
        made = {"snapshot-id": 5, "timestamp-ms": 1, "manifest-list": "/l", "sequence-number": 1, **more}
        metadata["snapshots"] = [{**made, "first-row-id": 0, "added-rows": 0, "summary": {"operation": "append"}}]

    return add


def as_format_3(table: Table, change: Rewrite) -> str:
    metadata = json.loads(table.metadata.model_dump_json())
    metadata.update({"format-version": 3, "next-row-id": 0})
    change(metadata)
    return json.dumps(metadata)


def old_variant(metadata: dict[str, Any]) -> None:
    old = {"type": "struct", "schema-id": 7, "fields": [{"id": 9, "name": "v", "required": False, "type": "variant"}]}
    metadata["schemas"].append(old)


NANOS = "2026-01-01T00:00:00.000000001"
UNLOADABLE: list[tuple[Rewrite, str, str]] = [
    (column("variant"), "type", "column c has the type variant, which is not handled"),
    (column("geometry(OGC:CRS84)"), "type", "column c has the type geometry(OGC:CRS84), which is not handled"),
    (column("geography(OGC:CRS84, vincenty)"), "type", "column c has the type geography(OGC:CRS84, vincenty)"),
    (column(struct("int", list_of("variant"))), "type", "column c.f1.element has the type variant"),
    (column(map_of("string", struct("variant"))), "type", "column c.value.f0 has the type variant"),
    (old_variant, "type", "column v of schema 7 has the type variant"),
    (spec_field(**{"source-ids": [1, 2]}), "transform", "partition field p of spec 0 has the transform bucket[4] of 2"),
    (
        spec_field(**{"source-id": 1, "source-ids": [1, 2]}),
        "transform",
        "partition field p of spec 0 has the transform",
    ),
    (order_field(**{"source-ids": [1, 2]}), "transform", "field 1 of sort order 1 has the transform identity of 2 col"),
    (lambda one: one.update({"encryption-keys": [{"key-id": "k"}]}), "encryption", "the metadata has encryption-keys"),
    (with_snapshot(**{"key-id": "k"}), "encryption", "snapshot 5 has a key-id"),
    (
        column("timestamp_ns", **{"initial-default": NANOS}),
        "default",
        f"column c has the initial-default '{NANOS}', which can't be read as timestamp_ns",
    ),
    (column("timestamptz_ns", **{"write-default": f"{NANOS}+00:00"}), "default", "column c has the write-default"),
    (column(struct("int"), **{"initial-default": {}}), "default", "initial-default {}, and defaults of a struct are"),
    (column(list_of("int"), **{"initial-default": [1]}), "default", "initial-default [1], and defaults of a list are"),
    (column("date", **{"initial-default": "+10000-01-01"}), "default", "'+10000-01-01', which can't be read as date"),
]


@pytest.mark.parametrize(("change", "reason", "said"), UNLOADABLE)
def test_what_the_model_lacks_is_refused_when_a_table_is_loaded(
    plain: Table, tmp_path: Path, change: Rewrite, reason: str, said: str
) -> None:
    Path(plain.metadata_location.removeprefix("file://")).write_text(as_format_3(plain, change))
    with pytest.raises(TableRefused) as refused:
        load_table(sql_config(tmp_path), TableIdentifier("cat", ("ns",), "t"))
    assert (refused.value.reason, said in refused.value.message) == (reason, True), refused.value.message


def test_a_rest_catalog_s_answer_is_refused_for_the_same(plain: Table) -> None:
    metadata: Any = None

    def answer(path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], str]:
        loaded = {"metadata-location": "/t/metadata/v1.json", "metadata": metadata, "config": {}}
        return 200, {}, json.dumps(loaded if "/tables/" in path else {"defaults": {}, "overrides": {}})

    with http_server(answer) as uri:
        config = CatalogConfig("rest", (("type", "rest"), ("uri", uri)))
        for change, reason, said in UNLOADABLE:
            metadata = json.loads(as_format_3(plain, change))
            with pytest.raises(TableRefused) as refused:
                load_table(config, TableIdentifier("rest", ("ns",), "t"))
            assert (refused.value.reason, said in refused.value.message) == (reason, True), refused.value.message


def test_nothing_is_refused_that_the_model_keeps(plain: Table) -> None:
    for change in (column("string", "variant"), spec_field(**{"source-ids": [1]}), with_snapshot()):
        text = as_format_3(plain, change)
        refuse_lost(text)
        refuse_unmodelled(text)
        assert TableMetadataUtil.parse_raw(text)


@pytest.mark.parametrize("text", ["", "[]", '{"format-version": 3, "source-ids": 1}', '{"encryption-keys": 1}'])
def test_malformed_metadata_is_left_to_whoever_makes_the_model(text: str) -> None:
    refuse_lost(text)
    refuse_unmodelled(text)


def loaded(table: Table, change: Rewrite) -> TableMetadata:
    return TableMetadataUtil.parse_raw(as_format_3(table, change))


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns", "unknown", struct("int", "unknown")])
def test_types_of_format_3_are_handled(plain: Table, kind: Any) -> None:
    refuse_unreadable(loaded(plain, column(kind)))


def only_unknown(metadata: dict[str, Any]) -> None:
    metadata["schemas"][0]["fields"] = [{"id": 1, "name": "id", "required": False, "type": "unknown"}]


def promoted(metadata: dict[str, Any]) -> None:
    """The column `d`, by whose values the table is partitioned, was a date and is a timestamp."""
    spec_field(**{"source-id": 2, "transform": "identity"})(metadata)
    newer = json.loads(json.dumps(metadata["schemas"][0])) | {"schema-id": 1}
    newer["fields"][1]["type"] = "timestamp"
    metadata["schemas"].append(newer)
    metadata["current-schema-id"] = 1


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (column("geometry"), "type", "column c has the type geometry, which is not handled"),
        (column("geography"), "type", "column c has the type geography, which is not handled"),
        (column(struct("unknown")), "type", "column c is a struct of nothing but unknown values, which Parquet"),
        (column(struct(struct("unknown", first=90))), "type", "column c is a struct of nothing but unknown values"),
        (column(list_of("unknown")), "type", "column c is a list of nothing but unknown values"),
        (column(map_of("string", "unknown")), "type", "column c is a map of nothing but unknown values"),
        (only_unknown, "type", "the table has no column that Parquet can hold"),
        (column("int", **{"initial-default": "5"}), "default", "column c has the initial-default '5', which can't be"),
        (column("int", **{"initial-default": 2**31}), "default", "column c has the initial-default 2147483648"),
        (column("decimal(9,2)", **{"initial-default": "1.5"}), "default", "which can't be read as decimal(9, 2)"),
        (promoted, "transform", "partition field p of spec 0 is the value of a column that was promoted from date to"),
    ],
)
def test_what_format_3_has_and_we_have_not_is_refused_by_name(
    plain: Table, change: Rewrite, reason: str, said: str
) -> None:
    with pytest.raises(TableRefused) as refused:
        refuse_unreadable(loaded(plain, change))
    assert (refused.value.reason, said in refused.value.message) == (reason, True), refused.value.message


def test_an_initial_default_in_format_2_is_refused(plain: Table) -> None:
    metadata = changed(plain, column("int", **{"initial-default": 5}))
    with pytest.raises(TableRefused, match="column c has the initial-default 5, which format 2 does not have"):
        refuse_unreadable(metadata)

"""Metadata and manifests that contradict themselves are refused by the word `metadata`, with what contradicts what."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from amoro_core.errors import TableRefused
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.iceberg.contradictions import _flaw, refuse_contradictions
from amoro_core.iceberg.features import refuse_files, refuse_table, refuse_unreadable
from amoro_core.iceberg.metadata import read_locations
from amoro_core.iceberg.scan import scan
from amoro_core.model.files import TableScan
from amoro_core.model.grants import Grant
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, make_catalog, make_table, row_delta

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", LongType(), required=False),
)
SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()
    close_catalogs()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Two data files of one manifest, and an equality delete on them, each snapshot with a number of its own."""
    made = make_table(catalog, "ns.t", SCHEMA, SPEC)
    append(made, [{"id": 1, "p": 1}, {"id": 2, "p": 2}])
    row_delta(made, (), [(["id"], [{"id": 2, "p": 2}], (2,))])
    made.refresh()
    return made


def changed(table: Table, change: Change) -> TableMetadata:
    metadata = json.loads(table.metadata.model_dump_json())
    change(metadata)
    return TableMetadataUtil.parse_raw(json.dumps(metadata))


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


def test_metadata_as_they_are_written_are_not_refused(table: Table) -> None:
    refuse_contradictions(table.metadata)
    assert scanned(table).sequence_number == 2


def rewrite(path: str, change: Change, header: Change = lambda meta: None) -> None:
    """Write the Avro file anew with its records changed, by keys of its header too."""
    place = Path(local_path(path))
    with place.open("rb") as file:
        reader: Any = fastavro.reader(file)
        schema, records = reader.writer_schema, list(reader)
        meta = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    for record in records:
        change(record)
    header(meta)
    with place.open("wb") as file:
        fastavro.writer(file, schema, [one for one in records if one], codec="null", metadata=meta)


def current_list(table: Table) -> str:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.manifest_list


def change_list(table: Table, change: Change, *, deletes: bool = False) -> None:
    """Change what the current list says of the manifests of data, or of deletes."""
    rewrite(current_list(table), lambda one: change(one) if one["content"] == int(deletes) else None)


def change_manifest(table: Table, change: Change, header: Change = lambda meta: None, *, deletes: bool = False) -> str:
    """Change the entries of the manifest of data, or of deletes; its path."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    [path] = [one.manifest_path for one in snapshot.manifests(table.io) if int(one.content) == int(deletes)]
    rewrite(path, change, header)
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


def emptied(record: dict[str, Any]) -> None:
    record.clear()


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


def test_a_data_file_among_deletes_is_refused(table: Table) -> None:
    change_manifest(table, of_file(content=0), deletes=True)
    assert refusal(table).endswith("it is a data file among deletes")


def test_an_entry_without_a_number_that_it_could_inherit_is_refused(table: Table) -> None:
    change_list(table, lambda one: one.update({"added_files_count": 0, "existing_files_count": 2}))
    change_manifest(table, lambda entry: entry.update({"status": 0, "sequence_number": None}))
    assert refusal(table).endswith("lacks its sequence number")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"added_files_count": 3}, "has 2 live files, but its list says 3"),
        ({"added_files_count": 1}, "has 2 live files, but its list says 1"),
        ({"existing_files_count": 1}, "has 2 live files, but its list says 3"),
        ({"partition_spec_id": 9}, "is of partition spec 9, which the table lacks"),
        ({"sequence_number": 3}, r"has the sequence number 3, but that of its snapshot \d+ is 2"),
        ({"content": 1}, "says that it holds data, but its list says deletes"),
    ],
)
def test_a_list_that_contradicts_the_manifest_is_refused(table: Table, change: dict[str, int], message: str) -> None:
    change_list(table, lambda one: one.update(change))
    assert re.search(message, refusal(table))


def test_a_manifest_that_lost_an_entry_is_refused(table: Table) -> None:
    """Carried over by a commit, the entry would be lost for ever."""
    first: list[int] = []
    change_manifest(table, lambda entry: emptied(entry) if not first and not first.append(1) else None)
    assert "has 1 live files, but its list says 2" in refusal(table)


def test_a_manifest_of_another_spec_than_its_list_says_is_refused(table: Table) -> None:
    change_manifest(table, lambda entry: None, lambda meta: meta.update({"partition-spec-id": "4"}))
    assert "says that it is of partition spec 4, but its list says 0" in refusal(table)


def test_partitions_of_another_width_than_the_specs_are_refused(table: Table, catalog: SqlCatalog) -> None:
    plain = make_table(catalog, "ns.plain", SCHEMA)
    append(plain, [{"id": 1}])
    plain.refresh()
    wide = changed(plain, lambda one: one["partition-specs"][0].update(fields=[{**FIELD}]))
    plain.metadata = wide
    assert "has partitions of 0 fields, but partition spec 0 has 1" in refusal(plain)


FIELD = {"source-id": 2, "field-id": 1000, "transform": "identity", "name": "p"}


def test_a_partition_that_has_a_value_of_another_type_is_refused(table: Table) -> None:
    metadata = changed(table, lambda one: one["schemas"][0]["fields"][1].update({"type": "string"}))
    table.metadata = metadata
    said = refusal(table)
    assert said.startswith(f"{table.location()}/data/p=")
    assert " in its partition, which is no string" in said


def test_a_list_that_names_a_manifest_twice_is_refused(table: Table) -> None:
    place = Path(local_path(current_list(table)))
    with place.open("rb") as file:
        reader: Any = fastavro.reader(file)
        schema, records = reader.writer_schema, list(reader)
    with place.open("wb") as file:
        fastavro.writer(file, schema, [*records, records[0]], codec="null")
    assert "twice" in refusal(table)


def test_a_file_that_is_live_twice_is_refused(table: Table) -> None:
    paths: list[str] = []

    def same(entry: dict[str, Any]) -> None:
        paths.append(entry["data_file"]["file_path"])
        entry["data_file"]["file_path"] = paths[0].replace("file:///", "file:/") if len(paths) > 1 else paths[0]

    change_manifest(table, same)
    assert refusal(table).startswith(f"{local_path(paths[0])} is live more than once in snapshot ")

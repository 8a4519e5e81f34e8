"""The gate before tables of other formats: the marks are those that Amoro, Delta Lake, XTable and Paimon write."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, FloatType, ListType, LongType, NestedField, StringType, StructType

from amoro_core.errors import TableRefused
from amoro_core.iceberg.catalog.catalogs import load_table
from amoro_core.iceberg.manifest.reading import Manifest, read_manifest
from amoro_core.iceberg.metadata import context, equality_ids, read_locations
from amoro_core.iceberg.scan import scan
from amoro_core.iceberg.table_support import (
    refuse_files,
    refuse_foreign_files,
    refuse_table,
    refuse_unreadable,
    unpublished_branch,
)
from amoro_core.model.location_policy import Grant
from amoro_core.model.tables import TableIdentifier
from amoro_core.scan.columns import FEW, Paths
from tests.engine.builders import SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files, write_equality_deletes
from tests.engine.writer import append, create_branch, create_tag, make_table, rollback
from tests.iceberg.rewriting import scanned
from tests.iceberg.scenarios import change_metadata, changed, sql_config

PLAIN = "file:///w/db.db/t/data/00000-0-11111111-1111-4111-8111-111111111111-00001.parquet"
NUMBERS = "file:///w/db.db/t/data/00000-1-11111111-1-1-00001.parquet"  # the digits of a UUID are digits, too
Rewrite = Callable[[dict[str, Any]], None]
INSERTED = "file:///w/t/data/4-I-7-00000-0-1234567890123456789-00001.parquet"
DELETED = "file:///w/t/data/.5-ED-7-00000-0-1234567890123456789-00002.avro"


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = make_table(catalog, "db.t", SCHEMA)
    append(made, [row(1)])
    append(made, [row(2)])
    return made.refresh()


def with_properties(table: Table, properties: dict[str, str]) -> TableMetadata:
    return changed(table, lambda metadata: metadata["properties"].update(properties))


def refusal(metadata: TableMetadata) -> tuple[str, str]:
    with pytest.raises(TableRefused) as refused:
        refuse_table(metadata)
    return refused.value.reason, refused.value.message


COPY = "the table's Iceberg metadata is a copy that {} makes over its own files: it has the property {}=7"
LOCATION_PROVIDER = "write.py-location-provider.impl"


def not_iceberg(said: str, properties: dict[str, str]) -> tuple[dict[str, str], str, str]:
    return properties, "format", f"the table is not a plain Iceberg table: it is a {said}"


def malformed(key: str, value: str, problem: str = "…") -> tuple[dict[str, str], str, str]:
    return {key: value}, "configuration", f"property {key} has the malformed value {value!r}: {problem}"


@pytest.mark.parametrize(
    ("properties", "reason", "message"),
    [
        not_iceberg(
            "table of Amoro's Mixed-Iceberg format: table-format=MIXED_ICEBERG, its change store"
            " (mixed-format.table-store=change)",
            {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "change"},
        ),
        not_iceberg(
            "table of Amoro's Mixed-Iceberg format: table-format=MIXED_ICEBERG",
            {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "base"},
        ),
        not_iceberg("table of Amoro's Mixed-Hive format: table-format=mixed-hive", {"table-format": "mixed-hive"}),
        not_iceberg("Paimon table: table-format=PAIMON", {"table-format": "PAIMON"}),
        not_iceberg(
            "base store of Amoro's Mixed format: mixed-format.table-store=Base", {"mixed-format.table-store": "Base"}
        ),
        not_iceberg("table of Amoro's Mixed-Hive format: arctic.enabled=True", {"arctic.enabled": "True"}),
        *(
            ({key: "7"}, "format", COPY.format(owner, key))
            for key, owner in (
                ("delta-version", "Delta Lake (UniForm)"),
                ("delta-timestamp", "Delta Lake (UniForm)"),
                ("base-delta-version", "Delta Lake (UniForm)"),
                ("delta.universalFormat.enabledFormats", "Delta Lake (UniForm)"),
                ("XTABLE_METADATA", "Apache XTable"),
                ("XTABLE_LAST_INSTANT_SYNCED", "Apache XTable"),
                ("ONETABLE_LAST_INSTANT_SYNCED", "Apache XTable"),
                ("metadata.iceberg.storage", "Paimon"),
            )
        ),
        (
            {LOCATION_PROVIDER: "their.Provider"},
            "foreign-code",
            f"the table's property {LOCATION_PROVIDER} names their.Provider, which is not imported",
        ),
        (
            {"write.format.default": "ORC"},
            "format",
            "the table property write.format.default is 'ORC', and only Parquet is written",
        ),
        # What pyiceberg reads in the middle of a commit.
        malformed("write.object-storage.enabled", "../x"),
        malformed("write.object-storage.partitioned-paths", " true"),
        malformed("write.metadata.delete-after-commit.enabled", ""),
        malformed("write.metadata.previous-versions-max", "many"),
        malformed("write.parquet.compression-level", "high", "expected a whole number"),
        malformed("write.metadata.metrics.default", "short", "expected none, counts, full or truncate(n)"),
    ],
)
def test_a_property_refuses_the_table_and_leaves_it_readable(
    table: Table, properties: dict[str, str], reason: str, message: str
) -> None:
    metadata = with_properties(table, properties)
    found, said = refusal(metadata)
    begin = message.removesuffix("…")
    assert (found, said[: len(begin)] if message != begin else said) == (reason, begin)
    refuse_unreadable(metadata)


@pytest.mark.parametrize(("key", "owner"), [("XTABLE_METADATA", "Apache XTable"), ("paimon-commit-identity", "Paimon")])
@pytest.mark.parametrize("number", [0, 1])
def test_a_copy_is_known_by_the_summary_of_any_snapshot(table: Table, key: str, owner: str, number: int) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["snapshots"][number]["summary"][key] = "{}"

    snapshot_id = table.metadata.snapshots[number].snapshot_id
    assert refusal(changed(table, change)) == (
        "format",
        f"the table's Iceberg metadata is a copy that {owner} makes over its own files:"
        f" snapshot {snapshot_id} is as {owner} writes it",
    )


def numbered(name: str) -> Rewrite:
    """Make the last snapshot as Paimon numbers it: its id is its sequence number."""

    def change(metadata: dict[str, Any]) -> None:
        last = metadata["snapshots"][-1]
        last["snapshot-id"] = metadata["current-snapshot-id"] = last["sequence-number"]
        metadata["refs"]["main"]["snapshot-id"] = last["snapshot-id"]
        last["manifest-list"] = f"file:///w/db.db/t/metadata/{name}"

    return change


def test_a_copy_of_paimons_first_versions_is_known_by_its_numbers_and_lists(table: Table) -> None:
    """Until 1.x their metadata has no properties and its summaries name the operation alone."""
    paimon = changed(table, numbered("snap-3-0a1b2c3d-1111-4111-8111-111111111111.avro"))
    assert refusal(paimon)[1].endswith("snapshot 2 is as Paimon writes it")


def test_small_numbers_alone_make_no_copy(table: Table) -> None:
    refuse_table(changed(table, numbered("snap-2-0-0a1b2c3d-1111-4111-8111-111111111111.avro")))


@pytest.mark.parametrize(
    "properties",
    [
        {"table-format": "ICEBERG"},
        {"arctic.enabled": "false"},
        {"mixed-format.primary-key-fields": "id"},
        {"delta": "1", "xtable": "2", "delta-version.note": "3"},
    ],
)
def test_an_iceberg_table_that_has_such_words_is_not_refused(table: Table, properties: dict[str, str]) -> None:
    refuse_table(with_properties(table, properties))


def of(paths: list[str]) -> Paths:
    return Paths(pa.array(paths, pa.string()))


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        ([INSERTED], 1),
        ([INSERTED, PLAIN], 1),
        ([DELETED, INSERTED, PLAIN, PLAIN], 2),
        ([], 0),
        ([PLAIN], 0),
        ([NUMBERS], 0),
        ([INSERTED, PLAIN, PLAIN], 0),
        ([INSERTED + "/" + PLAIN], 0),
        *(
            ([name] * count, count * is_mixed)
            for count in (1, FEW + 1)
            for name, is_mixed in (
                ("3-B-0-00012-34-00001.parquet", True),
                (".3-IED-0-1-2-", True),
                ("/w/t/data/3-PD-0-1-2-x.parquet", True),
                ("/w/3-B-0-1-2-x/00000-0.parquet", False),
                ("/w/t/data/x3-B-0-1-2-x.parquet", False),
                ("/w/t/data/3-X-0-1-2-x.parquet", False),
                ("/w/t/data/3-B-0-1-2", False),
                ("/w/t/data/3-B-0-1-2-x\ny", False),
                ("/w/t/data/\u0663-B-0-1-2-x.parquet", False),
            )
        ),
    ],
)
def test_a_store_without_properties_is_refused_when_half_of_its_files_are_named_as_such(
    paths: list[str], named: int
) -> None:
    files = [of(paths[:1]), of(paths[1:])]
    if not named:
        refuse_foreign_files(files)
        return
    with pytest.raises(TableRefused) as refused:
        refuse_foreign_files(files)
    assert (refused.value.reason, refused.value.message) == (
        "format",
        f"{named} of {len(paths)} data files are named as those of Amoro's Mixed format, such as {paths[0]}",
    )


NAMES = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "inner", StructType(NestedField(4, "key", LongType(), required=False)), required=False),
    NestedField(5, "tags", ListType(6, StringType(), element_required=False), required=False),
)


@pytest.fixture
def named(catalog: SqlCatalog) -> Table:
    made = make_table(catalog, "ns.t", NAMES)
    ids = [made.schema().find_field(name).field_id for name in ("id", "name", "inner.key", "tags.element")]
    assert ids == [1, 2, 5, 6]
    return made


def files_refusal(table: Table) -> tuple[str, str]:
    found = scanned(table)
    with pytest.raises(TableRefused) as refused:
        refuse_files(table.metadata, found)
    return refused.value.reason, refused.value.message


def with_columns(**kinds: Any) -> Rewrite:
    def add_columns(metadata: dict[str, Any]) -> None:
        for number, (name, kind) in enumerate(kinds.items(), start=50):
            metadata["schemas"][0]["fields"].append({"id": number, "name": name, "required": False, "type": kind})

    return add_columns


def with_type(kind: str) -> Rewrite:
    return lambda metadata: metadata["schemas"][0]["fields"][1].update({"type": kind})


ZORDER = {"source-id": 1, "field-id": 1000, "transform": "zorder[7]", "name": "curve"}


@pytest.mark.parametrize(
    ("change", "reason", "problem"),
    [
        (with_columns(**{"a b": "long", "a_x20b": "long"}), "names", "multiple fields for name a_x20b"),
        (with_columns(**{"": "long"}), "names", "empty"),
        (with_columns(s={"type": "struct", "fields": []}), "type", "column s is a struct without fields"),
        (with_type("timestamp_ns"), "type", "column name has the type timestamp_ns, which is not handled"),
        (with_type("timestamptz_ns"), "type", "column name has the type timestamptz_ns, which is not handled"),
        (with_type("unknown"), "type", "column name has the type unknown, which is not handled"),
        (
            lambda metadata: metadata["properties"].update({"encryption.key-id": "k"}),
            "encryption",
            "the table is encrypted: it has the property encryption.key-id",
        ),
        (
            lambda metadata: metadata["partition-specs"][0].update({"fields": [ZORDER]}),
            "transform",
            "partition field curve of spec 0 has the unknown transform zorder[7]",
        ),
    ],
)
def test_what_is_not_handled_is_refused_by_name(named: Table, change: Rewrite, reason: str, problem: str) -> None:
    found, message = refusal(changed(named, change))
    assert (found, problem in message) == (reason, True), message


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        (lambda metadata: metadata.update({"format-version": 4}), "format-version", "format version 4 is not handled"),
        (lambda metadata: metadata["schemas"][0]["fields"][0].update({"type": "quaternion"}), "metadata", "quaternion"),
    ],
)
def test_what_pyiceberg_does_not_know_is_refused_when_it_is_loaded(
    named: Table, tmp_path: Path, change: Rewrite, reason: str, message: str
) -> None:
    change_metadata(named, change)
    with pytest.raises(TableRefused, match=message) as refused:
        load_table(sql_config(tmp_path), TableIdentifier("cat", ("ns",), "t"))
    assert refused.value.reason == reason


def add(table: Table, *files: DataFile) -> None:
    commit(table, lambda head: Change(files), "main")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"referenced_data_file": None}, "the deletion vector in {path} lacks referenced_data_file"),
        ({"content_offset": None}, "the deletion vector in {path} lacks content_offset"),
        ({"content_size_in_bytes": None}, "the deletion vector in {path} lacks content_size_in_bytes"),
        (
            {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1]},
            "{path} is a Puffin file, but no deletion",
        ),
        ({}, "{path} is a deletion vector, which a table of format 2 can't have"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, dict) else "",
)
def test_a_deletion_vector_that_can_not_be_one_is_refused_by_its_path(
    named: Table, changed: dict[str, object], said: str
) -> None:
    add(named, *write_data_files(named, [{"id": 1}]))
    [delete] = write_equality_deletes(named, [1], [{"id": 1}], (), 0)
    add(named, delete)
    told = {"referenced_data_file": "/t/d.parquet", "content_offset": 4, "content_size_in_bytes": 40}
    kind = {"content": DataFileContent.POSITION_DELETES, "file_format": FileFormat.PUFFIN, "equality_ids": None}
    every = {**told, **kind, **changed}

    def read(io: FileIO, listed: ManifestFile) -> Manifest:
        manifest = read_manifest(io, listed)
        for entry in manifest.entries if listed.content == ManifestContent.DELETES else ():
            for at, field in enumerate(DATA_FILE_TYPE[3].fields):
                if field.name in every:
                    entry.data_file[at] = every[field.name]
        return manifest

    with pytest.raises(TableRefused, match=said.format(path=delete.file_path)) as refused:
        scan(named, read_locations(named.metadata, Grant((named.metadata.location,))), read)
    assert refused.value.reason == "deletion-vector"


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        (None, "names no columns"),
        ([99], "names field 99, which no schema of the table has"),
        ([1, 6], "names field 6 (element), which lies within a list or a map"),
        ([3], "names field 3 (inner), which is not a primitive column"),
    ],
)
def test_equality_ids_that_mean_nothing_are_refused(named: Table, ids: list[int] | None, problem: str) -> None:
    add(named, *write_data_files(named, [{"id": 1}]))
    [delete] = write_equality_deletes(named, [1], [{"id": 1}], (), 0)
    delete[14] = ids
    add(named, delete)
    assert files_refusal(named) == ("equality-ids", f"equality delete {delete.file_path} {problem}")


def test_equality_ids_of_nested_and_of_dropped_columns_are_handled(named: Table) -> None:
    add(named, *write_data_files(named, [{"id": 1, "name": "a"}]))
    add(named, *write_equality_deletes(named, [2, 5], [{"name": "b", "inner": {"key": 1}}], (), 0))
    with named.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("name")
        change.add_column(("inner", "other"), LongType())
        change.delete_column(("inner", "key"))
    found = scanned(named)
    refuse_files(named.metadata, found)
    assert found.files[0].deletes[0].equality_ids == (2, 5)
    about = context(named, TableIdentifier("c", ("ns",), "t"), 0, equality_ids(found), ())
    fields = [NestedField.model_validate_json(dropped) for dropped in about.dropped_fields_json]
    assert sorted((one.field_id, one.name, str(one.field_type)) for one in fields) == [
        (2, "name", "string"),
        (3, "inner", "struct<5: key: optional long>"),
    ]


def test_a_delete_by_a_float_that_applies_to_nothing_is_no_reason_to_refuse(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.m", MEASURED)
    add(table, *write_equality_deletes(table, [2], [{"short": math.nan}], (), 0))
    add(table, *write_data_files(table, [{"id": 1}]))
    found = scanned(table)
    assert len(found.dangling) == 1
    refuse_files(table.metadata, found)


MEASURED = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "short", FloatType(), required=False),
    NestedField(3, "inner", StructType(NestedField(4, "ratio", DoubleType(), required=False)), required=False),
)


@pytest.mark.parametrize(
    ("ids", "row", "column"),
    [
        ([2], {"short": 1.5}, "short of the type float"),
        ([1, 2], {"id": 1, "short": math.nan}, "short of the type float"),
        ([4], {"inner": {"ratio": math.nan}}, "inner.ratio of the type double"),
    ],
)
@pytest.mark.parametrize("dropped", [False, True])
def test_a_delete_by_a_float_or_a_double_is_refused_where_it_applies(
    catalog: SqlCatalog, ids: list[int], row: dict[str, Any], column: str, dropped: bool
) -> None:
    table = make_table(catalog, "ns.m", MEASURED)
    assert table.schema().find_field("inner.ratio").field_id == 4
    add(table, *write_data_files(table, [{"id": 1}]))
    [delete] = write_equality_deletes(table, ids, [row], (), 0)
    add(table, delete)
    if dropped:
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.add_column(("inner", "other"), LongType())
            change.delete_column("short" if 2 in ids else ("inner", "ratio"))
    assert files_refusal(table) == (
        "equality-ids",
        f"equality delete {delete.file_path} compares column {column}, which Iceberg forbids in keys:"
        " readers disagree about what it deletes",
    )


def back(table: Table) -> None:
    """A tag is ahead of main, and no branch."""
    append(table, [{"id": 3}])
    create_tag(table, "later")
    rollback(table, table.metadata.snapshots[0].snapshot_id)
    table.manage_snapshots().remove_branch("audit").commit()


@pytest.mark.parametrize(
    ("wap", "change", "reason"),
    [
        ("true", None, "write-audit-publish: branch audit is ahead of main and waits to be published"),
        (None, None, None),
        ("false", None, None),
        ("true", lambda table: rollback(table, table.metadata.refs["audit"].snapshot_id), None),  # it was published
        ("true", lambda table: append(table, [{"id": 3}]), None),  # main has left it behind
        ("true", back, None),
    ],
)
def test_a_branch_ahead_of_main_under_write_audit_publish_leaves_the_table_alone(
    catalog: SqlCatalog, wap: str | None, change: Callable[[Table], object] | None, reason: str | None
) -> None:
    table = make_table(catalog, "ns.w", NAMES, properties={} if wap is None else {"write.wap.enabled": wap})
    assert unpublished_branch(table.metadata) is None
    append(table, [{"id": 1}])
    create_branch(table, "audit")
    append(table, [{"id": 2}], branch="audit")
    if change is not None:
        change(table)
    assert unpublished_branch(table.refresh().metadata) == reason

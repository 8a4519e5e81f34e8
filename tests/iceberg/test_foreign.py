"""The gate before tables of other formats: the marks are those that Amoro, Delta Lake, XTable and Paimon write."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from amoro_core.errors import TableRefused
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.iceberg.features import refuse_table, refuse_unreadable
from amoro_core.iceberg.foreign import refuse_foreign_files
from amoro_core.live.spelling import FEW, Paths
from tests.engine.builders import SCHEMA, row
from tests.engine.writer import append, make_catalog, make_table

PLAIN = "file:///w/db.db/t/data/00000-0-11111111-1111-4111-8111-111111111111-00001.parquet"
NUMBERS = "file:///w/db.db/t/data/00000-1-11111111-1-1-00001.parquet"  # the digits of a UUID are digits, too
INSERTED = "file:///w/t/data/4-I-7-00000-0-1234567890123456789-00001.parquet"
DELETED = "file:///w/t/data/.5-ED-7-00000-0-1234567890123456789-00002.avro"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog: SqlCatalog = make_catalog(tmp_path)
    made = make_table(catalog, "db.t", SCHEMA)
    append(made, [row(1)])
    append(made, [row(2)])
    yield made.refresh()
    catalog.close()
    close_catalogs()


def changed(table: Table, change: Callable[[dict[str, Any]], None]) -> TableMetadata:
    metadata = json.loads(table.metadata.model_dump_json())
    change(metadata)
    return TableMetadataUtil.parse_raw(json.dumps(metadata))


def with_properties(table: Table, properties: dict[str, str]) -> TableMetadata:
    return changed(table, lambda metadata: metadata["properties"].update(properties))


def refusal(metadata: TableMetadata) -> tuple[str, str]:
    with pytest.raises(TableRefused) as refused:
        refuse_table(metadata)
    refuse_unreadable(metadata)  # looking stays
    return refused.value.reason, refused.value.message


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "change"},
            "it is a table of Amoro's Mixed-Iceberg format: table-format=MIXED_ICEBERG, its change store"
            " (mixed-format.table-store=change)",
        ),
        (
            {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "base"},
            "it is a table of Amoro's Mixed-Iceberg format: table-format=MIXED_ICEBERG",
        ),
        (
            {"table-format": "mixed-hive"},
            "it is a table of Amoro's Mixed-Hive format: table-format=mixed-hive",
        ),
        ({"table-format": "PAIMON"}, "it is a Paimon table: table-format=PAIMON"),
        (
            {"mixed-format.table-store": "Base"},
            "it is a base store of Amoro's Mixed format: mixed-format.table-store=Base",
        ),
        (
            {"arctic.enabled": "True"},
            "it is a table of Amoro's Mixed-Hive format: arctic.enabled=True",
        ),
    ],
)
def test_a_store_of_the_mixed_format_is_refused_by_its_properties(
    table: Table, properties: dict[str, str], message: str
) -> None:
    assert refusal(with_properties(table, properties)) == (
        "format",
        f"the table is not a plain Iceberg table: {message}",
    )


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("delta-version", "Delta Lake (UniForm)"),
        ("delta-timestamp", "Delta Lake (UniForm)"),
        ("base-delta-version", "Delta Lake (UniForm)"),
        ("delta.universalFormat.enabledFormats", "Delta Lake (UniForm)"),
        ("XTABLE_METADATA", "Apache XTable"),
        ("XTABLE_LAST_INSTANT_SYNCED", "Apache XTable"),
        ("ONETABLE_LAST_INSTANT_SYNCED", "Apache XTable"),
        ("metadata.iceberg.storage", "Paimon"),
    ],
)
def test_metadata_that_another_format_makes_over_its_files_is_refused_by_its_properties(
    table: Table, key: str, owner: str
) -> None:
    assert refusal(with_properties(table, {key: "7"})) == (
        "format",
        f"the table's Iceberg metadata is a copy that {owner} makes over its own files: it has the property {key}=7",
    )


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


def numbered(name: str) -> Callable[[dict[str, Any]], None]:
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


@pytest.mark.parametrize("paths", [[INSERTED], [INSERTED, PLAIN], [DELETED, INSERTED, PLAIN, PLAIN]])
def test_a_store_without_properties_is_refused_when_half_of_its_files_are_named_as_such(paths: list[str]) -> None:
    with pytest.raises(TableRefused) as refused:
        refuse_foreign_files([of(paths[:1]), of(paths[1:])])
    named = len([path for path in paths if path != PLAIN])
    assert (refused.value.reason, refused.value.message) == (
        "format",
        f"{named} of {len(paths)} data files are named as those of Amoro's Mixed format, such as {paths[0]}",
    )


@pytest.mark.parametrize("paths", [[], [PLAIN], [NUMBERS], [INSERTED, PLAIN, PLAIN], [INSERTED + "/" + PLAIN]])
def test_other_names_are_not_refused(paths: list[str]) -> None:
    refuse_foreign_files([of(paths[:1]), of(paths[1:])])


@pytest.mark.parametrize("count", [1, FEW + 1])
@pytest.mark.parametrize(
    ("name", "is_mixed"),
    [
        ("3-B-0-00012-34-00001.parquet", True),
        (".3-IED-0-1-2-", True),
        ("/w/t/data/3-PD-0-1-2-x.parquet", True),
        ("/w/3-B-0-1-2-x/00000-0.parquet", False),
        ("/w/t/data/x3-B-0-1-2-x.parquet", False),
        ("/w/t/data/3-X-0-1-2-x.parquet", False),
        ("/w/t/data/3-B-0-1-2", False),
        ("/w/t/data/3-B-0-1-2-x\ny", False),
        ("/w/t/data/\u0663-B-0-1-2-x.parquet", False),
    ],
)
def test_a_name_is_one_of_a_mixed_table_among_few_and_among_many(name: str, is_mixed: bool, count: int) -> None:
    files = [of([name] * count)]
    if not is_mixed:
        refuse_foreign_files(files)
        return
    with pytest.raises(TableRefused) as refused:
        refuse_foreign_files(files)
    assert refused.value.message == (
        f"{count} of {count} data files are named as those of Amoro's Mixed format, such as {name}"
    )

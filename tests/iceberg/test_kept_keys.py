"""Where the client writes the metadata file, a key that pyiceberg's model drops is refused by name, in every format."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from amoro_core.errors import CommitRefused, TableRefused
from amoro_core.iceberg import commit
from amoro_core.iceberg.catalogs import close_catalogs, load_table
from amoro_core.iceberg.kept_keys import keys_kept, lost_key
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.iceberg.rewriting import loaded, rewritten, staged

Change = Callable[[dict[str, Any]], None]
TABLE = TableIdentifier("cat", ("db",), "t")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = writer.make_catalog(tmp_path)
    yield made
    made.close()
    close_catalogs()


@pytest.fixture(params=[1, 2, 3])
def table(catalog: SqlCatalog, request: pytest.FixtureRequest) -> Table:
    made = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, request.param)
    writer.append(made, [row(1)])
    writer.append(made, [row(2)])
    change(made, with_statistics)
    return made


def config(tmp_path: Path) -> CatalogConfig:
    uri, warehouse = f"sqlite:///{tmp_path / 'catalog.db'}", (tmp_path / "warehouse").as_uri()
    return CatalogConfig("cat", (("type", "sql"), ("uri", uri), ("warehouse", warehouse)))


def file_of(table: Table) -> Path:
    return Path(local_path(loaded(table).metadata_location))


def change(table: Table, by: Change) -> None:
    said = json.loads(file_of(table).read_text())
    by(said)
    file_of(table).write_text(json.dumps(said))


def with_statistics(said: dict[str, Any]) -> None:
    blob = {
        "type": "apache-datasketches-theta-v1",
        "snapshot-id": 1,
        "sequence-number": 1,
        "fields": [1],
        "properties": {"any": "thing"},
    }
    sizes = {"snapshot-id": 1, "statistics-path": "/s", "file-size-in-bytes": 1}
    said["statistics"] = [{**sizes, "file-footer-size-in-bytes": 1, "blob-metadata": [blob]}]
    said["partition-statistics"] = [sizes]
    said["sort-orders"].append(
        {
            "order-id": 1,
            "fields": [{"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}],
        }
    )


def at(*path: Any) -> Change:
    """Puts an unknown key into what the path leads to."""

    def add(said: dict[str, Any]) -> None:
        for one in path:
            said = said[one]
        said["of-tomorrow"] = {"a": 1}

    return add


PLACES: list[tuple[Any, ...]] = [
    (),
    ("snapshots", 1),
    ("snapshot-log", 0),
    ("metadata-log", 0),
    ("refs", "main"),
    ("schemas", 0),
    ("schemas", 0, "fields", 2),
    ("partition-specs", 0),
    ("partition-specs", 0, "fields", 0),
    ("sort-orders", 1),
    ("sort-orders", 1, "fields", 0),
    ("statistics", 0),
    ("statistics", 0, "blob-metadata", 0),
    ("partition-statistics", 0),
]


@pytest.mark.parametrize("table", [2], indirect=True)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)) or "top")
def test_an_unknown_key_at_any_place_is_named(table: Table, tmp_path: Path, place: tuple[Any, ...]) -> None:
    change(table, at(*place))
    with pytest.raises(TableRefused) as refused:
        load_table(config(tmp_path), TABLE)
    path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in (*place, "of-tomorrow")).removeprefix(
        "."
    )
    assert (refused.value.reason, f"has the key {path}, which would be lost" in refused.value.message) == (
        "metadata",
        True,
    ), refused.value.message


def test_in_every_format_an_unknown_key_is_refused_and_known_ones_are_not(table: Table, tmp_path: Path) -> None:
    assert load_table(config(tmp_path), TABLE).metadata == loaded(table).metadata
    change(table, at("snapshots", 0))
    with pytest.raises(TableRefused, match=r"the key snapshots\[0\]\.of-tomorrow"):
        load_table(config(tmp_path), TABLE)


def test_a_key_of_a_later_format_is_refused_in_an_earlier_one(table: Table, tmp_path: Path) -> None:
    version = table.metadata.format_version
    change(table, lambda said: said.update({"next-row-id": 4}))
    if version == 3:
        load_table(config(tmp_path), TABLE)
        return
    with pytest.raises(TableRefused, match="the key next-row-id"):
        load_table(config(tmp_path), TABLE)


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_key_that_comes_between_staging_and_sending_is_not_lost(table: Table) -> None:
    fresh, attempt = staged(table, rewritten(table))
    change(table, at())
    before = file_of(table).read_bytes()
    with pytest.raises(CommitRefused, match="the key of-tomorrow, which would be lost"):
        commit.send(table.catalog, fresh, attempt.payload)
    assert file_of(table).read_bytes() == before


def _made(table: Table, by: Change = lambda said: None) -> str | None:
    said = json.loads(file_of(table).read_text())
    by(said)
    text = json.dumps(said)
    return lost_key(text, TableMetadataUtil.parse_raw(text))


@pytest.mark.parametrize("table", [2], indirect=True)
@pytest.mark.parametrize(
    "by",
    [
        lambda said: said.update({"of-tomorrow": None}),
        lambda said: said["snapshots"][0].update({"key-id": None}),
        lambda said: said.update({"schema": said["schemas"][0], "partition-spec": []}),
        lambda said: said["properties"].update({"any": "thing"}),
        lambda said: said["snapshots"][0]["summary"].update({"any": "thing"}),
        lambda said: said["schemas"][0].update({"identifier-field-ids": []}),
    ],
)
def test_what_is_null_or_kept_is_not_lost(table: Table, by: Change) -> None:
    assert _made(table, by) is None


@pytest.mark.parametrize("table", [2], indirect=True)
def test_no_current_snapshot_may_be_written_as_minus_one(table: Table) -> None:
    def emptied(said: dict[str, Any]) -> None:
        said.update({"current-snapshot-id": -1, "snapshots": [], "snapshot-log": [], "refs": {}})

    assert _made(table, emptied) is None


def test_columns_of_every_shape_lose_nothing(catalog: SqlCatalog) -> None:
    inner = StructType(
        NestedField(20, "a", DecimalType(9, 2), required=True, doc="said"), NestedField(21, "b", FixedType(4))
    )
    schema = Schema(
        NestedField(1, "l", ListType(10, inner, element_required=False), required=False),
        NestedField(2, "m", MapType(11, StringType(), 12, ListType(13, DoubleType())), required=False),
        NestedField(3, "t", TimestamptzType(), required=True, doc="when"),
        NestedField(4, "k", LongType(), required=True),
        identifier_field_ids=[4],
    )
    table = writer.make_table(catalog, "db.t", schema)
    assert _made(table) is None
    text = file_of(table).read_text().replace('"doc":"said"', '"doc":"said","collation":"x"')
    assert lost_key(text, TableMetadataUtil.parse_raw(text)) == "schemas[0].fields[0].type.element.fields[0].collation"


@pytest.mark.parametrize("table", [2], indirect=True)
def test_only_where_the_client_writes_the_metadata_is_it_refused(table: Table) -> None:
    change(table, at())
    text = file_of(table).read_text()
    others: Catalog = NoopCatalog("rest")
    with keys_kept(others):
        assert TableMetadataUtil.parse_raw(text).table_uuid == table.metadata.table_uuid
    with keys_kept(table.catalog), pytest.raises(TableRefused):
        TableMetadataUtil.parse_raw(text)
    assert TableMetadataUtil.parse_raw(text).table_uuid == table.metadata.table_uuid


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_text_of_the_length_of_one_that_lost_nothing_is_compared(table: Table) -> None:
    text = file_of(table).read_text()
    with keys_kept(table.catalog):
        for _ in range(2):
            assert TableMetadataUtil.parse_raw(text).table_uuid == table.metadata.table_uuid
        with pytest.raises(TableRefused, match="the key partition-tomorrowed,"):
            TableMetadataUtil.parse_raw(text.replace("partition-statistics", "partition-tomorrowed"))

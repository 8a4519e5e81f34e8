"""What a table says of its own places is not believed: foreign folders are neither read nor written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from sqlalchemy import text

from amoro_core.errors import CommitRefused, DataFileMissing, TableRefused, UnreadableFile
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.model.clustering import METADATA_KEY, Layout, LayoutKey, Strategy, layout_text
from amoro_core.model.commits import CommitContent, SnapshotAdded, Trace
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine.writer import append, make_table
from tests.iceberg.rewriting import current
from tests.iceberg.scenarios import change_metadata, sql_config

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.fixture
def config(tmp_path: Path, catalog: SqlCatalog) -> CatalogConfig:
    return sql_config(tmp_path)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = make_table(catalog, "ns.t", SCHEMA)
    append(made, [{"id": 1}, {"id": 2}], 2)
    return made


def opened(config: CatalogConfig) -> IcebergTable:
    return IcebergFormat().load(config, TableIdentifier("cat", ("ns",), "t"))


def refusal(call: Callable[[], object]) -> TableRefused:
    with pytest.raises(TableRefused) as error:
        call()
    assert error.value.reason == "location"
    return error.value


def test_places_outside_of_the_warehouse_are_refused_with_the_way_out(
    config: CatalogConfig, table: Table, tmp_path: Path
) -> None:
    foreign, within = (tmp_path / "foreign").as_uri(), (tmp_path / "warehouse/apart").as_uri()
    for location in ("warehouse/ns/t", "", "ftp://host/t", "file://host/t"):
        change_metadata(table, lambda metadata, place=location: metadata.update({"location": place}))
        assert "is not a location: " in refusal(lambda: opened(config).refuse_unsupported()).message
    change_metadata(table, lambda metadata: metadata.update({"location": foreign}))
    error = refusal(lambda: opened(config).refuse_unsupported())
    assert error.message == (
        f"files of the table would be written to {foreign}, outside the locations allowed for its catalog"
    )
    assert error.hint == "An administrator can allow a prefix: amoro catalog update cat --allow-location PREFIX"
    opened(replace(config, allowed_locations=(foreign,))).refuse_unsupported()
    change_metadata(table, lambda metadata: metadata.update({"location": table.location()}))
    for key in ("write.data.path", "write.metadata.path", "write.folder-storage.path"):
        change_metadata(table, lambda metadata, key=key: metadata.update({"properties": {key: foreign}}))
        assert foreign in refusal(lambda: opened(config).refuse_unsupported()).message
        change_metadata(table, lambda metadata, key=key: metadata.update({"properties": {key: within}}))
        opened(config).refuse_unsupported()


def test_foreign_rows_are_not_copied_by_a_table_that_names_their_folder_as_its_own(
    config: CatalogConfig, table: Table, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """The location is the foreign folder, what is written goes to the table's real one: both once were believed."""
    foreign = tmp_path / "foreign/data"
    foreign.mkdir(parents=True)
    own = Path(table.location().removeprefix("file://"))
    [stolen, *_] = sorted((own / "data").iterdir())
    os.link(stolen, foreign / stolen.name)
    change_metadata(
        table,
        lambda metadata: metadata.update(
            {
                "location": foreign.parent.as_uri(),
                "properties": {"write.data.path": f"{own.as_uri()}/data", "write.metadata.path": f"{own.as_uri()}/m"},
            }
        ),
    )
    refusal(lambda: opened(config).refuse_unsupported())
    assert opened(config).context(0).read_locations == ((tmp_path / "warehouse").as_uri(),)
    refusal(lambda: opened(config).access().read_bytes(str(foreign / stolen.name)))


def test_links_to_foreign_files_and_folders_are_refused_before_anything_is_read(
    config: CatalogConfig, table: Table, tmp_path: Path
) -> None:
    found = opened(config)
    data = Path(table.location().removeprefix("file://")) / "data"
    data.rename(tmp_path / "foreign")
    data.symlink_to(tmp_path / "foreign")
    assert f"links lead to {tmp_path}/foreign" in refusal(lambda: opened(config).scan()).message
    allowed = opened(replace(config, allowed_locations=((tmp_path / "foreign").as_uri(),)))
    assert allowed.scan() is not None
    snapshot = current(table)
    manifest = Path(snapshot.manifests(table.io)[0].manifest_path.removeprefix("file://"))
    manifest.rename(tmp_path / "elsewhere.avro")
    manifest.symlink_to(tmp_path / "elsewhere.avro")
    assert "elsewhere.avro" in refusal(found.scan).message


def test_a_metadata_file_outside_of_the_warehouse_is_not_read(
    config: CatalogConfig, table: Table, catalog: SqlCatalog, tmp_path: Path
) -> None:
    (tmp_path / "secret.json").write_text("secret")
    with catalog.engine.begin() as connection:
        connection.execute(
            text("UPDATE iceberg_tables SET metadata_location = :place WHERE table_name = 't'"),
            {"place": (tmp_path / "secret.json").as_uri()},
        )
    error = refusal(lambda: opened(config))
    assert "secret.json" in error.message
    assert error.hint


def test_without_a_known_warehouse_the_message_names_the_ways_out(config: CatalogConfig, table: Table) -> None:
    properties = tuple(pair for pair in config.properties if pair[0] != "warehouse")
    theirs = replace(config, properties=properties, origin="pyiceberg")
    assert refusal(lambda: opened(theirs)).hint == (
        "No warehouse of catalog cat is known. Name it: the property warehouse of catalog cat in pyiceberg's "
        "configuration; or allow a prefix: in amoro.yaml: catalogs: {cat: {allow-locations: [PREFIX]}}"
    )
    allowed = replace(theirs, allowed_locations=(table.location(),))
    assert opened(allowed).scan() is not None
    opened(allowed).refuse_unsupported()


def test_no_catalog_writes_a_metadata_file_elsewhere_when_the_path_changes_before_it_is_sent(
    config: CatalogConfig, table: Table, tmp_path: Path
) -> None:
    """pyiceberg writes it by itself, where the table's properties of that moment say."""
    found = opened(config)
    planned = found.scan()
    [first, *_] = planned.files
    head = found.head(planned.snapshot_id)
    content = CommitContent((1,), (first.data,), (), (), ())
    staged = found.stage(head, content, {})
    foreign = tmp_path / "foreign"
    change_metadata(table, lambda metadata: metadata["properties"].update({"write.metadata.path": foreign.as_uri()}))
    with pytest.raises(CommitRefused, match="will not write"):
        found.send(staged.payload)
    assert not foreign.exists()
    refusal(lambda: found.head(planned.snapshot_id))
    assert not foreign.exists()


def test_a_log_that_names_foreign_files_does_not_keep_an_attempt_from_being_traced(
    config: CatalogConfig, table: Table, tmp_path: Path
) -> None:
    (tmp_path / "foreign.json").write_text("{}")
    foreign = {"timestamp-ms": 1, "metadata-file": (tmp_path / "foreign.json").as_uri()}
    change_metadata(table, lambda metadata: metadata.update({"metadata-log": [foreign]}))
    assert opened(config).trace(SnapshotAdded(1, 2, 1, ("/no/file",))) is Trace.REFUTED


# What a clustered file's footer tells of its layout, read through the table


GROUP = "0123456789ab"
LAYOUT = Layout(Strategy.HILBERT, (LayoutKey(1), LayoutKey(2)))


@pytest.fixture
def laid(config: CatalogConfig, catalog: SqlCatalog) -> IcebergTable:
    make_table(catalog, "ns.t", SCHEMA)
    return opened(config)


def written(table: IcebergTable, name: str, metadata: dict[str, str]) -> DataFile:
    path = Path(table.facts.location.removeprefix("file://")) / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1]}).replace_schema_metadata(metadata), path)
    return DataFile(f"file://{path}", FileFormat.PARQUET, 0, (), 1, path.stat().st_size, 1)


@pytest.mark.parametrize(
    ("metadata", "layout"),
    [
        ({METADATA_KEY: layout_text(LAYOUT, GROUP)}, LAYOUT),
        ({}, None),
        ({METADATA_KEY: "{}"}, None),
        ({METADATA_KEY: "no json"}, None),
        ({METADATA_KEY: layout_text(LAYOUT, "ffffffffffff")}, None),
    ],
    ids=["its own", "nothing", "no layout", "no json", "another group"],
)
def test_the_footer_of_a_clustered_file_tells_its_layout(
    laid: IcebergTable, metadata: dict[str, str], layout: Layout | None
) -> None:
    assert laid.layout_of(written(laid, f"a-g{GROUP}.parquet", metadata)) == layout


def test_a_file_that_is_gone_or_no_parquet_is_told(laid: IcebergTable) -> None:
    file = written(laid, f"a-g{GROUP}.parquet", {})
    path = Path(file.path.removeprefix("file://"))
    path.write_bytes(b"PAR1 not")
    with pytest.raises(UnreadableFile):
        laid.layout_of(file)
    path.unlink()
    with pytest.raises(DataFileMissing):
        laid.layout_of(file)

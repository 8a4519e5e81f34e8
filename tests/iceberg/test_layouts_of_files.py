"""What a clustered file's footer tells of its layout, read through the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from amoro_core.errors import DataFileMissing, UnreadableFile
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.clustered_files import METADATA_KEY, layout_text
from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine.writer import make_catalog

GROUP = "0123456789ab"
LAYOUT = Layout(Strategy.HILBERT, (LayoutKey(1), LayoutKey(2)))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[IcebergTable]:
    catalog = make_catalog(tmp_path)
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", Schema(NestedField(1, "id", LongType(), required=False)))
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": (tmp_path / "warehouse").as_uri(),
    }
    config = CatalogConfig("cat", tuple(sorted(properties.items())), ())
    yield IcebergFormat().load(config, TableIdentifier("cat", ("ns",), "t"))
    catalog.close()
    close_catalogs()


def written(table: IcebergTable, name: str, metadata: dict[str, str]) -> DataFile:
    path = Path(table.facts.location.removeprefix("file://")) / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1]}).replace_schema_metadata(metadata), path)
    return DataFile(f"file://{path}", FileFormat.PARQUET, 0, (), 1, path.stat().st_size, 1)


def test_the_footer_of_a_clustered_file_tells_its_layout(table: IcebergTable) -> None:
    file = written(table, f"a-g{GROUP}.parquet", {METADATA_KEY: layout_text(LAYOUT, GROUP)})
    assert table.layout_of(file) == LAYOUT


@pytest.mark.parametrize(
    "metadata",
    [{}, {METADATA_KEY: "{}"}, {METADATA_KEY: "no json"}, {METADATA_KEY: layout_text(LAYOUT, "ffffffffffff")}],
    ids=["nothing", "no layout", "no json", "another group"],
)
def test_a_footer_that_tells_none_of_the_names_group_tells_none(table: IcebergTable, metadata: dict[str, str]) -> None:
    assert table.layout_of(written(table, f"a-g{GROUP}.parquet", metadata)) is None


def test_a_file_that_is_gone_or_no_parquet_is_told(table: IcebergTable) -> None:
    file = written(table, f"a-g{GROUP}.parquet", {})
    path = Path(file.path.removeprefix("file://"))
    path.write_bytes(b"PAR1 not")
    with pytest.raises(UnreadableFile):
        table.layout_of(file)
    path.unlink()
    with pytest.raises(DataFileMissing):
        table.layout_of(file)


def test_columns_of_the_table_are_told(table: IcebergTable) -> None:
    found = table.sorting()
    assert [(one.field_id, one.name, one.kind, one.problem) for one in found.columns] == [(1, "id", "long", "")]
    assert found.bound_key(1)((5).to_bytes(8, "little")) == 5

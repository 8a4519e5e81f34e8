"""Tables whose writers write Avro or ORC: rewritten as Parquet where their properties say that Parquet is welcome."""

import re

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from amoro_core.errors import TableRefused
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.inspecting import InspectionService
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.files import Layout
from tests.services.world import World

TABLE = parse_table("cat.db.t")
WELCOME = {"self-optimizing.write-format": "parquet"}


def small_files(catalog: SqlCatalog, file_format: str, **properties: str) -> Table:
    """Three files in that format, a delete by equality and one by position."""
    wanted = {"write.format.default": file_format, **properties}
    table = writer.make_table(catalog, "db.t", SCHEMA, properties=wanted)
    for number in range(3):
        layout = Layout(file_format=FileFormat(file_format.upper()))
        writer.append(table, [row(number), row(number + 10)], layout=layout)
    writer.row_delta(table, equality_deletes=[writer.EqualityDelete(["id"], [row(1)])])
    writer.delete_where(table, lambda item: item["id"] == 2)
    return table.refresh()


def kinds(table: Table) -> set[str]:
    """The endings of the live data files' names."""
    files = oracle.live_files(table.refresh())
    return {file.path.rsplit(".", 1)[-1] for file in files if file.content == oracle.DATA}


@pytest.mark.parametrize("file_format", ["avro", "ORC"])
@pytest.mark.parametrize("by", ["table", "catalog"])
def test_a_table_that_welcomes_parquet_is_rewritten_as_such_and_keeps_its_writers_format(
    world: World, catalog: SqlCatalog, file_format: str, by: str
) -> None:
    table = small_files(catalog, file_format, **(WELCOME if by == "table" else {}))
    if by == "catalog":
        world.catalogs.update("cat", CatalogChange({f"table.{key}": value for key, value in WELCOME.items()}))
    assert kinds(table) == {file_format.lower()}
    before = oracle.live_rows(table)
    process = world.begin(OptimizingType.FULL)
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert kinds(table) == {"parquet"}
    oracle.assert_same_rows(before, oracle.live_rows(table))
    assert table.properties["write.format.default"] == file_format


def test_without_that_word_it_is_refused_with_the_way_out_and_can_be_looked_at(
    world: World, catalog: SqlCatalog
) -> None:
    small_files(catalog, "avro")
    with pytest.raises(TableRefused) as refused:
        world.begin(OptimizingType.FULL)
    assert (refused.value.reason, refused.value.message, refused.value.hint) == (
        "format",
        "the table property write.format.default is 'avro', and only Parquet is written",
        "Set the table's property self-optimizing.write-format to parquet: its files are then rewritten as Parquet,"
        " while its writers continue to follow write.format.default.",
    )
    inspection = InspectionService(world.store, world.tables_of, lambda: world.now)
    assert inspection.health(TABLE).summary.data_files == 3


@pytest.mark.parametrize("value", ["orc", "parquet, avro"])
def test_another_format_is_refused_with_key_and_value(world: World, catalog: SqlCatalog, value: str) -> None:
    small_files(catalog, "parquet", **{"self-optimizing.write-format": value})
    message = (
        f"property self-optimizing.write-format has the malformed value {value!r}:"
        " expected parquet, the only format that is written"
    )
    for enter in (
        lambda: world.begin(OptimizingType.FULL),
        lambda: world.tables.preview(TABLE, OptimizingType.FULL, False),
    ):
        with pytest.raises(TableRefused, match=re.escape(message)) as refused:
            enter()
        assert refused.value.reason == "configuration"


def test_a_table_that_does_not_welcome_parquet_any_more_is_not_committed_to(world: World, catalog: SqlCatalog) -> None:
    table = small_files(catalog, "avro", **WELCOME)
    process = world.begin(OptimizingType.FULL)
    world.run_all(process)
    with table.transaction() as change:
        change.remove_properties(*WELCOME)
    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert "write.format.default is 'avro'" in world.optimizing.find_process(process).process.failure
    assert kinds(table) == {"avro"}

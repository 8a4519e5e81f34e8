"""Tables of other formats: every entry that would write refuses them, looking stays."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import TableRefused
from amoro_core.model.paging import ALL, Window
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, parse_table
from amoro_core.services.inspecting import InspectionService
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files
from tests.services.world import World

TABLE = parse_table("cat.db.t")
CHANGE_STORE = {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "change"}


def refusals(world: World) -> set[tuple[str, str]]:
    """What each entry says: looking at the table, a plan, a request, planning by the service."""
    found = set()
    for enter in (
        lambda: world.tables.preview(TABLE, OptimizingType.FULL, True),
        lambda: world.tables.require_optimizable(TABLE),
        lambda: world.begin(OptimizingType.FULL),
        lambda: world.planning.begin(world.table().table_id, trigger="evaluation"),
    ):
        with pytest.raises(TableRefused) as refused:
            enter()
        found.add((refused.value.reason, refused.value.message))
    return found


def test_every_entry_refuses_a_change_store_and_looking_stays(world: World, catalog: SqlCatalog) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, properties=CHANGE_STORE)
    for number in range(3):
        writer.append(table, [row(number)])
    message = (
        "the table is not a plain Iceberg table: it is a table of Amoro's Mixed-Iceberg format:"
        " table-format=MIXED_ICEBERG, its change store (mixed-format.table-store=change)"
    )
    assert refusals(world) == {("format", message)}
    runtime = world.tables.refresh(world.table().table_id)
    assert runtime is not None
    assert (runtime.status, runtime.refusal) == (OptimizingStatus.REFUSED, "format")
    inspection = InspectionService(world.store, world.tables_of, lambda: world.now)
    assert inspection.health(TABLE).summary.data_files == 3
    assert inspection.files(TABLE, Window(10)).files.total == 3
    assert inspection.snapshots(TABLE, ALL).total == 3


def test_every_entry_refuses_a_store_that_only_its_files_tell_of(
    world: World, catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(4):
        [file] = write_data_files(table, [row(number)])
        path = Path(file.file_path.removeprefix("file://"))
        renamed = path.with_name(f"{4 + number}-{'ED' if number == 3 else 'I'}-7-00000-0-12345-00001.parquet")
        path.rename(renamed)
        file[1] = f"file://{renamed}"
        commit(table, lambda head, added=file: Change((added,)), "main")
    [(reason, message)] = refusals(world)
    assert reason == "format"
    assert message.startswith("4 of 4 data files are named as those of Amoro's Mixed format, such as file://")
    inspection = InspectionService(world.store, world.tables_of, lambda: world.now)
    assert inspection.health(TABLE).summary.data_files == 4
    assert inspection.files(TABLE, Window(10)).files.total == 4


@pytest.mark.parametrize(
    "properties", [CHANGE_STORE, {"delta-version": "3"}, {"encryption.key-id": "k"}], ids=["mixed", "copy", "other"]
)
def test_a_process_that_runs_when_the_mark_appears_commits_nothing(
    world: World, process: str, properties: dict[str, str]
) -> None:
    table = world.catalog.load_table("db.t")
    table.transaction().set_properties(properties).commit_transaction()
    before = oracle.live_rows(table.refresh())
    assert world.committing.commit(process) is ProcessStatus.FAILED
    ended = world.optimizing.find_process(process).process
    assert ended.failure_code == "AMORO-6001"
    after = world.catalog.load_table("db.t")
    assert after.metadata.current_snapshot_id == table.metadata.current_snapshot_id
    oracle.assert_same_rows(before, oracle.live_rows(after))
    runtime = world.tables.refresh(world.table().table_id)
    assert runtime is not None
    assert runtime.status is OptimizingStatus.REFUSED


def test_a_process_does_not_commit_beside_files_of_another_format(world: World, process: str) -> None:
    """The store lost its properties, but a writer of the Mixed format goes on."""
    table = world.catalog.load_table("db.t")
    files = []
    for number in range(12):
        [file] = write_data_files(table, [row(200 + number)])
        path = Path(file.file_path.removeprefix("file://"))
        renamed = path.with_name(f"4-I-7-00000-{number}-12345-00001.parquet")
        path.rename(renamed)
        file[1] = f"file://{renamed}"
        files.append(file)
    commit(table, lambda head: Change(tuple(files)), "main")
    head = world.catalog.load_table("db.t").metadata.current_snapshot_id
    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert world.catalog.load_table("db.t").metadata.current_snapshot_id == head

"""Tables that are refused by name: malformed, of other formats, with keys that readers understand differently."""

import json
import math
import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, UUIDType

from amoro_core.errors import TableRefused
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.paging import ALL, Window
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, parse_table
from amoro_core.services.catalogs import CatalogChange
from amoro_core.store.database import Connection
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.files import Layout, write_data_files
from tests.engine.parquet_rows import local_path
from tests.services.world import World, make_small_files


@pytest.fixture
def table(world: World) -> Table:
    return make_small_files(world.catalog).refresh()


def data_file(table: Table) -> Path:
    """The oldest of its data files."""
    return min(Path(local_path(table.location()), "data").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def refused(world: World, word: str) -> str:
    """What planning the table says, which is kept with the table, and begins nothing."""
    with pytest.raises(TableRefused) as error:
        world.begin()
    kept = world.table()
    assert (error.value.reason, kept.status, kept.refusal) == (word, OptimizingStatus.REFUSED, word)
    assert world.optimizing.list_processes() == []
    assert kept.status_reason == error.value.full_text
    return error.value.message


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        (data_file, "FIFO"),
        (data_file, "directory"),
        (lambda table: table.current_snapshot().manifests(table.io)[0].manifest_path, "FIFO"),
        (lambda table: table.current_snapshot().manifest_list, "FIFO"),
        (lambda table: table.metadata_location, "FIFO"),
    ],
    ids=["data file", "directory", "manifest", "manifest list", "metadata file"],
)
def test_what_is_no_regular_file_is_refused_unread(
    world: World, table: Table, named: Callable[[Table], object], kind: str
) -> None:
    path = Path(local_path(str(named(table))))
    world.table()
    path.unlink()
    (os.mkfifo if kind == "FIFO" else os.mkdir)(path)
    assert refused(world, "file") == f"{path} is not a regular file but a {kind}"


def test_a_data_file_that_is_a_link_to_a_foreign_one_is_refused_unread(
    world: World, table: Table, tmp_path: Path
) -> None:
    path = data_file(table)
    path.rename(tmp_path / "foreign.parquet")
    path.symlink_to(tmp_path / "foreign.parquet")
    assert f"links lead to {tmp_path}/foreign.parquet" in refused(world, "location")


def test_a_current_snapshot_that_is_none_is_not_taken_for_an_empty_table(world: World, table: Table) -> None:
    path = Path(local_path(table.metadata_location))
    metadata: dict[str, Any] = json.loads(path.read_text())
    metadata["current-snapshot-id"] = 4711
    metadata.pop("refs", None)
    path.write_text(json.dumps(metadata))
    assert refused(world, "metadata") == "the table has no snapshot 4711, which current-snapshot-id names"


def test_a_file_with_two_columns_of_one_id_is_never_rewritten(world: World, table: Table) -> None:
    path = data_file(table)
    rows = pq.read_table(path)
    first = rows.schema.field(0)
    twice = rows.append_column(pa.field("other", first.type, metadata=first.metadata), rows.column(0))
    pq.write_table(twice, path, store_schema=False)
    before = world.catalog.load_table("db.t").metadata_location
    files = sorted(Path(local_path(table.location())).rglob("*"))
    with pytest.raises(TableRefused, match=f"{path} has two columns with the field id 1"):
        world.optimize()
    assert world.catalog.load_table("db.t").metadata_location == before
    assert sorted(Path(local_path(table.location())).rglob("*")) == files


# Tables of other formats: every entry that would write refuses them, looking stays


TABLE = parse_table("cat.db.t")
NAN = writer.EqualityDelete(["ratio"], [{"ratio": math.nan}])
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


def test_every_entry_refuses_a_change_store_and_looking_stays(world: World) -> None:
    make_small_files(world.catalog, properties=CHANGE_STORE)
    message = (
        "the table is not a plain Iceberg table: it is a table of Amoro's Mixed-Iceberg format:"
        " table-format=MIXED_ICEBERG, its change store (mixed-format.table-store=change)"
    )
    assert refusals(world) == {("format", message)}
    runtime = world.refresh()
    assert (runtime.status, runtime.refusal) == (OptimizingStatus.REFUSED, "format")
    inspection = world.services.inspection
    assert inspection.health(TABLE).summary.data_files == 3
    assert inspection.files(TABLE, Window(10))[1].total == 3
    assert inspection.snapshots(TABLE, ALL).total == 3


def add_file_of_mixed_format(table: Table, number: int, kind: str = "I") -> None:
    """Append a file of one row under a name as Amoro's Mixed format gives."""
    [file] = write_data_files(table, [row(200 + number)])
    path = Path(file.file_path.removeprefix("file://"))
    renamed = path.with_name(f"{4 + number}-{kind}-7-00000-0-12345-00001.parquet")
    path.rename(renamed)
    file[1] = f"file://{renamed}"
    commit(table, lambda head: Change((file,)), "main")


def test_every_entry_refuses_a_store_that_only_its_files_tell_of(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(4):
        add_file_of_mixed_format(table, number, "ED" if number == 3 else "I")
    [(reason, message)] = refusals(world)
    assert reason == "format"
    assert message.startswith("4 of 4 data files are named as those of Amoro's Mixed format, such as file://")
    inspection = world.services.inspection
    assert inspection.health(TABLE).summary.data_files == 4
    assert inspection.files(TABLE, Window(10))[1].total == 4


def marked(**properties: str) -> Callable[[Table], None]:
    def mark(table: Table) -> None:
        table.transaction().set_properties(properties).commit_transaction()

    return mark


def files_of_mixed_format(table: Table) -> None:
    """The store lost its properties, but a writer of the Mixed format goes on."""
    for number in range(12):
        add_file_of_mixed_format(table, number)


def deleted_by_a_double(table: Table) -> None:
    with table.update_schema() as change:
        change.add_column("ratio", DoubleType())
    keys = [{"ratio": math.nan, "part": "a"}]
    writer.row_delta(table, equality_deletes=[writer.EqualityDelete(["ratio"], keys)])


@pytest.mark.parametrize(
    "happen",
    [
        marked(**CHANGE_STORE),
        marked(**{"delta-version": "3"}),
        marked(**{"encryption.key-id": "k"}),
        files_of_mixed_format,
        deleted_by_a_double,
    ],
    ids=["mixed", "copy", "other", "files of the mixed format", "delete by a double"],
)
def test_a_process_that_runs_when_its_table_becomes_one_that_is_refused_commits_nothing(
    world: World, process: str, happen: Callable[[Table], None]
) -> None:
    table = world.catalog.load_table("db.t")
    happen(table)
    head, before = table.refresh().metadata.current_snapshot_id, oracle.live_rows(table)
    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert world.process(process).failure_code == "AMORO-6001"
    assert table.refresh().metadata.current_snapshot_id == head
    oracle.assert_same_rows(before, oracle.live_rows(table))
    assert world.refresh().status is OptimizingStatus.REFUSED


# Equality deletes whose keys readers understand differently: refused, or told


MEASURED = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "ratio", DoubleType(), required=False)
)


def test_every_entry_refuses_a_delete_by_a_double_and_looking_stays(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", MEASURED)
    for number in range(3):
        writer.append(table, [{"id": number, "ratio": math.nan if number else 1.0}])
    writer.row_delta(table, equality_deletes=[NAN])
    [(reason, message)] = refusals(world)
    assert (reason, "compares column ratio of the type double" in message) == ("equality-ids", True)
    inspection = world.services.inspection
    assert inspection.health(TABLE).summary.equality_delete_files == 1
    assert inspection.files(TABLE, Window(10))[1].total == 4
    verified = world.verifying.verify(TABLE, None, None, lambda: False)
    assert (verified.files, verified.problems) == (4, ())


def test_a_delete_by_a_double_that_an_overwrite_left_behind_refuses_nothing(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", MEASURED)
    writer.append(table, [{"id": 0, "ratio": math.nan}])
    writer.row_delta(table, equality_deletes=[NAN])
    writer.remove_files(table, [file.path for file in oracle.live_files(table) if file.content == oracle.DATA])
    for number in range(3):
        writer.append(table, [{"id": number, "ratio": math.nan}])
    before = oracle.live_rows(table)
    world.optimized(OptimizingType.FULL)
    oracle.assert_same_rows(before, oracle.live_rows(table))


NAMED = Schema(NestedField(1, "uid", UUIDType(), required=False), NestedField(2, "value", StringType(), required=False))


@pytest.mark.parametrize(
    ("numbers", "disputed"), [((1, 2**127 + 1), 1), ((1, 2), 0)], ids=["both sides of 80…", "one side"]
)
def test_a_delete_by_uuid_that_java_passes_over_is_applied_and_told_by_plan_receipt_and_verification(
    world: World, numbers: tuple[int, int], disputed: int
) -> None:
    table = writer.make_table(world.catalog, "db.t", NAMED)
    keys = [uuid.UUID(int=number) for number in numbers]
    for key in keys:
        writer.append(table, [{"uid": key, "value": "old"}, {"uid": uuid.UUID(int=key.int + 5), "value": "kept"}])
    writer.row_delta(table, equality_deletes=[writer.EqualityDelete(["uid"], [{"uid": key} for key in keys])])
    before = oracle.live_rows(table)
    assert sum(before.values()) == 2
    preview = world.tables.preview(TABLE, OptimizingType.FULL, False)
    assert preview.disputed_deletes == disputed
    process = world.optimized(OptimizingType.FULL)
    oracle.assert_same_rows(before, oracle.live_rows(table))
    receipt = world.receipt(process)
    assert receipt.disputed_deletes == disputed
    verified = world.verifying.verify(TABLE, None, None, lambda: False)
    assert verified.is_sound
    assert [one.disputed_deletes for one in verified.comparisons] == [disputed]


def test_a_receipt_from_before_there_was_such_a_line_is_read(world: World, process: str) -> None:
    assert world.committing.commit(process) is ProcessStatus.SUCCESS

    def forget(db: Connection) -> None:
        for table in ("commit_attempt", "table_process"):
            db.execute(f"UPDATE {table} SET receipt_json = json_remove(receipt_json, '$.disputed_deletes')")

    world.store.write(forget)
    receipt = world.receipt(process)
    assert receipt.disputed_deletes == 0
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


# Tables whose writers write Avro or ORC: rewritten as Parquet where their properties say that Parquet is welcome


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
    world: World, file_format: str, by: str
) -> None:
    table = small_files(world.catalog, file_format, **(WELCOME if by == "table" else {}))
    if by == "catalog":
        world.catalogs.update("cat", CatalogChange({f"table.{key}": value for key, value in WELCOME.items()}))
    assert kinds(table) == {file_format.lower()}
    before = oracle.live_rows(table)
    world.optimized(OptimizingType.FULL)
    assert kinds(table) == {"parquet"}
    oracle.assert_same_rows(before, oracle.live_rows(table))
    assert table.properties["write.format.default"] == file_format


def test_without_that_word_it_is_refused_with_the_way_out_and_can_be_looked_at(world: World) -> None:
    small_files(world.catalog, "avro")
    with pytest.raises(TableRefused) as refused:
        world.begin(OptimizingType.FULL)
    assert (refused.value.reason, refused.value.message, refused.value.hint) == (
        "format",
        "the table property write.format.default is 'avro', and only Parquet is written",
        "Set the table's property self-optimizing.write-format to parquet: its files are then rewritten as Parquet,"
        " while its writers continue to follow write.format.default.",
    )
    inspection = world.services.inspection
    assert inspection.health(TABLE).summary.data_files == 3


@pytest.mark.parametrize("value", ["orc", "parquet, avro"])
def test_another_format_is_refused_with_key_and_value(world: World, value: str) -> None:
    small_files(world.catalog, "parquet", **{"self-optimizing.write-format": value})
    message = (
        f"property self-optimizing.write-format has the malformed value {value!r}:"
        " expected parquet, the only format that is written"
    )
    assert refusals(world) == {("configuration", message)}


# Tables of formats that lack something, and tables whose format changes


def as_format(world: World, name: str) -> None:
    """Let the tables of Iceberg be those of another format."""
    facts = IcebergTable.facts.func
    renamed: Any = property(lambda table: replace(facts(table), format=name))
    world.iceberg.table(facts=renamed)


def test_a_table_that_turns_up_in_another_format_is_refused_by_name_and_kept_though_it_is_not_listed(
    world: World, table: Table
) -> None:
    table_id = world.refresh().table_id
    as_format(world, "paimon")
    world.iceberg.catalog(list_tables=lambda self, catalog: [])
    assert world.discovery.explore("cat").disposed == ()
    found = world.tables.refresh(table_id)
    assert (found.status, found.refusal, found.format) == (OptimizingStatus.REFUSED, "another-format", "iceberg")

"""Tables whose metadata or files are not what they say: refused by name when planned, left as they were."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from amoro_core.errors import TableRefused
from amoro_core.model.tables import OptimizingStatus
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.services.world import World


@pytest.fixture
def table(world: World) -> Table:
    made = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(made, [row(number)])
    made.refresh()
    return made


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
    assert kept.status_reason == error.value.told
    return error.value.message


@pytest.mark.parametrize("kind", ["FIFO", "directory"])
def test_a_data_file_that_is_no_regular_file_is_refused_unread(world: World, table: Table, kind: str) -> None:
    path = data_file(table)
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert refused(world, "file") == f"{path} is not a regular file but a {kind}"


def test_a_data_file_that_is_a_link_to_a_foreign_one_is_refused_unread(
    world: World, table: Table, tmp_path: Path
) -> None:
    path = data_file(table)
    path.rename(tmp_path / "foreign.parquet")
    path.symlink_to(tmp_path / "foreign.parquet")
    assert f"links lead to {tmp_path}/foreign.parquet" in refused(world, "location")


@pytest.mark.parametrize("kind", ["manifest", "manifest list", "metadata file"])
def test_metadata_that_are_no_regular_files_are_refused_at_once(world: World, table: Table, kind: str) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    named = {
        "manifest": lambda: snapshot.manifests(table.io)[0].manifest_path,
        "manifest list": lambda: snapshot.manifest_list,
        "metadata file": lambda: table.metadata_location,
    }
    path = Path(local_path(named[kind]()))
    world.table()
    path.unlink()
    os.mkfifo(path)
    assert refused(world, "file") == f"{path} is not a regular file but a FIFO"


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

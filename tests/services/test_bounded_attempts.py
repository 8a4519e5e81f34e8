"""What an attempt to commit reads and writes of manifests goes by what changed since the plan, not by the table."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestFile

from amoro_core.files.confining import ConfinedFileIO
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.iceberg.known_manifests import KnownTables
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer, writer3
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.iceberg.listed import decoded_records
from tests.services.world import World

INPUTS, LOST = 2, 2  # files that are rewritten, and attempts that others overtake


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Remembers tables of any size, as a coordinator remembers large ones."""
    made = World(
        tmp_path,
        writer.make_catalog(tmp_path),
        iceberg=lambda _: IcebergFormat(tables=KnownTables(2**30, least_files=0)),
    )
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is opened of manifests and their lists: how, and which."""
    found: list[tuple[str, str]] = []
    for name in ("new_input", "new_output"):
        plain = getattr(ConfinedFileIO, name)

        def watched(io: ConfinedFileIO, location: str, name: str = name, plain: Any = plain) -> Any:
            if location.endswith(".avro"):
                found.append((name, location))
            return plain(io, location)

        monkeypatch.setattr(ConfinedFileIO, name, watched)
    return found


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[ManifestFile]:
    """What is decoded of manifest lists."""
    return decoded_records(monkeypatch)


Counts = list[tuple[int, int, int]]


def attempts(world: World, opened: list[tuple[str, str]], decoded: list[ManifestFile]) -> Counts:
    """How many manifests and lists each attempt of a commit reads and writes, and records of lists that it decodes.

    Others delete a row before each.
    """
    table = world.catalog.load_table("db.t")
    process_id = world.begin(OptimizingType.FULL)
    world.run_all(process_id)
    stage, counts = IcebergTable.stage, Counts()

    def delete(number: int) -> None:
        if table.metadata.format_version == 3:
            writer3.delete_rows(table, lambda item: item["id"] == number)
        else:
            writer.delete_where(table, lambda item: item["id"] == number)

    def overtaken(self: IcebergTable, *given: Any) -> Any:
        staged = stage(self, *given)
        read = {path for how, path in opened if how == "new_input"}
        counts.append((len(read), sum(how == "new_output" for how, _ in opened), len(decoded)))
        if len(counts) <= LOST:
            delete(len(counts))
        opened.clear()
        decoded.clear()
        return staged

    world.iceberg.table(stage=overtaken)
    delete(0)
    expected = oracle.live_rows(table)
    opened.clear()
    decoded.clear()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    left = oracle.live_rows(table.refresh())
    assert (left.total(), len(counts)) == (expected.total() - LOST, LOST + 1)
    return counts


@pytest.mark.parametrize("version", [2, 3])
def test_attempts_on_a_table_of_four_times_the_manifests_read_and_write_no_more_of_them(
    world: World,
    opened: list[tuple[str, str]],
    decoded: list[ManifestFile],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    found = []
    for others in (2, 14):
        table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, version)
        for number in range(INPUTS):
            writer.append(table, [row(at * INPUTS + number, "a") for at in range(4)])
        for number in range(others):
            writer.append(table, [row(1000 + number, f"part{number}")])
        with monkeypatch.context() as patch:
            found.append(attempts(world, opened, decoded, patch))
        world.catalog.drop_table("db.t")
    assert found[0] == found[1]

"""Each operation of another writer at each point of a process, for every kind of table: rows are never lost or doubled.

The points are those at which a commit can be overtaken: before the work, before the commit, within it (after it was
staged and written down), and after it landed but before the coordinator, which dies there, has noted so.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from pathlib import Path

import pytest

from amoro_core.model.files import DeleteKind
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_core.store import tasks
from tests.model.crashes import Died, before_sending, dying
from tests.model.invariants import require_ended, require_tidy
from tests.model.lake import Lake
from tests.model.operations import OPERATIONS, Kind, Operation, Scene, expected_status, prepared
from tests.model.stages import Stages
from tests.services.world import World


class Point(StrEnum):
    BEFORE_EXECUTE = "before execute"
    BEFORE_COMMIT = "before commit"
    INSIDE_COMMIT = "inside commit"
    BEFORE_DATABASE = "before database"


#: Format, whether partitioned, what the process does. Format 1 has no deletes to convert.
TABLES = (
    *product((1, 2), (False, True), (Kind.REWRITE,)),
    *product((2,), (False, True), (Kind.CONVERT,)),
)
CASES = [
    pytest.param(
        operation,
        point,
        table,
        id=f"{operation.name}-{point}-v{table[0]}-{'parts' if table[1] else 'plain'}-{table[2]}".replace(" ", "_"),
    )
    for operation, point, table in product(OPERATIONS, Point, TABLES)
    if table[0] == 2 or not operation.deletes
]


@pytest.mark.parametrize(("operation", "point", "table"), CASES)
def test_rows_are_kept_whatever_others_do_at_any_point(
    quick_path: Path, stages: Stages, operation: Operation, point: Point, table: tuple[int, bool, Kind]
) -> None:
    version, partitioned, kind = table
    lake = stages.restored(
        f"{version}-{partitioned}-{kind}",
        lambda catalog: prepared(catalog, version, partitioned=partitioned, kind=kind),
    )
    world = World(quick_path, lake.catalog)
    try:
        scene = Scene(lake, world, quick_path / "other")
        process_id = begin(world, lake, kind)
        at(Point.BEFORE_EXECUTE, point, operation, scene)
        world.run_all(process_id)
        at(Point.BEFORE_COMMIT, point, operation, scene)
        match point:
            case Point.INSIDE_COMMIT:
                with before_sending(lambda: operation.run(scene)):
                    world.committing.commit(process_id)
            case Point.BEFORE_DATABASE:
                with dying(world, lambda _, name: name == "send", after=True), pytest.raises(Died):
                    world.committing.commit(process_id)
                operation.run(scene)
                world.restart()
                assert world.heard.commits == [process_id]
                world.committing.commit(process_id)
            case _:
                world.committing.commit(process_id)
        has_landed = point is Point.BEFORE_DATABASE
        expected = expected_status(operation.fate, kind, partitioned=partitioned)
        assert require_ended(world, lake, process_id) is (ProcessStatus.SUCCESS if has_landed else expected)
        lake.require()
        require_tidy(world, lake, process_id)
    finally:
        world.store.close()


def at(here: Point, point: Point, operation: Operation, scene: Scene) -> None:
    if here is point:
        operation.run(scene)


def begin(world: World, lake: Lake, kind: Kind) -> str:
    """Plan minor optimizing, and make sure that it does with the inputs what the case says, and with no other file."""
    process_id = world.begin(OptimizingType.MINOR)
    works = [
        codec.decode_input(pb.RewriteInput.FromString(payload))
        for task in world.tasks(process_id)
        for payload in [world.store.read(lambda db, task=task: tasks.read_input(db, task.task_id))]  # type: ignore[misc]
    ]
    assert len(works) == (2 if lake.table.spec().fields else 1)
    assert all(bool(work.rewritten) == (kind is Kind.REWRITE) for work in works)
    assert all(bool(work.converted) == (kind is Kind.CONVERT) for work in works)
    others = {one.path for one in lake.placed() if one.record["id"] >= 200}
    assert others.isdisjoint(given.data.path for work in works for given in (*work.rewritten, *work.converted))
    for work in works:
        kinds = {delete.kind for delete in work.deletes}
        assert kinds == ({DeleteKind.EQUALITY, DeleteKind.POSITION} if lake.version == 2 else set())
    return process_id

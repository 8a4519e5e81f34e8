"""What happens when other writers come between the steps of a process: one operation, or several, at any point.

The points are those at which a commit can be overtaken: before the work, before the commit, within it (after it was
staged and written down), and after it landed but before the coordinator, which dies there, has noted so.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from itertools import product
from pathlib import Path

from amoro_core.model.files import DeleteKind
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_core.store import tasks
from tests.model import operations
from tests.model.crashes import Died, SteppedWorld, before, dying
from tests.model.invariants import require_ended, require_tidy
from tests.model.lake import Lake, Stages
from tests.model.operations import OPERATIONS, Case, Kind, Scene, expected_status, possible, prepared
from tests.services.rigs import remembering


class Point(StrEnum):
    BEFORE_EXECUTE = "before execute"
    BEFORE_COMMIT = "before commit"
    INSIDE_COMMIT = "inside commit"
    BEFORE_DATABASE = "before database"


#: Version, partitions, and what the process does. Format 1 has no deletes to convert.
TABLES = (*product((1, 2, 3), (False, True), (Kind.REWRITE,)), *product((2, 3), (False, True), (Kind.CONVERT,)))
MATRIX = tuple(
    Case(((operation, point),), version, partitioned, kind)
    for operation, point, (version, partitioned, kind) in product(OPERATIONS, Point, TABLES)
    if operation in possible(version, partitioned)
)


def _place(case: Case) -> int:
    ((operation, point),) = case.happenings
    tables = [(version, parts, kind) for version, parts, kind in TABLES if operation in possible(version, parts)]
    table = case.version, case.partitioned, case.how
    return OPERATIONS.index(operation) + list(Point).index(point) + tables.index(table)


#: A quarter of the matrix: each operation at each point and on each kind of table, on others at the next point.
SAMPLE = tuple(case for case in MATRIX if _place(case) % 4 == 0)


def pair(chance: random.Random) -> Case:
    return operations.pair(chance, list(Point), *chance.choice(TABLES))


def carry_out(case: Case, directory: Path, stages: Stages, counts: Counter[str] | None = None) -> ProcessStatus:
    """Let the process go through all that happens; returns how it ended.

    Partitioned tables are looked at by difference. What was copied and decoded elsewhere is counted.

    Raises AssertionError unless the process ends as the only operation lets it, says what is true of it, every ref
    holds its rows, and no file is missing or left behind.
    """
    kind, partitioned = Kind(case.how), case.partitioned
    lake = stages.restored(
        case.table, lambda catalog: prepared(catalog, case.version, partitioned=partitioned, kind=kind)
    )
    directory.mkdir(parents=True, exist_ok=True)
    counts = Counter() if counts is None else counts
    by_difference = {"iceberg": partial(remembering, counts=counts)} if partitioned else {}
    world = SteppedWorld(directory, lake.catalog, **by_difference)
    try:
        scene = Scene(lake, world, directory / "other")
        process_id = _begin(world, lake, kind)
        case.happens(Point.BEFORE_EXECUTE, scene)
        world.run_all(process_id)
        counts["files copied"] += sum(world.output_of(task).files_copied for task in world.tasks(process_id))
        case.happens(Point.BEFORE_COMMIT, scene)
        _commit(case, scene, process_id)
        status = require_ended(world, lake, process_id)
        if len(case.happenings) == 1:
            assert status is _expected(case)
        lake.require()
        require_tidy(world, lake, process_id)
        return status
    finally:
        world.store.close()


def _expected(case: Case) -> ProcessStatus:
    ((operation, point),) = case.happenings
    if point is Point.BEFORE_DATABASE:  # it has landed by then
        return ProcessStatus.SUCCESS
    return expected_status(operation.fate, Kind(case.how), partitioned=case.partitioned, version=case.version)


def _commit(case: Case, scene: Scene, process_id: str) -> None:
    """Of several, what comes before may foil the commit: nothing is sent then, and nobody dies over it."""
    world, is_alone, points = scene.world, len(case.happenings) == 1, case.points
    died = False
    with ExitStack() as during:
        if Point.INSIDE_COMMIT in points:
            inside = partial(case.happens, Point.INSIDE_COMMIT, scene)
            during.enter_context(before(world, "send", inside, must_come=is_alone))
        if Point.BEFORE_DATABASE in points:
            during.enter_context(dying(world, lambda _, name: name == "send", after=True))
        try:
            world.committing.commit(process_id)
        except Died:
            died = True
    assert died or not is_alone or Point.BEFORE_DATABASE not in points
    case.happens(Point.BEFORE_DATABASE, scene)
    if died:
        world.restart()
        assert world.heard.commits == [process_id]
        world.committing.commit(process_id)


def _begin(world: SteppedWorld, lake: Lake, kind: Kind) -> str:
    """Plan minor optimizing, and make sure that it does with the inputs what the case says, and with no other file."""
    process_id = world.begin(OptimizingType.MINOR)
    works = [
        codec.decode_input(pb.RewriteInput.FromString(payload))
        for task in world.tasks(process_id)
        for payload in [world.store.read(lambda db, task=task: tasks.read_input(db, task.task_id))]
    ]
    assert len(works) == (2 if lake.table.spec().fields else 1)
    assert all(bool(work.rewritten) == (kind is Kind.REWRITE) for work in works)
    assert all(bool(work.converted) == (kind is Kind.CONVERT) for work in works)
    others = {one.path for one in lake.placed() if one.record["id"] >= 200}
    assert others.isdisjoint(given.data.path for work in works for given in (*work.rewritten, *work.converted))
    for work in works:
        kinds = {delete.kind for delete in work.deletes}
        assert kinds == ({DeleteKind.EQUALITY, DeleteKind.POSITION} if lake.version >= 2 else set())
    return process_id

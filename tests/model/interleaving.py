"""What happens when other writers come between the steps of a process: one operation, or several, at any point.

The points are those at which a commit can be overtaken: before the work, before the commit, within it (after it was
staged and written down), and after it landed but before the coordinator, which dies there, has noted so.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
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
from tests.model.crashes import Died, SteppedWorld, before, dying
from tests.model.invariants import require_ended, require_tidy
from tests.model.lake import Lake, Stages
from tests.model.operations import OPERATIONS, Kind, Operation, Scene, expected_status, prepared
from tests.services.rigs import remembering


class Point(StrEnum):
    BEFORE_EXECUTE = "before execute"
    BEFORE_COMMIT = "before commit"
    INSIDE_COMMIT = "inside commit"
    BEFORE_DATABASE = "before database"


@dataclass(frozen=True, slots=True)
class TableCase:
    """A kind of table, and what the process does with its files."""

    version: int
    partitioned: bool
    kind: Kind

    def __str__(self) -> str:
        return f"v{self.version}-{'parts' if self.partitioned else 'plain'}-{self.kind}"


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that others do, and when."""

    operation: Operation
    point: Point

    def __str__(self) -> str:
        return f"{self.operation.name} × {self.point}"


@dataclass(frozen=True, slots=True)
class Case:
    """What happens to a process on a table, in this order at each point."""

    table: TableCase
    happenings: tuple[Happening, ...]

    def __str__(self) -> str:
        return "-".join((*(str(one).replace(" × ", "-") for one in self.happenings), str(self.table))).replace(" ", "_")


#: Format 1 has no deletes to convert.
TABLES = (
    *(TableCase(version, parts, Kind.REWRITE) for version, parts in product((1, 2, 3), (False, True))),
    *(TableCase(version, parts, Kind.CONVERT) for version, parts in product((2, 3), (False, True))),
)


def is_possible(operation: Operation, table: TableCase) -> bool:
    return (table.version >= 2 or not operation.deletes) and (table.partitioned or not operation.partitions)


#: What other operations can't follow, since they name that column.
LAST = ("key column dropped",)
#: Of these only one can happen: each looks for the plan's snapshot in the history, or takes it away from there.
HISTORY = {"main rolled back", "main replaced", "expiry", "expiry after appends"}


def _place(case: Case) -> int:
    (happening,) = case.happenings
    possible = [table for table in TABLES if is_possible(happening.operation, table)]
    return OPERATIONS.index(happening.operation) + list(Point).index(happening.point) + possible.index(case.table)


MATRIX = tuple(
    Case(table, (Happening(operation, point),))
    for operation, point, table in product(OPERATIONS, Point, TABLES)
    if is_possible(operation, table)
)
#: A quarter of the matrix: each operation at each point and on each kind of table, on others at the next point.
SAMPLE = tuple(case for case in MATRIX if _place(case) % 4 == 0)


def pair(chance: random.Random) -> Case:
    """Two different operations, by chance, at one point or at two, the first at the earlier one."""
    table, points = chance.choice(TABLES), list(Point)
    possible = [one for one in OPERATIONS if is_possible(one, table) and one.name not in ("nothing", *LAST)]
    first = chance.choice(possible)
    others = [one for one in OPERATIONS if is_possible(one, table) and one.name != "nothing"]
    second = chance.choice(
        [
            one
            for one in others
            if one is not first and one.is_own + first.is_own < 2 and not {first.name, one.name} <= HISTORY
        ]
    )
    at = sorted(chance.choices(range(len(points)), k=2))
    return Case(table, (Happening(first, points[at[0]]), Happening(second, points[at[1]])))


def carry_out(case: Case, directory: Path, stages: Stages, counts: Counter[str] | None = None) -> ProcessStatus:
    """Let the process go through all that happens; returns how it ended.

    Partitioned tables are looked at by difference. What was copied and decoded elsewhere is counted.

    Raises AssertionError unless the process ends as the only operation lets it, says what is true of it, every ref
    holds its rows, and no file is missing or left behind.
    """
    table = case.table
    lake = stages.restored(
        str(table), lambda catalog: prepared(catalog, table.version, partitioned=table.partitioned, kind=table.kind)
    )
    directory.mkdir(parents=True, exist_ok=True)
    counts = Counter() if counts is None else counts
    by_difference = {"iceberg": partial(remembering, counts=counts)} if table.partitioned else {}
    world = SteppedWorld(directory, lake.catalog, **by_difference)
    try:
        scene = Scene(lake, world, directory / "other")
        process_id = _begin(world, lake, table.kind)
        _run(case.happenings, Point.BEFORE_EXECUTE, scene)
        world.run_all(process_id)
        counts["files copied"] += sum(world.output_of(task).files_copied for task in world.tasks(process_id))
        _run(case.happenings, Point.BEFORE_COMMIT, scene)
        _commit(case.happenings, scene, process_id)
        status = require_ended(world, lake, process_id)
        if len(case.happenings) == 1:
            assert status is _expected(case)
        lake.require()
        require_tidy(world, lake, process_id)
        return status
    finally:
        world.store.close()


def _expected(case: Case) -> ProcessStatus:
    (happening,) = case.happenings
    if happening.point is Point.BEFORE_DATABASE:  # it has landed by then
        return ProcessStatus.SUCCESS
    table = case.table
    return expected_status(happening.operation.fate, table.kind, partitioned=table.partitioned, version=table.version)


def _run(happenings: Sequence[Happening], here: Point, scene: Scene) -> None:
    for one in happenings:
        if one.point is here:
            one.operation.run(scene)


def _commit(happenings: Sequence[Happening], scene: Scene, process_id: str) -> None:
    """Of several, what comes before may foil the commit: nothing is sent then, and nobody dies over it."""
    world, is_alone = scene.world, len(happenings) == 1
    points = {one.point for one in happenings}
    died = False
    with ExitStack() as during:
        if Point.INSIDE_COMMIT in points:
            inside = partial(_run, happenings, Point.INSIDE_COMMIT, scene)
            during.enter_context(before(world, "send", inside, must_come=is_alone))
        if Point.BEFORE_DATABASE in points:
            during.enter_context(dying(world, lambda _, name: name == "send", after=True))
        try:
            world.committing.commit(process_id)
        except Died:
            died = True
    assert died or not is_alone or Point.BEFORE_DATABASE not in points
    _run(happenings, Point.BEFORE_DATABASE, scene)
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

"""What others do while a table is clustered: each operation at each moment, by all update strategies."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions import clustering as action_module
from amoro_core.errors import CommitConflict
from amoro_core.model.clustering import CLUSTER, ClusterOptions, Layout, LayoutKey, Strategy
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.planning.clustering.model import ClusterFacts, ClusteringConfig, ClusterRequest, ClusterVerdict
from amoro_core.services.task_lifecycle import ScheduledTask
from amoro_core.store import processes
from tests.model import operations
from tests.model.crashes import Died, SteppedWorld, before, dying
from tests.model.invariants import require_hidden, require_tidy
from tests.model.lake import Lake, Stages, process_of
from tests.model.operations import (
    HISTORY,
    LAST,
    LOOKED_UP,
    OPERATIONS,
    ORDERED,
    Case,
    Fate,
    Kind,
    Scene,
    expected_status,
    possible,
    prepared,
)
from tests.services.clustered import BY_ID, Grouping, clusterer, commit_due, ordered, unsorted

ENDED = (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL, ProcessStatus.FAILED, ProcessStatus.CLOSED)


class Moment(StrEnum):
    BEFORE_START = "before start"
    BEFORE_EXECUTE = "before execute"
    BETWEEN_GROUPS = "between groups"  # the first is committed, the second is not done
    BEFORE_COMMIT = "before commit"
    INSIDE_ORDER = "inside order"  # the sort order's change is staged
    INSIDE_COMMIT = "inside commit"
    BEFORE_DATABASE = "before database"  # it has landed, and the coordinator dies before it notes so


CARRY_OVER = "carry-over"
TABLES = tuple(product((1, 2, 3), (False, True), ("give-way", "reject", CARRY_OVER)))
BACKWARDS = Layout(Strategy.LINEAR, (LayoutKey(1, descending=True),))
#: Rows of partition a that these operations delete by position.
HIDDEN = {
    "position delete in input": 1,
    "position delete in input, then append": 1,
    "position deletes of every row of an input": 4,
}
FOLLOWED = {Fate.CARRIED, Fate.CARRIED_IN_BOTH, Fate.CARRIED_OR_JOINED}
WHOLE = tuple(
    Case(((operation, moment),), version, partitioned, strategy)
    for operation, moment, (version, partitioned, strategy) in product(OPERATIONS, Moment, TABLES)
    if operation in possible(version, partitioned)
    if partitioned or moment is not Moment.BETWEEN_GROUPS
)


def quick() -> list[Case]:
    """Each operation at one moment, those that may harm the process at two; moments and tables by turns."""
    moments, chosen = list(Moment), []
    for turn, operation in enumerate(OPERATIONS):
        times = 2 if operation.fate is not Fate.UNHARMED or operation.name in LAST else 1
        for at in range(times):
            cases = [one for one in WHOLE if one.happenings == ((operation, moments[(turn + 2 * at) % len(moments)]),)]
            chosen.append(cases[(3 * turn + at) % len(cases)])
        if operation.fate in FOLLOWED:
            cases = [one for one in WHOLE if one.happenings[0][0] is operation and one.how == CARRY_OVER]
            chosen += [cases[turn % len(cases)], cases[-1 - turn % len(cases)]]
    return list(dict.fromkeys(chosen))


def pair(chance: random.Random) -> Case:
    version, partitioned, strategy = chance.choice(TABLES)
    moments = [one for one in Moment if partitioned or one is not Moment.BETWEEN_GROUPS]
    return operations.pair(chance, moments, version, partitioned, strategy)


@dataclass(frozen=True, slots=True)
class _Running:
    """A case under way."""

    case: Case
    scene: Scene
    process_id: str

    def happens(self, here: Moment) -> None:
        self.case.happens(here, self.scene)


def carry_out(case: Case, directory: Path, stages: Stages) -> ProcessStatus:
    """Let the process go through what happens; returns how it ended.

    Raises AssertionError unless it ends as the only operation lets it, every ref holds its rows, each group was
    committed at most once, and no file is missing or left behind.
    """
    lake = stages.restored(f"cluster-{case.table}", lambda catalog: _prepared(catalog, case))
    directory.mkdir(parents=True, exist_ok=True)
    world = SteppedWorld(directory, lake.catalog)
    try:
        others = frozenset(one.path for one in lake.placed() if one.record["id"] >= 200)
        with _planning(others, BACKWARDS if case.how == CARRY_OVER else BY_ID):
            asked = ClusterOptions(schedule_only=True)
            table_id = world.table().table_id
            begun = world.maintaining.begin(table_id, CLUSTER, trigger="request", cluster=asked)
        running = _Running(case, Scene(lake, world, directory / "other"), begun.process_id)
        assert len(world.tasks(begun.process_id)) == 1 + case.partitioned
        running.happens(Moment.BEFORE_START)
        with suppress(CommitConflict):
            world.starting.start(begun.process_id)
        if world.status(begun.process_id) is ProcessStatus.RUNNING:
            _run(running)
        world.clearing.clean_up(begun.process_id)
        status = _require_ended(running)
        lake.require()
        hidden = require_hidden(lake.table, begun.process_id)
        assert hidden >= _least_hidden(case)
        assert not hidden or case.how == CARRY_OVER
        require_tidy(world, lake, begun.process_id)
        return status
    finally:
        world.store.close()


def _prepared(catalog: SqlCatalog, case: Case) -> Lake:
    lake = prepared(catalog, case.version, partitioned=case.partitioned, kind=Kind.REWRITE)
    with lake.table.refresh().transaction() as change:
        change.set_properties({"self-optimizing.cluster.update-strategy": case.how})
    return lake


@contextmanager
def _planning(others: frozenset[str], layout: Layout) -> Iterator[None]:
    """A plan of all files but those: a group for each partition."""
    every = Grouping(size=100, layout=layout)

    def plan(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> ClusterVerdict:
        assert facts.scan is not None
        chosen = tuple(file for file in facts.scan.files if file.data.path not in others)
        return every(replace(facts, scan=replace(facts.scan, files=chosen)), config, request)

    with planned_by(plan):
        yield


@contextmanager
def planned_by(plan: Callable[[ClusterFacts, ClusteringConfig, ClusterRequest], ClusterVerdict]) -> Iterator[None]:
    """Let what is clustered be planned so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(action_module, "plan_clustering", plan)
        yield


def _run(running: _Running) -> None:
    world, process_id = running.scene.world, running.process_id
    optimizer = clusterer(world)
    running.happens(Moment.BEFORE_EXECUTE)
    handed = list(world.poll(optimizer, 1, 2))
    assert len(handed) == len(world.tasks(process_id))
    if Moment.BETWEEN_GROUPS in running.case.points:
        _complete(running, optimizer, handed.pop(0))
        commit_due(world, process_id)
        running.happens(Moment.BETWEEN_GROUPS)
    for one in handed:
        _complete(running, optimizer, one)
    running.happens(Moment.BEFORE_COMMIT)
    died = False
    with ExitStack() as during:
        for moment, is_order in ((Moment.INSIDE_ORDER, True), (Moment.INSIDE_COMMIT, False)):
            if moment in running.case.points:
                during.enter_context(_before(world, is_order, partial(running.happens, moment)))
        if Moment.BEFORE_DATABASE in running.case.points:
            sends: Counter[str] = Counter()

            def second(_: int, name: str) -> bool:
                sends[name] += 1
                return name == "send" and sends[name] == 2

            during.enter_context(dying(world, second, after=True))
        try:
            commit_due(world, process_id)
        except Died:
            died = True
    if Moment.BEFORE_DATABASE in running.case.points:
        running.happens(Moment.BEFORE_DATABASE)
    if died:
        world.restart()
        commit_due(world, process_id)


def _complete(running: _Running, optimizer: str, handed: ScheduledTask) -> None:
    """Do a task, unless its group was given up meanwhile; rows that are looked up stand in another order."""
    optimizing, work = running.scene.world.optimizing, ordered if running.case.how == CARRY_OVER else unsorted
    if optimizing.ack(optimizer, [handed.attempt]) != [None]:
        assert optimizing.complete(optimizer, handed.attempt, work(handed))


def _before(world: SteppedWorld, is_order: bool, meanwhile: Callable[[], object]) -> AbstractContextManager[None]:
    """Let something happen once, before the change of the sort order is sent, or the first other one."""
    return before(
        world, "send", meanwhile, given=lambda payload: (b"add-sort-order" in payload) == is_order, must_come=False
    )


def _require_ended(running: _Running) -> ProcessStatus:
    """The process has ended and says so truly; each group is in one commit at most."""
    world, process_id, case = running.scene.world, running.process_id, running.case
    process = world.optimizing.find_process(process_id).process
    assert process.status in ENDED
    attempts = world.store.read(lambda db: processes.list_commits(db, process_id))
    assert {one.outcome for one in attempts}.isdisjoint({CommitOutcome.SENT, CommitOutcome.UNKNOWN})
    done = [one for one in attempts if one.outcome is CommitOutcome.DONE and one.groups]
    groups = [number for one in done for number in one.groups]
    assert len(groups) == len(set(groups))
    every = 1 + case.partitioned
    assert (process.status is ProcessStatus.SUCCESS) == (len(groups) == every)
    assert (process.status is ProcessStatus.PARTIAL) == (0 < len(groups) < every)
    landed = [
        one.snapshot_id
        for one in running.scene.lake.table.refresh().metadata.snapshots
        if process_of(one) == process_id
    ]
    assert set(landed) <= {one.snapshot_id for one in done}  # others may have expired some
    assert len(landed) == len(set(landed))
    if len(case.happenings) == 1:
        assert process.status in _expected(case), process.failure
    return process.status


def _least_hidden(case: Case) -> int:
    """The rows of its inputs that the only operation deletes by position, where they are carried over for sure."""
    operation, moment = case.happenings[0]
    if case.how != CARRY_OVER or len(case.happenings) > 1 or moment is Moment.BEFORE_DATABASE:
        return 0
    return 0 if moment is Moment.BETWEEN_GROUPS else HIDDEN.get(operation.name, 0)


def _expected(case: Case) -> Sequence[ProcessStatus]:
    ((operation, moment),) = case.happenings
    if moment is Moment.BEFORE_DATABASE:  # it has landed by then
        return [ProcessStatus.SUCCESS]
    fates = LOOKED_UP if case.how == CARRY_OVER else ORDERED
    fate = fates.get(operation.fate, operation.fate)
    status = expected_status(fate, Kind.REWRITE, partitioned=case.partitioned)
    if moment is Moment.BETWEEN_GROUPS and (fate is not Fate.UNHARMED or operation.name in HISTORY):
        return [ProcessStatus.SUCCESS, ProcessStatus.PARTIAL]  # one group is safe, and not always that of a
    if moment is Moment.BEFORE_START and fate in (Fate.LOSES_A, Fate.FAILS):
        return [ProcessStatus.CLOSED, status]  # of a plan that waits no file may be gone
    return [status]

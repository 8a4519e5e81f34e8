"""A state machine of two coordinators and everybody else on one table; whatever they do, each ref keeps its rows.

Planning, executing and committing are steps of their own, so that all others slip in between; a coordinator may die
at any effect of any step (a superset of the failpoints), and a catalog's answer may get lost.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from amoro_core.errors import CommitUnknown
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, CommitOutcome, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import processes
from tests.engine import oracle
from tests.engine.builders import as_pyiceberg_reads
from tests.engine.chance import seed_ids
from tests.engine.parquet_rows import local_path
from tests.engine.writer import make_catalog
from tests.model.conftest import quick_directory
from tests.model.crashes import Died, SteppedWorld, before, dying, instead_of_sending
from tests.model.invariants import require_ended, require_tidy
from tests.model.lake import COPIES, MAIN, Lake
from tests.model.writers import SIZES, WRITES, Writers, idents, parts
from tests.services.rigs import remembering

EXECUTING = (ProcessStatus.RUNNING,)
ENDING = (ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN)
PAIR = " × "  # between an operation and the stage of a process that it slipped into, in the counts
MOST_STEPS = 12  # to the end of a process once nobody disturbs it

coordinators = st.integers(0, 1)
kinds = st.sampled_from(OptimizingType)


class Optimizing(Writers):
    """Two coordinators with an optimizer each, and the writers of one table. The first one looks by difference.

    Both are as right: what the second one reads of the table it reads anew each time.
    """

    counts: ClassVar[Counter[str]] = Counter()  # what happened in all schedules, for the record

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        seed_ids(self.patch, random.Random(0))
        self.directory = quick_directory()
        home = Path(self.directory.name)
        self.catalog = make_catalog(home)
        self.worlds: list[SteppedWorld] = []
        self.active: list[str | None] = [None, None]
        self.disturbed: set[str] = set()  # processes that may leave files behind: somebody died over them
        self.written = 0
        self.is_sending = False

    @invariant()
    def count(self) -> None:
        """Runs after the creation of the table and after each step."""
        self.counts["steps"] += 1

    @initialize(
        version=st.sampled_from((2, 3, 2, 1)),
        partitioned=st.booleans(),
        size=st.sampled_from(SIZES),
        copies=st.sampled_from(("true", "", "false")),  # "": minor optimizing does
    )
    def create(self, version: int, partitioned: bool, size: str, copies: str) -> None:
        properties = {
            "self-optimizing.target-size": size,
            "self-optimizing.major.trigger.duplicate-ratio": "1.0",
            f"{COPIES}.min-avg-row-group-size-bytes": "0",
            **({f"{COPIES}.enabled": copies} if copies else {}),
        }
        self.lake = Lake.created(self.catalog, version, partitioned=partitioned, properties=properties)
        for number in (0, 1):
            home = Path(self.directory.name) / f"home{number}"
            home.mkdir()
            by_difference = {"iceberg": partial(remembering, counts=self.counts)} if number == 0 else {}
            self.worlds.append(SteppedWorld(home, self.catalog, **by_difference))
        self.lake.append([self._row(id_, "a") for id_ in range(4)], files=2)
        self.lake.append([self._row(id_, "b") for id_ in range(3, 7)])

    # Coordinators. Where only one of the two can do what a rule says, it does.

    @rule(which=coordinators, kind=kinds)
    @precondition(lambda self: self._among(None))
    def plan(self, which: int, kind: OptimizingType) -> None:
        self._plan(self._one_of(which, None), kind)

    @rule(which=coordinators)
    @precondition(lambda self: self._among(*EXECUTING))
    def execute_one(self, which: int) -> None:
        self._execute_one(self._one_of(which, *EXECUTING))

    @rule(which=coordinators)
    @precondition(lambda self: self._among(*EXECUTING))
    def execute_all(self, which: int) -> None:
        one = self._one_of(which, *EXECUTING)
        while self._is(one, *EXECUTING):
            self._execute_one(one)

    @rule(which=coordinators)
    @precondition(lambda self: self._among(*ENDING))
    def commit(self, which: int) -> None:
        self._commit(self._one_of(which, *ENDING))

    @rule(which=coordinators, at=st.integers(0, 4), after=st.booleans())
    @precondition(lambda self: self._among(*ENDING))
    def die_in_commit(self, which: int, at: int, after: bool) -> None:
        self._die(self._one_of(which, *ENDING), at, after, self._commit)

    @rule(which=coordinators, at=st.integers(0, 1), after=st.booleans(), kind=kinds)
    @precondition(lambda self: self._among(None))
    def die_in_plan(self, which: int, at: int, after: bool, kind: OptimizingType) -> None:
        self._die(self._one_of(which, None), at, after, lambda one: self._plan(one, kind))

    @rule(which=coordinators, at=st.integers(0, 3), after=st.booleans())
    @precondition(lambda self: self._among(*EXECUTING))
    def die_in_execution(self, which: int, at: int, after: bool) -> None:
        self._die(self._one_of(which, *EXECUTING), at, after, self._execute_one)

    @rule(which=coordinators)
    @precondition(lambda self: self._among(*EXECUTING))
    def lose_optimizer(self, which: int) -> None:
        """An optimizer is taken for dead when it has all but reported; its late result must not count."""
        one = self._one_of(which, *EXECUTING)
        world = self.worlds[one]
        self.disturbed.add(self._active(one))
        zombie = world.optimizer(1)
        for handed in world.poll(zombie):
            world.optimizing.ack(zombie, [handed.attempt])
            result = world.execute(handed)
            world.optimizing.dismiss(zombie, "not heard of any more", lost=True)
            assert not world.complete(zombie, handed.attempt, result)
        self._note(one)

    @rule(which=coordinators, applied=st.booleans())
    @precondition(lambda self: self._among(*ENDING))
    def lose_answer(self, which: int, applied: bool) -> None:
        """The catalog applies the commit or doesn't, and nobody hears which."""
        one = self._one_of(which, *ENDING)

        def lose(send: Callable[[], object]) -> None:
            if applied:
                send()
            self.counts["answers lost"] += 1
            raise CommitUnknown("the connection was reset")

        with instead_of_sending(self.worlds[one], lose):
            self._commit(one)

    @rule(which=coordinators, ids=idents, part=parts)
    @precondition(lambda self: self._among(*ENDING))
    def overtake(self, which: int, ids: list[int], part: str | None) -> None:
        """Somebody commits while a staged commit is on its way."""
        one = self._one_of(which, *ENDING)

        def write() -> None:
            self.is_sending = True
            self.write("upsert", ids, part, False)
            self.is_sending = False
            self.counts["overtaken"] += 1

        with before(self.worlds[one], "send", write, must_come=False):
            self._commit(one)

    @rule(
        which=coordinators,
        kind=kinds,
        what=st.sampled_from(WRITES),
        ids=idents,
        part=parts,
        flag=st.booleans(),
        early=st.booleans(),
        dies_at=st.none() | st.integers(0, 3),
    )
    @precondition(lambda self: self._among(None))
    def round_with_a_write(
        self,
        which: int,
        kind: OptimizingType,
        what: str,
        ids: list[int],
        part: str | None,
        flag: bool,
        early: bool,
        dies_at: int | None,
    ) -> None:
        """The most frequent schedule of all: one write between plan and commit, and perhaps a death."""
        one = self._one_of(which, None)
        self._plan(one, kind)
        if early:
            self.write(what, ids, part, flag)
        while self._is(one, *EXECUTING):
            self._execute_one(one)
        if not early:
            self.write(what, ids, part, flag)
        if self._is(one, *ENDING):
            if dies_at is None:
                self._commit(one)
            else:
                self._die(one, dies_at, flag, self._commit)

    # Steps

    def _plan(self, which: int, kind: OptimizingType) -> None:
        self.meets("own plan", but=which)
        world = self.worlds[which]
        self.active[which] = world.planning.begin(world.table().table_id, trigger="request", requested=kind).process_id

    def _execute_one(self, which: int) -> None:
        self.meets("own execution", but=which)
        world = self.worlds[which]
        output = world.output(world.run_one(world.optimizer(1)).attempt)
        self.counts["files copied"] += output.files_copied if output else 0
        self._note(which)

    def _commit(self, which: int) -> None:
        self.meets("own commit", but=which)
        self.worlds[which].committing.commit(self._active(which))
        self._note(which)

    def _die(self, which: int, at: int, after: bool, step: Callable[[int], Any]) -> None:
        world, process_id = self.worlds[which], self.active[which]
        try:
            with dying(world, lambda count, _: count == at, after=after):
                step(which)
        except Died as died:
            self.counts[f"died at {died}"] += 1
            world.restart()
            found = world.optimizing.active_process(world.table().table_id)
            if process_id is None:
                process_id = found.process_id if found is not None else None
            if process_id is not None:
                self.disturbed.add(process_id)
            self.active[which] = process_id
            self._release_held(which)
        if self.active[which] is not None:
            self._note(which)

    def _release_held(self, which: int) -> None:
        """What the dead coordinator had scheduled is never reported in this test."""
        world = self.worlds[which]
        known = [one.thread.optimizer_id for one in self._held(which) if one.thread is not None]
        for optimizer_id in sorted(set(known)):
            world.optimizing.dismiss(optimizer_id, "gone with its coordinator", lost=False)

    def _held(self, which: int) -> list[Any]:
        process_id = self.active[which]
        return [] if process_id is None else list(self.worlds[which].tasks(process_id))

    def _note(self, which: int) -> None:
        """Check rows and files after a step; forget a process that has ended."""
        world, process_id = self.worlds[which], self._active(which)
        self.lake.require()
        status = world.status(process_id)
        attempts = world.store.read(lambda db: processes.list_commits(db, process_id))
        for one in attempts:
            if one.outcome in (CommitOutcome.SENT, CommitOutcome.UNKNOWN):
                assert [path for path in one.metadata_files if not Path(local_path(path)).exists()] == []
        if status in ACTIVE_PROCESS_STATUSES:
            return
        self.counts[f"ended {require_ended(world, self.lake, process_id)}"] += 1
        for left_over in world.heard.left_over:
            world.clearing.clean_up(left_over)
        if process_id not in self.disturbed:
            require_tidy(world, self.lake, process_id)
        self.active[which] = None

    def teardown(self) -> None:
        self.counts["schedules"] += 1
        self.counts["steps"] -= 1  # the creation of the table
        try:
            if self.worlds:
                self._finish()
        finally:
            for world in self.worlds:
                world.store.close()
            self.patch.undo()
            self.catalog.close()
            close_catalogs()
            self.directory.cleanup()

    def _finish(self) -> None:
        """Undisturbed, every process ends, the table can be optimized, and others read the same rows."""
        for which in (0, 1):
            self._carry_through(which)
        self._plan(0, OptimizingType.FULL)
        self._carry_through(0)
        self.lake.require()
        if all(file.content != oracle.EQUALITY_DELETES for file in oracle.live_files(self.lake.table)):
            oracle.assert_same_rows(self.lake.expected(MAIN), as_pyiceberg_reads(self.lake.table))

    def _carry_through(self, which: int) -> None:
        self._drive(which)
        if self._waits_for_a_commit(which):
            self.counts["open until the next commit"] += 1
            self.write("append", [1], "a", False)
            self._drive(which)
        assert self.active[which] is None, self._status(which)

    def _drive(self, which: int) -> None:
        for _ in range(MOST_STEPS):
            if self._is(which, *EXECUTING):
                self._execute_one(which)
            elif self.active[which] is not None:
                self._commit(which)

    def _waits_for_a_commit(self, which: int) -> bool:
        """Whether an attempt may still land, were main moved back to its parent: nobody has taken its number since."""
        process_id = self.active[which]
        if process_id is None or not self._is(which, ProcessStatus.COMMIT_UNKNOWN) or self.lake.version == 1:
            return False
        attempt = self.worlds[which].store.read(lambda db: processes.list_commits(db, process_id))[-1]
        self.lake.table.refresh()
        metadata = self.lake.table.metadata
        has_left = metadata.current_snapshot_id != attempt.evidence.parent_snapshot_id
        return has_left and metadata.last_sequence_number < attempt.evidence.sequence_number

    # Parts

    def meets(self, operation: str, but: int | None = None) -> None:
        """Count the stages of all processes, but that coordinator's own, that the operation slips into."""
        for which in {0, 1} - {but}:
            if (stage := self._stage(which)) is not None:
                self.counts[f"{operation}{PAIR}{stage}"] += 1

    def _stage(self, which: int) -> str | None:
        """How far its process is; None without one."""
        process_id, status = self.active[which], self._status(which)
        if process_id is None or status is None:
            return None
        world = self.worlds[which]
        if status is ProcessStatus.RUNNING:
            has_begun = any(task.status is TaskStatus.SUCCESS for task in world.tasks(process_id))
            return "between tasks" if has_begun else "before execute"
        if status is ProcessStatus.COMMIT_UNKNOWN:
            return "commit unknown"
        attempts = world.store.read(lambda db: processes.list_commits(db, process_id))
        if self.is_sending and attempts and attempts[-1].outcome is CommitOutcome.SENT:
            return "inside commit"
        return "after death in commit" if attempts else "before commit"

    def _active(self, which: int) -> str:
        process_id = self.active[which]
        assert process_id is not None
        return process_id

    def _status(self, which: int) -> ProcessStatus | None:
        """The status of its process; None without one."""
        process_id = self.active[which]
        return None if process_id is None else self.worlds[which].status(process_id)

    def _is(self, which: int, *statuses: ProcessStatus | None) -> bool:
        return self._status(which) in statuses

    def _among(self, *statuses: ProcessStatus | None) -> bool:
        return any(self._is(which, *statuses) for which in (0, 1))

    def _one_of(self, which: int, *statuses: ProcessStatus | None) -> int:
        return which if self._is(which, *statuses) else 1 - which


def run(seed: int, examples: int, steps: int, totals: Counter[str], *, shrinks: bool = False) -> None:
    """Run that many schedules; what happened is counted in `totals`, also when one fails.

    Raises what the first failing schedule raises; with `shrinks` a shorter one is looked for first.
    """

    class Counting(Optimizing):
        counts = totals

    run_state_machine_as_test(
        seeded(seed)(Counting),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=False,
            print_blob=True,
            deadline=None,
            database=None,  # nothing is remembered, so that the seed is all that counts
            phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
            verbosity=Verbosity.normal,
            suppress_health_check=list(HealthCheck),
        ),
    )

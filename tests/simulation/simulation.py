"""Events by a seed: anything happens to anybody at any time, then nothing goes wrong, and all must come to rest."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from amoro_core.errors import AmoroError
from amoro_core.logger import ROOT
from amoro_core.model.clustering import CLUSTER, ClusterOptions, Layout, LayoutKey, Strategy
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, ProcessStatus
from amoro_core.model.tables import BlockedOperation, OptimizingType, TableIdentifier
from amoro_core.services.groups import GroupChange
from amoro_core.services.task_lifecycle import Failure, ScheduledTask
from tests.engine.chance import seed_ids
from tests.model.clustered import planned_by
from tests.model.conftest import quick_directory
from tests.services.clustered import Grouping
from tests.simulation.coordinator import CLOSE, GROUPS, HEARTBEAT, Coordinator, Died, Unanswered, Work, Worker
from tests.simulation.invariants import Watch
from tests.simulation.lake import Lake, LakeFormat, LakeTable, unavailable

T = TypeVar("T")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOST_TABLES = 3
MOST_WORKERS = 3
STEPS = 100  # events in which anything may go wrong
#: Virtual time until everything rests once nothing goes wrong: the longest that a task may be held, and a poll of a
#: table, twice, with the look at an unknown commit between.
REST = 2 * CLOSE + timedelta(minutes=30)
TICK_S = 30.0
#: A plan that waits for its start is at rest: it may wait for a day.
ACTIVE = tuple(status.value for status in ACTIVE_PROCESS_STATUSES if status is not ProcessStatus.REQUESTED)
#: A curve, for which no sort order is added.
CURVE = Layout(Strategy.HILBERT, (LayoutKey(1),))
#: Steps of the coordinator's loops, with their weights.
LOOPS = {"keep": 4, "refresh": 6, "explore": 1, "commit": 2, "trim": 1}
KINDS = tuple(OptimizingType)
MAINTENANCE = ("auto-create-tags", "sweep")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to; equal seeds have equal traces."""

    trace: str
    steps: int
    counts: Counter[str]


class Simulation:
    """The world of one seed."""

    def __init__(self, seed: int, home: Path) -> None:
        self.chance = random.Random(seed)
        self.now, self.latest, self.seconds = START, START, 1000.0
        self.faulty = True
        self.depth = 0
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._trace = hashlib.sha256()
        self.lines: list[str] = []
        self.steps = 0
        self.effects = 0
        self.late: list[Callable[[], object]] = []
        self.lake = Lake(self.chance)
        self.lake.clock = lambda: self.now
        self.workers: list[Worker] = []
        self._names = 0
        self.busy: set[str] = set()  # loops whose step is under way: each has one thread
        self._path = home / "amoro.db"
        self._format = LakeFormat(self.lake, self._at)
        self.watch = Watch(self._path, self.lake)
        self.lake.commits_by_groups = lambda process_id: self.watch.lanes.get(process_id) == "layout"
        self.dying_rate = self.chance.choice((0.0, 0.01, 0.03))
        self.slip_rate = self.chance.choice((0.0, 0.05, 0.2))
        self.loss_rate = self.chance.choice((0.0, 0.1, 0.3))
        self.coordinator = self._open()
        self._events = self._weighted()

    # The run

    def run(self, steps: int) -> Outcome:
        for _ in range(self.chance.randint(1, MOST_TABLES)):
            self._create_table()
        for _ in range(self.chance.randint(1, MOST_WORKERS)):
            self._new_worker()
        self.faulty = False
        self._begin()
        self.faulty = True
        for _ in range(steps):
            self._do(*self._drawn())
        self._rest()
        self._finish()
        return Outcome(self._trace.hexdigest(), self.steps, self.counts)

    def _begin(self) -> None:
        """Everybody knows everybody: the tables are found and looked at, the optimizers are registered."""
        for loop in ("explore", "refresh", "refresh"):
            self._do(loop, lambda loop=loop: self._loop(loop))
            while self.coordinator.jobs:
                self._do("job", self._job)
        for worker in self.workers:
            self._do("worker", lambda worker=worker: worker.step(self))

    def close(self) -> None:
        self.watch.close()
        self.coordinator.kill()
        self.coordinator.file.close()

    def _do(self, name: str, event: Callable[[], object]) -> None:
        """One event, and everything that slips into it; then all that must hold is looked at."""
        self.steps += 1
        self.counts[name] += 1
        try:
            said = event()
        except Died:
            said = "died"
            self._restart()
        except Unanswered:
            said = "unanswered"
        self._note(name, said)
        assert not self.errors, self.errors[0]

    def _note(self, name: str, said: object) -> None:
        self.lines.append(f"{self.steps} {self.now:%d %H:%M:%S} {name}: {said}")
        self._trace.update(f"{name}:{said}:{self.effects}:{self.now.isoformat()}:".encode())
        self._trace.update(self.watch.look())

    def _drawn(self) -> tuple[str, Callable[[], object]]:
        names = [name for name in self._events if self._is_possible(name)]
        (name,) = self.chance.choices(names, [self._events[name][1] for name in names])
        return name, self._events[name][0]

    def _is_possible(self, name: str) -> bool:
        match name:
            case "job":
                return bool(self.coordinator.jobs)
            case "late message":
                return bool(self.late)
            case "late commit":
                return bool(self.lake.under_way)
            case "worker new":
                return len(self.workers) < MOST_WORKERS
            case "table":
                return len(self.lake.tables) < MOST_TABLES
        return name not in self.busy

    def _weighted(self) -> dict[str, tuple[Callable[[], object], int]]:
        """Each event with its weight."""
        return {
            "worker": (self._worker, 45),
            "job": (self._job, 30),
            **{loop: (partial(self._loop, loop), weight) for loop, weight in LOOPS.items()},
            "time": (self._time, 6),
            "clock": (self._set_clock, 1),
            "write": (self._write, 8),
            "late message": (self._late, 4),
            "late commit": (self._late_commit, 4),
            "worker lost": (self._lose_worker, 1),
            "worker hangs": (lambda: self._lose_worker(hangs=True), 1),
            "worker new": (self._new_worker, 3),
            "restart": (self._killed, 1),
            "table": (self._create_table, 1),
            "drop": (self._drop_table, 1),
            "request": (self._request, 3),
            "enable": (self._enable, 1),
            "cancel": (self._cancel, 1),
            "drain": (self._drain, 1),
            "block": (self._block, 1),
            "group": (self._group, 1),
            "stray": (self._stray, 2),
            "maintain": (self._maintain, 2),
            "cluster": (self._cluster, 3),
            "start": (self._start, 2),
        }

    # What the coordinator meets

    def _at(self, name: str) -> None:
        """Before and after each effect of the coordinator: others act, the catalog fails, or the coordinator dies."""
        self.effects += 1
        if not self.faulty:
            return
        if self.coordinator.mortal.dead:
            raise Died
        drawn = self.chance.random()
        if drawn < self.dying_rate:
            self.counts[f"died at {name}"] += 1
            self.coordinator.kill()
            raise Died
        if drawn > 1 - self.slip_rate and self.depth < 2:
            self.depth += 1
            try:
                slipped, event = self._drawn()
                if slipped != "restart":
                    self.counts["slipped in"] += 1
                    self.watch.look()
                    event()
                    self.watch.look()
            except Unanswered:
                pass
            finally:
                self.depth -= 1
            if self.coordinator.mortal.dead:
                raise Died
        if name in ("load", "list", "head", "scan", "stage", "trace", "delete") and self.chance.random() < 0.03:
            raise unavailable()

    def call(self, message: Callable[[], T]) -> T:
        """A message of an optimizer and its answer. Raises Unanswered, and what the coordinator answers."""
        if self.faulty and self.chance.random() < self.loss_rate:
            fate = self.chance.choice(("lost", "late", "answer lost", "twice"))
            self.counts[f"message {fate}"] += 1
            if fate == "lost":
                raise Unanswered
            if fate in ("late", "twice"):
                self.late.append(message)
            if fate == "late":
                raise Unanswered
            answer = message()
            if fate == "answer lost":
                raise Unanswered
            return answer
        return message()

    def polled(
        self, group: str, threads: tuple[int, ...], poll: Callable[[], list[ScheduledTask]]
    ) -> list[ScheduledTask]:
        """A poll that nothing slips into leaves no thread idle while a task of the group waits."""
        before = self.effects
        counted = self.counts["slipped in"]
        handed = poll()
        if self.counts["slipped in"] == counted and self.effects > before and len(handed) < len(threads):
            self.watch.look()
            # Their processes have begun, and it is known what became of their commits.
            offered = {key for key, (_, status) in self.watch.processes.items() if status in ("running", "committing")}
            waiting = [
                task.task_id
                for key in sorted(offered)
                for task in self.coordinator.optimizing.find_process(key).tasks
                if task.group == group and self.watch.tasks[key, task.task_id.number].status == "planned"
            ]
            assert not waiting, f"{len(threads) - len(handed)} threads stay idle, and {waiting} wait"
        return handed

    def completed(self, token: str, work: Work) -> bool:
        """Report a result; what counts is remembered."""
        result = work.result
        assert result is not None
        if isinstance(result, Failure):
            self.watch.reports_failure(work.attempt)
        accepted = self.coordinator.complete(token, work.attempt, result)
        if accepted and not isinstance(result, Failure):
            self.watch.accepted(work.attempt, result)
        return accepted

    # Events

    def _worker(self) -> object:
        self.workers = [worker for worker in self.workers if not worker.gone]
        if not self.workers:
            return "nobody"
        # Optimizers with work are busier.
        worker = self.chance.choice([worker for worker in self.workers if worker.works] or self.workers)
        return f"{worker.name} {worker.step(self)}"

    def _new_worker(self) -> object:
        self._names += 1
        self.workers.append(Worker(self._names, self.chance.choice((*GROUPS, GROUPS[0])), self.chance.randint(1, 3)))
        return self._names

    def _lose_worker(self, *, hangs: bool = False) -> object:
        """It is no more; or its heart beats on, and none of its threads does anything any more."""
        if not self.workers:
            return "nobody"
        worker = self.chance.choice(self.workers)
        worker.hung |= hangs
        if not hangs:
            worker.gone = True
            self.workers.remove(worker)
        return worker.name

    def _job(self) -> object:
        jobs = self.coordinator.jobs
        name, job = jobs.pop(self.chance.randrange(min(len(jobs), 4)))
        job()
        return name

    def _loop(self, name: str) -> object:
        def step() -> int:
            getattr(self.coordinator.loops, f"_{name}_step")()
            return len(self.coordinator.jobs)

        self.busy.add(name)
        try:
            return self._answered(step)
        finally:
            self.busy.discard(name)

    def _answered(self, ask: Callable[[], object]) -> object:
        """What came of it, or why it was refused."""
        try:
            return ask()
        except AmoroError as error:
            return error.code

    def _time(self) -> object:
        return self._pass(self.chance.choice((0.5, 3, 3, 10, 10, 31, 31, 61, 700)))

    def _pass(self, seconds: float) -> float:
        self.now += timedelta(seconds=seconds)
        self.latest = max(self.latest, self.now)
        self.seconds += seconds
        return seconds

    def _set_clock(self) -> object:
        """Somebody sets the wall clock; the monotonic one does not care."""
        jump = self.chance.choice((-3600, -5, 5, 3600))
        self.now += timedelta(seconds=jump)
        self.latest = max(self.latest, self.now)
        return jump

    def _write(self) -> object:
        table = self._some_table()
        if table is None:
            return "no table"
        what = self.chance.choice(("append", "append", "append", "upsert", "upsert", "delete", "overwrite", "rare"))
        match what:
            case "append":
                self.lake.append(table, self.chance.choice((1, 2, 4)))
            case "upsert":
                self.lake.upsert(table)
            case "delete":
                self.lake.delete_rows(table)
            case "overwrite":
                self.lake.overwrite(table)
            case "rare":
                self.chance.choice((self.lake.roll_back, self.lake.expire, self._set_property))(table)
        return f"{what} {table.identifier}"

    def _set_property(self, table: LakeTable) -> None:
        key, value = self.chance.choice(
            (
                ("self-optimizing.enabled", "false"),
                ("self-optimizing.enabled", "true"),
                ("self-optimizing.quota", "much"),
                ("self-optimizing.quota", "0.2"),
                ("self-optimizing.group", GROUPS[1]),
            )
        )
        table.properties[key] = value

    def _create_table(self) -> object:
        identifier = TableIdentifier("cat", ("db",), self.chance.choice("tuv"))
        if identifier in self.lake.tables:
            return "exists"
        properties = {
            "self-optimizing.enabled": "true",
            "self-optimizing.group": self.chance.choice((*GROUPS, GROUPS[0], GROUPS[0])),
            "self-optimizing.quota": self.chance.choice(("0.2", "0.5", "1.0", "2")),
            "self-optimizing.target-size": "4000",
            "self-optimizing.max-task-size-bytes": self.chance.choice(("700", "4000")),
            "self-optimizing.minor.trigger.file-count": "3",
            "self-optimizing.minor.trigger.interval": "300000",
            "self-optimizing.min-plan-interval": self.chance.choice(("0", "60000")),
            "self-optimizing.execute.num-retries": self.chance.choice(("0", "1", "5")),
            "self-optimizing.allow-partial-commit": self.chance.choice(("true", "false")),
            "read.split.open-file-cost": "10",
            "self-optimizing.cluster.enabled": self.chance.choice(("true", "false")),
            "self-optimizing.cluster.mode": self.chance.choice(("async", "async", "scheduled")),
            "self-optimizing.cluster.partial-progress": self.chance.choice(("true", "true", "false")),
            "self-optimizing.cluster.partial-progress.max-commits": self.chance.choice(("1", "2", "10")),
            "self-optimizing.cluster.plan-ttl": "10min",
            "self-optimizing.cluster.update-strategy": "give-way",  # its optimizers put no rows into another order
            "tag.auto-create.enabled": self.chance.choice(("true", "false")),
            "tag.auto-create.trigger.period": "hourly",
            "tag.auto-create.trigger.max-delay.minutes": "0",
        }
        table = self.lake.create(identifier, properties)
        for _ in range(self.chance.randint(1, 4)):
            self.lake.append(table, self.chance.randint(1, 3))
        return identifier

    def _drop_table(self) -> object:
        table = self._some_table()
        if table is None or self.chance.random() < 0.5:
            return "stays"
        del self.lake.tables[table.identifier]
        return table.identifier

    def _some_table(self) -> LakeTable | None:
        tables = [self.lake.tables[identifier] for identifier in sorted(self.lake.tables)]
        return self.chance.choice(tables) if tables else None

    def _late(self) -> object:
        self._answered(self.late.pop(self.chance.randrange(len(self.late))))
        return "arrived"

    def _late_commit(self) -> object:
        return self.lake.arrive()

    # What people do

    def _asked(self, ask: Callable[[TableIdentifier], object]) -> object:
        identifier = TableIdentifier("cat", ("db",), self.chance.choice("tuv"))
        return identifier, self._answered(lambda: ask(identifier) is None)

    def _request(self) -> object:
        kind, tables, begin = self.chance.choice(KINDS), self.coordinator.tables, self.coordinator.planning.begin
        return self._asked(
            lambda one: begin(tables.require_optimizable(one).table_id, trigger="request", requested=kind)
        )

    def _stray(self) -> object:
        table = self._some_table()
        return "no table" if table is None else self.lake.stray(table)

    def _maintain(self, action: str = "", **options: ClusterOptions) -> object:
        action = action or self.chance.choice(MAINTENANCE)
        tables, begin = self.coordinator.tables, self.coordinator.maintaining.begin
        return self._asked(
            lambda one: begin(tables.require_maintainable(one).table_id, action, trigger="request", **options)
        )

    def _cluster(self) -> object:
        return self._maintain(CLUSTER, cluster=ClusterOptions(schedule_only=self.chance.random() < 0.5))

    def _start(self) -> object:
        """Somebody starts a plan that waits, or tries to."""
        waiting = sorted(key for key, (_, status) in self.watch.processes.items() if status == "requested")
        if not waiting:
            return "none"
        return self._answered(lambda: self.coordinator.starting.start(self.chance.choice(waiting)) is None)

    def _enable(self) -> object:
        enabled = self.chance.random() < 0.7
        return self._asked(lambda identifier: self.coordinator.tables.set_enabled(identifier, enabled))

    def _block(self) -> object:
        tables, block = self.coordinator.tables, self.coordinator.blockers.block
        return self._asked(lambda one: block(tables.ensure(one).table_id, frozenset({BlockedOperation.OPTIMIZE})))

    def _cancel(self) -> object:
        known = [view.process.process_id for view in self.coordinator.optimizing.list_processes(limit=3)]
        if not known:
            return "none"
        cancel = self.coordinator.optimizing.cancel
        return self._answered(lambda: cancel(self.chance.choice(known), "somebody said so") is None)

    def _drain(self) -> object:
        known = [optimizer.optimizer_id for optimizer, _ in self.coordinator.optimizers.list_optimizers()]
        drain = self.coordinator.optimizers.drain
        return self._answered(lambda: drain(self.chance.choice(known)) is None) if known else "none"

    def _group(self) -> object:
        policy = self.chance.choice(("quota", "balanced"))
        self.coordinator.groups.update(self.chance.choice(GROUPS), GroupChange(policy))
        return policy

    # Deaths

    def _open(self) -> Coordinator:
        made = Coordinator(self._path, self._format, lambda: self.now, lambda: self.seconds, self._at_safely)
        made.start()
        return made

    def _at_safely(self, name: str) -> None:
        # While a coordinator is made it is not there yet.
        if hasattr(self, "coordinator"):
            self._at(name)

    def _killed(self) -> object:
        self.coordinator.kill()
        self._restart()
        return "killed"

    def _restart(self) -> None:
        """Another coordinator on the same file, as often as it takes: it may die while it recovers."""
        self.busy.clear()
        self.depth = 0
        self.coordinator.file.close()
        del self.coordinator
        self.coordinator = self._open()
        self.counts["restarts"] += 1

    # The end

    def _rest(self) -> None:
        """Nothing goes wrong any more: within bounded time nothing is left to be done that was begun."""
        self.faulty = self.lake.faulty = False
        self.now = self.latest  # what expires by the wall clock has its time
        self.late.clear()
        for worker in self.workers:
            worker.draining = False if worker.gone else worker.draining
        while self.lake.under_way:
            self.lake.arrive()
        for group in GROUPS:
            self._names += 1
            self.workers.append(Worker(self._names, group, 2))
        began = self.seconds
        while self._restless():
            assert self.seconds - began <= REST.total_seconds(), f"no rest: {self._restless()}"
            self._tick()
            if self.seconds - began > HEARTBEAT.total_seconds() + 2 * TICK_S:
                known = {optimizer.optimizer_id for optimizer, _ in self.coordinator.optimizers.list_optimizers()}
                lost = known - {worker.optimizer_id for worker in self.workers}
                assert not lost, f"optimizers {lost} are not heard of any more, and still known"
            # Other writers go on: what nobody knows of a commit is known when its sequence number is taken.
            if int((self.seconds - began) / TICK_S) % 4 == 0:
                for identifier in sorted(self.lake.tables):
                    if self._restless():
                        self._do("write", lambda table=self.lake.tables[identifier]: self.lake.append(table))
        self.counts["virtual seconds to rest"] += int(self.seconds - began)

    def _tick(self) -> None:
        self._do("tick", lambda: self._pass(TICK_S))
        for worker in self.workers:
            if not worker.gone:
                self._do(
                    "beat",
                    lambda worker=worker: worker.attempt(self, worker.heartbeat if worker.token else worker.register),
                )
        for loop in ("keep", "explore", "refresh", "commit"):
            self._do(loop, lambda loop=loop: self._loop(loop))
        while self.coordinator.jobs:
            self._do("job", self._job)
        for worker in self.workers:
            if not (worker.gone or worker.hung):
                self._do("turn", lambda worker=worker: worker.attempt(self, lambda world: world._turn(worker)))
        while self.coordinator.jobs:
            self._do("job", self._job)

    def _turn(self, worker: Worker) -> object:
        """Everything that an optimizer can do at once."""
        said = []
        for _ in range(50):
            if not worker.token:
                return said
            if worker.works:
                for thread in sorted(worker.works):
                    said.append(worker.work(self, thread))
            elif worker.draining:
                return [*said, worker.leave(self)]
            else:
                worker.poll(self)
                if not worker.works:
                    return said
        return said

    def _restless(self) -> list[str]:
        """What is not at rest."""
        runtimes = {runtime.identifier: runtime for runtime in self.coordinator.tables.list_tables()}
        found = [f"{identifier} is gone and still known" for identifier in sorted(runtimes.keys() - self.lake.tables)]
        for identifier, table in sorted(self.lake.tables.items()):
            runtime, head = runtimes.get(identifier), table.head.snapshot_id if table.head else None
            if runtime is None:
                found.append(f"{identifier} is not known")
            elif runtime.status not in ("idle", "refused"):
                found.append(f"{identifier} is {runtime.status}")
            elif runtime.status == "idle" and runtime.evaluated_snapshot_id != head:
                found.append(f"{identifier} was evaluated at {runtime.evaluated_snapshot_id} and not at {head}")
            elif runtime.status == "idle" and runtime.enabled and runtime.pending_type is not None:
                assert runtime.retry_at is not None, f"{identifier} needs {runtime.pending_type} and is idle"
        found += [f"process {key} is {status}" for key, (_, status) in self.watch.processes.items() if status in ACTIVE]
        return found

    def _finish(self) -> None:
        """Every table has the rows that its writers left, each commit landed as its process says, and nothing leaks."""
        self.lake.require_whole()
        groups = {view.group.name: view.running_tasks for view in self.coordinator.groups.list_groups()}
        held = Counter(row.status for row in self.watch.tasks.values() if row.optimizer_id)
        assert sum(groups.values()) == held.total(), f"{groups} tasks are said to run, {held} are held"
        for process_id, (_, status) in self.watch.processes.items():
            self.counts[f"ended {status}"] += 1
            self._require_done(process_id, status)
        self.counts["commits landed"] += len(self.lake.landed)
        self.counts["attempts"] += sum(row.attempt for row in self.watch.tasks.values())

    def _require_done(self, process_id: str, status: str) -> None:
        """What a process says it has done is so."""
        if status not in ("success", "partial"):
            return
        detail = self.watch.details[process_id]
        match lane := self.watch.lanes[process_id]:
            case "files" | "layout":
                assert process_id in self.lake.landed
                self.counts["clustered"] += lane == "layout"
            case "metadata":
                assert json.loads(detail)["tag"] in {name for _, name in self.lake.tagged}
                self.counts["tags made"] += 1
            case "storage":
                swept = [path for path in json.loads(detail) if "/stray-" in path]
                tables = tuple(f"{table.location}/" for table in self.lake.tables.values())
                left = [path for path in swept if path in self.lake.files and path.startswith(tables)]
                assert not left, f"process {process_id} has swept, and {left} are there"
                self.counts["strays swept"] += len(swept)
        assert max(Counter(self.lake.tagged).values(), default=1) == 1, "a tag was made twice"


def run(seed: int, steps: int = STEPS) -> Outcome:
    """One seed. Raises AssertionError with the way to see it again, and the last events."""
    with quick_directory() as made, _seeded(seed) as errors:
        world = Simulation(seed, Path(made))
        world.errors = errors
        try:
            return world.run(steps)
        except (Exception, Died) as error:
            last = "\n".join(world.lines[-25:])
            raise AssertionError(
                f"seed {seed} with {steps} steps: {type(error).__name__}: {error}\n"
                f"replay with AMORO_SEED={seed} AMORO_STEPS={steps} pytest tests/simulation -k replay\n{last}"
            ) from error
        finally:
            world.close()


@contextmanager
def _seeded(seed: int) -> Iterator[list[str]]:
    """Ids and tokens come from the seed; what the coordinator logs as its own mistake is collected."""
    chance = random.Random(seed + 1)
    errors: list[str] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                errors.append(f"{record.getMessage()} {traceback.format_exc()}")

    logger, collecting = logging.getLogger(ROOT), Collecting()
    logger.addHandler(collecting)
    try:
        with pytest.MonkeyPatch.context() as patch, planned_by(Grouping(layout=CURVE, only_unclustered=True)):
            seed_ids(patch, chance)
            yield errors
    finally:
        logger.removeHandler(collecting)

"""What must hold in the state file after each event, told here again and not taken from the code that is tested."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from amoro_core.model.processes import OPTIMIZING_ACTION, Attempt
from tests.simulation.lake import Lake

_STEPS = {
    "planned": ("canceled",),  # and scheduled, by which a new attempt begins
    "scheduled": ("acked", "planned", "canceled"),
    "acked": ("success", "failed", "planned", "canceled"),
    "failed": ("planned",),
    "success": (),
    "canceled": (),
}
_PROCESS_STEPS = {
    "running": ("committing", "clearing", "success", "failed", "closed"),
    "committing": ("commit_unknown", "clearing", "success", "partial", "failed", "closed"),
    "commit_unknown": ("committing", "clearing", "success", "partial", "failed"),
    "clearing": ("success", "partial"),
    "success": (),
    "partial": (),
    "failed": (),
    "closed": (),
}
_OPEN = ("planned", "scheduled", "acked")
_ACTIVE = ("running", "committing", "commit_unknown", "clearing")
_EXCLUDING = {"metadata", "storage"}
_TABLE_WITH = {"running": ("minor_optimizing", "major_optimizing", "full_optimizing"), "committing": ("committing",)}
_TABLE_WITH["commit_unknown"] = _TABLE_WITH["committing"]


def _closure(steps: dict[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """What each status may become by any number of steps, itself included."""
    found = {status: {status} for status in steps}
    for _ in steps:
        for reached in found.values():
            reached.update(after for status in tuple(reached) for after in steps[status])
    return {status: frozenset(reached) for status, reached in found.items()}


_WITHIN_AN_ATTEMPT = _closure(_STEPS)
_OF_A_PROCESS = _closure(_PROCESS_STEPS)


@dataclass(frozen=True, slots=True)
class TaskRow:
    status: str
    attempt: int
    optimizer_id: str | None
    thread_id: int | None
    failed_runs: int
    lost_attempts: int
    output_attempt: int | None


@dataclass(slots=True)
class Watch:
    """Looks at the state file after each event; remembers what it saw."""

    path: Path
    lake: Lake
    tasks: dict[tuple[str, int], TaskRow] = field(default_factory=dict)
    processes: dict[str, tuple[int, str]] = field(default_factory=dict)
    lanes: dict[str, str] = field(default_factory=dict)  # of processes
    rewrites: set[str] = field(default_factory=set)  # processes that the status of a table is about
    details: dict[str, str] = field(default_factory=dict)  # what their actions keep of the plans
    #: Results that counted: the attempt of each task, and what it brought.
    counted: dict[tuple[str, int], tuple[int, object]] = field(default_factory=dict)
    #: Attempts of each task that ever reported a failure.
    failures: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    _db: sqlite3.Connection | None = None

    def look(self) -> bytes:
        """Raise AssertionError for what must not be; a digest of the state for the trace."""
        if self._db is None:
            self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        self._db.execute("BEGIN")
        tasks = {
            (row[0], row[1]): TaskRow(*row[2:])
            for row in self._db.execute(
                "SELECT process_id, task_number, status, attempt, optimizer_id, thread_id, failed_runs, lost_attempts, "
                "output_attempt FROM task_runtime JOIN task_payload USING (process_id, task_number)"
            )
        }
        stored = self._db.execute(
            "SELECT process_id, table_id, status, lane, detail, action_name FROM table_process"
        ).fetchall()
        processes = {row[0]: (row[1], row[2]) for row in stored}
        self.lanes |= {row[0]: row[3] for row in stored}
        self.details |= {row[0]: row[4] for row in stored}
        self.rewrites |= {row[0] for row in stored if row[5] == OPTIMIZING_ACTION}
        tables = dict(self._db.execute("SELECT table_id, status FROM table_runtime").fetchall())
        optimizers = {row[0] for row in self._db.execute("SELECT optimizer_id FROM optimizer")}
        self._db.execute("ROLLBACK")
        self._tasks(tasks, processes, optimizers)
        self._processes(processes, tasks, tables)
        self.tasks, self.processes = tasks, processes
        return hashlib.sha256(
            repr((sorted(tasks.items()), sorted(processes.items()), sorted(tables.items()))).encode()
        ).digest()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def reports_failure(self, attempt: Attempt) -> None:
        """An optimizer is about to say that its attempt failed."""
        self.failures.setdefault((attempt.task_id.process_id, attempt.task_id.number), set()).add(attempt.number)

    def accepted(self, attempt: Attempt, result: object) -> None:
        """The coordinator said that a result counts."""
        key = (attempt.task_id.process_id, attempt.task_id.number)
        known = self.counted.setdefault(key, (attempt.number, result))
        assert known == (attempt.number, result), f"two results count for task {key}: {known[0]} and {attempt.number}"

    def _tasks(
        self, now: dict[tuple[str, int], TaskRow], processes: dict[str, tuple[int, str]], optimizers: set[str]
    ) -> None:
        for key, before in self.tasks.items():
            after = now.get(key)
            if after is None:
                assert self.processes[key[0]][1] not in _ACTIVE, f"task {key} of an active process is gone"
                continue
            if after == before:
                continue
            assert after.attempt >= before.attempt, f"the attempt of task {key} went back"
            if after.attempt == before.attempt:
                assert after.status in _WITHIN_AN_ATTEMPT[before.status], f"task {key}: {before} became {after}"
            else:
                assert "planned" in _WITHIN_AN_ATTEMPT[before.status], f"task {key} began anew: {before}, {after}"
            assert after.failed_runs >= before.failed_runs, f"task {key} forgot a failure"
            assert after.lost_attempts >= before.lost_attempts, f"task {key} forgot a loss"
        threads = Counter((row.optimizer_id, row.thread_id) for row in now.values() if row.optimizer_id)
        assert all(count == 1 for count in threads.values()), f"a thread holds two tasks: {threads}"
        for key, row in now.items():
            held = row.status in ("scheduled", "acked")
            assert held == (row.optimizer_id is not None)
            assert not held or row.optimizer_id in optimizers, f"task {key} is held by nobody who is registered"
            assert row.failed_runs + row.lost_attempts <= row.attempt, (
                f"task {key} ended more often than it began: {row}"
            )
            failures = len(self.failures.get(key, ()))
            assert row.failed_runs <= failures, (
                f"task {key} counts {row.failed_runs} failures, {failures} were reported"
            )
            if row.status == "success":
                assert row.output_attempt == row.attempt, f"task {key} has the output of another attempt: {row}"
                counted = self.counted.get(key)
                assert counted is None or counted[0] == row.attempt, (
                    f"task {key}: {counted} was said to count, not {row}"
                )
            if row.status in _OPEN:
                assert processes[key[0]][1] == "running", f"task {key} is {row.status}, its process is not running"

    def _processes(
        self,
        now: dict[str, tuple[int, str]],
        tasks: dict[tuple[str, int], TaskRow],
        tables: dict[int, str],
    ) -> None:
        open_tasks = Counter(process_id for (process_id, _), row in tasks.items() if row.status in _OPEN)
        for process_id, (table_id, status) in now.items():
            before = self.processes.get(process_id, (table_id, "running"))[1]
            assert status in _OF_A_PROCESS[before], f"process {process_id} was {before} and is {status}"
            if process_id not in self.processes and self.processes:
                unknown = [
                    other
                    for other, (on, was) in self.processes.items()
                    if on == table_id and was == "commit_unknown" and now.get(other) == (on, was)
                ]
                assert not unknown, f"process {process_id} began beside {unknown}, of whose commit nobody knows"
            if self.lanes[process_id] != "files":
                continue
            landed, shown = process_id in self.lake.landed, self.lake.shows(process_id)
            assert not (shown and status in ("failed", "closed")), f"process {process_id} is {status} and landed"
            assert landed or status not in ("success", "partial"), f"process {process_id} is {status} and never landed"
            if process_id not in self.rewrites:
                continue
            if status == "running":
                assert open_tasks[process_id], f"process {process_id} runs, and nothing of it is open"
            if status in _ACTIVE:
                assert tables[table_id] in _TABLE_WITH[status], f"table {table_id} is {tables[table_id]} with {status}"
        for process_id, (_, status) in self.processes.items():
            assert process_id in now or status not in _ACTIVE, f"process {process_id} was {status} and is gone"
        lanes = Counter((on, self.lanes[key]) for key, (on, status) in now.items() if status in _ACTIVE)
        assert all(count == 1 for count in lanes.values()), f"more than one process in a lane of a table: {lanes}"
        for table_id in tables:
            held = {lane for on, lane in lanes if on == table_id}
            assert not held >= _EXCLUDING, f"table {table_id} has processes in {held}"
        active = {table_id for table_id, lane in lanes if lane == "files"}
        for table_id, status in tables.items():
            if status not in ("idle", "pending", "planning", "refused"):
                assert table_id in active, f"table {table_id} is {status} without a process"

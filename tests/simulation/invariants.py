"""What must hold in the state file after each event, told here again and not taken from the code that is tested."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from amoro_core.model.processes import OPTIMIZING_ACTION, Attempt
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_core.protocol.codec import decode_cluster_input
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
#: Of processes that wait for their start, and commit group by group.
_LAYOUT_STEPS = {
    **_PROCESS_STEPS,
    "requested": ("running", "closed"),
    "running": (*_PROCESS_STEPS["running"], "partial"),
    "committing": (*_PROCESS_STEPS["committing"], "running"),
    "commit_unknown": (*_PROCESS_STEPS["commit_unknown"], "running"),
}
#: Of sweeps, which have nothing to commit and may be cancelled between two batches.
_STORAGE_STEPS = {**_PROCESS_STEPS, "clearing": (*_PROCESS_STEPS["clearing"], "closed")}
_OPEN = ("planned", "scheduled", "acked")
_ACTIVE = ("requested", "running", "committing", "commit_unknown", "clearing")
_EXCLUDING = {"metadata", "storage"}
_TABLE_WITH = {"running": ("minor_optimizing", "major_optimizing", "full_optimizing"), "committing": ("committing",)}
_TABLE_WITH["commit_unknown"] = _TABLE_WITH["committing"]


#: The event of each end of a process.
_ENDS = {"success": "committed", "partial": "committed", "failed": "failed", "closed": "closed"}


def _closure(steps: dict[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """What each status may become by any number of steps, itself included."""
    found = {status: {status} for status in steps}
    for _ in steps:
        for reached in found.values():
            reached.update(after for status in tuple(reached) for after in steps[status])
    return {status: frozenset(reached) for status, reached in found.items()}


_WITHIN_AN_ATTEMPT = _closure(_STEPS)
_OF_A_PROCESS = _closure(_PROCESS_STEPS)
_BY_GROUPS = _closure(_LAYOUT_STEPS)
_OF_A_SWEEP = _closure(_STORAGE_STEPS)


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
    inputs: dict[str, frozenset[str]] = field(default_factory=dict)  # data files of their plans
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
        for process_id in processes.keys() - self.inputs.keys():
            payloads = self._db.execute(
                "SELECT work_kind, input FROM task_runtime JOIN task_payload USING (process_id, task_number) "
                "WHERE process_id = ?",
                (process_id,),
            )
            self.inputs[process_id] = frozenset(path for kind, given in payloads for path in _data_files(kind, given))
        tables = dict(self._db.execute("SELECT table_id, status FROM table_runtime").fetchall())
        optimizers = {row[0] for row in self._db.execute("SELECT optimizer_id FROM optimizer")}
        self._journal(self._db, tasks, processes)
        self._db.execute("ROLLBACK")
        self._tasks(tasks, processes, optimizers)
        self._processes(processes, tasks, tables)
        self.tasks, self.processes = tasks, processes
        return hashlib.sha256(
            repr((sorted(tasks.items()), sorted(processes.items()), sorted(tables.items()))).encode()
        ).digest()

    @staticmethod
    def _journal(
        db: sqlite3.Connection, tasks: dict[tuple[str, int], TaskRow], processes: dict[str, tuple[int, str]]
    ) -> None:
        """Each attempt that has ended is written down once, and so are the begin and the end of each process.

        Of what a version without a journal has begun nothing is asked.
        """
        told: dict[str, Counter[str]] = {}
        for process_id, kind in db.execute(
            "SELECT process_id, kind FROM event WHERE process_id <> '' AND data_json = '{}'"
        ):
            told.setdefault(process_id, Counter())[kind] += 1
        ended: dict[tuple[str, int], list[int]] = {}
        for process_id, number, attempt in db.execute("SELECT process_id, task_number, attempt FROM task_attempt"):
            ended.setdefault((process_id, number), []).append(attempt)
        for key, row in tasks.items():
            if told.get(key[0], Counter())["planned"]:
                runs = row.status in ("scheduled", "acked")
                known = [*sorted(ended.get(key, [])), *([row.attempt] if runs else [])]
                assert known == list(range(1, row.attempt + 1)), f"attempts of task {key}: {known}, it is {row}"
        for process_id, (_, status) in processes.items():
            kinds = told.get(process_id, Counter())
            if kinds["planned"]:
                ends = {kind: kinds[kind] for kind in _ENDS.values() if kinds[kind]}
                due = {_ENDS[status]: 1} if status in _ENDS else {}
                assert (kinds["planned"], ends) == (1, due), f"process {process_id} is {status}, told were {kinds}"

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
                status = processes[key[0]][1]
                by_groups = self.lanes[key[0]] == "layout" and status in _ACTIVE
                assert status == "running" or by_groups, f"task {key} is {row.status}, its process is not running"
                waits = status == "requested"
                assert not waits or row.status == "planned", f"task {key} of a plan that waits is {row.status}"

    def _processes(
        self, now: dict[str, tuple[int, str]], tasks: dict[tuple[str, int], TaskRow], tables: dict[int, str]
    ) -> None:
        open_tasks = Counter(process_id for (process_id, _), row in tasks.items() if row.status in _OPEN)
        for process_id, (table_id, status) in now.items():
            by_groups = self.lanes[process_id] == "layout"
            first = "requested" if by_groups else "running"
            before = self.processes.get(process_id, (table_id, first))[1]
            allowed = {"layout": _BY_GROUPS, "storage": _OF_A_SWEEP}.get(self.lanes[process_id], _OF_A_PROCESS)
            assert status in allowed[before], f"process {process_id} was {before} and is {status}"
            begins = process_id not in self.processes or before == "requested"
            if begins and status not in ("requested", "closed") and self.processes:
                unknown = [
                    other
                    for other, (on, was) in self.processes.items()
                    if on == table_id and was == "commit_unknown" and now.get(other) == (on, was)
                ]
                assert not unknown, f"process {process_id} began beside {unknown}, of whose commit nobody knows"
            if self.lanes[process_id] not in ("files", "layout"):
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
        self._plans(now)
        held_by = {key: on for key, (on, status) in now.items() if status in _ACTIVE and status != "requested"}
        lanes = Counter((on, self.lanes[key]) for key, on in held_by.items())
        assert all(count == 1 for count in lanes.values()), f"more than one process in a lane of a table: {lanes}"
        for table_id in tables:
            held = {lane for on, lane in lanes if on == table_id}
            assert not held >= _EXCLUDING, f"table {table_id} has processes in {held}"
        active = {table_id for table_id, lane in lanes if lane == "files"}
        for table_id, status in tables.items():
            if status not in ("idle", "pending", "planning", "refused"):
                assert table_id in active, f"table {table_id} is {status} without a process"

    def _plans(self, now: dict[str, tuple[int, str]]) -> None:
        """No file is in two plans of a table that have not ended."""
        taken: dict[tuple[int, str], str] = {}
        for process_id, (table_id, status) in sorted(now.items()):
            if status not in _ACTIVE or self.lanes[process_id] not in ("files", "layout"):
                continue
            for path in self.inputs[process_id]:
                other = taken.setdefault((table_id, path), process_id)
                assert other == process_id, f"{path} is in the plans of {other} and {process_id}"


def _data_files(kind: str, given: bytes) -> list[str]:
    if kind == "cluster":
        work = decode_cluster_input(given).rewrite
    elif kind == "rewrite":
        work = codec.decode_input(pb.RewriteInput.FromString(given))
    else:
        return []
    return [file.data.path for file in (*work.rewritten, *work.converted)]

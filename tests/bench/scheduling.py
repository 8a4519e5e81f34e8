"""Hand-outs and polls: `python -m tests.bench.scheduling [--pairs 5] [--idle 500 | --listeners | --statements]`; JSON.

What a coordinator pays for each task from poll to completion. The work itself is empty: a kind of its own that answers
at once. Coordinator and optimizers are processes of their own, over loopback. CPU is that of the coordinator's process;
what it takes there to count and to plan tasks is left out. `--idle` is a number of optimizers of four threads that wait
for work, for a minute. `--listeners` compares the same with three webhooks: one takes every event, one answers 500, one
never answers; with and without them the journal gets an event for each ten tasks: two a process. `--statements`
measures polls of 16 optimizers, each of which takes a task every 0.2 to 0.4 s, with and without SQL statements that
follow one another.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.bootstrap.launcher import SWITCH_INTERVAL_S
from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import WorkFailed
from amoro_core.loops.coordinator import LISTENER_INTERVAL_S, Loop
from amoro_core.model.history_events import About, EventKind
from amoro_core.model.listeners import parse_listeners
from amoro_core.model.principals import PLAIN
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.task_payload import Work, WorkResult
from amoro_core.model.text_sanitizing import Secret
from amoro_core.services.terminal import StatementResult, TerminalService
from amoro_core.store import catalogs, processes, tables, tasks
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store
from amoro_core.transactions.journal import append_event
from amoro_optimizer.client import Client
from amoro_optimizer.execution import Run
from amoro_optimizer.runner import OptimizerConfig, Runner
from tests.bench.machine import Child, Figures, answer, in_rounds, medians, options, ratio, say
from tests.listening import receiving
from tests.store import builders

KIND = "bench"
#: Of the tasks of a run those that are scheduled before anything is measured.
WARM = 0.2
NAME = "tests.bench.scheduling"
#: The table that statements read.
QUERIED, ROWS = "queried", 2_000_000


def main() -> None:
    """Run one role of the measured system, or all measurements."""
    given = options(__doc__, pairs=5, processes=100, idle=0, listeners=False, statements=False, role="", told="")
    if given.role:
        {"coordinate": _coordinate, "optimize": _optimize, "poll": _poll}[given.role](**json.loads(given.told))
        return
    count = given.processes  # of twenty tasks each
    with _listening() if given.listeners else nullcontext([]) as urls:
        if given.idle:
            ways = {"idle": partial(_idle, given.idle)}
        elif given.listeners:
            ways = {"without": partial(_busy, count, []), "with": partial(_busy, count, urls)}
        elif given.statements:
            ways = {"without": partial(_polls, count, False), "with": partial(_polls, count, True)}
        else:
            ways = {"hand-outs": partial(_busy, count)}
        found = in_rounds(ways, given.pairs)
    figures: dict[str, Any] = {name: medians(rounds) for name, rounds in found.items()}
    if len(ways) == 1:
        (figures,) = figures.values()
    if given.listeners:
        figures["with / without"] = {key: ratio(found["with"], found["without"], key) for key in figures["with"]}
    say({"optimizers": given.idle, "tasks": count * 20, **figures, "rounds": given.pairs})


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Where webhooks are taken, are refused with 500, and get no answer."""
    with receiving() as taking, receiving() as refusing, socket.create_server(("127.0.0.1", 0)) as silent:
        refusing.status = 500
        yield [taking.url, refusing.url, f"http://127.0.0.1:{silent.getsockname()[1]}"]
        if not taking.taken or not refusing.refused:
            raise SystemExit("the listeners got nothing")


def _busy(count: int, hooks: list[str] | None = None) -> Figures:
    """Eight optimizers of 16 threads do all tasks of so many processes."""
    os.sync()  # each run begins beside a quiet disk, whatever the one before has left to be written
    with _system("optimize", {"count": 8, "threads": 16}, count=count, hooks=hooks) as (coordinator, _):
        begun = _until(coordinator, WARM * count * 20)
        ended = _until(coordinator, count * 20)
    done, wall = ended["done"] - begun["done"], ended["at"] - begun["at"]
    cpu_ms = (ended["cpu"] - begun["cpu"]) / done * 1e3
    return {"hand-outs per second": done / wall, "coordinator's CPU ms a task": cpu_ms}


def _idle(count: int) -> Figures:
    with _system("optimize", {"count": count, "threads": 4}, count=0) as (coordinator, _):
        time.sleep(20.0)  # the first polls have ended
        begun = coordinator.figures("figures")
        time.sleep(60.0)
        ended = coordinator.figures("figures")
    return {"coordinator's share of a core": (ended["cpu"] - begun["cpu"]) / (ended["at"] - begun["at"])}


def _polls(count: int, statements: bool) -> Figures:
    """How long polls take while tasks wait: for half a minute, or until all tasks are done."""
    with _system("poll", {"count": 16}, count=count, statements=statements) as (coordinator, optimizers):
        time.sleep(5.0)  # the first statement has begun
        optimizers.ask("figures")
        begun = coordinator.figures("figures")
        time.sleep(30.0)
        polls, ended = optimizers.figures("figures"), coordinator.figures("figures")
    answered = ended["statements"] - begun["statements"]
    if statements and not answered:
        raise SystemExit("no statement was answered")
    return {**polls, "statements": answered, "coordinator's CPU s": ended["cpu"] - begun["cpu"]}


@contextmanager
def _system(role: str, more: dict[str, int], **told: object) -> Iterator[tuple[Child, Child]]:
    """A coordinator with planned processes, and optimizers of that role that work for it."""
    with (
        tempfile.TemporaryDirectory(prefix="amoro-bench-") as home,
        Child(NAME, "--role", "coordinate", "--told", json.dumps({"home": home, **told})) as coordinator,
        Child(NAME, "--role", role, "--told", json.dumps({**coordinator.ask(), **more})) as optimizers,
    ):
        yield coordinator, optimizers


def _until(coordinator: Child, done: float) -> Figures:
    """What was told once so many tasks were done."""
    while (told := coordinator.figures("figures"))["done"] < done:
        time.sleep(0.05)  # a look takes up to a millisecond of the coordinator
    return told


def _coordinate(home: str, count: int, hooks: list[str] | None = None, statements: bool = False) -> None:
    """A coordinator that does nothing by itself, with so many planned processes."""
    place = Path(home)
    gc.freeze()  # as `amoro up` does, like the next
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _log_nothing()
    catalog = _create_tables(place / "warehouse", count, queried=statements)
    with Store.open(place / "amoro.db") as store:
        store.write(lambda db: catalogs.add(db, catalog))
        for number in range(count):
            store.write(lambda db, number=number: _plan(db, number))
    rest = {"secret": "env:LISTENER_SECRET", "allow-private": True}
    listeners = parse_listeners([{"name": f"to-{at}", "url": url, **rest} for at, url in enumerate(hooks or ())])
    settings = replace(Settings(), port=0, listeners=listeners, terminal_enabled=statements)
    coordinator = Coordinator(place, settings, watch=False)
    coordinator.start()
    answered = list[StatementResult]()
    if statements:
        threading.Thread(target=_query, args=(coordinator.services.terminal, answered), daemon=True).start()
    listening = coordinator.services.listening
    listening.begin()
    # As where it watches.
    loops = [Loop(one.name, partial(listening.deliver, one), LISTENER_INTERVAL_S) for one in listening.receivers]
    for loop in loops:
        loop.start()
    answer({"address": coordinator.address, "token": coordinator.enrolment_token.reveal()})
    counted, told = "SELECT count(*) FROM task_runtime WHERE finished_at_ms IS NOT NULL", 0
    try:
        with closing(sqlite3.connect(f"file:{home}/amoro.db?mode=ro", uri=True)) as database:
            for _ in sys.stdin:
                (done,) = database.execute(counted).fetchone()
                cpu = time.process_time() - time.thread_time()  # this thread does nothing but look
                while hooks is not None and told < done // 10:
                    told, now = told + 1, datetime.now(UTC)
                    happened = partial(append_event, kind=EventKind.FAILED, text="no", about=About(), now=now)
                    listening.store.write(happened)
                answer({"done": done, "cpu": cpu, "at": time.monotonic(), "statements": len(answered)})
    finally:
        for loop in loops:
            loop.stop(0)
        coordinator.stop()


def _query(terminal: TerminalService, answered: list[StatementResult]) -> None:
    """Statements that read every row, one after the other, until the coordinator stops."""
    statement = f"SELECT id % 100, count(*), max(text) FROM cat.db.{QUERIED} GROUP BY 1"
    nobody = {"statement_id": "", "caller": "", "require": lambda table: None, "is_given_up": lambda: False}
    with suppress(WorkFailed):
        while True:
            answered.append(terminal.run(statement, limit=1000, **nobody))


def _plan(db: Connection, number: int) -> None:
    """Add a process of twenty tasks, and one that nobody does: the process goes on, nothing is committed."""
    table = tables.add(db, builders.runtime(f"t{number:06}"))
    owner = builders.process(table, f"0199{number:04}-0001")
    processes.add(db, owner)
    made = [builders.task(owner, one, kind=KIND) for one in range(1, 21)]
    tasks.add_many(db, [(task, bytes(2000)) for task in (*made, builders.task(owner, 21, kind="nobody's"))])


def _create_tables(warehouse: Path, count: int, *, queried: bool) -> CatalogConfig:
    """A catalog with so many empty tables: an optimizer that accepts a task is told their storage's properties."""
    warehouse.mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": warehouse.as_uri()}
    catalog = SqlCatalog("cat", **properties)
    catalog.create_namespace("db")
    for number in range(count):
        catalog.create_table(f"db.t{number:06}", Schema(NestedField(1, "id", LongType(), required=True)))
    if queried:
        rows = pa.table({"id": range(ROWS), "text": [f"row {one:x}" for one in range(ROWS)]})
        table = catalog.create_table(f"db.{QUERIED}", rows.schema)
        for at in range(0, ROWS, ROWS // 8):
            table.append(rows.slice(at, ROWS // 8))
    catalog.close()
    return CatalogConfig("cat", tuple(properties.items()))


def _log_nothing() -> None:
    logging.disable(logging.WARNING)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


class Idle:
    """A backend that answers at once."""

    kinds = (KIND,)
    max_cluster_bytes = 0

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        """The result of no work."""
        return WorkResult(work.kind, b"done")


def _optimize(address: str, token: str, count: int, threads: int) -> None:
    """So many optimizers whose work takes no time, in this process."""
    _log_nothing()
    threading.stack_size(256 * 1024)
    for _ in range(count):
        config = OptimizerConfig(address, "default", threads, 1 << 20, Secret(token), 10.0, {})
        threading.Thread(target=Runner(config, Idle()).run, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def _poll(address: str, token: str, count: int) -> None:
    """So many optimizers of one thread that poll, accept, report, and rest; tells how long polls took."""
    _log_nothing()
    seconds = list[float]()
    for one in range(count):
        threading.Thread(target=_poll_often, args=(address, token, seconds, random.Random(one)), daemon=True).start()
    for _ in sys.stdin:
        found = sorted(seconds)
        seconds.clear()
        answer({"polls": len(found), **{f"p{of} ms": found[len(found) * of // 100] * 1e3 for of in (50, 99) if found}})
    os._exit(0)


def _poll_often(address: str, token: str, seconds: list[float], pauses: random.Random) -> None:
    client = Client(address, PLAIN, stopping=threading.Event())
    described = {"group": "default", "threads": 1, "memory_bytes": 1 << 20, "labels": {}, "work_kinds": [KIND]}
    registration, _ = client.register(Secret(token), running=[], heartbeat_interval_s=10.0, **described)
    while True:
        begun = time.perf_counter()
        polled = client.poll(registration.token, [1], 20.0, [], 1)
        seconds.append(time.perf_counter() - begun)
        for task in polled.tasks:
            client.ack(registration.token, task.attempt)
            client.complete(registration.token, task.attempt, WorkResult(KIND, b"done"))
        time.sleep(pauses.uniform(0.2, 0.4))


if __name__ == "__main__":
    main()

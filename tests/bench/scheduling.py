"""Scheduling: what a coordinator pays for each task from poll to completion, and for idle optimizers.

`python -m tests.bench.scheduling [--against PATH] [--pairs 5]` prints JSON. The work itself is empty: a kind of its own
that answers at once; a checkout from before there were kinds gets rewrites without a file, which are answered as soon.
Coordinator and optimizers are processes of their own, over loopback; with `--against` those of another checkout run in
turn with ours. CPU is that of the coordinator's process, so other programs disturb it little; what it takes there to
count and to plan tasks is left out.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import logging
import os
import pkgutil
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import structlog

if TYPE_CHECKING:
    from amoro_core.model.processes import CatalogConfig
    from amoro_core.store.database import Connection

OURS = Path(__file__).parents[2]
KIND = "bench"
#: Of the tasks of a run those that are scheduled before anything is measured.
WARM = 0.2


@dataclass(frozen=True, slots=True)
class Case:
    """A load: planned tasks of so many processes, and optimizers with threads."""

    name: str
    processes: int
    each: int  # tasks of a process
    optimizers: int
    threads: int
    done: int  # tasks that are awaited; 0: none is planned, and so many seconds are measured
    seconds: float = 0.0
    more: int = 0  # processes that are planned one by one, so that about as many tasks stay planned as at first


CASES = (
    Case("20,000 tasks planned, 8 optimizers of 16 threads", 1, 20_000, 8, 16, 2_000),
    Case("100 processes of 20 tasks, 8 optimizers of 16 threads", 100, 20, 8, 16, 2_000),
    Case("100 to 300 tasks planned, 8 optimizers of 16 threads", 4, 50, 8, 16, 2_000, more=52),
    Case("20,000 tasks planned, one optimizer of one thread", 1, 20_000, 1, 1, 200),
    Case("500 idle optimizers of 4 threads", 0, 0, 500, 4, 0, 60.0),
)


def main() -> None:
    """Run one role of a measured system, or all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--cases", type=int, nargs="*", default=list(range(len(CASES))), help="by number, from 0")
    parser.add_argument("--role", choices=("coordinator", "optimizers"), help=argparse.SUPPRESS)
    parser.add_argument("--given", type=json.loads, default={}, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "coordinator":
        _coordinate(**given.given)
    elif given.role == "optimizers":
        _optimize(**given.given)
    else:
        _measure([CASES[number] for number in given.cases], given.pairs, given.against)


def _measure(cases: Sequence[Case], pairs: int, against: Path | None) -> None:
    checkouts = {"ours": OURS, **({"before": against.resolve()} if against else {})}
    found = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load": os.getloadavg()[0],
        "versions": {name: _version(path) for name, path in checkouts.items()},
        "cases": {},
    }
    for case in cases:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
        for _ in range(pairs):
            for name, path in checkouts.items():
                runs[name].append(_run(case, path))
        told: dict[str, object] = {name: _medians(many) for name, many in runs.items()}
        if against:
            told["before / ours"] = {
                key: round(
                    statistics.median(
                        was[key] / now[key] for was, now in zip(runs["before"], runs["ours"], strict=True)
                    ),
                    2,
                )
                for key in runs["ours"][0]
                if "planned" not in key
            }
        found["cases"][case.name] = told
        print(json.dumps({case.name: told}), file=sys.stderr, flush=True)
    found["load afterwards"] = os.getloadavg()[0]
    print(json.dumps(found, indent=1))


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(run[key] for run in runs), 4) for key in runs[0]}


def _version(checkout: Path) -> str:
    told = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


class _Process:
    """One role of the measured system; answers a line of JSON for each line that it gets."""

    def __init__(self, checkout: Path, role: str, given: Mapping[str, object]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--role", role, "--given", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
        )

    def ask(self, word: str = "") -> dict[str, float | str]:
        """The answer to a word; without one, the next line."""
        reader, writer = self._process.stdout, self._process.stdin
        if reader is None or writer is None:
            raise RuntimeError("the process has no pipes")
        if word:
            writer.write(f"{word}\n")
            writer.flush()
        return dict(json.loads(reader.readline()))

    def end(self) -> None:
        """Let the process end; wait for it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)


def _run(case: Case, checkout: Path) -> dict[str, float]:
    """CPU of the coordinator and wall of one run of the case."""
    os.sync()  # each begins beside a quiet disk, whatever the one before has left to be written
    with tempfile.TemporaryDirectory() as home:
        load = {"home": home, "planned": case.processes, "each": case.each, "more": case.more}
        coordinator = _Process(checkout, "coordinator", load)
        where = coordinator.ask()
        optimizers = _Process(checkout, "optimizers", {**where, "count": case.optimizers, "threads": case.threads})
        try:
            optimizers.ask()
            return _idle(coordinator, case.seconds) if case.seconds else _busy(coordinator, case)
        finally:
            optimizers.end()
            coordinator.end()


def _busy(coordinator: _Process, case: Case) -> dict[str, float]:
    # Tasks are done by the thousand a second; a look takes up to a millisecond of the coordinator.
    pause = 0.02 if case.more else max(0.02, case.done / 20_000)
    begun = _until(coordinator, WARM * case.done, pause)[-1]
    looks = _until(coordinator, case.done, pause)
    ended = looks[-1]
    tasks = ended["done"] - begun["done"]
    wall = ended["at"] - begun["at"]
    found = {
        "coordinator's CPU ms a task": (ended["cpu"] - begun["cpu"]) / tasks * 1000,
        "ms a task": wall / tasks * 1000,
    }
    if case.more:
        found |= {
            "least planned": min(look["least"] for look in looks),
            "most planned": max(look["most"] for look in looks),
        }
    return found


def _until(coordinator: _Process, done: float, pause: float) -> list[dict[str, float]]:
    """What was told until so many tasks were done."""
    looks: list[dict[str, float]] = []
    while not looks or looks[-1]["done"] < done:
        if looks:
            time.sleep(pause)
        looks.append({key: float(value) for key, value in coordinator.ask("told").items()})
    return looks


def _idle(coordinator: _Process, seconds: float) -> dict[str, float]:
    time.sleep(20.0)  # the first polls have ended
    (begun,) = _until(coordinator, 0, 0.0)
    time.sleep(seconds)
    (ended,) = _until(coordinator, 0, 0.0)
    return {"coordinator's share of a core": (ended["cpu"] - begun["cpu"]) / (ended["at"] - begun["at"])}


def _coordinate(home: str, planned: int, each: int, more: int) -> None:
    """A coordinator that does nothing by itself, with so many planned processes; more follow as these are done."""
    from amoro_core.app import Coordinator
    from amoro_core.model.processes import OptimizingTask
    from amoro_core.settings import Settings
    from amoro_core.store import catalogs, processes, tables, tasks
    from tests.store import builders

    gc.freeze()  # as `amoro up` does, like the next
    with suppress(ImportError):
        from amoro_core.launcher import SWITCH_INTERVAL_S

        sys.setswitchinterval(SWITCH_INTERVAL_S)
    kinds = hasattr(OptimizingTask, "kind")
    payload = bytes(2000) if kinds else _rewrite_of_nothing()
    ours: dict[str, Any] = {"kind": KIND} if kinds else {}
    nobodys: dict[str, Any] = {"kind": "nobody's"} if kinds else {"group": "nobody's"}

    def plan(db: Connection, number: int) -> float:
        """Add a process with its tasks; the CPU seconds that this took."""
        begun = time.thread_time()
        table = tables.add(db, builders.runtime(f"t{number:06}"))
        owner = builders.process(table, f"0199{number:04}-0001")
        processes.add(db, owner)
        made = [builders.task(owner, one, **ours) for one in range(1, each + 1)]
        open_end = builders.task(owner, each + 1, **nobodys)  # the process goes on: nothing is committed
        tasks.add_many(db, [(task, payload) for task in (*made, open_end)])
        return time.thread_time() - begun

    def write(number: int) -> float:
        return coordinator._store.write(lambda db: plan(db, number))

    _log_nothing()
    catalog = _create_tables(Path(home, "warehouse"), planned + more)
    coordinator = Coordinator(Path(home), replace(Settings(), port=0), watch=False)
    coordinator._store.write(lambda db: catalogs.add(db, catalog))
    numbers = iter(range(planned + more))
    for number in itertools.islice(numbers, planned):
        write(number)
    coordinator.start()
    _say({"address": coordinator.address, "token": coordinator.enrolment_token.reveal()})
    counted = "SELECT count(*) FROM task_runtime WHERE finished_at_ms IS NOT NULL"
    open_tasks = "SELECT count(*) FROM task_runtime WHERE status = 'planned' AND task_number <= :each"
    planning = 0.0
    try:
        with closing(sqlite3.connect(f"file:{home}/amoro.db?mode=ro", uri=True)) as database:
            for _ in sys.stdin:
                told: dict[str, float] = {}
                if more:
                    (least,) = database.execute(open_tasks, {"each": each}).fetchone()
                    missing = planned - least // each
                    for number in itertools.islice(numbers, max(0, missing)):
                        planning += write(number)
                    told = {"least": least, "most": least + each * max(0, missing)}
                (done,) = database.execute(counted).fetchone()
                # This thread does nothing but look and plan.
                cpu = time.process_time() - time.thread_time() - planning
                _say({"done": done, "cpu": cpu, "at": time.monotonic(), **told})
    finally:
        coordinator.stop()


def _create_tables(warehouse: Path, count: int) -> CatalogConfig:
    """A catalog with so many empty tables: an optimizer that accepts a task is told their storage's properties."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    from amoro_core.model.processes import CatalogConfig

    warehouse.mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": warehouse.as_uri()}
    catalog = SqlCatalog("cat", **properties)
    catalog.create_namespace("db")
    for number in range(count):
        catalog.create_table(f"db.t{number:06}", Schema(NestedField(1, "id", LongType(), required=True)))
    catalog.close()
    return CatalogConfig("cat", tuple(properties.items()))


def _log_nothing() -> None:
    """Every version logs by the standard library or by structlog."""
    logging.disable(logging.WARNING)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _rewrite_of_nothing() -> bytes:
    """A rewrite without a file, as long as the payloads of our kind."""
    from amoro_core.protocol import rewrite_pb2 as pb

    return bytes(pb.RewriteInput(table=pb.TableContext(schema_json="x" * 2000)).SerializeToString())


def _optimize(address: str, token: str, count: int, threads: int) -> None:
    """So many optimizers whose work takes no time, in this process."""
    from amoro_core.model.secrets import Secret
    from amoro_optimizer.runner import OptimizerConfig, Runner

    execute = _idle_kind() if "amoro_optimizer.running" in _modules() else _idle_rewrite()
    _log_nothing()
    threading.stack_size(256 * 1024)
    runners = []
    for _ in range(count):
        config = OptimizerConfig(address, "default", threads, 1 << 20, Secret(token), 10.0, {})
        runners.append(Runner(config, execute))
        threading.Thread(target=runners[-1].run, daemon=True).start()
    _say({"optimizers": count})
    sys.stdin.read()
    os._exit(0)


def _modules() -> set[str]:
    import amoro_optimizer

    return {module.name for module in pkgutil.iter_modules(amoro_optimizer.__path__, "amoro_optimizer.")}


def _idle_kind() -> Any:
    """A backend that answers at once."""
    from amoro_core.model.work import Work, WorkResult
    from amoro_optimizer.running import Run

    class Idle:
        kinds = (KIND,)
        max_cluster_bytes = 0

        def execute(self, work: Work, table: str, run: Run) -> WorkResult:
            return WorkResult(work.kind, b"done")

    return Idle()


def _idle_rewrite() -> Callable[..., Any]:
    """The same for an optimizer that knows rewrites alone."""
    from amoro_core.model.rewrite import RewriteOutput

    return lambda *_: RewriteOutput((), (), 0, 0, 0, 0, 0, 0, 0)


def _say(answer: Mapping[str, object], to: TextIO = sys.stdout) -> None:
    print(json.dumps(answer), file=to, flush=True)


if __name__ == "__main__":
    main()

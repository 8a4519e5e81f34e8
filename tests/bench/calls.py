"""Calls while a coordinator looks at a large table for the first time:

`python -m tests.bench.calls [--files 100000] [--workers auto none] [--runs 3] [--against PATH]` prints JSON: medians of
runs of p50, p99 and the longest time of a list of tables over gRPC, on an idle coordinator and during a look and the
plan that follows, and how long these took. The table is metadata alone as in `live_files`. `--against` names another
checkout, whose client and coordinator run in turn with ours, by its own settings where it has no planning-workers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tests.bench.live_files import made_up
from tests.bench.machine import described, in_rounds, in_turn, medians

#: Between two calls, and how long an idle coordinator is asked.
PAUSE_S, IDLE_S = 0.005, 10.0


def main() -> None:
    """Measure, or be the coordinator that is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--manifests", type=int, default=100)
    parser.add_argument("--workers", nargs="*", default=["auto", "none"], help="values of planning-workers")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--coordinate", nargs=3, metavar=("HOME", "ROOT", "WORKERS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.coordinate:
        home, root, workers = given.coordinate
        _coordinate(Path(home), Path(root), workers)
        return
    if given.once:
        print(json.dumps(_run(given.root.with_name("home"), given.root, given.workers[0])))
        return
    checkouts, found = in_turn(given.against), dict[str, dict[str, dict[str, float]]]()
    with tempfile.TemporaryDirectory(prefix="amoro-calls-") as directory:
        root = Path(directory) / "lake"
        made_up(root, given.files, 20, given.manifests)
        for workers in given.workers:
            asked = ["--root", str(root), "--workers", workers]
            runs = in_rounds("tests.bench.calls", asked, checkouts, given.runs)
            found[workers] = {name: medians(done) for name, done in runs.items()}
    print(json.dumps({"planning-workers": found, "files": given.files, **described(checkouts)}, indent=1))


def _run(home: Path, root: Path, workers: str) -> dict[str, float]:
    """The figures of one new coordinator."""
    from amoro_cli.client import AdminClient
    from amoro_cli.launcher import Endpoint
    from amoro_core.model.secrets import Secret

    command = [sys.executable, "-m", "tests.bench.calls", "--coordinate", str(home), str(root), workers]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    answers = process.stdout
    where = _answer(answers)
    found = {}
    with closing(AdminClient(Endpoint(where["address"], Secret(where["token"])))) as client:
        for _ in range(100):
            client.list_tables()
        until = time.monotonic() + IDLE_S
        found |= _told("idle", _times(client.list_tables, lambda: time.monotonic() > until))
        for what in ("look", "plan"):
            over = threading.Event()
            took: list[dict[str, float]] = []

            def wait(over: threading.Event = over, took: list[dict[str, float]] = took) -> None:
                took.append(_answer(answers))
                over.set()

            threading.Thread(target=wait).start()
            print(what, file=process.stdin, flush=True)
            found |= _told(what, _times(client.list_tables, over.is_set))
            found |= {f"{what} {key}": value for key, value in took[0].items()}
    process.stdin.close()
    process.wait()
    shutil.rmtree(home)
    return found


def _answer(lines: Iterable[str]) -> dict[str, Any]:
    """The next line of JSON; an earlier version writes its log there, too."""
    return dict(json.loads(next(line for line in lines if line.startswith("{"))))


def _times(call: Callable[[], object], is_over: Callable[[], bool]) -> list[float]:
    times = []
    while not is_over():
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
        time.sleep(PAUSE_S)
    return sorted(times)


def _told(what: str, times: list[float]) -> dict[str, float]:
    shares = {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "longest": times[-1]}
    return {f"{what} {name} ms": value * 1000 for name, value in shares.items()} | {f"{what} calls": len(times)}


def _coordinate(home: Path, root: Path, workers: str) -> None:
    """A coordinator that looks, or plans, whenever it is told to."""
    from amoro_core.app import Coordinator
    from amoro_core.model.processes import CatalogConfig
    from amoro_core.model.tables import parse_table
    from amoro_core.settings import Settings

    try:
        from amoro_core.launcher import SWITCH_INTERVAL_S
    except ImportError:
        pass
    else:
        sys.setswitchinterval(SWITCH_INTERVAL_S)  # as `amoro up` does
    settings: dict[str, Any] = {"port": 0}
    if "planning_workers" in {field.name for field in fields(Settings)}:
        settings["planning_workers"] = workers
    coordinator = Coordinator(home, replace(Settings(), **settings), watch=False)
    coordinator.start()
    properties = {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": root.as_uri()}
    coordinator.catalogs.add(CatalogConfig("cat", tuple(properties.items())))
    name = parse_table("cat.db.t")
    table_id = coordinator.tables.ensure(name).table_id
    print(json.dumps({"address": coordinator.address, "token": coordinator.admin_token.reveal()}), flush=True)
    for line in sys.stdin:
        begun, cpu = time.monotonic(), time.process_time()
        if line.strip() == "look":
            coordinator.tables.refresh(table_id)
        else:
            coordinator.tables.preview(name, None, force=False)
        took = {"s": time.monotonic() - begun, "CPU s of the coordinator": time.process_time() - cpu}
        print(json.dumps(took), flush=True)
    coordinator.stop()


if __name__ == "__main__":
    main()

"""Status and lists over gRPC with many running processes and many tables: `python -m tests.bench.lists`."""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from amoro_cli.client import AdminClient
from amoro_cli.launcher import Endpoint
from amoro_core.app import Coordinator
from amoro_core.model.paging import Window
from amoro_core.settings import Settings
from tests.store.filling import fill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=150)
    parser.add_argument("--tasks", type=int, default=1000, help="of each process")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as home:
        coordinator = Coordinator(Path(home), replace(Settings(), port=0), watch=False)
        fill(coordinator._store, known=given.tables, running=given.processes, each=given.tasks)
        coordinator.start()
        try:
            with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as client:
                _show(client, given.runs)
        finally:
            coordinator.stop()


def _show(client: AdminClient, runs: int) -> None:
    _timed(f"status: {client.get_status().running_processes} running", client.get_status, runs)
    listed = client.list_processes(window=Window(100)).items
    size = sum(process.ByteSize() for process in listed)
    _timed(f"processes: {len(listed)}, {size / 1000:.0f} kB", lambda: client.list_processes(window=Window(100)), runs)
    (one, *_) = listed
    _timed("tasks of one process", lambda: client.list_tasks(one.process_id), runs)
    _timed("tables: a page", lambda: client.list_tables(window=Window(1000)), runs)
    _timed(f"tables: all {client.list_tables().total:,}", client.list_tables, 1)


def _timed(name: str, work: Callable[[], object], runs: int) -> None:
    took = []
    for _ in range(runs):
        began = time.monotonic()
        work()
        took.append(time.monotonic() - began)
    print(f"{name}: median {statistics.median(took):.3f} s, best {min(took):.3f} s of {runs}", flush=True)


if __name__ == "__main__":
    main()

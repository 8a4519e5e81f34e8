"""A coordinator between two runs of its clock: `python -m tests.bench.clock [--tables 10000] [--seconds 60]`.

The state database has so many enabled tables with every action of the clock on, none of which is due before the end; no
table is refreshed meanwhile. Prints the CPU that the coordinator takes, beside one without any table.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from amoro_core.actions.contract import Periodic
from amoro_core.actions.known import Actions
from amoro_core.app import Coordinator
from amoro_core.model.tables import ActionRecord, TableRuntime
from amoro_core.settings import Settings
from amoro_core.store import actions, tables
from amoro_core.store.database import Connection, Store
from tests.store import builders

_AT_ONCE = 2000


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    idle = _measure(0, given.seconds)
    busy = _measure(given.tables, given.seconds)
    print(f"{given.tables} tables: {busy:.2%} of a core ({os.cpu_count()} cores); without tables {idle:.2%}")


def _measure(count: int, seconds: float) -> float:
    """The share of a core that a coordinator with so many tables takes."""
    with tempfile.TemporaryDirectory(prefix="amoro-clock-") as home:
        coordinator = Coordinator(Path(home), replace(Settings(), port=0))
        kept = _fill(coordinator._store, count)
        coordinator.start()
        try:
            time.sleep(3)
            wall, cpu = time.monotonic(), time.process_time()
            time.sleep(seconds)
            share = (time.process_time() - cpu) / (time.monotonic() - wall)
            assert coordinator.tables.count() == count
        finally:
            coordinator.stop()
    print(f"{count} tables with {kept} actions: {share:.2%} of a core", flush=True)
    return share


def _fill(store: Store, count: int) -> int:
    """So many tables, refreshed just now, with all actions of the clock due in hours; how many actions that are."""
    names = [one.name for one in Actions().every if isinstance(one, Periodic)]
    now = datetime.now(UTC)
    for start in range(0, count, _AT_ONCE):
        numbers = range(start, min(count, start + _AT_ONCE))
        store.write(lambda db, numbers=numbers: _add(db, numbers, names, now))
    return count * len(names)


def _add(db: Connection, numbers: range, names: list[str], now: datetime) -> None:
    for number in numbers:
        later = now + timedelta(hours=1, seconds=number % 3600)
        known: TableRuntime = builders.runtime(
            f"t{number:06}", enabled_override=True, refreshed_at=now, refresh_at=later, evaluated_at=now
        )
        added = tables.add(db, known)
        for name in names:
            actions.save(db, ActionRecord(added.table_id, name, reason="nothing to do", last_at=now, next_at=later))


if __name__ == "__main__":
    main()

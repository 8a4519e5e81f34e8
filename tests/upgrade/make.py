"""Saves state files of this version in the midst of their work: `python -m tests.upgrade.make VERSION`.

To be run once, before the schema changes, and never again for that version. Each state is a database with the lake
that it is about, and how its open processes ended when the same version went on.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, ProcessStatus, TaskStatus
from tests.simulation.coordinator import Died
from tests.simulation.simulation import MOST_TABLES, Simulation, _seeded
from tests.upgrade.resumed import STATES, resumed
from tests.upgrade.saved import lake_to_json

WANTED = frozenset((*(f"process {one}" for one in ProcessStatus), *(f"task {one}" for one in TaskStatus)))
STEPS = 120


def statuses(world: Simulation) -> frozenset[str]:
    """What the state file holds."""
    kinds = {f"process {status}" for _, status in world.watch.processes.values()}
    return frozenset(kinds | {f"task {row.status}" for row in world.watch.tasks.values()})


def states(seed: int) -> Iterator[tuple[frozenset[str], Simulation]]:
    """The world after each of its events."""
    with tempfile.TemporaryDirectory() as home, _seeded(seed):
        world = Simulation(seed, Path(home))
        try:
            for _ in range(3):
                world._create_table()
            for _ in range(3):
                world._new_worker()
            world.faulty = False
            world._begin()
            world.faulty = True
            for _ in range(STEPS):
                world._do(*world._drawn())
                yield statuses(world), world
        except Died:
            return
        finally:
            world.close()


def save(world: Simulation, name: str) -> None:
    """The state file and its lake, and how what is open in it ends."""
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made) / "amoro.db"
        with sqlite3.connect(world._path) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        connection.close()
        STATES.mkdir(exist_ok=True)
        (STATES / f"{name}.db.xz").write_bytes(lzma.compress(copy.read_bytes(), preset=9))
    active = tuple(status.value for status in ACTIVE_PROCESS_STATUSES)
    open_ = sorted(key for key, (_, status) in world.watch.processes.items() if status in active)
    saved: dict[str, Any] = {
        "now": world.latest.isoformat(),
        "lake": lake_to_json(world.lake),
        "statuses": sorted(statuses(world)),
    }
    (STATES / f"{name}.json").write_text(json.dumps(saved, separators=(",", ":")) + "\n")
    with resumed(name) as (again, _):
        again._rest()
        again._finish()
        saved["ends"] = {key: again.watch.processes[key][1] for key in open_}
    (STATES / f"{name}.json").write_text(json.dumps(saved, separators=(",", ":")) + "\n")


def main(version: str) -> None:
    """Few states that together have every status of processes and of tasks."""
    missing, number = set(WANTED), 0
    for seed in range(1000):
        best = 0
        for found, world in states(seed):
            gain = len(missing & found)
            if gain > best and gain * 3 >= len(missing) and len(world.lake.tables) == MOST_TABLES:
                best = gain
                kept, name = found, f"{version}-{number}"
                save(world, name)
        if best:
            missing -= kept
            number += 1
            print(seed, name, sorted(kept), "missing", sorted(missing))
        if not missing:
            return
    shutil.rmtree(STATES)
    raise SystemExit(f"no state found with {sorted(missing)}")


if __name__ == "__main__":
    main(sys.argv[1])

"""A simulated world that goes on from a state file which an earlier version left behind."""

from __future__ import annotations

import json
import lzma
import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.model.conftest import quick_directory
from tests.simulation.simulation import Simulation, _seeded
from tests.upgrade.saved import lake_from_json

STATES = Path(__file__).parent / "states"


@contextmanager
def resumed(name: str, seed: int = 1) -> Iterator[tuple[Simulation, dict[str, Any]]]:
    """The world of a saved state, its coordinator opened anew on a copy of the file, and what was saved beside it."""
    saved = json.loads((STATES / f"{name}.json").read_text())
    with quick_directory() as made, _seeded(seed) as errors:
        file = Path(made) / "amoro.db"
        file.write_bytes(lzma.decompress((STATES / f"{name}.db.xz").read_bytes()))
        failed = _failed_runs(file)
        lake = lake_from_json(saved["lake"], random.Random(seed))
        world = Simulation(seed, Path(made), lake=lake, now=datetime.fromisoformat(saved["now"]))
        world.errors = errors
        world.watch.failures |= failed
        try:
            yield world, saved
        finally:
            world.close()


def _failed_runs(file: Path) -> dict[tuple[str, int], set[int]]:
    """Attempts that failed before, by task; which ones they were is not kept."""
    connection = sqlite3.connect(file)
    try:
        rows = connection.execute("SELECT process_id, task_number, failed_runs FROM task_runtime").fetchall()
    finally:
        connection.close()
    return {(process_id, number): set(range(-failed, 0)) for process_id, number, failed in rows}

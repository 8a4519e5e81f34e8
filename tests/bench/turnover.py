"""Many tables of which few change:

`python -m tests.bench.turnover [--tables 100000] [--changes 1000] [--minutes 3] [--against PATH]` prints JSON.

A coordinator that has been at work for hours, with one SQL catalog; each minute so many tables get a new head, one of a
hundred unless said otherwise. What one of them costs does not depend on how many others there are: fewer tables with as
many changes take less time.
Measured are the coordinator's share of a core without a change and with the load, and how long commits were unseen.
Then one table gets twelve small files and the coordinator is told of it: seconds until its process is planned. The
tables are metadata only, on the local disk; what is known of them is copied from one that was refreshed. `--against`
names another checkout, which does the same after ours; one that can't be told of tables is not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.launcher import Endpoint
from amoro_core.app import Coordinator
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.secrets import Secret
from amoro_core.model.tables import parse_table
from amoro_core.settings import Settings
from tests.bench.machine import described, in_rounds, in_turn
from tests.engine.lakes import MIB, append_unwritten, make_lake, name_of

#: Of the tables those that get a new head in a minute.
SHARE = 0.01
#: Before anything is measured.
WARM_S = 40.0
LIMIT_S = 120.0
HOUR_MS = 3_600_000
ENABLED = ("table.self-optimizing.enabled", "true")


def main() -> None:
    """Run the coordinator's role, or the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100_000)
    parser.add_argument("--changes", type=int, help="tables that change in a minute, else one of a hundred")
    parser.add_argument("--minutes", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another checkout, measured after this one")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--coordinate", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.coordinate:
        _coordinate(given.coordinate)
        return
    changes = given.changes or round(given.tables * SHARE)
    if given.once:
        with tempfile.TemporaryDirectory(prefix="amoro-turnover-") as directory:
            os.environ["PYICEBERG_HOME"] = directory
            print(json.dumps(_measure(Path(directory), given.tables, changes, given.minutes)))
        return
    checkouts = in_turn(given.against)
    asked = [f"--tables={given.tables}", f"--changes={changes}", f"--minutes={given.minutes}"]
    found = in_rounds("tests.bench.turnover", asked, checkouts, 1)
    told = {name: figures for name, (figures,) in found.items()}
    print(json.dumps({"results": told, "tables": given.tables, **described(checkouts)}, indent=1))


def _measure(directory: Path, count: int, changes: int, minutes: int) -> dict[str, object]:
    told: dict[str, object] = {"load": os.getloadavg()[0]}
    catalog = make_lake(directory / "lake", count)
    home = directory / "home"
    _know(home, catalog)
    _copy_what_is_known(home / "amoro.db", directory / "lake" / "catalog.db", count)
    with _started(home) as coordinator:
        where = coordinator.ask()
        time.sleep(WARM_S)
        told["share of a core without a change"] = _share(coordinator, lambda: time.sleep(60.0))
        names = random.Random(1).sample(range(1, count), max(1, changes * minutes))
        heads: dict[str, tuple[int, int]] = {}
        told["share of a core"] = _share(
            coordinator, lambda: heads.update(_change(directory / "lake" / "catalog.db", names, minutes * 60.0))
        )
        delays = sorted(_delays(home / "amoro.db", heads))
        told["commits"] = len(delays)
        told["seconds unseen"] = {"median": statistics.median(delays), "at most": delays[-1]}
        if hasattr(AdminClient, "table_changed"):
            append_unwritten(catalog.load_table(f"db.{name_of(0)}"), 12, MIB)
            told["planned after being told, s"] = _told(where, f"cat.db.{name_of(0)}")
        told["resident, MB"] = coordinator.ask("told")["resident"]
    told["load afterwards"] = os.getloadavg()[0]
    return told


def _know(home: Path, catalog: SqlCatalog) -> None:
    """Let a coordinator that does nothing by itself refresh the first table."""
    known = Coordinator(home, replace(Settings(), port=0), watch=False)
    known.start()
    known.catalogs.add(CatalogConfig("cat", (*{**catalog.properties, "type": "sql"}.items(), ENABLED)))
    known.tables.refresh(known.tables.ensure(parse_table(f"cat.db.{name_of(0)}")).table_id)
    known.stop()


def _copy_what_is_known(state: Path, lake: Path, count: int) -> None:
    """The other tables as if they had been refreshed, too, within the last hours; each rests for some more.

    What maintains them has run within the last half hour: else all of it would be due at a table's first look.
    """
    with closing(sqlite3.connect(lake)) as catalog:
        places = dict(catalog.execute("SELECT table_name, metadata_location FROM iceberg_tables"))
    with closing(sqlite3.connect(state)) as db, db:
        db.row_factory = sqlite3.Row
        there = {row["name"] for row in db.execute("SELECT name FROM sqlite_master")}  # an earlier version has fewer
        for table in ("table_identifier", "table_runtime", "table_action", "table_listing"):
            if table not in there:
                continue
            rows = [dict(row) for row in db.execute(f"SELECT * FROM {table} WHERE table_id = 1")]
            for row in rows:
                made = (_copied(row, number, places) for number in range(1, count))
                columns = ", ".join(row)
                db.executemany(f"INSERT INTO {table} ({columns}) VALUES (:{', :'.join(row)})", made)


def _copied(row: dict[str, Any], number: int, places: dict[str, str]) -> dict[str, Any]:
    name = name_of(number)
    place = places[name]
    later = HOUR_MS + number * 1009 % (5 * HOUR_MS)
    changed = {
        "table_id": number + 1,
        "table_name": name,
        "search_text": str(row.get("search_text", "")).replace(name_of(0), name),
        "location": place.rpartition("/metadata/")[0],
        "metadata_location": place,
        "table_uuid": json.loads(Path(place.removeprefix("file://")).read_bytes())["table-uuid"]
        if "table_uuid" in row
        else "",
        "refresh_at_ms": (row.get("refresh_at_ms") or 0) + later,
        "next_at_ms": None if row.get("next_at_ms") is None else row["next_at_ms"] + later,
        "last_at_ms": None if row.get("next_at_ms") is None else row["next_at_ms"] - later % (HOUR_MS // 2),
    }
    return {key: changed.get(key, value) for key, value in row.items()}


def _share(coordinator: _Process, work: Any) -> float:
    """The coordinator's share of a core during the work."""
    before, begun = coordinator.ask("told")["cpu"], time.monotonic()
    work()
    return round((coordinator.ask("told")["cpu"] - before) / (time.monotonic() - begun), 4)


def _change(lake: Path, numbers: list[int], seconds: float) -> dict[str, tuple[int, int]]:
    """Give the tables new heads, spread over the time; each one's snapshot and when it was committed, in ms."""
    heads: dict[str, tuple[int, int]] = {}
    begun = time.monotonic()
    with closing(sqlite3.connect(lake, timeout=60.0, isolation_level=None)) as catalog:
        for done, number in enumerate(numbers):
            time.sleep(max(0.0, begun + seconds * done / len(numbers) - time.monotonic()))
            name = name_of(number)
            (before,) = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", (name,)
            ).fetchone()
            snapshot_id, after = _new_head(Path(before.removeprefix("file://")))
            catalog.execute(
                "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (after.as_uri(), name)
            )
            heads[name] = snapshot_id, int(time.time() * 1000)
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    return heads


def _new_head(before: Path) -> tuple[int, Path]:
    """A snapshot of the same files after the head; its id and the new metadata file."""
    metadata = json.loads(before.read_bytes())
    head = next(one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"])
    moment, number = int(time.time() * 1000), metadata["last-sequence-number"] + 1
    made = {
        **head,
        "snapshot-id": head["snapshot-id"] + 1,
        "parent-snapshot-id": head["snapshot-id"],
        "sequence-number": number,
        "timestamp-ms": moment,
    }
    metadata["snapshots"].append(made)
    metadata["refs"]["main"]["snapshot-id"] = metadata["current-snapshot-id"] = made["snapshot-id"]
    metadata.update({"last-updated-ms": moment, "last-sequence-number": number})
    metadata.setdefault("snapshot-log", []).append({"snapshot-id": made["snapshot-id"], "timestamp-ms": moment})
    after = before.with_name("00002-bench.metadata.json")
    after.write_text(json.dumps(metadata))
    return int(made["snapshot-id"]), after


def _delays(state: Path, heads: dict[str, tuple[int, int]]) -> Iterator[float]:
    """Seconds between each commit and the evaluation that saw it; waits for the last ones."""
    asked = (
        "SELECT evaluated_snapshot_id, evaluated_at_ms FROM table_runtime JOIN table_identifier USING (table_id) "
        "WHERE table_name = ?"
    )
    deadline = time.monotonic() + LIMIT_S
    with closing(sqlite3.connect(f"{state.as_uri()}?mode=ro", uri=True)) as db:
        for name, (snapshot_id, committed_ms) in heads.items():
            seen, at_ms = db.execute(asked, (name,)).fetchone()
            while seen != snapshot_id:
                if time.monotonic() > deadline:
                    raise SystemExit(f"the commit to {name} was not seen")
                time.sleep(0.2)
                seen, at_ms = db.execute(asked, (name,)).fetchone()
            yield (at_ms - committed_ms) / 1000


def _told(where: dict[str, Any], table: str) -> float:
    with closing(AdminClient(Endpoint(where["address"], Secret(where["token"])))) as client:
        begun = time.monotonic()
        client.table_changed(table, "the bench")
        while not client.list_processes(table).items:
            if time.monotonic() > begun + LIMIT_S:
                raise SystemExit("nothing was planned")
            time.sleep(0.02)
        return round(time.monotonic() - begun, 2)


class _Process:
    """The coordinator's process; answers a line of JSON for each line that it gets."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.turnover", "--coordinate", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, word: str = "") -> dict[str, Any]:
        """The answer to a word; without one, the next line."""
        reader, writer = self._process.stdout, self._process.stdin
        if reader is None or writer is None:
            raise RuntimeError("the process has no pipes")
        if word:
            writer.write(f"{word}\n")
            writer.flush()
        line = reader.readline()
        if not line.startswith("{"):
            raise SystemExit(f"the coordinator said {line!r}")
        return dict(json.loads(line))

    def end(self) -> None:
        """Let the process end; wait for it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(120)


@contextmanager
def _started(home: Path) -> Iterator[_Process]:
    made = _Process(home)
    try:
        yield made
    finally:
        made.end()


def _coordinate(home: Path) -> None:
    """A coordinator that knows its catalog for hours: else it would refresh every table once after its start."""
    coordinator = Coordinator(home, replace(Settings(), port=0))
    with suppress(AttributeError):  # an earlier version does not compare catalogs
        since = coordinator.services.program.started - timedelta(hours=6)
        coordinator.services.comparing._since["cat"] = coordinator.catalogs.get("cat"), since
    gc.freeze()  # as the program does once it has imported what it needs
    coordinator.start()
    _say({"address": coordinator.address, "token": coordinator.admin_token.reveal()})
    try:
        for _ in sys.stdin:
            _say({"cpu": time.process_time(), "resident": _resident_mb()})
    finally:
        coordinator.stop()


def _resident_mb() -> int:
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

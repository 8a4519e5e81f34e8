"""A coordinator of many tables of which few change: `python -m tests.bench.tables` prints JSON.

`[--tables 10000] [--changes 0.01] [--minutes 3] [--events [--lose]]`. A coordinator in a process of its own finds the
tables of a SQL catalog, evaluates them, and is left alone; then that share of them gets a new head each minute. Seconds
and CPU until all are evaluated, what it has resident, its share of a core without a change and with them, and how long
commits were unseen; with `--events` each commit is told by an event, of each shape in turn, and with `--lose` one event
in twenty is lost and one comes twice. The tables are metadata only, on the local disk; scheduled maintenance is off.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from amoro_cli.client import AdminClient
from amoro_cli.connection import Endpoint
from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.bootstrap.settings import Settings
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.rest.requests import events_of
from tests.bench.machine import Child, answer, memory_mb, options, say, tell
from tests.engine.lakes import make_lake, name_of

LIMIT_S = 3600.0


def main() -> None:
    """Measure, or be the coordinator."""
    given = options(__doc__, tables=10_000, changes=0.01, minutes=3.0, events=False, lose=False, coordinate="")
    if given.coordinate:
        _coordinate(Path(given.coordinate))
        return
    with tempfile.TemporaryDirectory(prefix="amoro-bench-") as directory:
        os.environ["PYICEBERG_HOME"] = directory
        figures = _measured(Path(directory), given)
        say({"tables": given.tables, "events": given.events, "some lost": given.lose, **figures})


def _measured(directory: Path, given: Namespace) -> dict[str, float]:
    count, seconds = given.tables, given.minutes * 60
    changes = max(1, round(count * given.changes * given.minutes))
    catalog = make_lake(directory / "lake", count)
    tell(f"made {count:,} tables")
    home, lake = directory / "home", directory / "lake" / "catalog.db"
    with Child("tests.bench.tables", "--coordinate", str(home)) as coordinator:
        where = coordinator.ask()
        begun, before = time.monotonic(), coordinator.figures("figures")
        with (
            closing(AdminClient(Endpoint(str(where["address"]), Secret(str(where["token"]))))) as client,
            closing(sqlite3.connect(f"{(home / 'amoro.db').as_uri()}?mode=ro", uri=True)) as state,
        ):
            properties = {"type": "sql", **catalog.properties, "table.self-optimizing.enabled": "true"}
            client.AddCatalog(pb.AddCatalogRequest(name="cat", properties=properties))
            evaluated = "SELECT count(*) FROM table_runtime WHERE evaluated_at_ms IS NOT NULL"
            while (done := state.execute(evaluated).fetchone()[0]) < count:
                if time.monotonic() > begun + LIMIT_S:
                    raise SystemExit(f"{done} of {count} tables are evaluated after {LIMIT_S:g} s")
                time.sleep(0.5)
            wall, after = time.monotonic() - begun, coordinator.figures("figures")
            told = {
                "all evaluated, s": wall,
                "all evaluated, cpu s": after["cpu s"] - before["cpu s"],
                "resident before, MB": before["resident MB"],
                "resident, MB": after["resident MB"],
            }
            tell(json.dumps(told))
            time.sleep(min(seconds, 40.0))  # what follows the evaluation has ended
            told["share of a core without a change"] = _share(coordinator, lambda: time.sleep(seconds))
            numbers = random.Random(1).sample(range(1, count), min(count - 1, changes))
            heads: dict[str, tuple[int, int]] = {}

            def tell_of(number: int, name: str, metadata: Path) -> None:
                times = {0: 0, 1: 2}.get(number % 20, 1) if given.lose else int(given.events)
                for _ in range(times):
                    _send_event(client, number, name, metadata)

            told["share of a core with changes"] = _share(
                coordinator, lambda: heads.update(_change(lake, numbers, seconds, tell_of))
            )
            unseen = sorted(_delays(state, heads))
            told["commits"] = len(unseen)
            told |= {"unseen, median s": statistics.median(unseen), "unseen at most, s": unseen[-1]}
            told["unseen, p99 s"] = unseen[-1 - len(unseen) // 100]
    catalog.close()
    return {key: round(value, 3) for key, value in told.items()}


def _share(coordinator: Child, work: Callable[[], object]) -> float:
    """The coordinator's share of a core during the work."""
    before, begun = coordinator.figures("figures")["cpu s"], time.monotonic()
    work()
    return (coordinator.figures("figures")["cpu s"] - before) / (time.monotonic() - begun)


def _send_event(client: AdminClient, number: int, name: str, metadata: Path) -> None:
    """Tell of a commit by a CloudEvent, a notification of S3 or an event of EventBridge."""
    bodies: tuple[Any, ...] = (
        {"specversion": "1.0", "id": name, "source": "bench", "type": "changed", "subject": f"cat.db.{name}"},
        {
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": ""}, "object": {"key": quote(str(metadata), safe="")}},
        },
        {"detail-type": "Object Created", "detail": {"bucket": {"name": ""}, "object": {"key": str(metadata)}}},
    )
    answer = client.ReceiveEvents(pb.ReceiveEventsRequest(**events_of([bodies[number % 3]])))
    if answer.accepted != 1:
        raise SystemExit(f"the event of {name} was not accepted: {answer}")


def _change(
    lake: Path, numbers: list[int], seconds: float, tell_of: Callable[[int, str, Path], None]
) -> dict[str, tuple[int, int]]:
    """Give the tables new heads, spread over the time; each one's snapshot and when it was committed, in ms."""
    heads: dict[str, tuple[int, int]] = {}
    begun = time.monotonic()
    with closing(sqlite3.connect(lake, timeout=60.0, isolation_level=None)) as catalog:
        for done, name in enumerate(map(name_of, numbers)):
            time.sleep(max(0.0, begun + seconds * done / len(numbers) - time.monotonic()))
            asked = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
            (before,) = catalog.execute(asked, (name,)).fetchone()
            snapshot_id, after = _new_head(Path(before.removeprefix("file://")))
            changed = "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?"
            catalog.execute(changed, (after.as_uri(), name))
            heads[name] = snapshot_id, int(time.time() * 1000)
            tell_of(done, name, after)
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    return heads


def _new_head(before: Path) -> tuple[int, Path]:
    """A snapshot of the same files after the head; its id and the new metadata file."""
    metadata = json.loads(before.read_bytes())
    head = next(one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"])
    moment, number = int(time.time() * 1000), metadata["last-sequence-number"] + 1
    logged = {"snapshot-id": head["snapshot-id"] + 1, "timestamp-ms": moment}
    made = {**head, **logged, "parent-snapshot-id": head["snapshot-id"], "sequence-number": number}
    metadata["snapshots"].append(made)
    metadata["refs"]["main"]["snapshot-id"] = metadata["current-snapshot-id"] = made["snapshot-id"]
    metadata.update({"last-updated-ms": moment, "last-sequence-number": number})
    metadata.setdefault("snapshot-log", []).append(logged)
    after = before.with_name("00002-bench.metadata.json")
    after.write_text(json.dumps(metadata))
    return made["snapshot-id"], after


def _delays(state: sqlite3.Connection, heads: dict[str, tuple[int, int]]) -> Iterator[float]:
    """Seconds between each commit and the evaluation that saw it; waits for the last ones."""
    asked = (
        "SELECT evaluated_snapshot_id, evaluated_at_ms FROM table_runtime JOIN table_identifier USING (table_id) "
        "WHERE table_name = ?"
    )
    deadline = time.monotonic() + LIMIT_S
    for name, (snapshot_id, committed_ms) in heads.items():
        while (found := state.execute(asked, (name,)).fetchone())[0] != snapshot_id:
            if time.monotonic() > deadline:
                raise SystemExit(f"the commit to {name} was not seen")
            time.sleep(0.2)
        yield (found[1] - committed_ms) / 1000


def _coordinate(home: Path) -> None:
    off = {one.name: False for one in fields(Settings) if one.name.endswith("_enabled")}
    coordinator = Coordinator(home, replace(Settings(), port=0, http_port=0, **off))
    gc.freeze()  # as the program does once it has imported what it needs
    coordinator.start()
    answer({"address": coordinator.address, "token": coordinator.admin_token.reveal()})
    try:
        for _ in sys.stdin:
            answer({"cpu s": time.process_time(), "resident MB": memory_mb("VmRSS")})
    finally:
        coordinator.stop()


if __name__ == "__main__":
    main()

"""Maintenance of a large table: `python -m tests.bench.maintenance [--files N] [--orphans N] [--spark]`.

A table of daily partitions, its manifests written by our own writer, its data files empty on the local disk, with
orphans among them, all old. Each step runs in a process of its own, which tells its CPU, and its peak of resident
memory above what it had before: orphans found in the coordinator, or planned for optimizers and listed by tasks;
the guard; the expiry of snapshots with a manifest list, a manifest and a data file each. `--spark` runs Spark's
`remove_orphan_files` on the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.bench import live_files

COLUMNS = 3
OLD = datetime.now(UTC) - timedelta(days=30)
STEPS = ("alone", "listed", "guarded", "expired")


def main() -> None:
    """Parse the command line; make the table, and print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--orphans", type=int, default=10_000)
    parser.add_argument("--snapshots", type=int, default=5000)
    parser.add_argument("--root", type=Path, help="where the table is, or is to be made; else a temporary directory")
    parser.add_argument("--step", choices=(*STEPS, "spark"), help="measure this step in this process")
    parser.add_argument("--steps", nargs="*", choices=STEPS, default=STEPS)
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    if min(given.files, given.orphans) < live_files.PARTITIONS:
        parser.error(f"--files and --orphans are spread over {live_files.PARTITIONS} partitions: as many are needed")
    if given.step:
        print(json.dumps(globals()[given.step](given.root)))
        return
    with tempfile.TemporaryDirectory(prefix="amoro-maintenance-") as directory:
        root = given.root or Path(directory)
        if not (root / "made").exists():
            make(root, given.files, given.orphans, given.snapshots)
        print(
            f"{given.files} files, {given.orphans} orphans, {given.snapshots} snapshots, load {os.getloadavg()[0]:.1f}"
        )
        for step in (*given.steps, *(["spark"] if given.spark else [])):
            command = [sys.executable, "-m", "tests.bench.maintenance", "--step", step, "--root", str(root)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            figures = json.loads(done.stdout.splitlines()[-1])
            print(f"{step:<9}" + ", ".join(f"{key} {value}" for key, value in figures.items()), flush=True)


def make(root: Path, files: int, orphans: int, snapshots: int) -> None:
    """The table with its files, and a second one of many snapshots."""
    live_files.COLUMNS = COLUMNS
    live_files.made_up(root, files, 0)
    data = root / "db" / "t" / "data"
    for day in range(live_files.PARTITIONS):
        place = data / f"c1={day}"
        place.mkdir(parents=True)
        for at in range(files // live_files.PARTITIONS):
            path = live_files._described("", day, f"{at:06}", 0, 0)["file_path"]
            _empty(f"{place}/{path.rpartition('/')[2]}")
    plant(root, orphans)
    add_snapshots(root, snapshots)
    (root / "made").touch()


def plant(root: Path, orphans: int) -> list[Path]:
    """So many orphans in all partitions, unless they are there."""
    places = [root / "db" / "t" / "data" / f"c1={day}" for day in range(live_files.PARTITIONS)]
    made = [place / f"orphan-{at}.parquet" for place in places for at in range(orphans // len(places))]
    for path in made:
        _empty(str(path))
    return made


def _empty(path: str) -> None:
    place = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.utime(place, (OLD.timestamp(), OLD.timestamp()))
    os.close(place)


def add_snapshots(root: Path, count: int) -> None:
    """Let the table have so many earlier snapshots, each with the head's manifests and one with a file of its own.

    The head's summary says then how many files it has."""
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyiceberg.table.snapshots import Operation, Summary

    from amoro_core.iceberg.list_writing import Listing, write_list
    from amoro_core.iceberg.manifest_writing import added_entry, new_header, write_manifest

    table = catalog_of(root).load_table("db.t")
    metadata = table.metadata
    head = metadata.current_snapshot()
    assert head is not None
    files = sum(one.existing_files_count + one.added_files_count for one in head.manifests(table.io))
    told = head.model_copy(update={"summary": Summary(Operation.APPEND, **{"total-data-files": str(files)})})
    shared = head.manifests(table.io)
    header = new_header(metadata, metadata.default_spec_id)
    at_ms = int(OLD.timestamp() * 1000)
    made = []
    for number in range(count):
        snapshot_id = 1000 + number
        file = live_files._file(live_files._described(table.location(), 0, f"s{number}", 10, 1))
        path = f"{table.location()}/metadata/own-{number}.avro"
        entry = added_entry(file, header, snapshot_id)
        own = write_manifest(table.io, path, 2, ManifestContent.DATA, header, snapshot_id, [entry])
        listing = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
        write_list(table.io, listing, Listing(2, snapshot_id, 0, 1), [*shared, own])
        made.append(
            head.model_copy(
                update={
                    "snapshot_id": snapshot_id,
                    "parent_snapshot_id": None,
                    "sequence_number": 1,
                    "timestamp_ms": at_ms + number,
                    "manifest_list": listing,
                }
            )
        )
    changed = metadata.model_copy(update={"snapshots": [*made, told]})
    location = f"{table.location()}/metadata/99999-made.metadata.json"
    Path(location.removeprefix("file://")).write_text(changed.model_dump_json())
    assert TableMetadataUtil.parse_raw(changed.model_dump_json())
    catalog = catalog_of(root)
    catalog.drop_table("db.t")
    catalog.register_table("db.t", location)


def catalog_of(root: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("cat", uri=f"sqlite:///{root / 'catalog.db'}", warehouse=root.as_uri())


# The steps


def alone(root: Path) -> dict[str, float]:
    """Orphans found in the coordinator."""
    table, situation, request = _asked(root, is_preview=True)
    plan, figures = measured(lambda: _action().plan(table, situation, request)[1])
    return {"orphans": len(plan.condemned), **figures}


def listed(root: Path) -> dict[str, float]:
    """Tasks planned for optimizers, executed one after the other as they do, and what they found evaluated again."""
    from types import SimpleNamespace

    from amoro_core.model.actions import TaskResult
    from amoro_core.model.maintenance import NO_OPTIONS
    from amoro_core.model.processes import Attempt, TaskId
    from amoro_optimizer.kinds import Kinds, Run

    table, situation, request = _asked(root)
    plan, planning = measured(lambda: _action().plan(table, situation, request)[1])
    blobs = sum(len(one) for one in plan.blobs.values())
    kinds = Kinds()

    def execute(task: Any) -> bytes:
        run = Run(Attempt(TaskId("p", 1), 1), {}, 1, lambda *_: None, lambda: False, lambda one: plan.blobs[one.sha256])
        return kinds.execute(task.work, run).payload

    outputs, figures = measured(lambda: [execute(task) for task in plan.tasks])
    results = [TaskResult(at, "list", task.work.payload, outputs[at]) for at, task in enumerate(plan.tasks)]
    case: Any = SimpleNamespace(results=results)
    made, more = measured(lambda: _action().gathered(table, situation, case, NO_OPTIONS))
    planned = {f"plan_{key}": value for key, value in planning.items()}
    told = {"tasks": len(plan.tasks), "blobs_MB": round(blobs / 2**20, 1), **planned}
    return {"orphans": len(made.condemned), **told, **figures, "gathered_cpu_s": more["cpu_s"]}


def guarded(root: Path) -> dict[str, float]:
    """The guard asked for the first thousand files."""
    table, _, _ = _asked(root)
    paths = [one.path for one in _first_orphans(root)]
    found, figures = measured(lambda: table.guard().reachable(paths))
    return {"reachable": len(found), **figures}


def expired(root: Path) -> dict[str, float]:
    """What would be released without all snapshots but the head."""
    table, _, _ = _asked(root)
    head = table.facts.snapshot_id
    gone = frozenset(one.snapshot_id for one in table.snapshots() if one.snapshot_id != head)
    count, figures = measured(lambda: sum(1 for _ in table.would_release(gone)))
    return {"snapshots": len(gone), "released": count, **figures}


def spark(root: Path) -> dict[str, float]:
    """Spark's action on the same files as a dry run; its start, and a first query, apart."""
    from tests.bench.spark_rewrite import _peak, cpu_of, fast_session
    from tests.spark.catalogs import register_in_spark

    session = fast_session(Path(tempfile.gettempdir()), cores=2)
    register_in_spark(session, root, "cat")
    session.sql("SELECT count(*) FROM cat.db.t.snapshots").collect()
    pid = int(session._jvm.java.lang.ProcessHandle.current().pid())
    before, begun = cpu_of(pid), time.monotonic()
    older = (datetime.now(UTC) - timedelta(days=3)).strftime("%Y-%m-%d %H:%M:%S")
    call = f"CALL cat.system.remove_orphan_files(table => 'db.t', older_than => TIMESTAMP '{older}', dry_run => true)"
    found = session.sql(call).count()
    figures = {"cpu_s": round(cpu_of(pid) - before, 1), "wall_s": round(time.monotonic() - begun, 1)}
    peak = round(_peak(pid))
    session.stop()
    return {"orphans": found, **figures, "peak_MB": peak}


def _first_orphans(root: Path) -> Iterator[Any]:
    from amoro_core.model.stored import StoredFile

    for place in sorted((root / "db" / "t" / "data").glob("c1=*/orphan-*"))[:1000]:
        yield StoredFile(str(place), 0, OLD)


def _action() -> Any:
    from amoro_core.actions.orphans import CleanOrphanFiles

    return CleanOrphanFiles()


def _asked(root: Path, **more: Any) -> tuple[Any, Any, Any]:
    """The table, and what an action is told of it."""
    from amoro_core.actions.contract import Request, Situation
    from amoro_core.formats.iceberg import IcebergFormat
    from amoro_core.model.config import parse_config
    from amoro_core.model.groups import Capacity
    from amoro_core.model.maintenance import Surroundings
    from amoro_core.model.processes import CatalogConfig
    from amoro_core.model.tables import TableIdentifier

    properties = {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": root.as_uri()}
    config = CatalogConfig("cat", tuple(sorted(properties.items())), (root.as_uri(),))
    table = IcebergFormat().load(config, TableIdentifier("cat", ("db",), "t"))
    situation = Situation(parse_config({}), {}, {}, Capacity(2, 1), datetime.now(UTC), Surroundings)
    return table, situation, Request("clean-orphan-files", **more)


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What the work returns, its seconds, and its peak of resident memory above what was there before, in MB."""
    before, begun, cpu = _memory("VmRSS"), time.monotonic(), _cpu_s()
    result = work()
    figures = {
        "cpu_s": round(_cpu_s() - cpu, 1),
        "wall_s": round(time.monotonic() - begun, 1),
        "above_MB": round(_memory("VmHWM") - before),
        "before_MB": round(before),
    }
    return result, figures


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory(key: str) -> float:
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    main()

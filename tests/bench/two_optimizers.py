"""Orphans of a large table found and deleted by two optimizers: `python -m tests.bench.two_optimizers [--root DIR]`.

The table is that of `tests.bench.maintenance`. A coordinator process and two optimizer processes of one thread each
find the orphans, which are due at once, and delete them as soon as the clock says so; the orphans are planted again
before. Prints, for both, the CPU of every process and the peak of its resident memory above what it had before.
`--expire` expires the snapshots of the table instead.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.acceptance.processes import SETTINGS, Installation, Process, address_of, wait_until
from tests.bench import maintenance
from tests.bench.spark_rewrite import cpu_of

TABLE = "cat.db.t"
KEEP = "maintenance.clean-orphan-files.trash-keep"
SECONDS = 3600.0


def main() -> None:
    """Parse the command line; make the table if there is none, and print a line for each process and action."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--orphans", type=int, default=10_000)
    parser.add_argument("--root", type=Path, help="where the table is, or is to be made; else a temporary directory")
    parser.add_argument("--snapshots", type=int, default=0, help="earlier ones of a table that is made")
    parser.add_argument("--expire", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="amoro-maintenance-") as made, tempfile.TemporaryDirectory() as directory:
        root = given.root or Path(made)
        if not (root / "made").exists():
            maintenance.make(root, given.files, given.orphans, given.snapshots)
        orphans = maintenance.plant(root, given.orphans)
        with maintenance.catalog_of(root).load_table("db.t").transaction() as change:
            change.set_properties({KEEP: "0"})
        print(f"{given.files} files, {given.orphans} orphans, load {os.getloadavg()[0]:.1f}", flush=True)
        _measure(root, Path(directory), orphans, "expire-snapshots" if given.expire else "clean-orphan-files")


def _measure(root: Path, directory: Path, orphans: list[Path], action: str) -> None:
    site = _installed(root, directory)
    try:
        coordinator = site.up()
        optimizers = [site.optimizer(address_of(coordinator), "--memory", "128MB") for _ in range(2)]
        processes = {"coordinator": coordinator, "first": optimizers[0], "second": optimizers[1]}
        wait_until(lambda: TABLE in site.run("table", "list", "-o", "name").stdout, "the table is found", SECONDS)
        _settle(coordinator)
        before = {name: _begin(one) for name, one in processes.items()}
        options = ("--action", action, "--confirm", TABLE, "--wait", "--timeout", "1h")
        said = site.run("table", "maintain", TABLE, *options, seconds=SECONDS)
        assert said.status == 0, said.stderr
        print(said.stdout)
        _tell("found", processes, before)
        if action == "expire-snapshots":
            return
        before = {name: _begin(one) for name, one in processes.items()}
        wait_until(lambda: not any(one.exists() for one in orphans), "the orphans are deleted", SECONDS)
        wait_until(lambda: "clean-orphan-files" not in site.run("trash", "list").stdout, "the trash is empty", SECONDS)
        _tell("deleted", processes, before)
    finally:
        site.close()


def _tell(what: str, processes: Mapping[str, Process], before: Mapping[str, tuple[float, float]]) -> None:
    for name, one in processes.items():
        cpu, memory = before[name]
        above = _memory(one, "VmHWM") - memory
        print(f"{what:<8} {name:<12} {cpu_of(one.popen.pid) - cpu:.1f} s of CPU, {above:.0f} MB above {memory:.0f} MB")


def _installed(root: Path, directory: Path) -> Installation:
    """A state directory whose catalog is the table's."""
    catalog = maintenance.catalog_of(root)
    known = {key: catalog.properties[key] for key in ("uri", "warehouse")}
    lines = ("catalog:", "  cat:", "    type: sql", *(f"    {key}: {value}" for key, value in known.items()))
    (directory / ".pyiceberg.yaml").write_text("\n".join(lines) + "\n")
    site = Installation(directory, catalog)
    site.home.mkdir(mode=0o700)
    (site.home / "amoro.yaml").write_text(SETTINGS)
    return site


def _settle(process: Process) -> None:
    """Until it has been idle for ten seconds."""
    while True:
        before = cpu_of(process.popen.pid)
        time.sleep(10)
        if cpu_of(process.popen.pid) - before < 1:
            return


def _begin(process: Process) -> tuple[float, float]:
    """Its CPU so far, and its resident memory, from which the peak counts now."""
    Path(f"/proc/{process.popen.pid}/clear_refs").write_text("5")
    return cpu_of(process.popen.pid), _memory(process, "VmRSS")


def _memory(process: Process, key: str) -> float:
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{process.popen.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main()

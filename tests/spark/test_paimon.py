"""Paimon compacts and expires tables that pypaimon writes, beside it, and pypaimon reads the rows that it wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from amoro_core.actions.action_api import PlanningContext, Request
from amoro_core.actions.table_services import PaimonCompact, PaimonExpire, PaimonService
from amoro_core.formats.paimon import PaimonFormat
from amoro_core.formats.ports import AnyTable
from amoro_core.model.group_config import Capacity
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import maintenance_pb2 as pb
from tests.acceptance.processes import wait_until

from .session import ROOT, conversation, lacking_for_backend, require

PYPAIMON = ROOT / "build" / "pypaimon" / "bin" / "python"
HERE = Path(__file__).parent

Rows = list[tuple[int, str, str]]


Driver = Callable[..., pb.ProcedureOutput | str]


@contextmanager
def driver_with(version: str, scratch: Path) -> Iterator[Driver]:
    """A Spark driver with Paimon of that version: it executes a work, and gives the output or the error."""
    jar = ROOT / "build" / "format-jars" / f"paimon-bundle-{version}.jar"
    parts = {f"{jar.name} in build/format-jars": jar.exists(), "pypaimon in build/pypaimon": PYPAIMON.exists()}
    require([*lacking_for_backend(), *(name for name, found in parts.items() if not found)])
    with conversation(scratch / "log", sys.executable, HERE / "paimon_driver.py", jar) as ask:

        def run(work: pb.ProcedureWork, stopped: str = "") -> pb.ProcedureOutput | str:
            word, _, rest = ask(f"{work.SerializeToString().hex()} {stopped}").partition(" ")
            return pb.ProcedureOutput.FromString(bytes.fromhex(rest)) if word == "done" else f"{word} {rest}"

        assert ask("") == "ready", (scratch / "log").read_text()
        yield run


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driver_with("1.4.2", tmp_path_factory.mktemp("paimon")) as made:
        yield made


class Table:
    """A table that pypaimon has made, by seven commits."""

    def __init__(self, warehouse: Path, name: str, *options: str) -> None:
        self.warehouse, self.name = warehouse, name
        self.written = self._pypaimon("make", "write-only=true", *options)

    def _command(self, *command: str) -> list[str]:
        return [str(PYPAIMON), str(HERE / "paimon_writer.py"), str(self.warehouse), self.name, *command]

    def _pypaimon(self, *command: str) -> Rows:
        done = subprocess.run(self._command(*command), check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return _rows(done.stdout)

    def writing(self, stop: Path) -> subprocess.Popen[str]:
        """A process that commits until that file exists."""
        return subprocess.Popen(self._command("write", str(stop)), stdout=subprocess.PIPE, text=True)

    def write_on(self, stop: Path) -> None:
        """Some commits more."""
        writer, head = self.writing(stop), self.loaded().facts.snapshot_id
        wait_until(lambda: self.loaded().facts.snapshot_id != head, "a commit")
        stop.touch()
        writer.communicate(timeout=60)

    def read(self) -> Rows:
        """Its rows, as pypaimon reads them."""
        return self._pypaimon("read")

    def loaded(self) -> AnyTable:
        catalog = CatalogConfig("lake", (("type", "paimon"), ("warehouse", str(self.warehouse))))
        return cast(AnyTable, PaimonFormat().load(catalog, TableIdentifier("lake", ("db",), self.name)))

    def levels(self) -> dict[str, int]:
        return {kind: files for kind, (files, _) in self.loaded().contents.kinds.items()}

    def plan(self, action: PaimonService, at: datetime | None = None) -> pb.ProcedureWork:
        table, now = self.loaded(), at or datetime.now(UTC)
        properties = {**table.facts.properties, "table-service.local-files": "true"}
        context = PlanningContext(OptimizingConfig(), properties, {}, Capacity(1, 1), now)
        verdict, plan = action.plan(table, context, Request(action.name))
        assert plan is not None, verdict.reason
        return pb.ProcedureWork.FromString(plan.tasks[0].work.payload)

    def serve(self, driver: Driver, action: PaimonService, at: datetime | None = None) -> str:
        """What was done, as the table shows it."""
        for _ in range(5):
            work = self.plan(action, at)
            output = driver(work)
            if isinstance(output, pb.ProcedureOutput):
                return action.outcome(self.loaded(), work, output, 0)
            assert "calling o" in output  # its commit lost to the writer's, and it is planned again
            assert ".commit." in output
        raise AssertionError(output)


def _rows(text: str) -> Rows:
    return [(int(one[0]), str(one[1]), str(one[2])) for one in json.loads(text)]


def _newest(rows: Sequence[tuple[int, str, str]]) -> Rows:
    """The rows of a keyed table: the last one of each key, by its number."""
    return sorted({one[:2]: one for one in sorted(rows, key=lambda one: int(one[2]))}.values())


def test_a_table_is_compacted_beside_a_writer_that_does_not_stop_and_pypaimon_reads_equal_rows(
    driver: Driver, tmp_path: Path
) -> None:
    options = ("bucket=2", "snapshot.num-retained.min=1", "snapshot.time-retained=1 s")
    table, stop = Table(tmp_path / "lake", "orders", *options), tmp_path / "stop"
    assert table.levels() == {"level 0": 28}  # two partitions of two buckets, seven commits
    assert table.read() == _newest(table.written)
    before, abandoned = _files(table.warehouse), driver(table.plan(PaimonCompact()), "stopped")
    assert str(abandoned).startswith("AttemptAbandoned the compaction of lake.db.orders was stopped before its commit")
    assert _files(table.warehouse) == before
    writer = table.writing(stop)
    try:
        head = table.loaded().facts.snapshot_id
        wait_until(lambda: table.loaded().facts.snapshot_id != head, "a commit")
        done = [table.serve(driver, PaimonCompact()) for _ in range(3)]
    finally:
        stop.touch()
        rows, _ = writer.communicate(timeout=60)
    written = _newest([*table.written, *_rows(rows)])
    timeline = [(entry.action, entry.user.partition("_")[0]) for entry in table.loaded().timeline]
    compacted = [at for at, (kind, _) in enumerate(timeline) if kind == "COMPACT"]
    assert done == [f"compact: snapshot {at + 1}" for at in compacted]
    assert len({timeline[at][1] for at in compacted}) == 3  # each by a marker of its own
    assert timeline[compacted[0] + 1][0] == "APPEND"  # the writer went on
    assert table.read() == written
    assert table.serve(driver, PaimonCompact(), datetime.now(UTC) + timedelta(hours=2)).startswith("compact: ")
    assert table.levels() == {"level 5": 4}
    assert table.read() == written
    oldest = table.loaded().timeline[0].time
    expired = table.serve(driver, PaimonExpire(), datetime.now(UTC) + timedelta(hours=2))
    assert expired.startswith("expire: snapshots 1 to ")
    assert (oldest, int(table.loaded().timeline[0].time) > 1) == ("1", True)
    assert table.read() == written


def test_small_files_without_a_primary_key_are_merged_and_an_older_paimon_is_refused(
    driver: Driver, tmp_path: Path
) -> None:
    table = Table(tmp_path / "lake", "log")
    assert table.levels() == {"level 0": 14}
    work, before = table.plan(PaimonCompact()), _files(table.warehouse)
    with driver_with("0.9.0", tmp_path) as older:
        refused = older(work)
    # pypaimon 2.1.0 can't read what Paimon 0.9.0 compacts: it lacks this field.
    assert isinstance(refused, str)
    assert refused.startswith(
        "TableRefused lake.db.log was written by a newer Paimon than the jar's: its manifests have "
    )
    assert "_VALUE_STATS_COLS" in refused
    assert (_files(table.warehouse), table.read()) == (before, table.written)
    output = driver(work)
    assert isinstance(output, pb.ProcedureOutput)
    assert PaimonCompact().outcome(table.loaded(), work, output, 0) == "compact: snapshot 8"
    assert (table.levels(), table.read()) == ({"level 0": 2}, table.written)
    again = driver(work)  # as the attempt after that of a driver that was lost once it had committed
    assert isinstance(again, pb.ProcedureOutput)
    assert again.nothing_to_do
    assert PaimonCompact().outcome(table.loaded(), work, again, 0) == "compact: snapshot 8"


def _files(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}

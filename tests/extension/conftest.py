"""The extension as it is installed, a distribution on the path with entry points, and a world that finds it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

from amoro_core.bootstrap.composition import CoordinatorHooks, Services, installed
from amoro_core.model.processes import CatalogConfig, OptimizingProcess, ResourceGroup
from amoro_core.model.tables import TableIdentifier
from amoro_core.store import groups
from amoro_core.transactions.store_plan import EVALUATION
from amoro_optimizer.work_kinds import Run, installed_kinds
from tests.extension.journal import JournalTable
from tests.services.world import SETTINGS
from tests.store.builders import open_store

ENTRY_POINTS = (Path(__file__).parent / "entry_points.txt").read_text(encoding="utf-8")
TABLE = TableIdentifier("lake", ("db",), "log")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LARGE = "a line of some length\n" * 20
SMALL = "a line\n"


def install(site: Path, entry_points: str = ENTRY_POINTS) -> None:
    """Leave the package's description in a directory of packages, as pip does."""
    about = site / "amoro_journal-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: amoro-journal\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def plugged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is installed."""
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")


class World:
    """A coordinator's services with what is installed, no threads, and a journal that others write to."""

    def __init__(self, home: Path, more: Mapping[str, str] = MappingProxyType({})) -> None:
        """`more`: properties of the lake, beside and above those of a catalog of journals."""
        self.home, self.place = home, home / "lake" / "db" / "log"
        (self.place / "log").mkdir(parents=True)
        (self.place / "journal.json").write_text(json.dumps({"uuid": str(uuid.uuid4()), "properties": {}}))
        properties = {"table-formats": "journal", "warehouse": str(home / "lake"), **more}
        self.lake = CatalogConfig("lake", tuple(properties.items()))
        self._open()

    def _open(self) -> None:
        self.store = open_store(self.home / "amoro.db")
        self.store.write(lambda db: groups.add(db, ResourceGroup("default")))
        around = CoordinatorHooks(lambda: "here:1", lambda: "here:1", lambda process_id, catalog: None)
        parts = replace(installed(self.home, [self.lake]), clock=lambda: NOW, background=lambda work: work())
        self.services = Services(self.store, self.home, SETTINGS, {}, around, parts)
        self.services.optimizing.recover()
        self.optimizer_id = self.optimizer(kinds=installed_kinds().names)

    def optimizer(self, **more: object) -> str:
        """Register an optimizer of one thread."""
        usual = {"group": "default", "threads": 1, "memory_bytes": 1, "labels": {}}
        registered = self.services.optimizers.register(heartbeat_interval=timedelta(seconds=10), **usual, **more)
        return registered.optimizer.optimizer_id

    def restart(self) -> None:
        """As after a kill: nothing of memory is left, and whoever worked is gone."""
        for optimizer, _ in self.services.optimizers.list_optimizers():
            self.services.optimizing.dismiss(optimizer.optimizer_id, "it was killed", lost=True)
        self.store.close()
        self._open()

    def journal(self) -> JournalTable:
        return JournalTable(TABLE, self.place)

    def append(self, **files: str) -> None:
        """Another writer adds files with that content."""
        for name, content in files.items():
            (self.place / name).write_text(content)
        journal = self.journal()
        journal.send(journal.stage({"files": list(files)})[0])

    def tallies(self) -> list[dict[str, int]]:
        """What was counted, commit after commit."""
        return [record["tally"] for record in self.journal().records if "tally" in record]

    def look(self) -> list[str]:
        """Look at the lake and begin what is due; the ids of the processes."""
        self.services.discovery.explore("lake")
        for table_id, _ in self.services.tables.list_due():
            self.services.tables.refresh(table_id)
        due = self.services.maintaining.list_due()
        begun = [self.services.maintaining.begin(table, name, trigger=EVALUATION) for table, name, _ in due]
        return [one.process_id for one in begun if one.process_id]

    def work(self) -> None:
        """Let the optimizer do all that is planned, and the coordinator what is due then."""
        optimizing, kinds = self.services.optimizing, installed_kinds()
        while handed := optimizing.poll(self.optimizer_id, "default", [1]):
            [vended] = optimizing.ack(self.optimizer_id, [handed[0].attempt])
            assert vended is not None
            run = Run(handed[0].attempt, vended, 1, lambda done, total: None, lambda: False)
            optimizing.complete(self.optimizer_id, handed[0].attempt, kinds.execute(handed[0].work, run))
        for process_id in (one.process_id for one in self.processes() if one.is_active):
            self.services.committing.commit(process_id)

    def processes(self) -> list[OptimizingProcess]:
        """Every process, the newest first."""
        return [view.process for view in self.services.optimizing.list_processes(None, None, 100)]


@pytest.fixture
def world(tmp_path: Path, plugged_in: None) -> Iterator[World]:
    made = World(tmp_path / "home")
    yield made
    made.store.close()

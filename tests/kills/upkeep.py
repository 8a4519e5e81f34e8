"""Rounds of maintenance and undo in which the coordinator is killed at failpoints and at any moment."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from amoro_cli.client import AdminClient
from amoro_core import failpoints
from amoro_core.errors import CannotUndo
from amoro_core.model.processes import UNDOABLE
from amoro_core.protocol import admin_pb2 as pb
from tests.acceptance.processes import PATIENCE_S
from tests.engine import oracle
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.kills.nursery import Nursery
from tests.kills.site import ACTIVE, TABLE, Rounds, Site, required
from tests.model.lake import process_of

#: Snapshots are old as soon as the next one is there, and nothing waits long in the trash.
PROPERTIES = {
    "history.expire.max-snapshot-age-ms": "1",
    "maintenance.rewrite-manifests.min-count": "2",
    "tag.auto-create.trigger.max-delay.minutes": "0",
    "maintenance.clean-orphan-files.trash-keep": "1s",
    "table-trash.keep.days": "0",
}
KEEPS = ("0", "1s", "1h")
ACTIONS = (
    "expire-snapshots",
    "clean-orphan-files",
    "empty-trash",
    "clean-dangling-delete-files",
    "rewrite-manifests",
    "compute-statistics",
    "auto-create-tags",
    "undo",
)
#: What maintenance passes; no shipped action removes files without condemning them.
POINTS = tuple(
    sorted(
        name
        for name in failpoints.NAMES
        if name.startswith(("commit.", "sweep."))
        or name in ("clear.after_condemning", "clear.after_done", "plan.before_store", "plan.after_store")
    )
)
UPKEEP = tuple(name for name in POINTS if name.startswith(("sweep.", "clear.")))
LONG_AGO_S = 30 * 86400
BUSY = (*ACTIVE, "clearing")
_ENDED = "SELECT process_id, process_type FROM table_process WHERE status IN ('success', 'partial') ORDER BY process_id"


#: Which file it is, its time of change and its size.
Stat = tuple[int, int, int]


def _stat(path: str) -> Stat | None:
    try:
        found = os.stat(local_path(path))
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _is_cut(path: Path) -> bool:
    """Whether a metadata file does not end as it should."""
    return path.name.endswith(".metadata.json") and not path.read_bytes().rstrip().endswith(b"}")


class UpkeepSite(Site):
    """A table that is maintained, what was in each of its snapshots, and a coordinator that dies."""

    def __init__(self, directory: Path, nursery: Nursery, *, with_tasks: bool = False) -> None:
        super().__init__(directory, nursery, with_tasks=with_tasks)
        with self.lake.table.transaction() as change:
            change.set_properties(PROPERTIES)
        self.root = Path(local_path(self.lake.table.location()))
        self.of_snapshot: dict[int, Counter[Any]] = {}
        self._planted = 0
        self._files: dict[int, frozenset[str]] = {}  # by snapshot
        self._looked_at: dict[int, dict[str, Stat]] = {}

    @property
    def is_busy(self) -> bool:
        return any(status in BUSY for status, _ in self.processes().values())

    def keep(self, text: str, trash: bool = False) -> None:
        """How long files of expired snapshots stay, and whether they are moved before they are deleted."""
        properties = {"maintenance.expire-snapshots.trash-keep": text, "table-trash.enabled": str(trash).lower()}
        with self.lake.table.refresh().transaction() as change:
            change.set_properties(properties)

    def plant(self, count: int) -> list[Path]:
        """Old files that nobody names."""
        planted = []
        for _ in range(count):
            self._planted += 1
            path = self.root / "data" / f"orphan-{self._planted}.parquet"
            path.write_bytes(b"nobody names it")
            then = time.time() - LONG_AGO_S
            os.utime(path, (then, then))
            planted.append(path)
        return planted

    def maintain(self, action: str, undone: str = "") -> bool | None:
        """Whether a process was planned or resumed; None without an answer."""
        within = float(PATIENCE_S)

        def begin(client: AdminClient) -> bool:
            try:
                if undone:
                    return client.UndoProcess(pb.UndoRequest(process_id=undone), timeout=within).process_id != ""
            except CannotUndo as error:
                print(f"not undone: {error.message}")
                return False
            request = pb.MaintainTableRequest(table=TABLE, action=action, confirm=TABLE)
            return client.ConfirmMaintenance(request, timeout=within).process_id != ""

        answer: bool | None = self.ask(begin)
        return answer

    def undoable(self) -> list[str]:
        """Processes that may be taken back."""
        return [process_id for process_id, kind in self._rows(_ENDED) if kind in UNDOABLE]

    def look(self) -> None:
        """The head's rows are the writer's; a snapshot has the rows of its first day, and of its first life."""
        metadata = self.lake.table.refresh().metadata
        oracle.assert_same_rows(self.lake.expected("main"), oracle.live_rows(self.lake.table))
        self._files = {one.snapshot_id: self._files_of(metadata, one.snapshot_id) for one in metadata.snapshots}
        every = (*metadata.statistics, *metadata.partition_statistics)
        needed = {one.statistics_path for one in every if one.snapshot_id in self._files}.union(*self._files.values())
        stats = {path: stat for path in needed if (stat := _stat(path))}
        assert stats.keys() == needed, f"{needed - stats.keys()} is needed and gone"
        for one in metadata.snapshots:
            files = {path: stats[path] for path in self._files[one.snapshot_id]}
            if self._looked_at.get(one.snapshot_id) == files:
                continue  # the very files of before: no row has changed
            found = Counter(row.row for row in oracle.rows_in(metadata, one.snapshot_id))
            assert found == self.of_snapshot.setdefault(one.snapshot_id, found), f"snapshot {one.snapshot_id} changed"
            self._looked_at[one.snapshot_id] = files
        for name, ref in metadata.refs.items():
            first = name.removeprefix("restored-")
            if first != name and int(first) in self.of_snapshot:
                assert self.of_snapshot[ref.snapshot_id] == self.of_snapshot[int(first)], f"{name} is not what it was"

    def _files_of(self, metadata: TableMetadata, snapshot_id: int) -> frozenset[str]:
        """What a snapshot reaches, read once: a file of it that becomes another one shows by time and size."""
        return self._files.get(snapshot_id) or frozenset(reached(metadata, [snapshot_id]))

    def require(self, totals: Counter[str]) -> None:
        """Undisturbed, all ends, nothing was committed twice, and what nobody needs goes, whatever was forgotten."""
        self.start_coordinator()
        self.wait(lambda: not self.is_busy, "all processes end")
        self.look()
        self.empty_trash()  # before the files age: a condemned file whose time has changed is taken for another one
        for path in self.root.rglob("*"):
            if path.is_file():
                then = time.time() - LONG_AGO_S
                os.utime(path, (then, then))
        self.keep("1h")
        self.maintain_whole("clean-orphan-files")
        self.empty_trash()
        self.empty_trash()  # what the last process itself left behind
        self.look()
        assert self._rows("SELECT count(*) FROM condemned_batch WHERE status <> 'restored'") == [(0,)]
        left = self._left()
        assert not left, f"{sorted(left)} are left"
        self._require_state()
        for status, code in self.processes().values():
            totals[f"processes {status} {code}".strip()] += 1

    def condemning(self) -> list[str]:
        """The processes that have condemned what is not gone yet."""
        return [process_id for (process_id,) in self._rows("SELECT DISTINCT process_id FROM condemned_batch")]

    def hurry(self) -> pb.HurryTrashResponse | None:
        """Make due what is condemned; None without an answer."""
        answer: pb.HurryTrashResponse | None = self.ask(
            lambda client: client.HurryTrash(pb.HurryTrashRequest(table=TABLE, confirm=TABLE))
        )
        return answer

    def empty_trash(self) -> None:
        """What is condemned becomes due, and is moved to the trash or deleted."""
        self.wait(
            lambda: self.hurry() is not None, "the coordinator, perhaps just started, makes what is condemned due"
        )
        self.maintain_whole("empty-trash")

    def maintain_whole(self, action: str) -> None:
        """Plan the action, and wait until nothing is under way."""
        self.wait(lambda: self.maintain(action) is not None, f"{action} is planned")
        self.wait(lambda: not self.is_busy, f"{action} ends")

    def _left(self) -> set[str]:
        """Old files that nobody names, but for metadata that was cut by a kill: nobody can tell whose it is."""
        metadata = self.lake.table.refresh().metadata
        manifests = {path for path in reached(metadata) if path.endswith(".avro") and "/snap-" not in path}
        named = {entry["data_file"]["file_path"] for path in manifests for entry in oracle.read_avro(path)[1]}
        logged = {self.lake.table.metadata_location, *(one.metadata_file for one in metadata.metadata_log)}
        known = {local_path(path) for path in (*reached(metadata), *named, *logged)}
        return {
            str(path)
            for path in self.root.rglob("*")
            if path.is_file()
            and path.stat().st_mtime < time.time() - LONG_AGO_S / 2
            and str(path) not in known
            and not _is_cut(path)
        }

    def _require_state(self) -> None:
        by = Counter(found for one in self.lake.table.metadata.snapshots if (found := process_of(one)))
        restored = {name for name in self.lake.table.metadata.refs if name.startswith("restored-")}
        assert restored or set(by.values()) <= {1}, "committed twice"  # what came back has the words of its first life
        processes = self.processes()
        assert {status for status, _ in processes.values()} <= {"success", "partial", "failed", "closed"}, processes
        assert self._rows("SELECT count(*) FROM commit_attempt WHERE outcome IN ('sent', 'unknown')") == [(0,)]
        assert self._rows("PRAGMA integrity_check") == [("ok",)]


class UpkeepRounds(Rounds):
    """Counts as `Rounds` do; only the coordinator runs, and dies."""

    struck = ("coordinator",)

    def __init__(self, site: UpkeepSite, chance: random.Random, totals: Counter[str]) -> None:
        super().__init__(site, chance, totals)
        self._upkeep = site

    def _begin(self) -> None:
        self._restart("coordinator")
        self._site.wait(lambda: self._site.is_listening, "the coordinator listens")

    def _prepared(self) -> Callable[[], bool]:
        site, chance, armed = self._upkeep, self._chance, self._site.armed["coordinator"].removesuffix("=kill")
        is_awaited = armed in UPKEEP
        site.keep("0" if is_awaited else chance.choice(KEEPS), armed.endswith("_move") or chance.random() < 0.3)
        for _ in range(chance.randrange(1, 4)):
            site.write(chance, alone=True)
            site.look()
        site.plant(chance.randint(0, 2))
        action = chance.choice(("expire-snapshots", "empty-trash") if is_awaited else ACTIONS)
        undoable = site.undoable()
        undone = chance.choice(undoable[-4:]) if action == "undo" and undoable else ""
        action = "expire-snapshots" if action == "undo" else action
        self._totals[f"{'undo' if undone else action} × rounds"] += 1
        return lambda: site.maintain(action, undone) is not None

    def _next_strike(self, until: float, *, again: bool = False) -> float:
        """When the coordinator is killed next, also one that has just begun to take up what another one left.

        Most that are to die where they condemn or delete come so far.
        """
        share = 0.2 if self._site.armed["coordinator"].removesuffix("=kill") in UPKEEP else 0.6
        return time.monotonic() + self._chance.uniform(0.0, 1.0) if self._chance.random() < share else until

    def _look(self) -> None:
        self._upkeep.look()

    def _restart(self, who: str) -> None:
        self._start(who, (*POINTS, *UPKEEP))


def run(seed: int, kills: int, directory: Path, totals: Counter[str]) -> None:
    """At least so many kills over one table, and what must hold afterwards."""
    with Nursery() as nursery, required(UpkeepSite(directory, nursery), totals) as site:
        UpkeepRounds(site, random.Random(seed), totals).run(kills)
    totals["worlds"] += 1

"""A table with a writer beside the optimizer, a plain model of its rows, and what must hold whatever fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import Table

from amoro_core.model.processes import CommitAttempt, CommitOutcome, ProcessStatus
from amoro_core.model.task_payload import MAP_ENDING
from tests.engine import oracle, writer, writer3
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.engine.values import Row, rows_of
from tests.faults.system import System

PARTS = ("a", "b")
OPEN = (CommitOutcome.SENT, CommitOutcome.UNKNOWN)


class World:
    """The table `db.t`, written to through a catalog of its own, and the rows that it must hold."""

    def __init__(
        self, catalog: SqlCatalog, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, version: int = 2
    ) -> None:
        self.table: Table = writer.make_table(catalog, "db.t", SCHEMA, spec, version)
        self.version = version
        self._rows: dict[int, dict[str, Any]] = {}
        self._next_id = 0

    @property
    def rows(self) -> Counter[Row]:
        return rows_of(self.table.schema(), self._rows.values())

    def append(self, count: int = 4, files: int = 1) -> None:
        """Rows with new ids, in so many files for each partition."""
        ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        self._put([row(id_, PARTS[id_ % 2], f"new-{id_}") for id_ in ids], files)

    def append_kept(self) -> None:
        """Rows of all partitions in one manifest; the only file of partition c is never worth rewriting."""
        first = self._next_id
        self._next_id += 3
        self._put([row(id_, part, "kept") for id_, part in zip(range(first, first + 3), "abc", strict=True)], 1)

    def upsert(self, *ids: int) -> None:
        """New values for rows with these ids, by equality deletes."""
        self._put([row(id_, PARTS[id_ % 2], f"changed-{self._next_id}-{id_}") for id_ in ids])

    def delete(self, *ids: int) -> None:
        """Delete rows by position (copy-on-write in format 1, by vectors in format 3)."""
        remove = {1: writer.copy_on_write, 2: writer.delete_where, 3: writer3.delete_rows}[self.version]
        remove(self.table, lambda record: record["id"] in ids)
        for id_ in ids:
            self._rows.pop(id_, None)

    def delete_any(self, chance: random.Random) -> None:
        """Delete one row by position."""
        self.delete(chance.choice(sorted(self._rows)))

    def replace_without(self, *ids: int) -> None:
        """Delete rows by writing their files anew."""
        writer.copy_on_write(self.table, lambda record: record["id"] in ids)
        for id_ in ids:
            self._rows.pop(id_, None)

    def fill(self) -> None:
        """Small files, and deletes of both kinds where the format has them."""
        self.append(8, files=2)
        if self.version > 1:
            self.upsert(*sorted(self._rows)[:2])
        self.delete(sorted(self._rows)[-1])

    def change(self, chance: random.Random) -> None:
        """One commit of any kind."""
        some = chance.sample(sorted(self._rows), 2) if len(self._rows) > 2 else []
        match chance.choice(("append", "upsert", "delete", "delete") if self.version > 1 else ("append", "delete")):
            case "upsert" if some:
                self.upsert(*some)
            case "delete" if some:
                self.delete(some[0])
            case _:
                self.append(2)

    def _put(self, rows: list[dict[str, Any]], appended_files: int = 0) -> None:
        if appended_files:
            writer.append(self.table, rows, appended_files)
        else:
            writer.upsert(self.table, rows, ["id"])
        self._rows |= {one["id"]: one for one in rows}

    def data_files(self, process_id: str) -> list[Path]:
        """All files that bear the process's name, in order."""
        return sorted(Path(local_path(self.table.location())).rglob(f"{process_id}*"))

    def metadata_files(self) -> list[Path]:
        """All manifests and manifest lists that lie there, in order."""
        return sorted(Path(local_path(self.table.location()), "metadata").glob("*.avro"))

    # What must hold

    def require_rows(self) -> None:
        """The table holds the model's rows, under one line of snapshots with rising sequence numbers."""
        self.require_rows_only()
        metadata = self.table.refresh().metadata
        parents = [one.parent_snapshot_id for one in metadata.snapshots]
        assert parents == [None, *(one.snapshot_id for one in metadata.snapshots[:-1])]
        if self.version > 1:
            numbers = [one.sequence_number for one in metadata.snapshots]
            assert numbers == list(range(1, len(numbers) + 1))

    def require_rows_only(self) -> None:
        """The table holds the model's rows, whatever its history."""
        oracle.assert_same_rows(self.rows, oracle.live_rows(self.table))

    def snapshots_of(self, process_id: str) -> list[int]:
        """The ids of the process's snapshots in the table's history."""
        found = []
        for snapshot in self.table.refresh().metadata.snapshots:
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            if summary.get("amoro.process-id") == process_id:
                found.append(snapshot.snapshot_id)
        return found

    def require_consistent(self, system: System, process_id: str) -> None:
        """Rows are right, the process landed at most once, and nothing of an open attempt is gone."""
        self.require_rows()
        landed = self.snapshots_of(process_id)
        assert len(landed) <= 1
        for attempt in system.attempts(process_id):
            if attempt.outcome in OPEN:
                assert missing((*attempt.files, *attempt.metadata_files)) == []
        process = system.process(process_id)
        if process.status in (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL):
            assert len(landed) == 1

    def require_ended(self, system: System, process_id: str, *, leaves_files: bool = False) -> ProcessStatus:
        """The process has ended and says what is true; nothing is left behind unless files could not be removed."""
        self.require_consistent(system, process_id)
        process, attempts = system.process(process_id), system.attempts(process_id)
        landed = self.snapshots_of(process_id)
        outputs = system.outputs(process_id)
        done = [attempt for attempt in attempts if attempt.outcome is CommitOutcome.DONE]
        assert [attempt for attempt in attempts if attempt.outcome in OPEN] == []
        kept_files = {path for one in attempts if _may_come_back(one) for path in (*one.files, *one.metadata_files)}
        assert missing(tuple(sorted(kept_files))) == []
        for attempt in attempts:
            if attempt not in done and not leaves_files:
                assert existing(attempt.metadata_files, kept_files) == []
        if process.status is ProcessStatus.FAILED:
            assert (landed, done, process.receipt) == ([], [], None)
            kept: set[int] = set()
        else:
            assert [attempt.snapshot_id for attempt in done] == landed
            assert process.receipt is not None
            assert process.receipt.snapshot_id == landed[0]
            kept = set(done[0].groups)
            assert (process.status is ProcessStatus.SUCCESS) == (kept == set(outputs))
        if not leaves_files:
            assert [path for path in self.data_files(process_id) if path.name.endswith(MAP_ENDING)] == []
        for number, files in outputs.items():
            if number in kept:
                assert missing(files) == []
            elif not leaves_files:
                assert existing(files, kept_files) == []
        return process.status


def _may_come_back(attempt: CommitAttempt) -> bool:
    """Without sequence numbers an overtaken attempt lands when main is set back to its parent."""
    return attempt.outcome is CommitOutcome.REFUTED and attempt.evidence.sequence_number == 0


def existing(paths: tuple[str, ...], but: Collection[str] = ()) -> list[str]:
    return [path for path in paths if path not in but and Path(local_path(path)).exists()]


def missing(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if not Path(local_path(path)).exists()]

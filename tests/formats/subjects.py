"""What the conformance suite does to a table of each format behind the port's back."""

import json
import os
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import CommitUnknown
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.formats.ports import AnyTable, Role, TableFormat, with_roles
from amoro_core.model.commits import CommitContent, Evidence, RefAt, SnapshotAdded, StagedCommit
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine import builders, oracle, writer
from tests.extension.journal import JournalFormat, JournalTable
from tests.iceberg.rewriting import rewritten
from tests.simulation.lake import Lake, LakeFormat, LakeTableAtOnce, Rows, data_file

TABLE = TableIdentifier("cat", ("db",), "t")


@dataclass(frozen=True)
class Staged:
    """A change that was prepared and not sent yet."""

    table: AnyTable
    payload: bytes
    evidence: Evidence
    files: frozenset[str]  # that were written for it


def stage_tag(table: AnyTable, name: str) -> Staged:
    """A tag of the table's head."""
    head = table.facts.snapshot_id
    assert head is not None
    return Staged(table, table.stage_tag(name, head, None), RefAt(name, head), frozenset())


class Subject(Protocol):
    """A catalog of one format with the table `cat.db.t`, which others write to."""

    format: TableFormat
    catalog: CatalogConfig

    def create(self) -> None:
        """Make the table, with nothing in it."""

    def drop(self) -> None:
        """Let the table be gone, and its files with it or not."""

    def append(self) -> None:
        """Let another writer add something."""

    def stage(self, table: AnyTable) -> Staged:
        """Prepare a change of the table as it is now, through its own methods."""

    def state(self) -> object:
        """All that readers see of the table now, its history included."""

    def stray(self) -> str:
        """Leave a file in the table's directory that nothing names."""

    def lost(self, *, applied: bool) -> Any:
        """While this lasts the answers of the catalog are lost, or what is sent."""


def opened(subject: Subject) -> AnyTable:
    """The table as it is now, with the roles that its format has."""
    table = subject.format.load(subject.catalog, TABLE)
    return with_roles(table, table.roles, "the suite")


class IcebergSubject:
    """Iceberg tables in a SQL catalog."""

    format: TableFormat = IcebergFormat()

    def __init__(self, home: Path) -> None:
        self._catalog = writer.make_catalog(home)
        self.catalog = CatalogConfig("cat", tuple({**self._catalog.properties, "type": "sql"}.items()))

    def create(self) -> None:
        builders.make(self._catalog)

    def drop(self) -> None:
        self._catalog.drop_table("db.t")

    def append(self) -> None:
        writer.append(self._loaded(), [builders.row(1), builders.row(2)], files=2)

    def stage(self, table: AnyTable) -> Staged:
        plan = rewritten(self._loaded())
        head = table.head(plan.snapshot_id, plan.sequence_number)
        content = validate(build_view(plan, head)).content
        assert content is not None
        return _staged(table, table.stage(head, content, {"amoro.process-id": uuid.uuid4().hex}), content)

    def state(self) -> object:
        table = self._loaded()
        snapshots = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)
        tags = {name: ref.snapshot_id for name, ref in table.metadata.refs.items() if name != "main"}
        return builders.ids(table), [one.snapshot_id for one in snapshots], oracle.live_files(table), tags

    def stray(self) -> str:
        path = f"{self._loaded().location()}/data/{uuid.uuid4()}.parquet"
        Path(path.removeprefix("file://")).write_bytes(b"x")
        return path

    @contextmanager
    def lost(self, *, applied: bool) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", _losing(SqlCatalog.commit_table, applied))
            yield

    def _loaded(self) -> Any:
        return self._catalog.load_table("db.t")


class LakeSubject:
    """The tables of the simulation, without its chances."""

    def __init__(self, home: Path) -> None:
        self._lake = Lake(random.Random(7))
        self._lake.faulty = False
        self.format: TableFormat = LakeFormat(self._lake, lambda call: None)
        self.catalog = CatalogConfig("cat", ())

    def create(self) -> None:
        self._lake.create(TABLE, {})

    def drop(self) -> None:
        del self._lake.tables[TABLE]

    def append(self) -> None:
        self._lake.append(self._lake.tables[TABLE], files=2)

    def stage(self, table: AnyTable) -> Staged:
        facts = table.facts
        head = table.head(facts.snapshot_id or 0, facts.sequence_number)
        first = head.scan.files[0].data
        merged = [file.data for file in head.scan.files if file.data.partition == first.partition]
        rows: Rows = frozenset().union(*(self._lake.rows_of(file.path) for file in merged))
        path = f"{facts.location}/data/{uuid.uuid4()}.parquet"
        self._lake.files[path] = rows
        added = data_file(path, first.partition, len(rows), head.sequence_number)
        content = CommitContent((1,), tuple(merged), (), (added,), ())
        return _staged(table, table.stage(head, content, {"amoro.process-id": uuid.uuid4().hex}), content)

    def state(self) -> object:
        table = self._lake.tables[TABLE]
        rows = [] if table.head is None else sorted(self._lake.live_rows(table, table.head))
        return rows, list(table.snapshots), table.head, dict(table.tags)

    def stray(self) -> str:
        path = f"{self._lake.tables[TABLE].location}/data/{uuid.uuid4()}.parquet"
        self._lake.files[path] = frozenset()
        return path

    @contextmanager
    def lost(self, *, applied: bool) -> Iterator[None]:
        self._lake.send = _losing(self._lake.send, applied, CommitUnknown("no answer"))
        yield
        del self._lake.send


class JournalSubject:
    """The format of the package that `docs/howto/extending.md` shows."""

    format: TableFormat = JournalFormat()

    def __init__(self, home: Path) -> None:
        self._place = home / "db" / "t"
        self.catalog = CatalogConfig("cat", (("warehouse", str(home)),))

    def create(self) -> None:
        (self._place / "log").mkdir(parents=True)
        (self._place / "journal.json").write_text(json.dumps({"uuid": str(uuid.uuid4()), "properties": {}}))

    def drop(self) -> None:
        for file in (*self._place.glob("log/*"), self._place / "journal.json"):
            file.unlink()
        (self._place / "log").rmdir()

    def append(self) -> None:
        (self._place / f"{len(self._records())}.txt").write_text("a line\n")
        table = JournalTable(TABLE, self._place)
        table.send(table.stage({"files": [f"{len(self._records())}.txt"]})[0])

    def stage(self, table: AnyTable) -> Staged:
        written = self._place / f"{uuid.uuid4()}.txt"
        written.write_text("another line\n")
        payload, evidence = JournalTable(TABLE, self._place).stage({"files": [written.name]})
        return Staged(table, payload, evidence, frozenset({written.as_uri()}))

    def state(self) -> object:
        return self._records()

    def stray(self) -> str:
        file = self._place / f"{uuid.uuid4()}.txt"
        file.write_text("x")
        return file.as_uri()

    @contextmanager
    def lost(self, *, applied: bool) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "link", _losing(os.link, applied))
            yield

    def _records(self) -> list[str]:
        return [file.read_text() for file in sorted(self._place.glob("log/*.json"))]


def _staged(table: AnyTable, made: StagedCommit, content: CommitContent) -> Staged:
    files = tuple(file.path for file in (*content.added_data, *content.added_deletes))
    evidence = SnapshotAdded(made.snapshot_id, made.parent_snapshot_id, made.sequence_number, files)
    return Staged(table, made.payload, evidence, frozenset((*files, *made.metadata_files)))


def _losing(send: Callable[..., Any], applied: bool, why: Exception | None = None) -> Callable[..., Any]:
    def lost(*given: Any, **named: Any) -> None:
        if applied:
            send(*given, **named)
        raise why or OSError("the connection was reset")

    return lost


#: By name, each with the roles that its tables have.
SUBJECTS: dict[str, tuple[Callable[[Path], Subject], frozenset[Role]]] = {
    "iceberg": (IcebergSubject, IcebergTable.roles),
    "lake": (LakeSubject, LakeTableAtOnce.roles),
    "journal": (JournalSubject, JournalTable.roles),
}


def having(role: Role) -> list[str]:
    """The names of the subjects whose tables have the role."""
    return [name for name, (_, roles) in SUBJECTS.items() if role in roles]

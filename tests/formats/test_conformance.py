"""What every format promises, role by role: Iceberg, the simulation's lake, and the format of the extension."""

import json
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import AmoroError, CommitConflict, CommitUnknown, DataFileMissing, TableNotFound
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.formats.ports import (
    Analyzable,
    AnyTable,
    Clusterable,
    Committable,
    Dated,
    Expirable,
    Maintainable,
    Readable,
    Rewritable,
    Role,
    Searchable,
    Sortable,
    Sweepable,
    TableFormat,
    with_roles,
)
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.commits import CommitContent, Evidence, RefAt, SnapshotAdded, StagedCommit, Trace
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
    """A catalog of one format with the table `cat.db.t`: what is done to it behind the port's back."""

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
OF_ROLE = {
    Role.READ: Readable,
    Role.REWRITE: Rewritable,
    Role.COMMIT: Committable,
    Role.MAINTAIN: Maintainable,
    Role.SEARCH: Searchable,
    Role.SWEEP: Sweepable,
    Role.ANALYZE: Analyzable,
    Role.CLUSTER: Clusterable,
    Role.SORT: Sortable,
    Role.DATE: Dated,
    Role.EXPIRE: Expirable,
}


def having(role: Role) -> list[str]:
    """The names of the subjects whose tables have the role."""
    return [name for name, (_, roles) in SUBJECTS.items() if role in roles]


committing = pytest.mark.parametrize("subject", having(Role.COMMIT), indirect=True)
maintaining = pytest.mark.parametrize("subject", having(Role.MAINTAIN), indirect=True)
reading = pytest.mark.parametrize("subject", having(Role.READ), indirect=True)
rewriting = pytest.mark.parametrize("subject", having(Role.REWRITE), indirect=True)


def stage_change(subject: Subject) -> Staged:
    return subject.stage(opened(subject))


def stage_v1(subject: Subject) -> Staged:
    return stage_tag(opened(subject), "v1")


#: A change of what a table holds, or a tag, where its format has them.
SENT = [*((name, stage_change) for name in having(Role.COMMIT)), *((name, stage_v1) for name in having(Role.MAINTAIN))]
sending = pytest.mark.parametrize(("subject", "stage"), SENT, indirect=["subject"])
Stage = Callable[[Subject], Staged]


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    make, _ = SUBJECTS[request.param]
    made = make(tmp_path)
    made.create()
    made.append()
    yield made
    close_catalogs()


# Every format


def test_a_catalog_lists_its_table_and_loads_it_with_equal_facts_each_time(subject: Subject) -> None:
    subject.format.check(subject.catalog)
    assert subject.format.commits_refused(subject.catalog) is None
    assert subject.format.list_tables(subject.catalog) == [TABLE]
    table = opened(subject)
    table.refuse_unsupported()
    assert table.skip_reason() is None
    assert table.facts == table.facts == opened(subject).facts
    assert (table.facts.identifier, table.facts.format) == (TABLE, subject.format.name)


def test_a_table_has_the_methods_of_its_roles(subject: Subject, request: pytest.FixtureRequest) -> None:
    table = opened(subject)
    assert table.roles == SUBJECTS[request.node.callspec.params["subject"]][1]
    promised = {name for role in table.roles for name in vars(OF_ROLE[role]) if not name.startswith("_")}
    assert {name for name in promised if not callable(getattr(table, name, None))} == set()


def test_a_table_that_is_gone_is_not_found_and_another_one_of_the_name_has_another_id(subject: Subject) -> None:
    before = opened(subject).facts.uuid
    subject.drop()
    assert subject.format.list_tables(subject.catalog) == []
    with pytest.raises(TableNotFound):
        opened(subject)
    subject.create()
    assert opened(subject).facts.uuid != before


def test_a_change_by_another_writer_is_seen_by_who_loads_anew(subject: Subject) -> None:
    before = opened(subject)
    facts = before.facts
    subject.append()
    assert before.facts == facts
    assert opened(subject).facts.sequence_number == facts.sequence_number + 1


# Commit


@sending
def test_a_change_lands_once_however_often_it_is_sent(subject: Subject, stage: Stage) -> None:
    before = subject.state()
    change = stage(subject)
    assert (subject.state(), change.table.trace(change.evidence)) == (before, Trace.OPEN)
    change.table.send(change.payload)
    after = subject.state()
    assert (after != before, change.table.trace(change.evidence)) == (True, Trace.LANDED)
    for table in (change.table, opened(subject), change.table):
        with suppress(CommitConflict):
            table.send(change.payload)
        assert (subject.state(), table.trace(change.evidence)) == (after, Trace.LANDED)
        subject.append()
        after = subject.state()


@committing
def test_who_comes_second_conflicts_and_changes_nothing(subject: Subject) -> None:
    change, other = subject.stage(opened(subject)), subject.stage(opened(subject))
    other.table.send(other.payload)
    after = subject.state()
    with pytest.raises(CommitConflict):
        change.table.send(change.payload)
    assert subject.state() == after
    assert (change.table.trace(change.evidence), change.table.trace(other.evidence)) == (Trace.REFUTED, Trace.LANDED)


@pytest.mark.parametrize("subject", ["iceberg", "journal"], indirect=True)  # the lake is one thread's
def test_of_changes_that_are_sent_at_once_one_lands(subject: Subject) -> None:
    changes = [subject.stage(opened(subject)) for _ in range(4)]
    landed: list[bytes] = []

    def send(payload: bytes) -> None:
        try:
            opened(subject).send(payload)
            landed.append(payload)
        except CommitConflict:
            return
        finally:
            close_catalogs()

    threads = [threading.Thread(target=send, args=(change.payload,)) for change in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    traces = {change.payload: opened(subject).trace(change.evidence) for change in changes}
    assert len(landed) == 1
    assert traces == {one.payload: Trace.LANDED if one.payload in landed else Trace.REFUTED for one in changes}


@sending
@pytest.mark.parametrize("applied", [True, False])
def test_a_change_of_which_nothing_is_known_is_traced_and_lands_once(
    subject: Subject, stage: Stage, applied: bool
) -> None:
    change = stage(subject)
    with subject.lost(applied=applied), pytest.raises(CommitUnknown):
        change.table.send(change.payload)
    after = subject.state()
    assert change.table.trace(change.evidence) is (Trace.LANDED if applied else Trace.OPEN)
    with suppress(CommitConflict):
        change.table.send(change.payload)
    assert (subject.state() == after) is applied
    assert opened(subject).trace(change.evidence) is Trace.LANDED


@committing
def test_a_change_that_never_arrived_is_open_until_it_is_sent_again_or_overtaken(subject: Subject) -> None:
    first, second = subject.stage(opened(subject)), subject.stage(opened(subject))
    before = subject.state()
    for change in (first, second):
        with subject.lost(applied=False), pytest.raises(CommitUnknown):
            change.table.send(change.payload)
        assert (change.table.trace(change.evidence), subject.state()) == (Trace.OPEN, before)
    opened(subject).send(first.payload)
    assert opened(subject).trace(first.evidence) is Trace.LANDED
    assert opened(subject).trace(second.evidence) is Trace.REFUTED


@sending
def test_nothing_is_sent_concluded_or_removed_by_the_word_of_another_table_of_the_name(
    subject: Subject, stage: Stage
) -> None:
    change = stage(subject)
    subject.drop()
    subject.create()
    subject.append()
    before, stray = subject.state(), subject.stray()
    with pytest.raises(CommitConflict):
        change.table.send(change.payload)
    with pytest.raises(CommitConflict):
        change.table.trace(change.evidence)
    with pytest.raises(CommitConflict):
        change.table.delete_unreferenced([stray])
    assert subject.state() == before
    assert opened(subject).delete_unreferenced([stray]) == (stray,)


@committing
def test_of_a_table_that_is_gone_nothing_is_concluded(subject: Subject) -> None:
    change = subject.stage(opened(subject))
    subject.drop()
    with pytest.raises(AmoroError):
        change.table.send(change.payload)
    with pytest.raises(TableNotFound):
        change.table.trace(change.evidence)
    with pytest.raises(TableNotFound):
        change.table.delete_unreferenced(change.files)


@committing
def test_what_was_staged_in_vain_is_removed_and_what_is_reachable_stays(subject: Subject, tmp_path: Path) -> None:
    landed, lost = subject.stage(opened(subject)), subject.stage(opened(subject))
    landed.table.send(landed.payload)
    before = subject.state()
    elsewhere = tmp_path / "elsewhere.parquet"
    elsewhere.write_bytes(b"x")
    asked = sorted({*landed.files, *lost.files, elsewhere.as_uri()})
    assert sorted(lost.table.delete_unreferenced(asked)) == sorted(lost.files)
    assert (subject.state(), elsewhere.exists()) == (before, True)
    # After a death in between it is asked again, and what is gone is no file that stays.
    assert sorted(lost.table.delete_unreferenced(asked)) == sorted(lost.files)


# Read


@reading
def test_a_table_without_a_snapshot_has_no_files(subject: Subject) -> None:
    subject.drop()
    subject.create()
    table = opened(subject)
    assert (table.facts.snapshot_id, table.facts.sequence_number) == (None, 0)
    assert (table.scan(), table.snapshots()) == (None, ())


@reading
def test_a_scan_is_that_of_the_head_each_time_and_snapshots_come_newest_first(subject: Subject) -> None:
    subject.append()
    table = opened(subject)
    scan, head = table.scan(), table.facts.snapshot_id
    assert scan is not None
    assert head == scan.snapshot_id
    assert scan == table.scan() == opened(subject).scan() == table.scan_of(head)
    assert table.scan_of(head + 1) is None
    newest, oldest = table.snapshots()
    assert (newest.snapshot_id, newest.parent_id) == (head, oldest.snapshot_id)
    scans = [table.scan_of(one.snapshot_id) for one in (newest, oldest)]
    assert [len(scan.files) for scan in scans if scan is not None] == [4, 2]


# Rewrite


@rewriting
def test_the_head_is_the_table_as_it_is_now_seen_from_the_plan(subject: Subject) -> None:
    table = opened(subject)
    planned = table.facts
    assert planned.snapshot_id is not None
    subject.append()
    head = table.head(planned.snapshot_id, planned.sequence_number)
    now = opened(subject)
    assert (head.table_uuid, head.snapshot_id, head.descends) == (planned.uuid, now.facts.snapshot_id, True)
    assert head.scan == now.scan()


@rewriting
def test_what_is_made_for_a_head_that_is_the_tables_no_more_does_not_land(subject: Subject) -> None:
    table = opened(subject)
    planned = table.facts
    head = table.head(planned.snapshot_id or 0, planned.sequence_number)
    subject.append()
    before = subject.state()
    with pytest.raises(CommitConflict):
        table.send(table.stage(head, CommitContent((), (), (), (), ()), {"amoro.process-id": "p"}).payload)
    assert subject.state() == before


@rewriting
def test_a_rewrite_keeps_what_older_snapshots_read(subject: Subject) -> None:
    table = opened(subject)
    scan = table.scan()
    assert scan is not None
    change = subject.stage(opened(subject))
    change.table.send(change.payload)
    after = opened(subject)
    live = {file.data.path for file in (after.scan() or scan).files}
    replaced = [file.data.path for file in scan.files if file.data.path not in live]
    assert replaced != []
    assert after.delete_unreferenced(replaced) == ()
    assert after.scan_of(scan.snapshot_id) == scan


@rewriting
def test_a_file_says_what_it_holds_and_one_that_is_missing_is_told(subject: Subject) -> None:
    table = opened(subject)
    scan = table.scan()
    assert scan is not None
    data = scan.files[0].data
    facts = table.file_facts(data.path)
    assert (facts.record_count, facts.value_counts[1]) == (data.record_count, data.record_count)
    with pytest.raises(DataFileMissing):
        table.file_facts(f"{table.facts.location}/data/none.parquet")


# Maintain


@maintaining
def test_a_tag_lands_beside_what_others_write_meanwhile_and_adds_no_snapshot(subject: Subject) -> None:
    tag = stage_v1(subject)
    subject.append()
    before, change = opened(subject), subject.stage(opened(subject))
    facts, count, scan = before.facts, len(before.snapshots()), before.scan()
    tag.table.send(tag.payload)
    now = opened(subject)
    assert (now.facts.snapshot_id, len(now.snapshots()), now.scan()) == (facts.snapshot_id, count, scan)
    change.table.send(change.payload)
    assert (now.trace(tag.evidence), now.trace(change.evidence)) == (Trace.LANDED, Trace.LANDED)


@maintaining
def test_a_tag_of_a_name_that_is_given_or_a_snapshot_that_is_not_there_is_a_conflict_then_and_later(
    subject: Subject,
) -> None:
    late = stage_v1(subject)
    subject.append()
    first = stage_v1(subject)
    first.table.send(first.payload)
    after, head = subject.state(), opened(subject).facts.snapshot_id or 0
    for name, snapshot_id in (("v1", head), ("v2", head + 1)):
        with pytest.raises(CommitConflict):
            opened(subject).stage_tag(name, snapshot_id, None)
    with pytest.raises(CommitConflict):
        late.table.send(late.payload)
    assert subject.state() == after
    assert (late.table.trace(late.evidence), late.table.trace(first.evidence)) == (Trace.REFUTED, Trace.LANDED)

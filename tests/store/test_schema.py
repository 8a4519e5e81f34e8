"""The schema: migrations, constraints and indexes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database, Migrations

from amoro_core.errors import StoreFailed, TableBusy
from amoro_core.model.principals import Role
from amoro_core.model.processes import (
    ACTIVE_PROCESS_STATUSES,
    IN_NO_LANE,
    LANES,
    CommitOutcome,
    OptimizingProcess,
    ProcessStatus,
    TaskStatus,
)
from amoro_core.model.tables import OptimizingStatus, OptimizingType, Saving, TableFilter, TableState
from amoro_core.store import actions, database, processes, table_listing, tables
from amoro_core.store.database import MIGRATIONS, Connection, ReadingStore, Store, migrate
from amoro_core.transactions.maintenance_schedule import neighbours, surroundings
from tests.store.builders import NOW, add_stages, attempt, process, query_plan, runtime


def _schema(db: Connection) -> list[dict[str, Any]]:
    return db.select("SELECT type, name, sql FROM sqlite_master ORDER BY name")


def test_migrations_are_applied_once_and_noted_with_their_time(path: Path) -> None:
    before = datetime.now(UTC)
    with Store.open(path) as store:
        first, noted = store.read(_schema), store.facts().migrations
        assert [(one.number, one.name) for one in noted] == list(enumerate((one.__name__ for one in MIGRATIONS), 1))
        assert before <= noted[0].applied_at <= datetime.now(UTC)
    with Store.open(path) as store:
        assert store.write(migrate) == 0
        assert store.read(_schema) == first
        assert store.facts().migrations == noted


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Database], None]], None]:
    """Makes the program one of a later version, with another migration."""

    def add(migration: Callable[[Database], None]) -> None:
        migrations = (*MIGRATIONS, migration)
        known = Migrations("amoro")
        for one in migrations:
            known()(one)
        monkeypatch.setattr(database, "MIGRATIONS", migrations)
        monkeypatch.setattr(database, "SCHEMA", known)

    return add


def test_a_new_migration_is_applied_to_a_database_that_exists(
    path: Path, later: Callable[[Callable[[Database], None]], None]
) -> None:
    def add_color(db: Database) -> None:
        db["token"].add_column("color", str, not_null_default="red")

    with Store.open(path) as store:
        store.write(lambda db: db.execute("INSERT INTO token VALUES ('admin', 'hash')"))
    later(add_color)
    with pytest.raises(StoreFailed, match="lacks the migration add_color"):
        ReadingStore.open(path)
    with Store.open(path) as store:
        kept = store.read(lambda db: db.select("SELECT * FROM token"))
        assert kept == [{"kind": "admin", "token_hash": "hash", "color": "red"}]


def test_tables_of_the_first_schema_get_their_states_at_their_next_refresh(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Migrations("amoro")
    first()(MIGRATIONS[0])
    with monkeypatch.context() as earlier:
        earlier.setattr(database, "MIGRATIONS", MIGRATIONS[:1])
        earlier.setattr(database, "SCHEMA", first)
        with Store.open(path) as store:
            old = "SELECT name FROM pragma_table_info('table_action')"
            assert "failure_code" not in [row["name"] for row in store.read(lambda db: db.select(old))]
            for statement in (
                """INSERT INTO table_identifier VALUES (1, 'cat', '["db"]', 't')""",
                "INSERT INTO table_runtime VALUES (1, 'u', 2, 'l', 'default', 'idle', 0, '', NULL, 1, '', 5, 'm', 5, "
                "7, 7, NULL, 0.5, '{}', '{}', 7, 99999999999999, NULL, '', 'iceberg')",
                "INSERT INTO table_action VALUES (1, 'optimizing', 'because', 7, NULL, 2, 9, 0, '', NULL, '')",
                """INSERT INTO table_listing VALUES (1, 'cat', '["db"]', 't', 'cat.db.t', 'idle', '', 'default', 1, """
                "100, 0, 0, 0, 0, 7, 8)",
            ):
                store.write(lambda db, statement=statement: db.execute(statement))
    with Store.open(path) as store:
        (kept,) = store.read(tables.list_tables)
        assert (kept.state, kept.failures, kept.failure_code) == (TableState.FAILING, 2, "")
        assert (kept.saving, kept.load_failure, kept.refresh_at) == (Saving(), "", None)
        store.write(lambda db: tables.save(db, kept))
        assert store.read(lambda db: table_listing.list_ids(db, TableFilter(state=TableState.FAILING), 9)) == [1]


def test_a_failing_migration_leaves_the_database_as_it_was(
    path: Path, later: Callable[[Callable[[Database], None]], None]
) -> None:
    def break_off(db: Database) -> None:
        db.execute("CREATE TABLE half (a INTEGER) STRICT")
        raise RuntimeError("power cut")

    with Store.open(path) as store:
        before = store.read(_schema)
    later(break_off)
    with pytest.raises(RuntimeError, match="power cut"):
        Store.open(path)
    with closing(Connection(sqlite3.connect(path))) as db:
        assert _schema(db) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("CREATE TABLE schema_migration (number INTEGER PRIMARY KEY)", "a version before the first release"),
        ("CREATE TABLE cookies (host TEXT)", "not a state database of Amoro"),
        ("INSERT INTO _sqlite_migrations VALUES (99, 'amoro', 'to_come', '2030-01-01')", "a newer version has written"),
    ],
)
@pytest.mark.parametrize("kind", [Store, ReadingStore])
def test_a_database_of_another_version_or_program_is_refused_and_not_changed(
    path: Path, kind: type[Store], make: str, message: str
) -> None:
    if make.startswith("INSERT"):
        Store.open(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(make)
        db.commit()
        before = list(db.iterdump())
    with pytest.raises(StoreFailed, match=message):
        kind.open(path)
    with closing(sqlite3.connect(path)) as db:
        assert list(db.iterdump()) == before


def test_tables_are_strict_and_name_just_the_words_of_the_model(store: Store) -> None:
    rows = store.read(lambda db: db.select("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'"))
    assert {row["name"] for row in rows if not row["strict"] and not row["name"].startswith("sqlite_")} == set()
    rows = store.read(lambda db: db.select("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
    made = {row["name"]: row["sql"] for row in rows}
    words: tuple[tuple[str, str, Any], ...] = (
        ("table_runtime", "status", OptimizingStatus),
        ("table_runtime", "pending_type", OptimizingType),
        ("commit_attempt", "outcome", CommitOutcome),
        ("access_token", "role", Role),
    )
    for table, column, known in words:
        check = made[table].split(f"CHECK ({column} IN (", 1)[1].split("))", 1)[0]
        assert {word.strip(" '\n") for word in check.split(",")} == {word.value for word in known}
    assert re.findall(r"WHEN '(\w+)' THEN", made["task_runtime"]) == [status.value for status in TaskStatus]
    rows = store.read(lambda db: db.select("SELECT status, is_active FROM process_status"))
    statuses = {row["status"]: bool(row["is_active"]) for row in rows}
    assert statuses == {status.value: status in ACTIVE_PROCESS_STATUSES for status in ProcessStatus}
    lanes = store.read(lambda db: db.select("SELECT lane FROM process_lane"))
    assert {row["lane"] for row in lanes} == set(LANES)


def test_a_status_and_a_lane_of_its_own_are_rows(store: Store) -> None:
    """As issues to come add them: then a process may have them, and holds its lane as any other."""
    own = process(store.write(lambda db: tables.add(db, runtime())), "p-own", status="paused", lane="vectors")
    for missing in (own, replace(own, status=ProcessStatus.RUNNING), replace(own, lane="files")):
        with pytest.raises(StoreFailed, match="FOREIGN KEY constraint failed"):
            store.write(lambda db, missing=missing: processes.add(db, missing))
    store.write(lambda db: db.execute("INSERT INTO process_status VALUES ('paused', 1)"))
    store.write(lambda db: db.execute("INSERT INTO process_lane VALUES ('vectors')"))
    store.write(lambda db: processes.add(db, own))
    assert store.read(processes.list_active) == [own]
    assert store.read(lambda db: processes.find_active(db, own.table_id, "vectors")) == own
    assert store.read(lambda db: processes.find_active(db, own.table_id)) is None
    with pytest.raises(TableBusy, match="process p-own on the table is paused"):
        store.write(lambda db: processes.add(db, replace(own, process_id="p-other", status=ProcessStatus.RUNNING)))
    with pytest.raises(StoreFailed, match="FOREIGN KEY constraint failed"):
        store.write(lambda db: processes.save(db, replace(own, finished_at=own.created_at)))


HELD = "optimizer_id = 'optimizer-1', thread_id = 1"
FREE = "optimizer_id = NULL, thread_id = NULL"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE task_runtime SET status = 'running'",
        f"UPDATE task_runtime SET {HELD} WHERE status = 'planned'",
        f"UPDATE task_runtime SET {FREE} WHERE status = 'scheduled'",
        "UPDATE task_runtime SET thread_id = NULL WHERE status = 'acked'",
        "UPDATE task_runtime SET optimizer_id = 'nobody' WHERE status = 'acked'",
        "UPDATE task_runtime SET attempt = -1 WHERE status = 'planned'",
        "UPDATE task_runtime SET attempt = 0 WHERE status = 'scheduled'",
        "UPDATE task_runtime SET attempt = 'one'",
        "UPDATE task_runtime SET scheduled_at_ms = NULL WHERE status = 'scheduled'",
        "UPDATE task_runtime SET acked_at_ms = NULL WHERE status = 'acked'",
        "UPDATE task_runtime SET acked_at_ms = 1 WHERE status = 'planned'",
        "UPDATE task_runtime SET finished_at_ms = NULL WHERE status = 'success'",
        "UPDATE task_runtime SET finished_at_ms = 1 WHERE status = 'acked'",
        "UPDATE task_runtime SET failed_runs = -1 WHERE status = 'failed'",
        "UPDATE task_runtime SET lost_attempts = 4 WHERE status = 'failed'",
        "UPDATE task_runtime SET task_number = 0 WHERE task_number = 1",
        "UPDATE task_runtime SET process_id = 'nobody' WHERE task_number = 1",
        "DELETE FROM optimizer",
        "UPDATE task_payload SET output = x'00'",
        "UPDATE task_payload SET output_attempt = 1",
        "UPDATE task_payload SET output = x'00', output_attempt = 0",
        "UPDATE task_payload SET input = NULL",
        "UPDATE task_payload SET task_number = 77 WHERE task_number = 1",
        "UPDATE table_process SET status = 'dead'",
        "UPDATE table_process SET status = 'success'",
        "UPDATE table_process SET finished_at_ms = 1",
        "UPDATE table_process SET receipt_json = '{}'",
        "UPDATE table_process SET table_id = 99",
        "UPDATE table_process SET commit_tries = -1",
        "UPDATE table_process SET process_type = ''",
        "UPDATE table_process SET action_name = ''",
        "UPDATE table_process SET lane = 'huge'",
        "UPDATE table_process SET left_over = 1",
        "UPDATE table_process SET is_active = 0",
        "UPDATE table_process SET is_active = 0, finished_at_ms = 1",
        "UPDATE table_process SET commits = 2",
        "UPDATE table_process SET allow_partial_commit = 2",
        "UPDATE table_runtime SET status = 'refused'",
        "UPDATE table_runtime SET refusal = 'location'",
        "UPDATE table_runtime SET status = 'lost'",
        "UPDATE table_runtime SET enabled = 2",
        "UPDATE table_runtime SET quota = -0.1",
        "UPDATE table_action SET failures = -1",
        "UPDATE table_action SET action_name = ''",
        "UPDATE table_action SET fruitless = -1",
        "UPDATE table_action SET paused_at_ms = 1",
        "UPDATE table_action SET paused_for = 'no time'",
        "UPDATE table_runtime SET pending_type = 'huge'",
        "INSERT INTO table_partition (table_id, spec_id, partition) VALUES (1, 0, x'')",
        "INSERT INTO table_partition (table_id, spec_id, partition, full_at_ms) VALUES (99, 0, x'', 1)",
        "INSERT INTO token VALUES ('admin', '')",
        "INSERT INTO coordinator_epoch VALUES (2, 9)",
        "UPDATE optimizer SET threads = -1",
        "UPDATE optimizer SET group_name = 'nowhere'",
        "DELETE FROM resource_group",
    ],
)
def test_impossible_row_is_refused(store: Store, change: str) -> None:
    store.write(add_stages)
    with pytest.raises(StoreFailed, match=r"constraint failed|cannot store"):
        store.write(lambda db: db.execute(change))


IN_A_LANE = [status for status in ACTIVE_PROCESS_STATUSES if status not in IN_NO_LANE]


@pytest.mark.parametrize("first", IN_A_LANE)
@pytest.mark.parametrize("second", IN_A_LANE)
@pytest.mark.parametrize("same", ["table_id", "table_uuid"])
def test_second_active_process_on_a_table_is_refused(
    store: Store, first: ProcessStatus, second: ProcessStatus, same: str
) -> None:
    def run(db: Connection) -> None:
        one, two = tables.add(db, runtime("one")), tables.add(db, runtime("two"))
        processes.add(db, process(one, "p-1", status=first))
        other = {"table_id": one.table_id} if same == "table_id" else {"table_uuid": one.uuid}
        ended = process(two, "p-2", status=ProcessStatus.CLOSED, finished_at=runtime().status_since, **other)
        processes.add(db, ended)

    store.write(run)
    change = "UPDATE table_process SET status = :status, finished_at_ms = NULL, is_active = 1 WHERE process_id = 'p-2'"
    with pytest.raises(StoreFailed, match=rf"UNIQUE constraint failed: table_process\.{same}"):
        store.write(lambda db: db.execute(change, {"status": second.value}))


@pytest.mark.parametrize("waiting", IN_NO_LANE)
def test_a_process_that_waits_keeps_nobody_from_its_lane_and_waits_for_it_afterwards(
    store: Store, waiting: ProcessStatus
) -> None:
    table = store.write(lambda db: tables.add(db, runtime()))
    held = store.write(lambda db: processes.add(db, process(table, "p-1", status=waiting)))
    other = store.write(lambda db: processes.add(db, process(table, "p-2")))
    assert store.read(lambda db: processes.find_active(db, table.table_id)) == other
    assert store.read(lambda db: processes.list_active_of(db, table.table_id)) == [held, other]
    with pytest.raises(TableBusy, match="process p-2 on the table is running"):
        store.write(lambda db: processes.save(db, replace(held, status=ProcessStatus.RUNNING)))


def test_second_commit_of_a_process_is_refused(store: Store, owner: OptimizingProcess) -> None:
    for one in (attempt(owner, 1, outcome=CommitOutcome.DONE), attempt(owner, 2)):
        store.write(lambda db, one=one: processes.add_commit(db, one))
    again = "UPDATE commit_attempt SET outcome = 'done' WHERE attempt_number = 2"
    said = r"UNIQUE constraint failed: commit_attempt\.process_id, commit_attempt\.part"
    with pytest.raises(StoreFailed, match=said):
        store.write(lambda db: db.execute(again))


# What is asked each second, or for one table, reads no more of a store with many tables


def _scanned(store: Store, ask: Callable[[Connection], object]) -> set[str]:
    """The tables that are read whole for the question, not by an index's condition."""
    return {step.split()[1] for step in query_plan(store, ask) if step.startswith("SCAN table_")}


ASKED: dict[str, Callable[[Connection], object]] = {
    "what is due for a refresh": lambda db: tables.list_due(db, NOW),
    "which resting tables are due soon": lambda db: tables.list_due_locations(db, "cat", NOW, NOW),
    "the first table of a UUID": lambda db: tables.first_of_uuid(db, "1"),
    "every action that is due": lambda db: actions.list_due(db, NOW),
    "actions due on a table": lambda db: actions.list_due(db, NOW, 1),
    "what is known of a table's actions": lambda db: actions.list_of(db, 1),
    "a table's processes": lambda db: processes.list_processes(db, 1),
}


@pytest.mark.parametrize("what", ASKED)
def test_it_is_found_by_an_index(store: Store, what: str) -> None:
    assert _scanned(store, ASKED[what]) == set()


def test_the_surroundings_of_a_table_are_read_without_the_other_tables(store: Store) -> None:
    one, other = (store.write(lambda db, name=name: tables.add(db, runtime(name, location=name))) for name in "ab")

    def of_none(name: str) -> None:
        raise KeyError(name)

    # By an index of the few processes that have not ended.
    asked = _scanned(store, lambda db: surroundings(db, one.table_id, of_none, NOW))
    assert asked <= {"table_process"}
    assert store.read(lambda db: neighbours(db, one.table_id)) == {str(other.identifier): "b"}

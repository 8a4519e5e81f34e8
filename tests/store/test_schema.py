"""The schema: constraints, migrations, the newest script, and indexes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from amoro_core.errors import StoreFailed, TableBusy
from amoro_core.model.accounts import Holder, HttpSession
from amoro_core.model.principals import AccessToken, Role
from amoro_core.model.processes import (
    ACTIVE_PROCESS_STATUSES,
    IN_NO_LANE,
    LANES,
    CommitOutcome,
    ProcessStatus,
    TaskStatus,
)
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.store import accounts, actions, commits, migrations, processes, tables
from amoro_core.store.access_schema import ACCOUNTS, admit_people, limit_tokens
from amoro_core.store.database import Connection, Store
from amoro_core.store.database_info import facts_of
from amoro_core.store.early_migrations import create_access_tokens, keep_formats_of_tables, name_roles_of_tokens
from amoro_core.store.migrations import MIGRATIONS, applied, migrate, note_times_of_migrations
from amoro_core.store.newest_schema import SCRIPT, make_newest, script_of
from amoro_core.store.tasks import rule_tasks_by_status
from amoro_core.transactions.maintenance_schedule import neighbours, surroundings
from tests.store.builders import NOW, add_stages, attempt, process, runtime


def _schema(db: Connection) -> list[dict[str, Any]]:
    return db.select("SELECT type, name, sql FROM sqlite_master ORDER BY name")


def test_migrations_are_applied_once(path: Path) -> None:
    with Store.open(path) as store:
        first = store.read(_schema)
        assert store.read(applied) == len(MIGRATIONS)
    with Store.open(path) as store:
        assert store.read(_schema) == first
        assert store.read(applied) == len(MIGRATIONS)
        assert store.write(lambda db: migrate(db)) == 0
        assert store.read(_schema) == first


def test_new_migration_is_applied_to_what_is_there(store: Store) -> None:
    def add_colour(db: Connection) -> None:
        db.execute("ALTER TABLE token ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'")

    store.write(lambda db: migrate(db, (*MIGRATIONS, add_colour)))
    assert store.read(applied) == len(MIGRATIONS) + 1
    rows = store.read(lambda db: db.select("SELECT number, name FROM schema_migration ORDER BY number"))
    names = [step.__name__ for step in (*MIGRATIONS, add_colour)]
    assert rows == [{"number": number, "name": name} for number, name in enumerate(names, 1)]


def test_each_step_has_the_time_when_it_was_applied(path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    with Store.open(path) as store:
        noted = [one.applied_at for one in store.facts().migrations]
    assert len(noted) == len(MIGRATIONS)
    assert [at for at in noted if at is None or not before <= at <= datetime.now(UTC)] == []


def test_steps_of_earlier_versions_have_no_time_and_get_none(path: Path) -> None:
    place = MIGRATIONS.index(note_times_of_migrations)
    with closing(Connection(sqlite3.connect(path, isolation_level=None))) as db:
        migrate(db, MIGRATIONS[:place])
    assert {one.applied_at for one in facts_of(path).migrations} == {None}
    with Store.open(path) as store:
        noted = [one.applied_at is not None for one in store.facts().migrations]
    assert noted == [False] * place + [True] * (len(MIGRATIONS) - place)


def test_tokens_of_the_version_before_keep_their_kind_as_role(store: Store) -> None:
    def earlier(db: Connection) -> None:
        db.execute("DROP TABLE access_token")
        create_access_tokens(db)
        insert = "INSERT INTO access_token VALUES (:name, :kind, :hash, 5)"
        for name, kind in (("a", "admin"), ("b", "enrolment")):
            db.execute(insert, {"name": name, "kind": kind, "hash": f"hash-of-{name}"})
        name_roles_of_tokens(db)
        limit_tokens(db)

    store.write(earlier)
    kept = store.read(lambda db: accounts.list_token_page(db, "", 9))
    assert [(token.name, token.role, token.token_hash, token.created_at.timestamp()) for token in kept] == [
        ("a", Role.ADMIN, "hash-of-a", 0.005),
        ("b", Role.ENROLMENT, "hash-of-b", 0.005),
    ]
    made = AccessToken("c", Role.VIEWER, "hash-of-c", kept[0].created_at)
    assert store.write(lambda db: accounts.add_token(db, made)) == made
    assert store.read(lambda db: accounts.find_token_by_hash(db, "hash-of-c")) == made


def test_sessions_of_the_version_before_go_on(store: Store) -> None:
    def earlier(db: Connection) -> None:
        db.execute("DROP TABLE http_session")
        for statement in ACCOUNTS[1:]:
            db.execute(statement)
        for holder in ("user", "token"):
            db.execute("INSERT INTO http_session VALUES (:h, :h, 'ann', 'as it was', 5, 7)", {"h": holder})
        admit_people(db)

    before = store.read(_schema)
    store.write(earlier)
    assert store.read(_schema) == before
    kept = [store.read(lambda db, key=one: accounts.find_session(db, key)) for one in ("user", "token")]
    at = [datetime.fromtimestamp(ms / 1000, UTC) for ms in (5, 7)]
    assert kept == [HttpSession(one.value, one, "ann", "as it was", *at) for one in (Holder.USER, Holder.BEARER)]


def test_tables_that_the_version_before_had_loaded_are_icebergs(store: Store) -> None:
    def earlier(db: Connection) -> None:
        db.execute("ALTER TABLE table_runtime DROP COLUMN format")
        keep_formats_of_tables(db)

    known = store.write(lambda db: tables.add(db, runtime()))
    never = replace(runtime(), identifier=replace(known.identifier, name="never"), uuid="")
    never = store.write(lambda db: tables.add(db, never))
    store.write(earlier)
    kept = [store.read(lambda db, table_id=one.table_id: tables.get(db, table_id)).format for one in (known, never)]
    assert kept == ["iceberg", ""]


def test_tasks_of_the_version_before_stay_with_their_payloads_indexes_and_sums(path: Path) -> None:
    before = MIGRATIONS[: MIGRATIONS.index(rule_tasks_by_status)]
    with closing(Connection(sqlite3.connect(path, isolation_level=None))) as db:
        db.execute("BEGIN")
        migrate(db, before)
        add_stages(db)
        db.execute("COMMIT")
        rows = _rows_of_tasks(db)
        around = [row for row in _schema(db) if "task_runtime" in (row["sql"] or "") and row["name"] != "task_runtime"]
    assert {row["status"] for row in rows["task_runtime"]} == {status.value for status in TaskStatus}
    assert [row["name"] for row in around if row["type"] == "trigger"] == [
        "task_sum_delete",
        "task_sum_insert",
        "task_sum_update",
    ]
    with Store.open(path) as store:
        assert store.read(_rows_of_tasks) == rows
        found = store.read(_schema)
        assert [row for row in found if row in around] == around
        store.write(lambda db: db.execute("DELETE FROM task_runtime WHERE status = 'planned'"))
        left = store.read(_rows_of_tasks)
        assert len(left["task_payload"]) == len(left["task_runtime"]) < len(rows["task_runtime"])
        assert [row["tasks"] for row in left["task_sum"] if row["status"] == "planned"] == [0]


def _rows_of_tasks(db: Connection) -> dict[str, list[dict[str, Any]]]:
    tables_of = ("task_runtime", "task_payload", "task_sum")
    return {table: db.select(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables_of}


def test_failing_migration_leaves_the_database_as_it_was(store: Store) -> None:
    def break_off(db: Connection) -> None:
        db.execute("CREATE TABLE half (a INTEGER) STRICT")
        raise RuntimeError("power cut")

    before = store.read(_schema)
    with pytest.raises(RuntimeError, match="power cut"):
        store.write(lambda db: migrate(db, (*MIGRATIONS, break_off)))
    assert store.read(_schema) == before
    assert store.read(applied) == len(MIGRATIONS)


def test_database_of_a_newer_version_is_refused_and_not_touched(path: Path) -> None:
    newer = len(MIGRATIONS) + 1
    with Store.open(path) as store:
        store.write(
            lambda db: db.execute(
                "INSERT INTO schema_migration (number, name) VALUES (:number, 'to_come')", {"number": newer}
            )
        )
    with pytest.raises(StoreFailed, match=f"has schema {newer}, this version knows {newer - 1}"):
        Store.open(path)
    db = Connection(sqlite3.connect(path))
    try:
        assert db.select_one("SELECT epoch FROM coordinator_epoch") == {"epoch": 1}
    finally:
        db.close()


def test_every_table_is_strict(store: Store) -> None:
    rows = store.read(lambda db: db.select("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'"))
    assert {row["name"] for row in rows if not row["strict"] and not row["name"].startswith("sqlite_")} == set()


@pytest.mark.parametrize(
    ("table", "column", "words"),
    [
        ("table_runtime", "status", OptimizingStatus),
        ("table_runtime", "pending_type", OptimizingType),
        ("commit_attempt", "outcome", CommitOutcome),
        ("access_token", "role", Role),
    ],
)
def test_checks_name_just_the_words_of_the_model(store: Store, table: str, column: str, words: Any) -> None:
    row = store.read(lambda db: db.select_one("SELECT sql FROM sqlite_master WHERE name = :name", {"name": table}))
    assert row is not None
    check = row["sql"].split(f"CHECK ({column} IN (", 1)[1].split("))", 1)[0]
    assert {word.strip(" '\n") for word in check.split(",")} == {word.value for word in words}


def test_the_rules_of_tasks_name_just_the_statuses_of_the_model(store: Store) -> None:
    row = store.read(lambda db: db.select_one("SELECT sql FROM sqlite_master WHERE name = 'task_runtime'"))
    assert row is not None
    assert re.findall(r"WHEN '(\w+)' THEN", row["sql"]) == [status.value for status in TaskStatus]


def test_statuses_and_lanes_are_rows_and_those_of_the_model_are_there(store: Store) -> None:
    rows = store.read(lambda db: db.select("SELECT status, is_active FROM process_status"))
    known = {row["status"]: bool(row["is_active"]) for row in rows}
    assert known == {status.value: status in ACTIVE_PROCESS_STATUSES for status in ProcessStatus}
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


def test_beside_each_other_are_processes_of_different_lanes(store: Store) -> None:
    table = store.write(lambda db: tables.add(db, runtime()))
    beside = [store.write(lambda db, lane=lane: processes.add(db, process(table, lane, lane=lane))) for lane in LANES]
    assert store.read(lambda db: processes.list_active_of(db, table.table_id)) == sorted(
        beside, key=lambda one: one.process_id
    )
    for lane in LANES:
        with pytest.raises(TableBusy, match=f"process {lane} on the table is running"):
            store.write(lambda db, lane=lane: processes.add(db, process(table, f"{lane}-2", lane=lane)))


HELD = "optimizer_id = 'optimizer-1', thread_id = 1"
FREE = "optimizer_id = NULL, thread_id = NULL"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE task_runtime SET status = 'running'",
        f"UPDATE task_runtime SET {HELD} WHERE status = 'planned'",
        f"UPDATE task_runtime SET {HELD} WHERE status = 'success'",
        f"UPDATE task_runtime SET {FREE} WHERE status = 'scheduled'",
        f"UPDATE task_runtime SET {FREE} WHERE status = 'acked'",
        "UPDATE task_runtime SET thread_id = NULL WHERE status = 'acked'",
        "UPDATE task_runtime SET optimizer_id = 'nobody' WHERE status = 'acked'",
        "UPDATE task_runtime SET attempt = -1 WHERE status = 'planned'",
        "UPDATE task_runtime SET attempt = 0 WHERE status = 'scheduled'",
        "UPDATE task_runtime SET attempt = 0 WHERE status = 'success'",
        "UPDATE task_runtime SET attempt = 'one'",
        "UPDATE task_runtime SET scheduled_at_ms = NULL WHERE status = 'scheduled'",
        "UPDATE task_runtime SET acked_at_ms = NULL WHERE status = 'acked'",
        "UPDATE task_runtime SET acked_at_ms = 1 WHERE status = 'planned'",
        "UPDATE task_runtime SET acked_at_ms = 1 WHERE status = 'scheduled'",
        "UPDATE task_runtime SET finished_at_ms = NULL WHERE status = 'success'",
        "UPDATE task_runtime SET finished_at_ms = NULL WHERE status = 'canceled'",
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


def test_second_commit_of_a_process_is_refused(store: Store) -> None:
    def run(db: Connection) -> None:
        owner = processes.add(db, process(tables.add(db, runtime())))
        commits.add(db, attempt(owner, 1, outcome=CommitOutcome.DONE))
        commits.add(db, attempt(owner, 2))

    store.write(run)
    again = "UPDATE commit_attempt SET outcome = 'done' WHERE attempt_number = 2"
    with pytest.raises(
        StoreFailed, match=r"UNIQUE constraint failed: commit_attempt\.process_id, commit_attempt\.part"
    ):
        store.write(lambda db: db.execute(again))


# A new database is made at once as all migrations, one after another, would leave it


@pytest.fixture
def empty() -> Iterator[Connection]:
    with closing(Connection(sqlite3.connect(":memory:", isolation_level=None))) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        yield db


def by_steps() -> Connection:
    db = Connection(sqlite3.connect(":memory:", isolation_level=None))
    db.execute("PRAGMA foreign_keys = OFF")
    migrate(db, MIGRATIONS)
    return db


def everything(db: Connection) -> dict[str, list[dict[str, Any]]]:
    """The schema and the rows of all tables, without the times of migrations."""
    schema = db.select("SELECT type, name, tbl_name, sql FROM sqlite_master")
    rows = {row["name"]: db.select(f'SELECT * FROM "{row["name"]}"') for row in schema if row["type"] == "table"}
    for row in rows["schema_migration"]:
        row["applied_at_ms"] = None
    return {"sqlite_master": schema, **rows}


def test_the_script_is_that_of_the_migrations() -> None:
    with closing(by_steps()) as db:
        assert SCRIPT.read_text(encoding="utf-8") == script_of(db), "run: python docs/generate.py"


def test_a_new_database_is_as_the_migrations_leave_it(empty: Connection) -> None:
    assert migrate(empty) == len(MIGRATIONS)
    with closing(by_steps()) as db:
        expected = everything(db)
    assert everything(empty) == expected
    with_rows = {name for name, rows in expected.items() if rows}
    assert {"process_status", "resource_group", "coordinator_epoch"} <= with_rows


def test_a_new_database_needs_no_migration_to_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(db: Connection) -> None:
        raise AssertionError("a migration ran")

    monkeypatch.setattr(migrations, "MIGRATIONS", (refuse,) * len(MIGRATIONS))
    with Store.open(path) as store:
        assert store.read(applied) == len(MIGRATIONS)


def test_migrations_that_the_script_lacks_are_applied_to_a_new_database(
    empty: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_colour(db: Connection) -> None:
        db.execute("ALTER TABLE token ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'")

    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, add_colour))
    assert migrate(empty) == len(MIGRATIONS) + 1
    assert empty.select("SELECT colour FROM token") == []
    noted = empty.select("SELECT number, name, applied_at_ms FROM schema_migration ORDER BY number")
    assert [row["name"] for row in noted] == [step.__name__ for step in (*MIGRATIONS, add_colour)]
    assert all(row["applied_at_ms"] for row in noted)


def test_a_database_that_has_something_is_migrated_step_by_step(empty: Connection) -> None:
    migrate(empty, MIGRATIONS[:3])
    assert migrate(empty) == len(MIGRATIONS) - 3
    with closing(by_steps()) as db:
        assert everything(empty) == everything(db)


def test_a_statement_that_would_be_cut_in_two_is_refused(empty: Connection) -> None:
    empty.execute("CREATE TABLE kept (words TEXT DEFAULT 'one;\n\ntwo')")
    with pytest.raises(ValueError, match=r"^a statement has an empty line after a semicolon: CREATE TABLE kept"):
        script_of(empty)


def test_a_transaction_that_is_rolled_back_leaves_an_empty_database(empty: Connection) -> None:
    empty.execute("BEGIN IMMEDIATE")
    make_newest(empty)
    empty.execute("ROLLBACK")
    assert empty.select("SELECT * FROM sqlite_master") == []


# What is asked each second, or for one table, reads no more of a store with many tables


def _scanned(store: Store, ask: Callable[[Connection], object]) -> set[str]:
    """The tables that are read whole for the question, not by an index's condition."""
    said: list[str] = []

    def read(db: Connection) -> list[str]:
        db.raw.set_trace_callback(said.append)
        ask(db)
        db.raw.set_trace_callback(None)
        plans = [db.raw.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall() for sql in said if sql.startswith("SELECT")]
        return [str(step[3]) for plan in plans for step in plan]

    return {step.split()[1] for step in store.read(read) if step.startswith("SCAN table_")}


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

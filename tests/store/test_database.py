"""The database: transactions, connections, names, and copies of it."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amoro_cli.connection import Kind
from amoro_core.errors import AlreadyExists, Fenced, InvalidArgument, StateDirectoryLocked, StorageFull, StoreFailed
from amoro_core.model.processes import CatalogConfig, ResourceGroup
from amoro_core.model.tables import parse_table
from amoro_core.store import accounts, catalogs, groups, processes, tables
from amoro_core.store.completion import names_in
from amoro_core.store.database import MAX_BATCH, Connection, ReadingStore, StateLock, Store
from tests.store import builders
from tests.store.builders import process, runtime, services

ROOT = Path(__file__).parents[2]
SECONDS = 90.0


def _save(kind: str, size: int = 1) -> Callable[[Connection], str]:
    def run(db: Connection) -> str:
        accounts.save_builtin_token(db, kind, "x" * size)
        return kind

    return run


def _kinds(db: Connection) -> list[str]:
    return [row["kind"] for row in db.select("SELECT kind FROM token ORDER BY kind")]


def _pragma(db: Connection, name: str) -> Any:
    row = db.select_one(f"PRAGMA {name}")
    return row and row[name]


class Held:
    """The writer, held in a write until released, so that what is submitted meanwhile becomes one batch."""

    def __init__(self, store: Store) -> None:
        self._entered, self._release = threading.Event(), threading.Event()
        self._write = store.submit(self._wait)
        assert self._entered.wait(SECONDS)

    def _wait(self, _: Connection) -> None:
        self._entered.set()
        assert self._release.wait(SECONDS)

    def release(self) -> None:
        self._release.set()
        self._write.result(SECONDS)


def _broken(db: Connection) -> None:
    accounts.save_builtin_token(db, "broken", "x")
    raise AlreadyExists("me")


def test_waiting_writes_share_a_transaction_and_one_that_raises_takes_only_itself_back(store: Store) -> None:
    held = Held(store)
    first, second = store.submit(_save("first")), store.submit(_broken)

    def look(db: Connection) -> tuple[list[str], list[str], bool]:
        return _kinds(db), store.read(_kinds), first.done()

    third = store.submit(look)
    held.release()
    # The third sees the first's row in their transaction; nobody else does, and the first is not answered yet.
    assert third.result(SECONDS) == (["first"], [], False)
    assert first.result(SECONDS) == "first"
    with pytest.raises(AlreadyExists):
        second.result(SECONDS)
    assert store.read(_kinds) == ["first"]


def test_first_write_of_a_transaction_that_raises_takes_only_itself_back(store: Store) -> None:
    """It has no savepoint: the transaction begins anew, and what follows in it is kept."""

    def empty(db: Connection) -> None:
        db.execute("INSERT INTO token (kind, token_hash) VALUES ('bad', '')")

    held = Held(store)
    writes = store.submit_all([_broken, _save("second"), empty, _save("fourth")])
    held.release()
    assert [writes[number].result(SECONDS) for number in (1, 3)] == ["second", "fourth"]
    with pytest.raises(AlreadyExists):
        writes[0].result(SECONDS)
    with pytest.raises(StoreFailed, match="CHECK constraint failed") as failure:
        writes[2].result(SECONDS)
    assert isinstance(failure.value.__cause__, sqlite3.IntegrityError)
    assert store.read(_kinds) == ["fourth", "second"]


def test_more_writes_than_fit_in_a_batch_all_run_in_order(store: Store) -> None:
    held = Held(store)
    order: list[int] = []

    def note(number: int, _: Connection) -> None:
        order.append(number)

    futures = [store.submit(partial(note, number)) for number in range(MAX_BATCH + 3)]
    held.release()
    for future in futures:
        future.result(SECONDS)
    assert order == list(range(MAX_BATCH + 3))


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_write_that_ends_the_shared_transaction_fails_the_whole_batch(store: Store, end: str) -> None:
    held = Held(store)
    first = store.submit(_save("first"))
    ending = store.submit(lambda db: db.execute(end))
    last = store.submit(_save("last"))
    held.release()
    for future in (first, ending, last):
        with pytest.raises(StoreFailed):
            future.result(SECONDS)
    assert store.write(_save("next")) == "next"


def test_failing_commit_fails_the_whole_batch(store: Store) -> None:
    def orphan(db: Connection) -> None:
        db.execute("PRAGMA defer_foreign_keys = ON")
        db.execute("INSERT INTO table_partition (table_id, spec_id, partition, full_at_ms) VALUES (99, 0, x'', 1)")

    held = Held(store)
    first, second = store.submit(_save("first")), store.submit(orphan)
    held.release()
    for future in (first, second):
        with pytest.raises(StoreFailed, match="FOREIGN KEY constraint failed"):
            future.result(SECONDS)
    assert store.read(_kinds) == []
    assert store.write(_save("next")) == "next"


def test_full_disk_fails_the_batch_by_name_and_the_store_goes_on(store: Store) -> None:
    store.write(_save("before"))
    limit = store.read(lambda db: _pragma(db, "page_count")) + 4

    def set_limit(pages: int) -> Callable[[Connection], Any]:
        return lambda db: db.select(f"PRAGMA max_page_count = {pages}")

    store.write(set_limit(limit))
    held = Held(store)
    small, large = store.submit(_save("small")), store.submit(_save("large", 1_000_000))
    held.release()
    with pytest.raises(StorageFull, match="full"):
        large.result(SECONDS)
    with pytest.raises(StorageFull):
        small.result(SECONDS)
    assert store.read(_kinds) == ["before"]

    store.write(set_limit(2**30))
    assert store.write(_save("large", 1_000_000)) == "large"
    assert store.read(_kinds) == ["before", "large"]
    assert store.read(lambda db: _pragma(db, "integrity_check")) == "ok"


def test_failing_disk_fails_the_batch_and_the_store_goes_on(path: Path, store: Store) -> None:
    store.write(_save("before"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    wal = path.with_name("amoro.db-wal")
    held = Held(store)
    small, large = store.submit(_save("small")), store.submit(_save("large", 16_000_000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 4_000_000, hard))
    try:
        held.release()
        for future in (small, large):
            with pytest.raises(StoreFailed, match="disk I/O error"):
                future.result(SECONDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.read(_kinds) == ["before"]
    assert store.write(_save("after")) == "after"
    assert store.read(_kinds) == ["after", "before"]
    assert store.read(lambda db: _pragma(db, "integrity_check")) == "ok"


def test_threads_hammering_lose_no_write_and_no_increment(store: Store) -> None:
    """Read, decide, write in one function is atomic: a counter that 16 threads raise misses nothing."""

    def increment(db: Connection) -> int:
        value = int(builders.token_hash(db, "counter") or 0) + 1
        accounts.save_builtin_token(db, "counter", str(value))
        return value

    seen: list[int] = []
    behind: list[str] = []

    def work() -> None:
        for _ in range(50):
            value = store.write(increment)
            seen.append(value)
            if int(store.read(lambda db: builders.token_hash(db, "counter")) or 0) < value:
                behind.append(f"{value} was acknowledged and not visible")

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(seen) == list(range(1, 801))
    assert behind == []


def test_read_is_of_one_moment_and_writes_nothing(store: Store) -> None:
    store.write(_save("a"))

    def twice(db: Connection) -> tuple[list[str], list[str]]:
        before = _kinds(db)
        store.write(_save("b"))
        return before, _kinds(db)

    assert store.read(twice) == (["a"], ["a"])
    with pytest.raises(StoreFailed, match="readonly"):
        store.read(_save("admin"))
    with pytest.raises(RuntimeError, match="inside a write"):  # instead of waiting for itself
        store.write(lambda _: store.write(_save("inner")))
    assert store.read(_kinds) == ["a", "b"]


def test_reads_inside_reads_and_on_many_threads_leave_connections_to_be_used_again(store: Store) -> None:
    assert store.read(lambda _: store.read(lambda _: store.read(_kinds))) == []
    threads = [threading.Thread(target=store.read, args=(_kinds,)) for _ in range(20)]
    for thread in threads:
        thread.start()
        thread.join(SECONDS)
    assert store.read(_kinds) == []


def test_closing_finishes_what_waits_and_refuses_what_comes(path: Path) -> None:
    store = Store.open(path)
    held = Held(store)
    waiting: Future[str] = store.submit(_save("waiting"))
    closing = threading.Thread(target=store.close)
    closing.start()
    held.release()
    closing.join(SECONDS)
    assert waiting.result(SECONDS) == "waiting"
    store.close()
    with pytest.raises(StoreFailed, match="closed"):
        store.write(_save("late"))
    with pytest.raises(StoreFailed, match="closed"):
        store.read(_kinds)
    with Store.open(path) as again:
        assert again.read(_kinds) == ["waiting"]


def test_reader_that_outlives_the_store_closes_its_connection(path: Path) -> None:
    store = Store.open(path)

    def run(db: Connection) -> list[str]:
        store.close()
        return _kinds(db)

    assert store.read(run) == []


def test_paused_coordinator_is_fenced_off_by_a_newer_one(path: Path) -> None:
    with Store.open(path) as old:
        old.write(_save("old"))
        old.require_own()
        with Store.open(path) as new:
            new.write(_save("new"))
            with pytest.raises(Fenced, match="another coordinator has opened the state database since"):
                old.require_own()
            new.require_own()
            for _ in range(2):
                with pytest.raises(Fenced):
                    old.write(_save("zombie"))
            assert new.read(_kinds) == ["new", "old"]
            assert old.read(_kinds) == ["new", "old"]


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("backup.db"))
    path.with_name("backup.db").rename(path)


@pytest.mark.parametrize(
    ("lose", "word"),
    [
        (Path.unlink, "gone"),
        (_replace, "another file"),
        (lambda path: path.parent.rename(path.parent.with_name("elsewhere")), "gone"),
    ],
    ids=["removed", "replaced", "directory moved"],
)
def test_nothing_is_written_to_a_database_that_has_lost_its_name(
    tmp_path: Path, lose: Callable[[Path], object], word: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = home / "amoro.db"
    with Store.open(path) as store:
        store.write(_save("kept"))
        lose(path)
        said = f"the state database {path} is {word} since it was opened"
        with pytest.raises(Fenced, match=f"^{re.escape(said)}$"):
            store.write(_save("lost"))
        with pytest.raises(Fenced, match=f"^{re.escape(said)}$"):
            store.require_own()


def test_a_store_that_is_fenced_reads_and_writes_nothing_more(path: Path) -> None:
    with Store.open(path) as store:
        store.fence(Fenced("first", hint="do this"))
        store.fence(Fenced("second"))
        for ask in (store.read, store.write):
            with pytest.raises(Fenced) as caught:
                ask(_kinds)
            assert (caught.value.message, caught.value.hint) == ("first", "do this")


def test_files_are_readable_by_their_owner_alone(path: Path) -> None:
    path.touch(0o644)
    with Store.open(path) as store:
        store.write(_save("admin"))
        store.read(_kinds)
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == {"amoro.db": 0o600, "amoro.db-wal": 0o600, "amoro.db-shm": 0o600}


def test_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"this is a letter to a friend, and no database at all" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreFailed, match="not a database"):
        Store.open(path)
    assert path.read_bytes() == before
    with pytest.raises(StoreFailed, match="nowhere"):
        Store.open(path.parent / "nowhere" / "amoro.db")


@pytest.mark.parametrize("least", [1, 100])
def test_killed_process_keeps_every_acknowledged_write(path: Path, least: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.writing_process", str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with process:
        said = [process.stdout.readline() for _ in range(least)]
        process.kill()
        said += process.stdout.read().splitlines(keepends=True)
    acknowledged = {int(line) for line in said if line.endswith("\n")}
    assert len(acknowledged) >= least
    with Store.open(path) as store:
        kept = {int(kind) for kind in store.read(_kinds)}
        assert acknowledged <= kept
        assert kept == set(range(1, len(kept) + 1))
        assert store.read(lambda db: _pragma(db, "integrity_check")) == "ok"


@pytest.mark.parametrize("call", ["select", "select_one", "execute"])
def test_parameters_by_position_are_refused(store: Store, call: str) -> None:
    with pytest.raises(TypeError, match="expected named parameters, got a tuple"):
        store.read(lambda db: getattr(db, call)("SELECT :a", (1,)))


# Names that a shell completes, read from a state directory that may be in use


def test_names_of_every_kind_are_read_beside_the_store_and_none_of_no_state_or_a_broken_one(tmp_path: Path) -> None:
    assert names_in(tmp_path / "none", Kind.TABLE) == []
    with Store.open(tmp_path / "amoro.db") as store:
        for name in ("cat.db.t", "cat.a.b.`odd name`"):
            made = store.write(lambda db, name=name: tables.add(db, runtime(identifier=parse_table(name))))
        store.write(lambda db: processes.add(db, process(made)))
        store.write(lambda db: catalogs.add(db, CatalogConfig("lake", ())))
        store.write(lambda db: groups.add(db, ResourceGroup("nightly")))
        assert names_in(tmp_path, Kind.TABLE) == ["cat.a.b.`odd name`", "cat.db.t"]
        assert names_in(tmp_path, Kind.CATALOG) == ["cat", "lake"]
        assert "nightly" in names_in(tmp_path, Kind.GROUP)
        assert names_in(tmp_path, Kind.PROCESS) == [process(made).process_id]
        assert names_in(tmp_path, Kind.OPTIMIZER) == []
    (tmp_path / "amoro.db").write_bytes(b"no database at all" * 100)
    assert names_in(tmp_path, Kind.TABLE) == []


# Copies of the state database, and its check


def test_a_backup_is_a_whole_private_copy_that_opens_as_a_state(store: Store, tmp_path: Path) -> None:
    store.write(lambda db: groups.add(db, ResourceGroup("nightly")))
    target = tmp_path / "copy.db"
    assert services(store).state.backup(str(target)) == target.stat().st_size
    assert target.stat().st_mode & 0o777 == 0o600
    store.write(lambda db: groups.add(db, ResourceGroup("later")))
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == ["copy.db"]
    with Store.open(target) as copy:
        assert [group.name for group in copy.read(groups.list_groups)] == ["default", "nightly"]
        assert copy.check() == []


def test_a_backup_never_replaces_a_file_and_needs_a_place_that_can_be_written(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(AlreadyExists, match="exists already; a backup never replaces a file"):
        store.backup(target)
    assert target.read_text() == "precious"
    with pytest.raises(StoreFailed, match="can't be written: No such file or directory"):
        store.backup(tmp_path / "nowhere" / "copy.db")
    with pytest.raises(InvalidArgument, match="is not an absolute path"):
        services(store).state.backup("copy.db")


def test_a_check_names_references_that_lead_nowhere(store: Store, path: Path) -> None:
    assert store.check() == []
    with sqlite3.connect(path) as other:
        other.execute("INSERT INTO optimizer VALUES ('o', 'h', 'gone', 1, 1, '{}', 1, 0, '[]', 0)")
    assert services(store).state.check() == ["row 1 of optimizer refers to a row of resource_group that does not exist"]


# Reading beside a coordinator that writes, and the lock that there is one of them


CATALOG = CatalogConfig("sales", (("type", "sql"),))


@contextmanager
def reading(path: Path) -> Iterator[ReadingStore]:
    with closing(ReadingStore.open(path)) as store:
        yield store


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but the index of the write-ahead log, which each reader keeps, and an empty log."""
    found = {file.name: file.read_bytes() for file in directory.iterdir() if not file.name.endswith("-shm")}
    return {name: content for name, content in found.items() if content or not name.endswith("-wal")}


def test_what_a_coordinator_writes_is_read_beside_it_and_nothing_of_it_is_changed(store: Store, path: Path) -> None:
    with reading(path) as reader:
        assert reader.read(catalogs.list_catalogs) == []
        store.write(lambda db: catalogs.add(db, CATALOG))
        before = contents(path.parent)
        assert reader.read(catalogs.list_catalogs) == [CATALOG]
    assert contents(path.parent) == before
    store.write(lambda db: catalogs.remove(db, "sales"))  # it was not fenced off

    with reading(path) as reader:
        with pytest.raises(StoreFailed, match="only reads"):
            reader.write(lambda db: catalogs.add(db, CATALOG))
        with pytest.raises(StoreFailed, match="readonly"):
            reader.read(lambda db: catalogs.add(db, CATALOG))
    assert store.read(catalogs.list_catalogs) == []


def test_where_there_is_no_database_or_an_empty_one_the_state_is_empty(tmp_path: Path, path: Path) -> None:
    home = tmp_path / "home"
    with reading(home / "amoro.db") as reader:
        assert [group.name for group in reader.read(groups.list_groups)] == ["default"]
        assert reader.check() == []
        with pytest.raises(StoreFailed, match="readonly"):
            reader.read(lambda db: catalogs.add(db, CATALOG))
        with pytest.raises(StoreFailed, match="no state database"):
            reader.backup(tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []

    path.touch()
    with reading(path) as reader:
        assert reader.read(catalogs.list_catalogs) == []
    assert path.read_bytes() == b""

    path.write_bytes(b"not a database, and long enough to be sure of that: " * 20)
    with pytest.raises(StoreFailed, match="cannot be read"):
        ReadingStore.open(path)


# One coordinator on a state directory


HOLD = """
import sys
from pathlib import Path
from amoro_core.store.database import StateLock
with StateLock.acquire(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def _hold(home: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_second_process_is_refused_and_told_who_holds_the_directory_until_it_is_killed(tmp_path: Path) -> None:
    with _hold(tmp_path) as process:
        said = {"pid": process.pid, "address": "127.0.0.1:1261"}
        (tmp_path / "coordinator.json").write_text(json.dumps(said))
        with pytest.raises(StateDirectoryLocked, match=rf"pid {process.pid}, address 127\.0\.0\.1:1261"):
            StateLock.acquire(tmp_path)
        process.communicate("")
    StateLock.acquire(tmp_path).release()

    with _hold(tmp_path) as process:
        process.kill()
        process.communicate()
    StateLock.acquire(tmp_path).release()


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"pid": 1}', "null"])
def test_refusal_without_a_usable_coordinator_file_still_names_the_directory(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "coordinator.json").write_text(text)
    with StateLock.acquire(tmp_path), pytest.raises(StateDirectoryLocked) as refusal:
        StateLock.acquire(tmp_path, timeout=timedelta(milliseconds=1))
    assert refusal.value.message == f"another coordinator works on the state directory {tmp_path} (pid {os.getpid()})"


def test_who_holds_it_for_one_command_is_named_as_such_and_will_soon_be_gone(tmp_path: Path) -> None:
    with StateLock.acquire(tmp_path, passing=True), pytest.raises(StateDirectoryLocked) as refusal:
        StateLock.acquire(tmp_path)
    assert refusal.value.message == f"another command works on the state directory {tmp_path} (pid {os.getpid()})"
    assert refusal.value.passing
    with StateLock.acquire(tmp_path), pytest.raises(StateDirectoryLocked) as later:
        StateLock.acquire(tmp_path)
    assert not later.value.passing


def test_released_lock_is_free_and_waited_for(tmp_path: Path) -> None:
    lock = StateLock.acquire(tmp_path)
    assert lock.fileno() >= 0
    lock.release()
    lock.release()
    with pytest.raises(ValueError, match="released"):
        lock.fileno()
    with StateLock.acquire(tmp_path):
        pass
    assert stat.S_IMODE((tmp_path / "amoro.lock").stat().st_mode) == 0o600

    held = StateLock.acquire(tmp_path)
    release = threading.Timer(0.05, held.release)
    release.start()
    with StateLock.acquire(tmp_path, timeout=timedelta(seconds=30)):
        release.join()


def test_a_lock_knows_when_its_file_is_gone_or_another_one(tmp_path: Path) -> None:
    with StateLock.acquire(tmp_path) as lock:
        lock.require_own(tmp_path)
        (tmp_path / "amoro.lock").unlink()
        with pytest.raises(Fenced, match=f"the lock of the state directory {tmp_path} is gone since it was taken"):
            lock.require_own(tmp_path)
        with StateLock.acquire(tmp_path) as other:
            with pytest.raises(Fenced, match="is another file since it was taken"):
                lock.require_own(tmp_path)
            other.require_own(tmp_path)

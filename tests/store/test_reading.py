"""Reading beside a coordinator that writes, the lock that there is one of them, and watching for changes."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.errors import Fenced, StateDirectoryLocked, StoreFailed
from amoro_core.model.processes import CatalogConfig
from amoro_core.store import catalogs, groups
from amoro_core.store.database import ReadingStore, StateLock, Store

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


def test_a_reader_does_not_write(store: Store, path: Path) -> None:
    with reading(path) as reader:
        with pytest.raises(StoreFailed, match="only reads"):
            reader.write(lambda db: catalogs.add(db, CATALOG))
        with pytest.raises(StoreFailed, match="readonly"):
            reader.read(lambda db: catalogs.add(db, CATALOG))
    assert store.read(catalogs.list_catalogs) == []


def test_where_there_is_no_database_the_state_is_empty_and_none_is_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with reading(home / "amoro.db") as reader:
        assert [group.name for group in reader.read(groups.list_groups)] == ["default"]
        assert reader.check() == []
        with pytest.raises(StoreFailed, match="readonly"):
            reader.read(lambda db: catalogs.add(db, CATALOG))
        with pytest.raises(StoreFailed, match="no state database"):
            reader.backup(tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_database_is_said(path: Path) -> None:
    path.write_bytes(b"not a database, and long enough to be sure of that: " * 20)
    with pytest.raises(StoreFailed, match="cannot be read"):
        ReadingStore.open(path)


def test_a_file_that_was_made_and_not_filled_yet_is_an_empty_state(path: Path) -> None:
    path.touch()
    with reading(path) as reader:
        assert reader.read(catalogs.list_catalogs) == []
    assert path.read_bytes() == b""


# One coordinator on a state directory


HOLD = """
import sys
from pathlib import Path
from amoro_core.store.database import StateLock
with StateLock.acquire(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
ROOT = Path(__file__).parents[2]


def _hold(home: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_process_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    with _hold(tmp_path) as process:
        said = {"pid": process.pid, "address": "127.0.0.1:1261"}
        (tmp_path / "coordinator.json").write_text(json.dumps(said))
        with pytest.raises(StateDirectoryLocked, match=rf"pid {process.pid}, address 127\.0\.0\.1:1261"):
            StateLock.acquire(tmp_path)
        process.communicate("")
    StateLock.acquire(tmp_path).release()


def test_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
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


def test_lock_is_waited_for_until_it_is_free(tmp_path: Path) -> None:
    held = StateLock.acquire(tmp_path)
    release = threading.Timer(0.05, held.release)
    release.start()
    with StateLock.acquire(tmp_path, timeout=timedelta(seconds=30)):
        release.join()


def test_released_lock_is_free_and_a_second_release_does_nothing(tmp_path: Path) -> None:
    lock = StateLock.acquire(tmp_path)
    assert lock.fileno() >= 0
    lock.release()
    lock.release()
    with pytest.raises(ValueError, match="released"):
        lock.fileno()
    with StateLock.acquire(tmp_path):
        pass
    assert stat.S_IMODE((tmp_path / "amoro.lock").stat().st_mode) == 0o600


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

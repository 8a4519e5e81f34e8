"""One coordinator on a state directory."""

import json
import os
import stat
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.errors import Fenced, StateDirectoryLocked
from amoro_core.store.lock import StateLock

HOLD = """
import sys
from pathlib import Path
from amoro_core.store.lock import StateLock
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

"""The lock on the state directory: one coordinator at a time."""

import fcntl
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from amoro_core.errors import Fenced, StateDirectoryLocked

_POLL_SECONDS = 0.1


class StateLock:
    """An exclusive lock on a state directory, held until release or the end of the process.

    The kernel lets go of it when the last descriptor closes, however the process ends, so a lock is never left over.
    The file stays: removing it would let two processes lock two files of one name.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, home: Path, timeout: timedelta = timedelta(0), *, passing: bool = False) -> Self:
        """Lock the directory, waiting at most `timeout`; `passing` for one command only, which others may wait for.

        Raises StateDirectoryLocked, which names the holder.
        """
        descriptor = os.open(home / "amoro.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + timeout.total_seconds()
        while not _try_lock(descriptor):
            left = deadline - time.monotonic()
            if left <= 0:
                os.close(descriptor)
                raise _locked(home)
            time.sleep(min(_POLL_SECONDS, left))
        # In place: the file's name is what others lock.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "passing": passing}).encode(), 0)
        return cls(descriptor)

    def fileno(self) -> int:
        """The descriptor, to be passed on to worker processes, so that the lock outlives none of them."""
        if self._descriptor is None:
            raise ValueError("the lock is released")
        return self._descriptor

    def require_own(self, home: Path) -> None:
        """Raise Fenced when the directory has no such lock any more, or another one, which others may hold."""
        try:
            named = (home / "amoro.lock").stat()
        except (FileNotFoundError, NotADirectoryError):
            named = None
        held = os.fstat(self.fileno())
        if named is None or (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            raise Fenced(
                f"the lock of the state directory {home} is {'gone' if named is None else 'another file'} since it was "
                "taken",
                hint="Stop the coordinator before its state directory is moved, restored or removed.",
            )

    def release(self) -> None:
        """Let the directory go; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked(home: Path) -> StateDirectoryLocked:
    """The holder of the lock, as recorded: its pid in the lock file, its address in coordinator.json."""
    holder, announced = _said(home / "amoro.lock"), _said(home / "coordinator.json")
    pid = holder.get("pid", announced.get("pid"))
    named = [f"pid {pid}"] if pid is not None else []
    if announced.get("pid") == pid and "address" in announced:
        named.append(f"address {announced['address']}")
    passing = holder.get("passing") is True
    return StateDirectoryLocked(
        f"another {'command' if passing else 'coordinator'} works on the state directory {home}"
        + (f" ({', '.join(named)})" if named else ""),
        hint="Wait for its end, or name another directory with --home."
        if passing
        else "Stop it, wait for its end, or name another directory with --home.",
        passing=passing,
    )


def _said(file: Path) -> dict[str, Any]:
    """The file's content; empty if there is none yet."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}

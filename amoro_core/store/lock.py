"""The lock on the state directory: one coordinator at a time."""

import fcntl
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from amoro_core.errors import StateDirectoryLocked

_POLL_SECONDS = 0.1


class StateLock:
    """An exclusive lock on a state directory, held until release or the end of the process.

    The kernel lets go of it when the last descriptor closes, however the process ends, so a lock is never left over.
    The file stays: removing it would let two processes lock two files of one name.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, home: Path, timeout: timedelta = timedelta(0)) -> Self:
        """Lock the directory, waiting at most `timeout`.

        Raises StateDirectoryLocked, which names the holder where coordinator.json does.
        """
        descriptor = os.open(home / "amoro.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + timeout.total_seconds()
        while not _try_lock(descriptor):
            left = deadline - time.monotonic()
            if left <= 0:
                os.close(descriptor)
                raise StateDirectoryLocked(
                    f"another coordinator works on the state directory {home}{_holder(home)}",
                    hint="Stop it, wait for its end, or name another directory with --home.",
                )
            time.sleep(min(_POLL_SECONDS, left))
        return cls(descriptor)

    def fileno(self) -> int:
        """The descriptor, to be passed on to worker processes, so that the lock outlives none of them."""
        if self._descriptor is None:
            raise ValueError("the lock is released")
        return self._descriptor

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


def _holder(home: Path) -> str:
    """Pid and address of the holder as it wrote them down; nothing where it did not (yet)."""
    try:
        said = json.loads((home / "coordinator.json").read_text(encoding="utf-8"))
        return f" (pid {said['pid']}, address {said['address']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""

"""Backups and checks of the state database."""

from pathlib import Path

from amoro_core.errors import InvalidArgument
from amoro_core.events import get_logger
from amoro_core.store.database import Store

log = get_logger("amoro.state")


class StateService:
    """Backups and checks of the state database while it is in use."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def backup(self, path: str) -> int:
        """Write a copy to a new file on this machine, and return its size in bytes.

        It contains the catalogs' secrets and is readable by its owner alone.
                Raises InvalidArgument for a path that is not absolute, AlreadyExists, StoreFailed.
        """
        target = Path(path)
        if not target.is_absolute():
            raise InvalidArgument(f"{path!r} is not an absolute path", hint="Name a file on the coordinator's machine.")
        self._store.backup(target)
        size = target.stat().st_size
        log.info("state.backed_up", path=path, size_bytes=size)
        return size

    def check(self) -> list[str]:
        """The problems of the state database; empty when it is sound."""
        return self._store.check()

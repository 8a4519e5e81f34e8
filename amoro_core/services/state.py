"""The state database: what is known of it, backups, checks."""

from pathlib import Path

from amoro_core.errors import InvalidArgument
from amoro_core.events import get_logger
from amoro_core.model.audit import AuditFilter, AuditOutcome
from amoro_core.model.state_facts import KnownBackup, StateFacts
from amoro_core.store import audit
from amoro_core.store.database import Store

log = get_logger("amoro.state")

_BACKUP = "BackupState"  # the operation, as the audit names it


class StateService:
    """What is known of the state database while it is in use, its backups and checks."""

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

    def facts(self) -> tuple[StateFacts, KnownBackup | None]:
        """What is known of the file, and the last backup that the audit knows. Raises StoreFailed."""
        wanted = AuditFilter(operation=_BACKUP, outcome=AuditOutcome.DONE)
        made = self._store.read(lambda db: audit.list_newest(db, wanted, None, 1))
        return self._store.facts(), KnownBackup(made[0].at, made[0].call.object) if made else None

    def check(self) -> list[str]:
        """The problems of the state database; empty when it is sound."""
        return self._store.check()

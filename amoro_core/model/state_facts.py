"""What is known of a state database itself."""

from datetime import datetime

from amoro_core.records import record


@record
class AppliedMigration:
    """A step of the schema that the file has."""

    number: int
    name: str
    applied_at: datetime | None  # None: by a version that did not note it


@record
class StateFacts:
    """The file, its room, and its schema; sizes in bytes, 0 where there is no file yet."""

    path: str
    size_bytes: int
    log_bytes: int  # of the write-ahead log beside it
    free_bytes: int  # on its disk
    epoch: int  # how often a coordinator has opened it
    migrations: tuple[AppliedMigration, ...]
    engine: str  # the version of SQLite


@record
class KnownBackup:
    """A backup that was made; whether the copy is still there is not known."""

    at: datetime
    path: str

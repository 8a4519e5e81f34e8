"""The schema of the state database, as migrations of sqlite-utils that are appended and never edited."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from sqlite_utils import Database, Migrations

from amoro_core.errors import StoreFailed
from amoro_core.store.connection import Connection


def first_schema(db: Database) -> None:
    """Every table of the first release."""
    for statement in _statements(Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")):
        db.execute(statement)


#: In their order.
MIGRATIONS = (first_schema,)
SCHEMA = Migrations("amoro")
for _migration in MIGRATIONS:
    SCHEMA()(_migration)


def migrate(db: Connection) -> int:
    """Apply the migrations that the database lacks, inside the caller's transaction; returns their number.

    References are not to be enforced meanwhile: a migration may replace a table that others refer to.

    Raises StoreFailed for a database of an unreleased or a newer version, or of another program.
    """
    pending = pending_migrations(db)
    SCHEMA.apply(db.database)
    return len(pending)


def pending_migrations(db: Connection) -> list[str]:
    """The names of the migrations that the database lacks. Raises StoreFailed as `migrate`."""
    tables = set(db.database.table_names())
    if "schema_migration" in tables:
        raise StoreFailed(
            "the state database was written by a version before the first release, whose schema is no longer read",
            hint="Let that version finish its processes and stop it; then start this version with an empty state "
            "directory (--home, or move amoro.db, amoro.db-wal and amoro.db-shm away) and add the catalogs again.",
        )
    if tables and SCHEMA.migrations_table not in tables:
        raise StoreFailed("the file is not a state database of Amoro", hint="Name another state directory with --home.")
    pending = [migration.name for migration in SCHEMA.pending(db.database)]
    known = {migration.__name__ for migration in MIGRATIONS}
    if unknown := [one.name for one in SCHEMA.applied(db.database) if one.name not in known]:
        raise StoreFailed(
            f"a newer version has written the state database: this version does not know the migration {unknown[0]}",
            hint="Use that version, or a backup from before the upgrade.",
        )
    return pending


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit the caller's transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""

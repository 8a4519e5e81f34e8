"""The connection to the state database, and how values become columns."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlite_utils import Database

Row = dict[str, Any]
Parameters = Mapping[str, Any]
_NONE: Parameters = {}

#: The version of SQLite, in numbers.
ENGINE_VERSION = sqlite3.sqlite_version_info

#: The extended result codes of SQLite for a value that stands there already.
_DUPLICATE = frozenset({sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE})
_REFERENCED = frozenset({sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, sqlite3.SQLITE_CONSTRAINT_TRIGGER})


class Duplicate(Exception):
    """A row with that key, or another value that must be unique, already exists."""


class Referenced(Exception):
    """A row is still referenced, or references one that does not exist."""


#: What running a statement raises.
STATEMENT_ERRORS = (sqlite3.Error, Duplicate, Referenced)


class Connection:
    """One connection, used by one caller at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        # No code of other packages runs on these connections.
        self.database = Database(connection, strict=True, execute_plugins=False)

    @property
    def raw(self) -> sqlite3.Connection:
        """The driver's own connection: for what belongs to the engine (pragmas, backups), never for statements."""
        return self.database.conn

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; an error may have ended it."""
        return self.raw.in_transaction

    def select(self, sql: str, parameters: Parameters = _NONE) -> list[Row]:
        """All rows by column name. Read at once: no cursor may outlive the function that the store runs."""
        cursor = self.raw.execute(sql, _by_name(parameters))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def select_one(self, sql: str, parameters: Parameters = _NONE) -> Row | None:
        """The first row; None without any."""
        rows = self.select(sql, parameters)
        return rows[0] if rows else None

    def execute(self, sql: str, parameters: Parameters = _NONE) -> int:
        """Run a statement without result; how many rows it changed. Raises Duplicate, Referenced."""
        try:
            return self.raw.execute(sql, _by_name(parameters)).rowcount
        except sqlite3.IntegrityError as error:
            _refuse_named(error)
            raise

    def execute_many(self, sql: str, rows: Iterable[Parameters]) -> int:
        """Run a statement for each of the rows; how many rows it changed in all. Raises Duplicate, Referenced."""
        try:
            return max(0, self.raw.executemany(sql, map(_by_name, rows)).rowcount)  # -1 where there was nothing to run
        except sqlite3.IntegrityError as error:
            _refuse_named(error)
            raise

    def insert(self, sql: str, parameters: Parameters) -> int:
        """Run an INSERT of one row; the number that the database gave it. Raises Duplicate, Referenced."""
        try:
            number = self.raw.execute(sql, _by_name(parameters)).lastrowid
        except sqlite3.IntegrityError as error:
            _refuse_named(error)
            raise
        if number is None:
            raise ValueError(f"no INSERT of one row: {sql}")
        return number

    def upsert(self, table: str, row: Parameters, key: Sequence[str]) -> None:
        """Insert the row, or set its columns in the row of its key. Raises Duplicate, Referenced."""
        try:
            self.database.table(table).upsert(dict(row), pk=tuple(key))
        except sqlite3.IntegrityError as error:
            _refuse_named(error)
            raise

    def count(self, table: str, where: str | None = None, parameters: Parameters = _NONE) -> int:
        """The number of rows that satisfy the condition; of all rows without one."""
        return int(self.database.table(table).count_where(where, dict(parameters)))

    def close(self) -> None:
        """Give the connection up."""
        self.database.close()


def _by_name(parameters: Parameters) -> Parameters:
    """Refuse positional values: their syntax is SQLite's alone, and they are easily confused."""
    if not isinstance(parameters, (dict, Mapping)):  # dict first: it is told at once
        raise TypeError(f"expected named parameters, got a {type(parameters).__name__}")
    return parameters


def _refuse_named(error: sqlite3.IntegrityError) -> None:
    """Raise an error of ours in the place of one that the modules catch; the store translates all others."""
    if error.sqlite_errorcode in _DUPLICATE:
        raise Duplicate(str(error)) from error
    if error.sqlite_errorcode in _REFERENCED:
        raise Referenced(str(error)) from error


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970, UTC; what is finer is cut off. Raises ValueError for a time without a zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone")
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """The moment in UTC."""
    return _EPOCH + milliseconds * _MILLISECOND


def as_stored(moment: datetime) -> datetime:
    """The moment as `from_ms` gives it once it is stored."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def to_ms_or_none(moment: datetime | None) -> int | None:
    """As `to_ms`; None for no moment."""
    return None if moment is None else to_ms(moment)


def from_ms_or_none(milliseconds: int | None) -> datetime | None:
    """As `from_ms`; None for no moment."""
    return None if milliseconds is None else from_ms(milliseconds)


def to_json(value: object) -> str:
    """Canonical as long as the order of keys is: equal values give equal text."""
    return _encode(value)


def pairs_to_json(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values as a JSON object, in their order."""
    return to_json(dict(pairs))


def pairs_from_json(text: str) -> tuple[tuple[str, str], ...]:
    """What `pairs_to_json` wrote."""
    return tuple(json.loads(text).items())


def tuple_from_json(text: str) -> tuple[Any, ...]:
    """A JSON array as a tuple."""
    return () if text == "[]" else tuple(json.loads(text))


def insert_into(table: str, columns: Sequence[str]) -> str:
    """An INSERT of one row with a named parameter for each column."""
    values = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"


def update_of(table: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """An UPDATE of all columns but the key's, of the row with the key."""
    changes = ", ".join(f"{column} = :{column}" for column in columns if column not in key)
    where = " AND ".join(f"{column} = :{column}" for column in key)
    return f"UPDATE {table} SET {changes} WHERE {where}"

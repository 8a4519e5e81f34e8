"""The connection to the state database, and how values become columns."""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from sqlite_utils import Database

from amoro_core.model.paging import Page, cut

Row = dict[str, Any]
Parameters = Mapping[str, Any]
V = TypeVar("V")
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

    def tuples(self, sql: str, parameters: Parameters = _NONE) -> list[tuple[Any, ...]]:
        """All rows by the order of their columns, in half the time: for what each hand-out reads."""
        return self.raw.execute(sql, _by_name(parameters)).fetchall()

    def select_one(self, sql: str, parameters: Parameters = _NONE) -> Row | None:
        """The first row; None without any."""
        rows = self.select(sql, parameters)
        return rows[0] if rows else None

    def value(self, sql: str, parameters: Parameters = _NONE) -> Any:
        """The only column of the first row; None without any."""
        row = self.select_one(sql, parameters)
        return None if row is None else next(iter(row.values()))

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

    def insert(self, table: str, row: Parameters) -> int:
        """Insert the row; the number that the database gave it. Raises Duplicate, Referenced."""
        try:
            return self.raw.execute(insert_into(table, tuple(row)), row).lastrowid or 0
        except sqlite3.IntegrityError as error:
            _refuse_named(error)
            raise

    def update(self, table: str, row: Parameters, *key: str) -> int:
        """Set the other columns of the row with that key; how many rows there were. Raises Duplicate, Referenced."""
        return self.execute(update_of(table, tuple(row), key), row)

    def upsert(self, table: str, row: Parameters, key: Sequence[str]) -> None:
        """Insert the row, or set its columns in the row of its key. Raises Duplicate, Referenced."""
        others = ", ".join(f"{column} = excluded.{column}" for column in row if column not in key)
        into = insert_into(table, tuple(row))
        self.execute(f"{into} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {others}", row)

    def count(
        self, table: str, where: str | None = None, parameters: Parameters = _NONE, most: int | None = None
    ) -> int:
        """The number of rows that satisfy the condition, of all rows without one; counting ends at `most`."""
        if most is None:
            return int(self.database.table(table).count_where(where, dict(parameters)))
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {where or 1} LIMIT :most)"
        return int(self.value(sql, {**parameters, "most": most}))

    def close(self) -> None:
        """Give the connection up."""
        self.database.close()


def _by_name(parameters: Parameters) -> Parameters:
    """Refuse positional values: their syntax is SQLite's alone, and they are easily confused."""
    if not isinstance(parameters, (dict, Mapping)):  # dict first: the check is cheap
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


def conditions_of(possible: Iterable[tuple[str, str, object]]) -> tuple[str, Row]:
    """Those of (name, condition, value) whose value is not None: the conditions together, and the values by name."""
    given = [item for item in possible if item[2] is not None]
    return " AND ".join(["true", *(item[1] for item in given)]), {name: value for name, _, value in given}


class Codec(NamedTuple):
    """How a value that is not None becomes that of a column, and back."""

    to_column: Callable[[Any], Any]
    from_column: Callable[[Any], Any]


class RowMapping(Generic[V]):
    """How values of a class with fields become rows, and back.

    A column has the name of its field, with the ending `_ms` for a time or a duration and `_json` for a collection or a
    dataclass; keyword arguments name other columns by field. None is NULL.
    """

    def __init__(
        self,
        kind: type[V],
        /,
        *,
        without: Collection[str] = (),
        also: Sequence[str] = (),
        codecs: Mapping[str, Codec] | None = None,
        **columns: str,
    ) -> None:
        """`without` are fields that have no column; `also` are properties that are stored and never read."""
        self._kind = kind
        self._also = tuple(also)
        self._mapped: list[tuple[str, str, Codec | None]] = []
        for name, hint in get_type_hints(kind).items():
            if name not in without:
                ending, codec = _codec_of(hint)
                codec = (codecs or {}).get(name, codec)
                self._mapped.append((name, columns.get(name, name + ending), codec))
        self.columns = (*(column for _, column, _ in self._mapped), *self._also)

    def to_row(self, value: V) -> Row:
        row = {name: getattr(value, name) for name in self._also}
        for name, column, codec in self._mapped:
            field_value = getattr(value, name)
            row[column] = field_value if codec is None or field_value is None else codec.to_column(field_value)
        return row

    def from_row(self, row: Row, **more: Any) -> V:
        """The value in a row; `more` are fields that have no column."""
        for name, column, codec in self._mapped:
            raw = row[column]
            more[name] = raw if codec is None or raw is None else codec.from_column(raw)
        return self._kind(**more)

    def find(self, db: Connection, sql: str, parameters: Parameters = _NONE) -> V | None:
        """The value in the first row that the query finds; None without any."""
        row = db.select_one(sql, parameters)
        return None if row is None else self.from_row(row)

    def select(self, db: Connection, sql: str, parameters: Parameters = _NONE) -> list[V]:
        """The values in the rows that the query finds."""
        return [self.from_row(row) for row in db.select(sql, parameters)]

    def page(
        self, db: Connection, table: str, key: str, after: str, limit: int, where: str = "", values: Parameters = _NONE
    ) -> Page[V]:
        """At most `limit` values with a greater key than `after`, which need not exist, by their keys."""
        sql = f"SELECT * FROM {table} WHERE {key} > :after AND ({where or 1}) ORDER BY {key} LIMIT :limit"
        rows = self.select(db, sql, {**values, "after": after, "limit": limit + 1})
        return cut(rows, limit, db.count(table, where or None, values), lambda item: str(self.to_row(item)[key]))


def _codec_of(hint: Any) -> tuple[str, Codec | None]:
    """The ending of the column of a field of that type, and the codec of its values; None for what SQLite stores."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] if NoneType in get_args(hint) else [hint]
    kind = kinds[0] if len(kinds) == 1 else hint
    origin = get_origin(kind)
    if kind is datetime:
        return "_ms", Codec(to_ms, from_ms)
    if kind is timedelta:
        return "_ms", Codec(lambda time: time // _MILLISECOND, lambda ms: ms * _MILLISECOND)
    if kind is bool:
        return "", Codec(int, bool)
    if kind == tuple[tuple[str, str], ...]:
        return "_json", Codec(lambda pairs: to_json(dict(pairs)), lambda text: tuple(json.loads(text).items()))
    if origin is tuple:
        return "_json", Codec(to_json, tuple_from_json)
    if origin is Mapping:
        return "_json", Codec(lambda value: to_json(dict(value)), json.loads)
    if is_dataclass(kind):
        make: Any = kind
        return "_json", Codec(lambda value: to_json(asdict(value)), lambda text: make(**json.loads(text)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "", Codec(lambda member: member.value, kind)
    return "", None

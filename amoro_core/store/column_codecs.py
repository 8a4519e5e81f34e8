"""How values become columns: UTC milliseconds, JSON, and statements with a parameter for each column."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

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

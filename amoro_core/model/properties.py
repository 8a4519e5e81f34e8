"""Table properties declared as fields, with their parsers; durations and sizes as users write them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, time, timedelta
from math import inf, nan
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from amoro_core.errors import misconfigured

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_LONGEST = timedelta(days=365)


def parse_duration(text: str) -> timedelta:
    """The duration in a text like "30s" or "1h30m". Raises ValueError unless it is above 0 and at most a year."""
    word = text.strip().lower()
    parts = _DURATION.findall(word)
    if not parts or "".join(number + unit for number, unit in parts) != word:
        raise ValueError(f"{text!r} is not a duration: write 30s, 10m or 1h")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 0 < seconds <= _LONGEST.total_seconds():
        raise ValueError(f"{text!r} is not a duration above zero and at most 365d")
    return timedelta(seconds=seconds)


def parse_time(text: str, now: datetime) -> int:
    """Milliseconds since 1970 of the time in a text like "12h", which is so long ago, or "2026-11-29T22:00Z".

    A time without a zone is in UTC. Raises ValueError.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            moment = now - parse_duration(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is no time: write 12h for 12 hours ago, or 2026-11-29T22:00Z") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_memory(text: str) -> int:
    """The bytes in a text like "512MB" or "1GB"; a bare number is bytes. Raises ValueError."""
    match = _MEMORY.fullmatch(text.strip())
    size = float(match[1]) * 1024 ** _POWERS[(match[2] or "").lower()[:1]] if match else 0.0
    if not 1 <= size < 2**63:  # the range of the message's field
        raise ValueError(f"{text!r} is not an amount of memory: write 512MB or 1GB")
    return int(size)


_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONG_LIMIT = 2**63
_CENTURY = timedelta(days=36525)
#: The end of a key that is a prefix of many, one for each column.
EACH_COLUMN = "*"

T = TypeVar("T")
C = TypeVar("C", bound="DataclassInstance")
Parse = Callable[[str], T]


@dataclass(frozen=True, slots=True)
class Property:
    """One property, or with a key that ends in `*` one for each column."""

    key: str
    default: str  # as it would be written; "" without a default
    parse: Parse[Any]  # raises ValueError


def declared(key: str, default: str, parse: Parse[Any]) -> Any:
    """A field of a configuration (a frozen dataclass) whose value comes from a property."""
    return field(default=parse(default), metadata={"property": Property(key, default, parse)})


def properties_of(configuration: type) -> tuple[Property, ...]:
    """The properties declared by the fields of a configuration, in order."""
    return tuple(item.metadata["property"] for item in fields(configuration) if "property" in item.metadata)


def parse_into(configuration: type[C], properties: Mapping[str, str], **more: Any) -> C:
    """The configuration in the properties; missing ones have their defaults. `more` are fields without a property.
    Unknown keys are ignored. Raises TableRefused("configuration") naming key and value."""
    values: dict[str, Any] = {}
    for item in fields(configuration):
        declaration: Property | None = item.metadata.get("property")
        if declaration is not None and declaration.key in properties:
            values[item.name] = parse_value(declaration.key, properties[declaration.key], declaration.parse)
    return configuration(**values, **more)


def parse_value(key: str, text: str, parse: Parse[T]) -> T:
    """The parsed value. Raises TableRefused("configuration") naming key and value."""
    try:
        return parse(text)
    except (ValueError, OverflowError) as error:
        raise misconfigured(
            f"property {key} has the malformed value {text!r}: {error}",
            hint=f"Fix it with ALTER TABLE … SET TBLPROPERTIES ('{key}' = '…') or remove it.",
        ) from error


def parse_columns(properties: Mapping[str, str], declaration: Property) -> dict[str, Any]:
    """The values of a per-column property, by column name. Raises like `parse_value`."""
    start = declaration.key.removesuffix(EACH_COLUMN)
    return {
        key.removeprefix(start): parse_value(key, text, declaration.parse)
        for key, text in properties.items()
        if key.startswith(start)
    }


# Parsers. Each raises ValueError saying what was expected.


def boolean(text: str) -> bool:
    """ "true" or "false", in any case."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("expected true or false")


def whole(least: int, most: int = _LONG_LIMIT) -> Parse[int]:
    """An integer between the bounds, inclusive."""

    def parse(text: str) -> int:
        value = integer(text)
        if not least <= value <= most:
            bound = f" and at most {most}" if most < _LONG_LIMIT else ""
            raise ValueError(f"expected a whole number of at least {least}{bound}")
        return value

    return parse


def integer(text: str) -> int:
    """An integer as Java's Long.parseLong reads it: Python would also accept underscores and digits of any script."""
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError("expected a whole number")
    # int() refuses thousands of digits.
    value = int(text) if len(text.strip().lstrip("+-0")) < 20 else _LONG_LIMIT
    if not -_LONG_LIMIT <= value < _LONG_LIMIT:
        raise ValueError("expected a whole number of at most 64 bits")
    return value


def fraction(least: float, most: float | None = None) -> Parse[float]:
    """A number between the bounds, inclusive."""

    def parse(text: str) -> float:
        value = _number(text)
        if not least <= value < inf or (most is not None and value > most):
            raise ValueError(f"expected a number of at least {least}" + (f" and at most {most}" if most else ""))
        return value

    return parse


def rate(text: str) -> float:
    """A number between 0 and 1, exclusive."""
    value = _number(text)
    if not 0 < value < 1:
        raise ValueError("expected a number between 0 and 1")
    return value


def _number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text.strip()) else nan


def interval(text: str) -> timedelta | None:
    """Milliseconds; a negative number means "never"."""
    value = integer(text)
    return _duration(value) if value >= 0 else None


def milliseconds(least: int) -> Parse[timedelta]:
    """A duration in milliseconds."""
    parse = whole(least)
    return lambda text: _duration(parse(text))


_PROPERTIES_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|min|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration(text: str) -> timedelta:
    """A whole number with its unit: ms, s, min (or m), h, d."""
    match = _PROPERTIES_DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("expected a number with a unit, such as 12h or 7d")
    return _duration(int(match[1]) * _UNITS_MS[match[2]])


_SIZE = re.compile(r"([0-9]{1,19})\s*(?:([kmgt])?b)?", re.IGNORECASE | re.ASCII)


def size(text: str) -> int:
    """A whole number of bytes of at least 1, or one with its unit: KB, MB, GB, TB. One MB is 1,048,576 bytes."""
    match = _SIZE.fullmatch(text.strip())
    value = int(match[1]) * 1024 ** _POWERS[(match[2] or "").lower()] if match else 0
    if not 1 <= value < _LONG_LIMIT:
        raise ValueError("expected a number of bytes, such as 134217728 or 64GB")
    return value


def unless_empty(parse: Parse[T]) -> Parse[T | None]:
    """What another parser makes of the text; None for an empty one."""
    return lambda text: parse(text) if text.strip() else None


def minutes(text: str) -> timedelta:
    """A duration in minutes."""
    return _duration(whole(0)(text) * 60_000)


def _duration(value: int) -> timedelta:
    # A date plus the largest long overflows; a century is as good as never.
    return timedelta(milliseconds=min(value, _CENTURY // timedelta(milliseconds=1)))


def name(text: str) -> str:
    """A non-empty string, stripped of spaces."""
    if not text.strip():
        raise ValueError("expected a name")
    return text.strip()


def column_names(text: str) -> tuple[str, ...]:
    """The names of columns, with commas between them; none of an empty text."""
    names = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    if "" in names:
        raise ValueError("expected names of columns with commas between them")
    return names


def optional(text: str) -> str | None:
    """A string stripped of spaces; None for an empty one."""
    return text.strip() or None


def one_of(words: Mapping[str, T]) -> Parse[T]:
    """The value of one of the words, in any case."""

    def parse(text: str) -> T:
        value = words.get(text.strip().lower())
        if value is None:
            raise ValueError(f"expected one of {', '.join(sorted(words))}")
        return value

    return parse


_WINDOW = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*-\s*([0-9]{1,2}):([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Window:
    """The part of each day in which work may begin, in local time; its end is exclusive."""

    start: time
    end: time

    def holds(self, local: datetime) -> bool:
        """Whether the moment lies in it."""
        at = local.time()
        if self.start <= self.end:
            return self.start <= at < self.end
        return at >= self.start or at < self.end

    def next_opening(self, local: datetime) -> datetime:
        """The moment itself if it is in the window, else the next opening of the window."""
        if self.holds(local):
            return local
        opening = local.replace(hour=self.start.hour, minute=self.start.minute, second=0, microsecond=0)
        return opening if opening > local else opening + timedelta(days=1)


def window(text: str) -> Window | None:
    """A part of the day such as 22:00-06:00, over midnight here; None for an empty text."""
    if not text.strip():
        return None
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected two times, such as 22:00-06:00")
    numbers = [int(group) for group in match.groups()]
    parsed = Window(time(numbers[0], numbers[1]), time(numbers[2], numbers[3]))
    if parsed.start == parsed.end:
        raise ValueError("it never opens; expected two different times")
    return parsed


def time_zone(text: str) -> ZoneInfo:
    """The time zone of that name."""
    try:
        return ZoneInfo(text.strip())
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError("expected the name of a time zone, such as Europe/Berlin") from error

"""Durations, sizes, counts and times as people write and read them. One MB is 1,048,576 bytes, as in Iceberg."""

import re
from datetime import UTC, datetime, timedelta

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_LONGEST = timedelta(days=365)


def parse_duration(text: str) -> timedelta:
    """The duration that "30s", "10m" or "1h30m" names. Raises ValueError unless it is above 0 and at most a year."""
    word = text.strip().lower()
    parts = _DURATION.findall(word)
    if not parts or "".join(number + unit for number, unit in parts) != word:
        raise ValueError(f"{text!r} is not a duration: write 30s, 10m or 1h")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 0 < seconds <= _LONGEST.total_seconds():
        raise ValueError(f"{text!r} is not a duration above zero and at most 365d")
    return timedelta(seconds=seconds)


def parse_memory(text: str) -> int:
    """The bytes that "512MB" or "1GB" names. Raises ValueError."""
    match = _MEMORY.fullmatch(text.strip())
    size = float(match[1]) * 1024 ** _POWERS[(match[2] or "").lower()[:1]] if match else 0.0
    if not 1 <= size < 2**63:  # what a message holds
        raise ValueError(f"{text!r} is not an amount of memory: write 512MB or 1GB")
    return int(size)


def format_bytes(size: int) -> str:
    """The size in the unit that suits it, as "310 MB" or "1.4 GB"."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1024, larger
    digits = 1 if unit != "B" and value < 9.95 else 0
    return f"{value:.{digits}f} {unit}"


def format_duration(milliseconds: int) -> str:
    """The duration as "0.3 s", "14.2 s", "3 min 5 s" or "2 h 10 min"."""
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    seconds = milliseconds // 1000
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def format_count(count: int) -> str:
    return f"{count:,}"


def from_ms(milliseconds: int) -> datetime | None:
    """The time so many milliseconds after the epoch; 0 means never."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def format_time(milliseconds: int) -> str:
    """The time in UTC to the second, or "never"."""
    moment = from_ms(milliseconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}Z" if moment else "never"


def iso_time(milliseconds: int) -> str | None:
    """The time in ISO 8601, UTC, to the millisecond; None for never."""
    moment = from_ms(milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z" if moment else None

"""Durations, sizes, counts and times as people read them. One MB is 1,048,576 bytes, as in Iceberg."""

from datetime import UTC, datetime


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
    """The number with commas between thousands."""
    return f"{count:,}"


def many(count: int, noun: str) -> str:
    """The count with its noun, as "1 file" or "1,054 files"."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def from_ms(milliseconds: int) -> datetime | None:
    """The time that many milliseconds after the epoch; None for 0, which means never."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def format_time(milliseconds: int) -> str:
    """The time in UTC to the second, or "never"."""
    moment = from_ms(milliseconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}Z" if moment else "never"


def iso_time(milliseconds: int) -> str | None:
    """The time in ISO 8601, UTC, to the millisecond; None for never."""
    moment = from_ms(milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z" if moment else None

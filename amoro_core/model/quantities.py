"""Durations and sizes as users write them. One MB is 1,048,576 bytes, as in Iceberg."""

import re
from datetime import timedelta

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


def parse_memory(text: str) -> int:
    """The bytes in a text like "512MB" or "1GB"; a bare number is bytes. Raises ValueError."""
    match = _MEMORY.fullmatch(text.strip())
    size = float(match[1]) * 1024 ** _POWERS[(match[2] or "").lower()[:1]] if match else 0.0
    if not 1 <= size < 2**63:  # the range of the message's field
        raise ValueError(f"{text!r} is not an amount of memory: write 512MB or 1GB")
    return int(size)

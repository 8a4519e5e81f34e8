"""Identifiers that sort by time and never repeat, even after a backup is restored."""

import secrets
import uuid
from datetime import datetime


def uuid7(now: datetime) -> str:
    """A UUID version 7 (RFC 9562, section 5.7) for that time."""
    milliseconds = int(now.timestamp() * 1000) & ((1 << 48) - 1)
    value = (milliseconds << 80) | secrets.randbits(80)
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))


def made_ms(text: str) -> int | None:
    """UTC milliseconds of the time for which the id was made; None for what is no UUID version 7 in full."""
    try:
        known = uuid.UUID(text)
    except ValueError:
        return None
    return known.int >> 80 if known.version == 7 and str(known) == text else None

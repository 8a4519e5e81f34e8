"""Identifiers that sort by time and never repeat, restored backups included."""

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

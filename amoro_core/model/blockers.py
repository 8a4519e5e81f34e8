"""Blockers: they keep some kinds of work off a table for a while."""

from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.records import record

LONGEST_HOLD = timedelta(days=1)  # from each renewal


class BlockedOperation(StrEnum):
    """A kind of work that can be kept off a table."""

    OPTIMIZE = "optimize"  # new processes of ours
    MAINTAIN = "maintain"  # new processes of maintenance
    BATCH_WRITE = "batch-write"  # writers that ask before they write


@record
class Blocker:
    """Keeps its operations off a table until it is released or expires; at `expires_at` it no longer holds."""

    blocker_id: str  # UUIDv7
    table_id: int
    operations: frozenset[BlockedOperation]
    created_at: datetime
    expires_at: datetime
    held_for: timedelta  # from each renewal
    reason: str = ""  # who holds it and what for

    @property
    def words(self) -> str:
        """What is blocked, until when and by which blocker; to follow the name of the table in a message."""
        why = f" ({self.reason})" if self.reason else ""
        until = f"{self.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"blocked for {', '.join(sorted(self.operations))} until {until} by {self.blocker_id}{why}"

"""Plans that are kept for those who have seen them."""

from datetime import datetime

from amoro_core.records import record

#: Bytes of a plan's content, at most.
LARGEST = 262_144


@record
class SavedPlan:
    """A plan of a table, as `content`, which only whoever has made it reads."""

    plan_id: str
    table: str
    saved_at: datetime
    content: bytes

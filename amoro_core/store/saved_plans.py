"""Plans that were shown to people, in `saved_plan`: for a short time, and the newest only."""

from datetime import datetime

from amoro_core.model.saved_plans import SavedPlan
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms, insert_into, to_ms

#: The statements of the migration, in order.
SAVED_PLANS = (
    """
    CREATE TABLE saved_plan (
        plan_id TEXT NOT NULL PRIMARY KEY CHECK (plan_id <> ''),
        table_name TEXT NOT NULL,
        saved_at_ms INTEGER NOT NULL,
        content BLOB NOT NULL CHECK (length(content) <= 262144)
    ) STRICT
    """,
    "CREATE INDEX saved_plan_by_time ON saved_plan (saved_at_ms)",
)
_INSERT = insert_into("saved_plan", ("plan_id", "table_name", "saved_at_ms", "content"))


def keep_saved_plans(db: Connection) -> None:
    """Plans that were shown to people."""
    list(map(db.execute, SAVED_PLANS))


def add(db: Connection, plan: SavedPlan) -> None:
    """Raises Duplicate for an id that is there."""
    row = {"plan_id": plan.plan_id, "table_name": plan.table, "content": plan.content}
    db.execute(_INSERT, {**row, "saved_at_ms": to_ms(plan.saved_at)})


def find(db: Connection, plan_id: str) -> SavedPlan | None:
    """The plan with that id; None when there is none."""
    row = db.select_one("SELECT * FROM saved_plan WHERE plan_id = :plan_id", {"plan_id": plan_id})
    if row is None:
        return None
    return SavedPlan(row["plan_id"], row["table_name"], from_ms(row["saved_at_ms"]), row["content"])


def trim(db: Connection, before: datetime, most: int) -> None:
    """Forget plans that were saved before, and all but the newest `most`."""
    db.execute(
        "DELETE FROM saved_plan WHERE saved_at_ms < :before OR plan_id NOT IN "
        "(SELECT plan_id FROM saved_plan ORDER BY saved_at_ms DESC, rowid DESC LIMIT :most)",
        {"before": to_ms(before), "most": most},
    )

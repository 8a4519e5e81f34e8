"""Which subjects a transaction changes, as the writing connection itself notices.

Triggers of that connection alone: they are no part of the schema, and no write can be missed by them.
"""

from collections.abc import Iterable

from amoro_core.revisions import Subject
from amoro_core.store.connection import Connection

#: The topic of a table's rows, and the columns that name who changed. A table may tell of several subjects.
WATCHED: tuple[tuple[str, str, str], ...] = (
    ("table_process", "processes", "process_id"),
    ("table_process", "tables", "table_id"),
    ("process_clearing", "processes", "process_id"),
    ("task_runtime", "processes", "process_id"),
    ("commit_attempt", "processes", "process_id"),
    ("table_runtime", "tables", "table_id"),
    ("table_action", "tables", "table_id"),
    ("table_blocker", "tables", "table_id"),
    ("condemned_batch", "trash", "process_id"),
    ("optimizer", "optimizers", "optimizer_id"),
    ("resource", "optimizers", "resource_id"),
    ("resource_group", "groups", "group_name"),
    ("catalog_metadata", "catalogs", "catalog_name"),
    ("event", "events", "kind"),
    ("audit_event", "audit", "operation"),
    ("user_account", "users", "user_name"),
    ("access_token", "users", "token_name"),
)
_EVENTS = (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))


def watch(db: Connection, noted: set[Subject]) -> None:
    """Have every row that this connection writes noted by topic and id; a write that is taken back is noted, too."""

    def note(topic: str, subject: object) -> None:
        noted.add((topic, str(subject)))

    db.raw.create_function("noted", 2, note)
    for number, (table, topic, column) in enumerate(WATCHED):
        for event, row in _EVENTS:
            db.execute(
                f"CREATE TEMP TRIGGER watched_{number}_{event.lower()} AFTER {event} ON main.{table} "
                f"BEGIN SELECT noted('{topic}', {row}.{column}); END"
            )


def topics() -> Iterable[str]:
    """The topics that are watched."""
    return sorted({topic for _, topic, _ in WATCHED})

"""What is kept in memory beside the store: which rows its writer has changed since they were last read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from amoro_core.store.connection import Connection

#: The tables that are followed, their keys, and the only column of which a new value counts; "": of each.
FOLLOWED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("task_runtime", ("process_id", "task_number"), ""),
    ("table_process", ("process_id",), "status"),
    ("table_runtime", ("table_id",), "quota"),
    ("optimizer", ("group_name",), "threads"),
)
_EVENTS = (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))


class Follower(Protocol):
    """Keeps something of the store in memory; the writer's thread alone calls it."""

    def begin(self, db: Connection) -> None:
        """Follow that connection, which is the writer's."""

    def forget(self) -> None:
        """A transaction was taken back: what was read within it may be wrong."""

    def taken_back(self) -> None:
        """One of the writes of the present transaction was taken back, with all that it has changed."""

    def committed(self) -> None:
        """The present transaction was committed."""


@dataclass(slots=True)
class Changed:
    """Keys of rows that were written, also by a write that was taken back: they are to be read again."""

    tasks: set[tuple[str, int]] = field(default_factory=set)
    processes: set[str] = field(default_factory=set)
    tables: set[int] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)  # of optimizers

    def __bool__(self) -> bool:
        return bool(self.tasks or self.processes or self.tables or self.groups)

    def take(self) -> "Changed":
        """What was noted so far; it is noted no more."""
        taken = Changed(set(self.tasks), set(self.processes), set(self.tables), set(self.groups))
        self.clear()
        return taken

    def clear(self) -> None:
        """Note nothing of what was."""
        for keys in (self.tasks, self.processes, self.tables, self.groups):
            keys.clear()


def follow(db: Connection, changed: Changed) -> None:
    """Have the keys of all rows that this connection writes noted from now on.

    Triggers of that connection alone: they are no part of the schema, and no write can be missed by them.
    """
    notes: tuple[Callable[..., None], ...] = (
        lambda process, number: changed.tasks.add((process, number)),
        changed.processes.add,
        changed.tables.add,
        changed.groups.add,
    )
    for (table, key, column), note in zip(FOLLOWED, notes, strict=True):
        db.raw.create_function(f"followed_{table}", len(key), note)
        for event, row in _EVENTS:
            counts = f"WHEN OLD.{column} IS NOT NEW.{column} " if column and event == "UPDATE" else ""
            db.execute(
                f"CREATE TEMP TRIGGER followed_{table}_{event.lower()} AFTER {event} ON main.{table} "
                f"{counts}BEGIN SELECT followed_{table}({_columns(row, key)}); END"
            )


def _columns(row: str, key: Iterable[str]) -> str:
    return ", ".join(f"{row}.{name}" for name in key)

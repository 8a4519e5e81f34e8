"""What is asked each second, or for one table, reads no more of a store with many tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amoro_core.store import actions, metadata_locations, processes, tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.surroundings import neighbours, surroundings
from tests.store.builders import NOW, runtime


def _scanned(store: Store, ask: Callable[[Connection], object]) -> set[str]:
    """The tables that are read whole for the question, not by an index's condition."""
    said: list[str] = []

    def read(db: Connection) -> list[str]:
        db.raw.set_trace_callback(said.append)
        ask(db)
        db.raw.set_trace_callback(None)
        plans = [db.raw.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall() for sql in said if sql.startswith("SELECT")]
        return [str(step[3]) for plan in plans for step in plan]

    return {step.split()[1] for step in store.read(read) if step.startswith("SCAN table_")}


ASKED: dict[str, Callable[[Connection], object]] = {
    "what is due for a refresh": lambda db: tables.list_due(db, NOW),
    "which resting tables are due soon": lambda db: metadata_locations.list_due(db, "cat", NOW, NOW),
    "the first table of a UUID": lambda db: tables.first_of_uuid(db, "1"),
    "every action that is due": lambda db: actions.list_due(db, NOW),
    "actions due on a table": lambda db: actions.list_due(db, NOW, 1),
    "what is known of a table's actions": lambda db: actions.list_of(db, 1),
    "a table's processes": lambda db: processes.list_processes(db, 1),
}


@pytest.mark.parametrize("what", ASKED)
def test_it_is_found_by_an_index(store: Store, what: str) -> None:
    assert _scanned(store, ASKED[what]) == set()


def test_the_surroundings_of_a_table_are_read_without_the_other_tables(store: Store) -> None:
    one, other = (store.write(lambda db, name=name: tables.add(db, runtime(name, location=name))) for name in "ab")

    def of_none(name: str) -> None:
        raise KeyError(name)

    # By an index of the few processes that have not ended.
    asked = _scanned(store, lambda db: surroundings(db, one.table_id, of_none, NOW))
    assert asked <= {"table_process"}
    assert store.read(lambda db: neighbours(db, one.table_id)) == {str(other.identifier): "b"}

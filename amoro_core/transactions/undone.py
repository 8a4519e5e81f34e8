"""A process to undo."""

from collections.abc import Iterable
from dataclasses import replace

from amoro_core.actions.contract import Request, Undoing
from amoro_core.errors import CannotUndo
from amoro_core.model.actions import Case
from amoro_core.store import condemned, processes
from amoro_core.store.database import Connection
from amoro_core.transactions.cases import read_case


def undone(db: Connection, process_id: str, known: Iterable[Undoing]) -> tuple[Case, Undoing, Request]:
    """The process, the action that undoes it, and the request for that action.

    Raises ProcessNotFound, CannotUndo for a process that has not ended, or of a kind that has no undo.
    """
    case = read_case(db, process_id)
    process = case.process
    found = next((action for action in known if process.type in action.undoes), None)
    if found is None:
        raise CannotUndo(f"process {process_id} can't be undone: {process.type} has no undo")
    if process.is_active:
        raise CannotUndo(
            f"process {process_id} ({process.type}, {process.status}) has not ended",
            hint=f"Cancel it: amoro process cancel {process_id}",
        )
    request = Request(
        found.name,
        undone=replace(case, undone_by=processes.find_undo(db, process)),
        restorable=condemned.restorable(db, process_id),
        condemned_by_others=condemned.paths_of_others(db, process.table_id, process_id),
    )
    return case, found, request

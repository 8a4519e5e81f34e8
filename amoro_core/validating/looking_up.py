"""Which rows must be looked up in the outputs of a task that has put them into another order."""

from amoro_core.model.commits import Group
from amoro_core.model.files import DeleteFile
from amoro_core.positions import NO_POSITIONS, PositionSet
from amoro_core.validating.sight import (
    Sight,
    deletes_of_positions,
    has_changed,
    on_state,
    planned_positions,
    positions_on,
)


def to_look_up(sight: Sight) -> tuple[tuple[Group, dict[int, PositionSet]], ...]:
    """The tasks whose rows others have deleted since the plan, with these rows by the number of the input.

    Without rows that the task left out because of a planned delete by position. A task is missing whose deletes by
    position could not all be read.
    """
    found = []
    for group in sight.record.groups:
        if group.look_up is not None and has_changed(group, sight):
            rows = _hidden_since(group, sight)
            if rows is not None:
                found.append((group, rows))
    return tuple(found)


def _hidden_since(group: Group, sight: Sight) -> dict[int, PositionSet] | None:
    hidden: dict[int, PositionSet] = {}
    for at, given in on_state(group, sight):
        now = positions_on(given, deletes_of_positions(group, given, sight), sight.read)
        before = positions_on(given, planned_positions(group, given), sight.read)
        if isinstance(now, DeleteFile) or isinstance(before, DeleteFile):
            return None
        if (since := now - before) != NO_POSITIONS:
            hidden[at] = since
    return hidden

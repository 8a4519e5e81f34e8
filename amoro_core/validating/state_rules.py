"""Rules of a task whose rows can be followed into its outputs: what counts is the head, not how it came about.

Rows that others have deleted by position meanwhile are deleted in the outputs as well. That is right where everything
that the task left out is still deleted, and where everything that is deleted by position was read.
"""

from collections.abc import Callable

from amoro_core.model.commits import Group
from amoro_core.model.files import DeleteFile, DeleteKind
from amoro_core.model.rewrite import InputFile
from amoro_core.positions import PositionSet
from amoro_core.validating.sight import (
    Sight,
    deletes_of_positions,
    gone_deletes,
    gone_inputs,
    gone_positions,
    has_changed,
    in_outputs,
    known_positions,
    needs_map,
    on_state,
    planned_positions,
    positions_on,
    rows_of_gone_inputs,
)

_FORMAT_WITHOUT_DELETES = 1


def left_out_rows_are_known(group: Group, sight: Sight) -> str | None:
    """Without them no position in an input can be followed into the outputs."""
    if needs_map(group, sight) and group.number not in sight.read.left_out:
        return "others have changed its inputs since the plan, and which rows it left out can't be read"
    return None


def position_deletes_were_read(group: Group, sight: Sight) -> str | None:
    """A position refers to a row of the old file and has no effect on the new one: the deleted row would come back."""
    is_looked_up = group.look_up is not None and has_changed(group, sight)
    for _, given in on_state(group, sight):
        before = planned_positions(group, given) if is_looked_up else gone_positions(group, given, sight)
        for deletes in (deletes_of_positions(group, given, sight), before):
            found = positions_on(given, deletes, sight.read)
            if isinstance(found, DeleteFile):
                return (
                    f"the position delete {found.path} applies to {given.data.path} and can't be read, or is too large"
                )
    return None


def planned_positions_are_still_deleted(group: Group, sight: Sight) -> str | None:
    """A row that was deleted by position and came back is in no output: it would be lost."""
    for _, given in on_state(group, sight):
        gone = gone_positions(group, given, sight)
        deleted = positions_on(given, gone, sight.read)
        if isinstance(deleted, PositionSet) and not deleted <= _deleted(group, given, sight):
            return f"the delete {gone[0].path} no longer applies to {given.data.path}, and rows of it have come back"
    return None


def planned_equality_deletes_still_apply(group: Group, sight: Sight) -> str | None:
    """A row that one deleted and that came back is in no output; it did not where all that was left out is deleted."""
    left_out = sight.read.left_out.get(group.number, {})
    for at, given in on_state(group, sight):
        gone = [one for one in gone_deletes(group, given, sight) if one.kind is DeleteKind.EQUALITY]
        is_unknown = group.look_up is not None  # which rows it has hit
        if gone and (is_unknown or (at in left_out and not left_out[at] <= _deleted(group, given, sight))):
            return (
                f"the delete {gone[0].path} no longer applies to {given.data.path}, and rows of it may have come back"
            )
    return None


def few_rows_of_gone_inputs(group: Group, sight: Sight) -> str | None:
    """The rows of an input that is gone live elsewhere or nowhere: outputs of little else are not worth a commit."""
    gone = gone_inputs(group, sight)
    if not gone or group.number not in sight.read.left_out:
        return None
    first, most = group.work.rewritten[gone[0]].data.path, group.work.max_hidden_ratio
    if sight.record.format_version == _FORMAT_WITHOUT_DELETES:
        return f"{first} is no longer live, and no delete can hide its rows in format 1"
    if len(gone) == len(group.work.rewritten):
        return f"{first} is no longer live, and so are all other rewritten files"
    for file, hidden in in_outputs(group, rows_of_gone_inputs(group, sight), sight).items():
        if (share := len(hidden) / file.record_count) > most:
            return f"{first} is no longer live, and of {file.path} {share:.0%} would be hidden, more than {most:.0%}"
    return None


def _deleted(group: Group, given: InputFile, sight: Sight) -> PositionSet:
    """The rows of the input that the head deletes by position, where a planned delete is gone; none unless known."""
    return known_positions(given, deletes_of_positions(group, given, sight), sight)


def hidden_rows_were_found(group: Group, sight: Sight) -> str | None:
    """What is not found in the outputs can't be hidden there: it would come back."""
    if group.look_up is None or not has_changed(group, sight):
        return None
    found = sight.read.found.get(group.number)
    if found is None or found.problem:
        why = "they were not looked up" if found is None else found.problem
        return f"rows of it that others have deleted since the plan can't be found in the outputs: {why}"
    return None


#: The order matters: later rules rely on what was read.
STATE_RULES: tuple[Callable[[Group, Sight], str | None], ...] = (
    left_out_rows_are_known,
    position_deletes_were_read,
    planned_positions_are_still_deleted,
    planned_equality_deletes_still_apply,
    few_rows_of_gone_inputs,
    hidden_rows_were_found,
)

"""Converted files whose deletion vector others have written anew since the plan: theirs is joined with ours.

From format 3 on a conversion gives its file a vector in place of the deletes that it was planned with. Where the head
has another vector for the file, the one that is committed holds the rows of both, and both go: with two of them nobody
could read the table, and with either alone a row would come back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amoro_core.model.commits import Group
from amoro_core.model.files import DataFile, DeleteFile
from amoro_core.model.row_positions import NO_POSITIONS, PositionSet
from amoro_core.model.task_payload import InputFile
from amoro_core.validation.view import (
    ValidationView,
    can_translate_positions,
    deletes_of_positions,
    gone_positions,
    has_changed,
    is_ambiguous,
    is_gone,
    known_positions,
    live_as,
    live_of,
    needs_map,
    new_deletes,
    on_state,
    planned_positions,
    positions_on,
)


@dataclass(frozen=True, slots=True)
class JoinedVector:
    """The positions of a converted file's new vector, and the vectors in whose place it comes."""

    group: int  # the number of the task
    data: DataFile
    positions: PositionSet
    ours: DeleteFile  # of the task's result, which is not committed
    theirs: DeleteFile  # of the head, which goes


def to_join(group: Group, sight: ValidationView) -> Iterator[tuple[InputFile, DeleteFile]]:
    """The converted files, each with the vector that the head has for it and that was not planned."""
    for given in group.work.converted:
        if not is_gone(given, sight):
            yield from ((given, delete) for delete in new_deletes(group, given, sight) if delete.is_vector)


def vectors_to_read(group: Group, sight: ValidationView) -> list[DeleteFile]:
    """What must be read to join: both vectors of each file, and planned deletes by position that are gone."""
    found: list[DeleteFile] = []
    for given, theirs in to_join(group, sight):
        found += _joined_deletes(group, given, theirs, sight)
    return found


def joined_vectors_were_read(group: Group, sight: ValidationView) -> str | None:
    """What can't be read can't be joined."""
    for given, theirs in to_join(group, sight):
        unread = positions_on(given, _joined_deletes(group, given, theirs, sight), sight.read)
        if isinstance(unread, DeleteFile):
            return f"the deletes by position in {unread.path} apply to {given.data.path} and can't be read"
    return None


def no_row_of_a_converted_file_came_back(group: Group, sight: ValidationView) -> str | None:
    """A row that a planned delete by position hid and that theirs does not is alive again: ours would hide it."""
    for given, theirs in to_join(group, sight):
        gone = gone_positions(group, given, sight)
        if not known_positions(given, gone, sight) <= known_positions(given, [theirs], sight):
            return f"the delete {gone[0].path} no longer applies to {given.data.path}, and rows of it have come back"
    return None


def deletes_of_a_joined_file_that_went(group: Group, sight: ValidationView) -> frozenset[tuple[str, DeleteFile]]:
    """Planned deletes by position that went because a vector stands for them, each with the path of its data file."""
    return frozenset(
        (given.data.path, delete)
        for given, _ in to_join(group, sight)
        for delete in gone_positions(group, given, sight)
    )


def joined_vectors(group: Group, sight: ValidationView) -> tuple[JoinedVector, ...]:
    """The vectors that are to be written for this head; everything was read, as the rules require.

    Where the task found no row, theirs stays as it is.
    """
    return tuple(
        JoinedVector(
            group.number,
            live_of(given, sight).data,
            known_positions(given, [theirs, ours], sight),
            ours,
            theirs,
        )
        for given, theirs in to_join(group, sight)
        for ours in _ours(group, given)
    )


def _joined_deletes(group: Group, given: InputFile, theirs: DeleteFile, sight: ValidationView) -> list[DeleteFile]:
    return [theirs, *_ours(group, given), *gone_positions(group, given, sight)]


def _ours(group: Group, given: InputFile) -> list[DeleteFile]:
    """The vector that the task has written for the file, if it found a row."""
    return [one for one in group.output.delete_files if one.referenced_data_file == given.data.path]


#: The order matters: the second relies on what was read.
JOIN_RULES: tuple[Callable[[Group, ValidationView], str | None], ...] = (
    joined_vectors_were_read,
    no_row_of_a_converted_file_came_back,
)


def to_look_up(sight: ValidationView) -> tuple[tuple[Group, dict[int, PositionSet]], ...]:
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


def _hidden_since(group: Group, sight: ValidationView) -> dict[int, PositionSet] | None:
    hidden: dict[int, PositionSet] = {}
    for at, given in on_state(group, sight):
        now = positions_on(given, deletes_of_positions(group, given, sight), sight.read)
        before = positions_on(given, planned_positions(group, given), sight.read)
        if isinstance(now, DeleteFile) or isinstance(before, DeleteFile):
            return None
        if (since := now - before) != NO_POSITIONS:
            hidden[at] = since
    return hidden


def to_read(sight: ValidationView) -> tuple[tuple[DeleteFile, ...], tuple[Group, ...]]:
    """The delete files and the maps that must be read to decide and to join, sorted by path and by number.

    Where rows are followed: position deletes that came since or went, and all planned ones where rows are looked up.
    Where they are not: those newer than the plan
    that may, by partition and bounds alone, name a rewritten file. Where vectors are joined: all of them.
    """
    found = {delete.numbered: delete for group in sight.record.groups for delete in _deletes(group, sight)}
    maps = tuple(group for group in sight.record.groups if needs_map(group, sight))
    return tuple(found[key] for key in sorted(found)), maps


def _deletes(group: Group, sight: ValidationView) -> Iterator[DeleteFile]:
    is_looked_up = group.look_up is not None and has_changed(group, sight)
    for _, given in on_state(group, sight):
        yield from deletes_of_positions(group, given, sight)
        yield from planned_positions(group, given) if is_looked_up else gone_positions(group, given, sight)
    for given in () if can_translate_positions(group) else group.work.rewritten:
        live = (delete for one in live_as(given, sight) for delete in one.deletes)
        yield from (delete for delete in live if is_ambiguous(delete, sight.record))
    yield from vectors_to_read(group, sight)

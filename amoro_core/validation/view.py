"""The head as the rules see it: the plan, its results, new deletes, and their positions in the outputs.

A rewrite that is committed on a later head than it was planned on must hide every row that others have deleted by
position meanwhile. The outputs are the inputs' rows in their order, without those that the task left out, cut at the
outputs' numbers of rows; so the deletes are translated to positions of the outputs and committed with them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from amoro_core.model.commits import Group, Head, PlanRecord
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, ScannedFile
from amoro_core.model.paths import normalise
from amoro_core.model.row_positions import NO_POSITIONS, PositionSet
from amoro_core.model.task_payload import InputFile
from amoro_core.scan.live_files import LiveFiles
from amoro_core.validation.removable_deletes import Numbered


@dataclass(frozen=True, slots=True)
class CarriedRows:
    """Rows of an output that others have deleted from the inputs, at least one; or all of a converted file's vector."""

    group: int  # the number of the task
    output: DataFile
    positions: PositionSet
    is_joined: bool = False  # of a converted file, whose vector is joined with that of others


def translate(
    rows: Sequence[int],
    left_out: Mapping[int, PositionSet],
    hidden: Mapping[int, PositionSet],
    output_rows: Sequence[int],
    order: Sequence[int] = (),
) -> dict[int, PositionSet]:
    """The positions, by the number of the output, of the hidden rows of the inputs.

    `rows`: of each input. `left_out`, `hidden`: positions by the number of the input; a hidden row that was left out is
    in no output. Outputs without a hidden row are missing. `order`: of the inputs, if they were written in another one.
    Raises ValueError for no such order, and when the inputs' live rows are not as many as the outputs'.
    """
    order = order or range(len(rows))
    if sorted(order) != list(range(len(rows))):
        raise ValueError(f"{len(rows)} inputs can't have the order {list(order)}")
    live = [count - len(left_out.get(at, NO_POSITIONS)) for at, count in enumerate(rows)]
    ends = np.array(list(accumulate(output_rows)), np.int64)
    if sum(live) != (int(ends[-1]) if len(ends) else 0) or min(live, default=0) < 0:
        raise ValueError(f"{sum(live)} rows of the inputs are live, the outputs have {sum(output_rows)}")
    result: dict[int, PositionSet] = {}
    for at, base in zip(order, accumulate((live[at] for at in order), initial=0), strict=False):
        deleted = left_out.get(at, NO_POSITIONS)
        positions = (hidden.get(at, NO_POSITIONS) - deleted).ascending()
        if not len(positions):
            continue
        among = base + positions - np.searchsorted(deleted.ascending(), positions)
        outputs = np.searchsorted(ends, among, side="right")
        for output in np.unique(outputs).tolist():
            inside = among[outputs == output] - (ends[output] - output_rows[output])
            result[output] = result.get(output, NO_POSITIONS) | PositionSet.of(inside)
    return result


#: What a delete file deletes by position: the positions by normalised path of the data file.
Positions = Mapping[str, PositionSet]


@dataclass(frozen=True, slots=True)
class Read:
    """What was read to decide; what could not be read is missing."""

    positions: Mapping[DeleteIdentity, Positions] = field(default_factory=dict)  # on inputs of the plan
    left_out: Mapping[int, Mapping[int, PositionSet]] = field(default_factory=dict)  # rows by task and input
    found: Mapping[int, "RowLookup"] = field(default_factory=dict)  # by task whose rows are looked up


@dataclass(frozen=True, slots=True)
class RowLookup:
    """Where rows that others have deleted since the plan are in the outputs of a task."""

    rows: Mapping[int, PositionSet] = field(default_factory=dict)  # by the number of the output
    problem: str = ""  # why they could not be found


NOTHING_READ = Read()


@dataclass(frozen=True, slots=True)
class ValidationView:
    """The head as seen by the rules of a group."""

    record: PlanRecord
    head: Head
    files: Mapping[str, tuple[ScannedFile, ...]]  # inputs by normalised path; more than one where a file is live twice
    newer_equality_deletes: tuple[DeleteFile, ...]  # all of the head above S, including dangling ones
    read: Read


def build_view(record: PlanRecord, head: Head, read: Read = NOTHING_READ) -> ValidationView:
    """The head as seen from the plan."""
    live = LiveFiles.of(head.scan.files)
    files = by_path(live, (given.data.path for group in record.groups for given in every_input(group)))
    deletes = (*live.applied, *head.scan.dangling)
    newer = {delete.numbered: delete for delete in deletes if is_newer_equality(delete, record)}
    return ValidationView(record, head, files, tuple(newer[key] for key in sorted(newer)), read)


def by_path(live: LiveFiles, paths: Iterable[str]) -> dict[str, tuple[ScannedFile, ...]]:
    """The entries of these paths by normalised path: several where a file is live twice."""
    result: dict[str, tuple[ScannedFile, ...]] = {}
    for scanned_file in live.rows(live.ids_of(paths)):
        place = normalise(scanned_file.data.path)
        result[place] = (*result.get(place, ()), scanned_file)
    return result


def file_identity(file: DataFile) -> tuple[object, ...]:
    """What a file must still be: path, sequence number, partition, rows and size."""
    return file.path, file.sequence_number, file.spec_id, file.partition, file.record_count, file.size_bytes


def is_newer_equality(delete: DeleteFile, record: PlanRecord) -> bool:
    """Whether it is an equality delete above the plan's sequence number."""
    return delete.kind is DeleteKind.EQUALITY and delete.sequence_number > record.sequence_number


def every_input(group: Group) -> tuple[InputFile, ...]:
    """The files that the task has read."""
    return (*group.work.rewritten, *group.work.converted)


def is_rebased(group: Group) -> bool:
    """Whether it is known where the rows of the task's rewritten files went, so that deletes of them can follow."""
    return group.output.position_map is not None


def can_translate_positions(group: Group) -> bool:
    """Whether deletes of rows of the task's rewritten files can follow these, by a map or by looking them up."""
    return is_rebased(group) or group.look_up is not None


def live_as(given: InputFile, view: ValidationView) -> tuple[ScannedFile, ...]:
    """The head's entries of that path: none where the file is gone, several where it is live twice."""
    return view.files.get(normalise(given.data.path), ())


def is_missing(given: InputFile, view: ValidationView) -> bool:
    """Whether the head has no file of that path."""
    return not live_as(given, view)


def inputs_of(group: Group, view: ValidationView) -> tuple[InputFile, ...]:
    """The files that the task has read; of a rebased group without those that were removed meanwhile."""
    if not is_rebased(group):
        return every_input(group)
    return (*(file for file in group.work.rewritten if not is_missing(file, view)), *group.work.converted)


def on_history(group: Group, view: ValidationView) -> tuple[InputFile, ...]:
    """The inputs to which nothing may have happened since the plan but what goes on applying to the outputs."""
    return group.work.converted if can_translate_positions(group) else inputs_of(group, view)


def on_state(group: Group, view: ValidationView) -> tuple[tuple[int, InputFile], ...]:
    """The inputs, with their numbers, whose rows are followed into the outputs, without those that are gone."""
    if not can_translate_positions(group):
        return ()
    return tuple((at, given) for at, given in enumerate(group.work.rewritten) if not is_missing(given, view))


def missing_inputs(group: Group, view: ValidationView) -> tuple[int, ...]:
    """The numbers of the rewritten files that are gone, where rows are followed."""
    if not is_rebased(group):
        return ()
    return tuple(at for at, given in enumerate(group.work.rewritten) if is_missing(given, view))


def live_of(given: InputFile, view: ValidationView) -> ScannedFile:
    """The input on the head, with the deletes that apply to it there."""
    return live_as(given, view)[0]


def stored_deletes(group: Group, given: InputFile) -> dict[Numbered, DeleteFile]:
    """The deletes with which the input was planned."""
    return {group.work.deletes[index].numbered: group.work.deletes[index] for index in given.deletes}


def new_deletes(group: Group, given: InputFile, view: ValidationView) -> list[DeleteFile]:
    """The deletes that apply to the input on the head and were not planned."""
    stored = stored_deletes(group, given)
    return [delete for delete in live_of(given, view).deletes if delete.numbered not in stored]


def missing_deletes(group: Group, given: InputFile, view: ValidationView) -> list[DeleteFile]:
    """The planned deletes that no longer apply to the input."""
    live = {delete.numbered for delete in live_of(given, view).deletes}
    return [delete for key, delete in sorted(stored_deletes(group, given).items()) if key not in live]


def missing_position_deletes(group: Group, given: InputFile, view: ValidationView) -> list[DeleteFile]:
    """The planned deletes by position that no longer apply to the input."""
    return [delete for delete in missing_deletes(group, given, view) if delete.kind is DeleteKind.POSITION]


def positions_on(given: InputFile, deletes: Iterable[DeleteFile], read: Read) -> PositionSet | DeleteFile:
    """The rows of the input that the position deletes among these delete; or the first that was not read."""
    deleted = NO_POSITIONS
    for delete in deletes:
        if delete.kind is not DeleteKind.POSITION:
            continue
        if (by_path := read.positions.get(delete.identity)) is None:
            return delete
        deleted |= by_path.get(normalise(given.data.path), NO_POSITIONS)
    return deleted


def positions_if_read(given: InputFile, deletes: Iterable[DeleteFile], view: ValidationView) -> PositionSet:
    """The rows of the input that the position deletes among these delete; none unless all were read."""
    positions = positions_on(given, deletes, view.read)
    return NO_POSITIONS if isinstance(positions, DeleteFile) else positions


def deletes_of_positions(group: Group, given: InputFile, view: ValidationView) -> list[DeleteFile]:
    """The position deletes of the head that tell which of the input's rows must be hidden beside those left out.

    Those that came after the plan; all that apply where a planned one is gone, since another may stand for it.
    """
    live = live_of(given, view).deletes if missing_deletes(group, given, view) else new_deletes(group, given, view)
    return [delete for delete in live if delete.kind is DeleteKind.POSITION]


def planned_positions(group: Group, given: InputFile) -> list[DeleteFile]:
    """The deletes by position with which the input was planned."""
    return [delete for _, delete in sorted(stored_deletes(group, given).items()) if delete.kind is DeleteKind.POSITION]


def has_changed(group: Group, view: ValidationView) -> bool:
    """Whether something happened to the inputs that must be followed into the outputs."""
    return bool(missing_inputs(group, view)) or any(
        deletes_of_positions(group, given, view) or missing_deletes(group, given, view)
        for _, given in on_state(group, view)
    )


def needs_map(group: Group, view: ValidationView) -> bool:
    """Whether its map must be read for what happened to the inputs."""
    return is_rebased(group) and has_changed(group, view)


def is_ambiguous(delete: DeleteFile, record: PlanRecord) -> bool:
    """Whether it is a position delete newer than the plan of which only its content says which files it names."""
    if delete.kind is not DeleteKind.POSITION or delete.sequence_number <= record.sequence_number:
        return False
    return delete.named_file is None


def hidden_rows(group: Group, view: ValidationView) -> dict[DataFile, PositionSet]:
    """The rows of the outputs that are deleted on the head from the inputs, or whose input is gone.

    By output, without outputs of which no row is. Everything needed was read, as the rules require.
    """
    if group.look_up is not None:
        outputs, lookup = group.output.data_files, view.read.found.get(group.number, RowLookup())
        return {outputs[at]: rows for at, rows in sorted(lookup.rows.items())}
    if not needs_map(group, view):
        return {}
    hidden = rows_of_missing_inputs(group, view)
    for at, given in on_state(group, view):
        positions = positions_on(given, deletes_of_positions(group, given, view), view.read)
        if isinstance(positions, DeleteFile):
            raise ValueError(f"the position delete {positions.path} was not read")
        hidden[at] = positions
    return in_outputs(group, hidden, view)


def in_outputs(group: Group, hidden: Mapping[int, PositionSet], view: ValidationView) -> dict[DataFile, PositionSet]:
    """Where hidden rows of the inputs, by their number, stand in the outputs; outputs without one are missing."""
    outputs = group.output.data_files
    rows = [given.data.record_count for given in group.work.rewritten]
    left_out = view.read.left_out[group.number]
    order = group.output.position_map.order if group.output.position_map else ()
    moved = translate(rows, left_out, hidden, [file.record_count for file in outputs], order)
    return {outputs[at]: positions for at, positions in sorted(moved.items())}


#: Files whose deletes are named in a receipt.
MOST_CARRIED = 10


def carried_deletes(groups: Iterable[Group], view: ValidationView) -> tuple[str, ...]:
    """Which deletes of others are carried over to the outputs: the rows, the file and who wrote it, most rows first."""
    rows: Counter[str] = Counter()
    for group in groups:
        for at, given in on_state(group, view):
            omitted = view.read.left_out.get(group.number, {}).get(at, NO_POSITIONS)
            omitted |= positions_if_read(given, planned_positions(group, given), view)
            for delete in deletes_of_positions(group, given, view):
                author = view.head.authors.get(delete.sequence_number, f"sequence number {delete.sequence_number}")
                rows[f"{delete.path} of {author}"] += len(positions_if_read(given, [delete], view) - omitted)
        for at, missing in rows_of_missing_inputs(group, view).items():
            live = missing - view.read.left_out[group.number].get(at, NO_POSITIONS)
            rows[f"{group.work.rewritten[at].data.path}, which is gone"] += len(live)
    ordered = [f"{count:,} in {noun}" for noun, count in rows.most_common() if count]
    more = len(ordered) - MOST_CARRIED
    return (*ordered[:MOST_CARRIED], *([f"those in {more} more files"] if more > 0 else ()))


def rows_of_missing_inputs(group: Group, view: ValidationView) -> dict[int, PositionSet]:
    """All rows of each rewritten file that is gone, by its number."""
    return {at: PositionSet.first(group.work.rewritten[at].data.record_count) for at in missing_inputs(group, view)}


@dataclass(frozen=True, slots=True)
class JoinedVector:
    """The positions of a converted file's new vector, and the vectors in whose place it comes."""

    group: int  # the number of the task
    data: DataFile
    positions: PositionSet
    ours: DeleteFile  # of the task's result, which is not committed
    theirs: DeleteFile  # of the head, which goes


def to_join(group: Group, view: ValidationView) -> Iterator[tuple[InputFile, DeleteFile]]:
    """The converted files, each with the vector that the head has for it and that was not planned."""
    for given in group.work.converted:
        if not is_missing(given, view):
            yield from ((given, delete) for delete in new_deletes(group, given, view) if delete.is_vector)


def joined_vectors_were_read(group: Group, view: ValidationView) -> str | None:
    """What can't be read can't be joined."""
    for given, theirs in to_join(group, view):
        unread = positions_on(given, _joined_deletes(group, given, theirs, view), view.read)
        if isinstance(unread, DeleteFile):
            return f"the deletes by position in {unread.path} apply to {given.data.path} and can't be read"
    return None


def no_row_of_a_converted_file_came_back(group: Group, view: ValidationView) -> str | None:
    """A row that a planned delete by position hid and that theirs does not is alive again: ours would hide it."""
    for given, theirs in to_join(group, view):
        missing = missing_position_deletes(group, given, view)
        if not positions_if_read(given, missing, view) <= positions_if_read(given, [theirs], view):
            return f"the delete {missing[0].path} no longer applies to {given.data.path}, and rows of it have come back"
    return None


def deletes_of_a_joined_file_that_went(group: Group, view: ValidationView) -> frozenset[tuple[str, DeleteFile]]:
    """Planned deletes by position that went because a vector stands for them, each with the path of its data file."""
    return frozenset(
        (given.data.path, delete)
        for given, _ in to_join(group, view)
        for delete in missing_position_deletes(group, given, view)
    )


def joined_vectors(group: Group, view: ValidationView) -> tuple[JoinedVector, ...]:
    """The vectors to write for this head, once all was read; where the task found no row, theirs stays as it is."""
    return tuple(
        JoinedVector(
            group.number, live_of(given, view).data, positions_if_read(given, [theirs, ours], view), ours, theirs
        )
        for given, theirs in to_join(group, view)
        for ours in _ours(group, given)
    )


def _joined_deletes(group: Group, given: InputFile, theirs: DeleteFile, view: ValidationView) -> list[DeleteFile]:
    """What must be read to join: both vectors of the file, and planned deletes by position that are gone."""
    return [theirs, *_ours(group, given), *missing_position_deletes(group, given, view)]


def _ours(group: Group, given: InputFile) -> list[DeleteFile]:
    """The vector that the task has written for the file, if it found a row."""
    return [delete for delete in group.output.delete_files if delete.referenced_data_file == given.data.path]


#: The order matters: the second relies on what was read.
JOIN_RULES: tuple[Callable[[Group, ValidationView], str | None], ...] = (
    joined_vectors_were_read,
    no_row_of_a_converted_file_came_back,
)


def to_look_up(view: ValidationView) -> tuple[tuple[Group, dict[int, PositionSet]], ...]:
    """The tasks whose rows others have deleted since the plan, with these rows by the number of the input.

    Without rows that the task left out because of a planned delete by position. A task is missing whose deletes by
    position could not all be read.
    """
    result = []
    for group in view.record.groups:
        if group.look_up is not None and has_changed(group, view):
            rows = _hidden_since(group, view)
            if rows is not None:
                result.append((group, rows))
    return tuple(result)


def _hidden_since(group: Group, view: ValidationView) -> dict[int, PositionSet] | None:
    hidden: dict[int, PositionSet] = {}
    for at, given in on_state(group, view):
        now = positions_on(given, deletes_of_positions(group, given, view), view.read)
        before = positions_on(given, planned_positions(group, given), view.read)
        if isinstance(now, DeleteFile) or isinstance(before, DeleteFile):
            return None
        if (since := now - before) != NO_POSITIONS:
            hidden[at] = since
    return hidden


def to_read(view: ValidationView) -> tuple[tuple[DeleteFile, ...], tuple[Group, ...]]:
    """The delete files and the maps that must be read to decide and to join, sorted by path and by number.

    Where rows are followed: position deletes that came since or went, and all planned ones where rows are looked up.
    Else those newer than the plan that may, by partition and bounds alone, name a rewritten file. Where vectors are
    joined: all of them.
    """
    by_number = {delete.numbered: delete for group in view.record.groups for delete in _deletes(group, view)}
    maps = tuple(group for group in view.record.groups if needs_map(group, view))
    return tuple(by_number[key] for key in sorted(by_number)), maps


def _deletes(group: Group, view: ValidationView) -> Iterator[DeleteFile]:
    is_looked_up = group.look_up is not None and has_changed(group, view)
    for _, given in on_state(group, view):
        yield from deletes_of_positions(group, given, view)
        yield from planned_positions(group, given) if is_looked_up else missing_position_deletes(group, given, view)
    for given in () if can_translate_positions(group) else group.work.rewritten:
        live = (delete for file in live_as(given, view) for delete in file.deletes)
        yield from (delete for delete in live if is_ambiguous(delete, view.record))
    for given, theirs in to_join(group, view):
        yield from _joined_deletes(group, given, theirs, view)

"""The rules by which a rewrite may be committed on a head, one function each."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from amoro_core.model.commits import CommitContent, Group, Head, PlanRecord, Validation
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind
from amoro_core.model.paths import normalise
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import InputFile
from amoro_core.validation.removable_deletes import Numbered, removable_deletes
from amoro_core.validation.result_check import row_id_text
from amoro_core.validation.view import (
    JOIN_RULES,
    CarriedRows,
    JoinedVector,
    ValidationView,
    can_translate_positions,
    deletes_of_a_joined_file_that_went,
    deletes_of_positions,
    every_input,
    file_identity,
    has_changed,
    hidden_rows,
    in_outputs,
    inputs_of,
    is_ambiguous,
    is_missing,
    is_newer_equality,
    joined_vectors,
    live_as,
    live_of,
    missing_deletes,
    missing_inputs,
    missing_position_deletes,
    needs_map,
    new_deletes,
    on_history,
    on_state,
    planned_positions,
    positions_if_read,
    positions_on,
    rows_of_missing_inputs,
)

_FORMAT_WITHOUT_DELETES = 1


# Rules of a task whose rows can be followed into its outputs: what counts is the head, not how it came about. Rows that
# others have deleted by position meanwhile are deleted in the outputs as well. That is right where everything that the
# task left out is still deleted, and where everything that is deleted by position was read.


def omitted_rows_were_read(group: Group, view: ValidationView) -> str | None:
    """Without them no position in an input can be followed into the outputs."""
    if needs_map(group, view) and group.number not in view.read.left_out:
        return "others have changed its inputs since the plan, and which rows it left out can't be read"
    return None


def position_deletes_were_read(group: Group, view: ValidationView) -> str | None:
    """A position refers to a row of the old file and has no effect on the new one: the deleted row would come back."""
    is_looked_up = group.look_up is not None and has_changed(group, view)
    for _, given in on_state(group, view):
        before = planned_positions(group, given) if is_looked_up else missing_position_deletes(group, given, view)
        for deletes in (deletes_of_positions(group, given, view), before):
            rows = positions_on(given, deletes, view.read)
            if isinstance(rows, DeleteFile):
                return (
                    f"the position delete {rows.path} applies to {given.data.path} and can't be read, or is too large"
                )
    return None


def planned_positions_are_still_deleted(group: Group, view: ValidationView) -> str | None:
    """A row that was deleted by position and came back is in no output: it would be lost."""
    for _, given in on_state(group, view):
        missing = missing_position_deletes(group, given, view)
        deleted = positions_on(given, missing, view.read)
        if isinstance(deleted, PositionSet) and not deleted <= _deleted(group, given, view):
            return f"the delete {missing[0].path} no longer applies to {given.data.path}, and rows of it have come back"
    return None


def planned_equality_deletes_still_apply(group: Group, view: ValidationView) -> str | None:
    """A row that one deleted and that came back is in no output; it did not where all that was left out is deleted."""
    left_out = view.read.left_out.get(group.number, {})
    for at, given in on_state(group, view):
        lost = [delete for delete in missing_deletes(group, given, view) if delete.kind is DeleteKind.EQUALITY]
        is_unknown = group.look_up is not None  # which rows it has hit
        if lost and (is_unknown or (at in left_out and not left_out[at] <= _deleted(group, given, view))):
            return (
                f"the delete {lost[0].path} no longer applies to {given.data.path}, and rows of it may have come back"
            )
    return None


def few_rows_of_missing_inputs(group: Group, view: ValidationView) -> str | None:
    """The rows of an input that is gone live elsewhere or nowhere: outputs of little else are not worth a commit."""
    missing = missing_inputs(group, view)
    if not missing or group.number not in view.read.left_out:
        return None
    first, most = group.work.rewritten[missing[0]].data.path, group.work.max_hidden_ratio
    if view.record.format_version == _FORMAT_WITHOUT_DELETES:
        return f"{first} is no longer live, and no delete can hide its rows in format 1"
    if len(missing) == len(group.work.rewritten):
        return f"{first} is no longer live, and so are all other rewritten files"
    for file, hidden in in_outputs(group, rows_of_missing_inputs(group, view), view).items():
        if (share := len(hidden) / file.record_count) > most:
            return f"{first} is no longer live, and of {file.path} {share:.0%} would be hidden, more than {most:.0%}"
    return None


def _deleted(group: Group, given: InputFile, view: ValidationView) -> PositionSet:
    """The rows of the input that the head deletes by position, where a planned delete is gone; none unless known."""
    return positions_if_read(given, deletes_of_positions(group, given, view), view)


def hidden_rows_were_located(group: Group, view: ValidationView) -> str | None:
    """What is not found in the outputs can't be hidden there: it would come back."""
    if group.look_up is None or not has_changed(group, view):
        return None
    lookup = view.read.found.get(group.number)
    if lookup is None or lookup.problem:
        why = "they were not looked up" if lookup is None else lookup.problem
        return f"rows of it that others have deleted since the plan can't be found in the outputs: {why}"
    return None


#: The order matters: later rules rely on what was read.
STATE_RULES: tuple[Callable[[Group, ValidationView], str | None], ...] = (
    omitted_rows_were_read,
    position_deletes_were_read,
    planned_positions_are_still_deleted,
    planned_equality_deletes_still_apply,
    few_rows_of_missing_inputs,
    hidden_rows_were_located,
)


#: Only in this format version position delete files accumulate; from version 3 on, deletion vectors replace them.
_FORMAT_WITH_POSITION_DELETE_FILES = 2
_NONE: frozenset[Numbered] = frozenset()

WholeRule = Callable[[PlanRecord, Head], str | None]
GroupRule = Callable[[Group, ValidationView], str | None]


def validate(view: ValidationView) -> Validation:
    """The part of the process that may be committed on that head, with the reasons for what may not.

    What `to_read` asks for was read, as far as it could be; a position delete that was not read counts as if it named
    every file that its bounds admit.
    """
    record = view.record
    for whole_rule in WHOLE_RULES:
        if reason := whole_rule(record, view.head):
            return Validation(conflict=reason)
    dropped: dict[int, str] = {}
    groups: list[Group] = []
    for group in record.groups:
        if reason := next(_reasons(group, view), None):
            dropped[group.number] = reason
        else:
            groups.append(group)
    content = _content(groups, view)
    if not (content.removed_data or content.removed_deletes or content.added_data or content.added_deletes):
        dropped |= {group.number: "nothing is left to change on this head" for group in groups}
        return Validation(conflict=None, dropped=dropped)
    return Validation(conflict=None, dropped=dropped, content=content)


def carried_over(view: ValidationView, content: CommitContent) -> tuple[CarriedRows, ...]:
    """The rows of the committed outputs that others have deleted from the inputs since the plan: to be deleted, too."""
    groups = [group for group in view.record.groups if group.number in content.groups]
    hidden = ((group, *rows) for group in groups for rows in hidden_rows(group, view).items())
    return (
        *(CarriedRows(group.number, output, positions) for group, output, positions in hidden),
        *(CarriedRows(vector.group, vector.data, vector.positions, is_joined=True) for vector in _joined(groups, view)),
    )


def _reasons(group: Group, view: ValidationView) -> Iterator[str]:
    return (reason for rule in GROUP_RULES if (reason := rule(group, view)))


def table_is_the_planned_one(record: PlanRecord, head: Head) -> str | None:
    """A table that was dropped and recreated under the same name has other rows."""
    if head.table_uuid != record.table_uuid:
        return f"the table was replaced: its UUID is {head.table_uuid}, planned on {record.table_uuid}"
    return None


def format_version_is_the_planned_one(record: PlanRecord, head: Head) -> str | None:
    """Another format version has other rules for deletes and sequence numbers than the plan assumed."""
    if head.format_version != record.format_version:
        return f"the table's format version is {head.format_version}, planned on {record.format_version}"
    return None


def plan_is_an_ancestor(record: PlanRecord, head: Head) -> str | None:
    """After a rollback or a replaced branch, S does not tell which deletes are newer."""
    if head.descends is None:
        return f"it can no longer be told whether the head {head.snapshot_id} descends from {record.snapshot_id}"
    if not head.descends:
        return f"the head {head.snapshot_id} does not descend from the planned snapshot {record.snapshot_id}"
    return None


def removed_equality_deletes_were_read(record: PlanRecord, head: Head) -> str | None:
    """Without them the groups' rule about them can't be applied."""
    needs_them = any(group.work.converted or not can_translate_positions(group) for group in record.groups)
    if head.removed_equality_deletes is None and needs_them:
        return "it can no longer be told which equality deletes were removed since the plan"
    return None


def outputs_hold_all_columns(record: PlanRecord, head: Head) -> str | None:
    """A column missing from the plan, dropped then and restored now, would read as null in the outputs."""
    planned = frozenset(field_id for field_id in head.field_ids if field_id <= record.last_column_id)
    for schema_json in sorted({group.work.table.schema_json for group in record.groups if group.work.rewritten}):
        if lacking := planned - field_ids(schema_json):
            return f"columns of the table are not in the rewritten files: field ids {sorted(lacking)}"
    return None


def inputs_are_planned_once(record: PlanRecord, head: Head) -> str | None:
    """A file rewritten by two tasks would have duplicate rows."""
    seen: set[str] = set()
    for group in record.groups:
        for given in every_input(group):
            place = normalise(given.data.path)
            if place in seen:
                return f"{given.data.path} was planned more than once"
            seen.add(place)
    return None


WHOLE_RULES: tuple[WholeRule, ...] = (
    table_is_the_planned_one,
    format_version_is_the_planned_one,
    plan_is_an_ancestor,
    removed_equality_deletes_were_read,
    outputs_hold_all_columns,
    inputs_are_planned_once,
)


def inputs_are_live(group: Group, view: ValidationView) -> str | None:
    """A file that is gone was rewritten or deleted by another writer: its rows must not be written again."""
    for given in inputs_of(group, view):
        if is_missing(given, view):
            return f"{given.data.path} is no longer live"
        live = live_as(given, view)
        if len(live) > 1:
            return f"{given.data.path} is live {len(live)} times"
        if file_identity(live[0].data) != file_identity(given.data):
            return f"{given.data.path} is no longer the planned one (path, sequence number, partition, rows, size)"
    return None


def inputs_are_not_newer_than_the_plan(group: Group, view: ValidationView) -> str | None:
    """Outputs carry S: an older equality delete would newly apply to rows written after it."""
    for given in inputs_of(group, view):
        if given.data.sequence_number > view.record.sequence_number:
            return f"{given.data.path} is newer than the plan"
    return None


def row_ids_are_the_planned_ones(group: Group, view: ValidationView) -> str | None:
    """Rows that got ids since the plan would get others in the outputs, which left them to be assigned.

    Whether an input has a first row id decides which ids the outputs store. Files that stay keep what the head gave.
    """
    for given in group.work.rewritten:
        for file in live_as(given, view):
            if file.data.first_row_id != given.data.first_row_id:
                return (
                    f"the rows of {given.data.path} have other ids than when it was planned: its first row id is"
                    f" {row_id_text(file.data)}, planned with {row_id_text(given.data)}"
                )
    return None


def newer_equality_deletes_remain(group: Group, view: ValidationView) -> str | None:
    """Outputs carry S and need every equality delete above it; whoever removed one had applied it to the inputs only.

    Another optimizer may have converted it to position deletes for the inputs, which don't apply to the outputs. A
    delete with a partition value applies in that partition of its spec alone (Iceberg specification, "Scan Planning").
    """
    places = {(given.data.spec_id, given.data.partition) for given in on_history(group, view)}
    for delete in view.head.removed_equality_deletes or ():
        # Nulls alone may stand for void transforms, whose spec has one partition that is the whole table.
        has_value = any(value is not None for value in delete.partition)
        elsewhere = has_value and (delete.spec_id, delete.partition) not in places
        if places and delete.sequence_number > view.record.sequence_number and not elsewhere:
            return f"the equality delete {delete.path}, newer than the plan, was removed meanwhile"
    return None


def planned_deletes_still_apply(group: Group, view: ValidationView) -> str | None:
    """A delete that is gone was revoked or replaced by another, which the rewrite has not applied."""
    stood_for = deletes_of_a_joined_file_that_went(group, view)
    for given in on_history(group, view):
        for delete in missing_deletes(group, given, view):
            if (given.data.path, delete) not in stood_for:
                return f"the delete {delete.path} no longer applies to {given.data.path}"
    return None


def planned_deletes_are_not_newer_than_the_plan(group: Group, view: ValidationView) -> str | None:
    """A plan at S can't contain a delete above S: the record is corrupt."""
    for delete in group.work.deletes:
        if delete.sequence_number > view.record.sequence_number:
            return f"the planned delete {delete.path} is newer than the plan"
    return None


def no_new_position_deletes_on_rewritten_files(group: Group, view: ValidationView) -> str | None:
    """A position refers to a row of the old file and has no effect on the new one: the deleted row would come back."""
    for given in () if can_translate_positions(group) else group.work.rewritten:
        for delete in new_deletes(group, given, view):
            if delete.kind is DeleteKind.POSITION and not _names_others(delete, given, view):
                why = _why_not_followed(group)
                return (
                    f"the position delete {delete.path} came after the plan and may apply to {given.data.path}; {why}"
                )
    return None


def _why_not_followed(group: Group) -> str:
    if group.is_reordered:
        return "the outputs hold the rows in another order, in which they can't be followed by their positions"
    if not group.work.tells_left_out:
        return "self-optimizing.rebase.enabled was false when it was planned"
    return "the optimizer did not tell which rows it left out"


def _names_others(delete: DeleteFile, given: InputFile, view: ValidationView) -> bool:
    """Whether the delete was read and does not name the file. It can't name outputs, which are not visible yet."""
    return (
        is_ambiguous(delete, view.record)
        and delete.identity in view.read.positions
        and normalise(given.data.path) not in view.read.positions[delete.identity]
    )


def no_unknown_deletes_on_converted_files(group: Group, view: ValidationView) -> str | None:
    """A converted file stays, so added position deletes still apply to it; any other delete was not folded in.

    A deletion vector is joined with the new one.
    """
    for given in group.work.converted:
        for delete in new_deletes(group, given, view):
            if delete.is_vector:
                continue
            is_added = (
                delete.kind is DeleteKind.POSITION
                and delete.sequence_number > view.record.sequence_number
                and view.record.format_version == _FORMAT_WITH_POSITION_DELETE_FILES
            )
            if delete.kind is DeleteKind.POSITION and not is_added:
                return f"the position delete {delete.path} applies to {given.data.path} and was not planned"
    return None


def no_unplanned_old_equality_deletes(group: Group, view: ValidationView) -> str | None:
    """Equality deletes up to S don't apply to outputs: one that the rewrite did not apply would be lost."""
    for given in inputs_of(group, view):
        for delete in new_deletes(group, given, view):
            if delete.kind is DeleteKind.EQUALITY and not is_newer_equality(delete, view.record):
                return f"the equality delete {delete.path} applies to {given.data.path} and was not planned"
    return None


def newer_equality_deletes_cover_all_or_none(group: Group, view: ValidationView) -> str | None:
    """Rows must not move between files that an equality delete covers and files that it does not."""
    by_input = [{delete.numbered for delete in live_of(given, view).deletes} for given in inputs_of(group, view)]
    some = _NONE.union(*by_input)
    shared = some.intersection(*by_input)
    for delete in view.newer_equality_deletes:
        identity = delete.numbered
        to_outputs = [_covers(delete, output, identity in some) for output in group.output.data_files]
        covered = identity in some or any(to_outputs)
        if covered and not (identity in shared and all(to_outputs)):
            return f"the equality delete {delete.path} covers only a part of the task's inputs and outputs"
    return None


def newer_equality_deletes_know_the_outputs(group: Group, view: ValidationView) -> str | None:
    """A key column that the outputs lack reads as null, so the delete would miss its rows."""
    columns = field_ids(group.work.table.schema_json)
    to_inputs = {delete.numbered for given in inputs_of(group, view) for delete in live_of(given, view).deletes}
    for delete in view.newer_equality_deletes:
        reaches = delete.numbered in to_inputs
        if any(_covers(delete, output, reaches) for output in group.output.data_files):
            lacking = set(delete.equality_ids) - columns
            if lacking or not delete.equality_ids:
                return f"the equality delete {delete.path} has key columns that the outputs lack: {sorted(lacking)}"
    return None


#: The order matters: later rules rely on live inputs.
GROUP_RULES: tuple[GroupRule, ...] = (
    inputs_are_live,
    inputs_are_not_newer_than_the_plan,
    row_ids_are_the_planned_ones,
    newer_equality_deletes_remain,
    planned_deletes_are_not_newer_than_the_plan,
    planned_deletes_still_apply,
    no_new_position_deletes_on_rewritten_files,
    no_unknown_deletes_on_converted_files,
    no_unplanned_old_equality_deletes,
    newer_equality_deletes_cover_all_or_none,
    newer_equality_deletes_know_the_outputs,
    *STATE_RULES,
    *JOIN_RULES,
)


def _covers(delete: DeleteFile, output: DataFile, reaches_inputs: bool) -> bool:
    """Whether an equality delete will apply to an output, which is in the partition of the inputs."""
    if delete.sequence_number <= output.sequence_number:
        return False
    same_place = (delete.spec_id, delete.partition) == (output.spec_id, output.partition)
    return same_place or not delete.partition or reaches_inputs


def _joined(groups: list[Group], view: ValidationView) -> list[JoinedVector]:
    return [vector for group in groups for vector in joined_vectors(group, view)]


def _content(groups: list[Group], view: ValidationView) -> CommitContent:
    joined = _joined(groups, view)
    replaced = {vector.ours for vector in joined}
    theirs = tuple(vector.theirs for vector in joined)
    rewritten = (given for group in groups for given in group.work.rewritten)
    return CommitContent(
        groups=tuple(group.number for group in groups),
        removed_data=tuple(live_of(given, view).data for given in rewritten if not is_missing(given, view)),
        removed_deletes=(*removable_deletes(groups, view.head.scan, view.record.sequence_number), *theirs),
        added_data=tuple(file for group in groups for file in group.output.data_files),
        added_deletes=tuple(file for group in groups for file in group.output.delete_files if file not in replaced),
    )


def field_ids(schema_json: str) -> frozenset[int]:
    """All field ids of a schema in Iceberg's JSON form, including nested fields, elements, keys and values."""
    return frozenset(_ids(json.loads(schema_json)))


def _ids(kind: Any) -> Iterator[int]:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field["id"]
        yield from _ids(field["type"])
    for part in ("element", "key", "value"):
        if f"{part}-id" in kind:
            yield kind[f"{part}-id"]
            yield from _ids(kind[part])

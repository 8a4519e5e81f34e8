"""Checks a task's result: row counts, metrics, lineage and maps of left-out rows."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from amoro_core.errors import CheckFailed
from amoro_core.model.commits import FileFacts, Group, PlanRecord
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    FORMAT_WITH_LINEAGE,
    FORMAT_WITH_VECTORS,
    LAST_UPDATED_FIELD_ID,
    LINEAGE_IDS,
    ROW_ID_FIELD_ID,
    DataFile,
    DeleteFile,
    DeleteKind,
    FileFormat,
    ScannedFile,
)
from amoro_core.model.paths import normalise
from amoro_core.model.task_payload import MAP_ENDING, InputFile
from amoro_core.validation.view import can_translate_positions


def lineage_problems(  # noqa: C901 - one pass over inputs and outputs
    group: Group, rescanned: Mapping[str, ScannedFile], facts: Mapping[str, FileFacts]
) -> Iterator[str]:
    """What the outputs of a group lack: both columns for every row, with nulls only where rows have no ids yet.

    `rescanned` has each input that is live by path, `facts` each output. Without lineage all rows would seem to be new.
    """
    if group.work.table.format_version < FORMAT_WITH_LINEAGE:
        return
    inputs = [
        rescanned[given.data.path].data if given.data.path in rescanned else given.data
        for given in group.work.rewritten
    ]
    for given, actual in zip(group.work.rewritten, inputs, strict=True):
        if actual.first_row_id != given.data.first_row_id:
            yield f"the first row id of {actual.path} is {row_id_text(actual)}, planned was {row_id_text(given.data)}"
    never_null = {LAST_UPDATED_FIELD_ID}
    if all(file.first_row_id is not None for file in inputs):
        never_null.add(ROW_ID_FIELD_ID)
    for file in group.output.data_files:
        if file.first_row_id is not None:
            yield f"{file.path} has the first row id {file.first_row_id}, which only a commit gives"
        if not file.record_count:
            continue
        file_facts = facts[file.path]
        for field_id in LINEAGE_IDS:
            values = file_facts.value_counts.get(field_id)
            nulls = file_facts.null_value_counts.get(field_id)
            if values != file.record_count:
                yield f"{file.path} has {values} values of field {field_id} in {file.record_count} rows"
            elif nulls is None or (nulls and field_id in never_null):
                yield f"{file.path} has {'uncounted' if nulls is None else nulls} nulls of field {field_id}"


def row_id_text(file: DataFile) -> str:
    """The file's first row id, for messages."""
    return "none" if file.first_row_id is None else str(file.first_row_id)


def map_problems(group: Group) -> Iterator[str]:
    """What is wrong with the map: it tells of as many rows as the task has deleted, of each input once, and the outputs
    hold the others."""
    position_map = group.output.position_map
    if position_map is None:
        return
    listed = sum(rows.record_count for rows in position_map.left_out)
    if listed != group.output.rows_deleted:
        yield f"{group.output.rows_deleted} rows were deleted, the map of positions has {listed}"
    numbers = [rows.input for rows in position_map.left_out]
    if numbers != sorted(set(numbers)) or any(not 0 <= number < len(group.work.rewritten) for number in numbers):
        yield f"the map of positions tells of the inputs {numbers}"
        return
    if position_map.order and sorted(position_map.order) != list(range(len(group.work.rewritten))):
        yield f"the map of positions tells of the inputs in the order {list(position_map.order)}"
    for rows in position_map.left_out:
        if not 1 <= rows.record_count <= group.work.rewritten[rows.input].data.record_count:
            yield f"the map of positions leaves {rows.record_count} rows of input {rows.input} out"
    live = sum(given.data.record_count for given in group.work.rewritten) - listed
    counted = sum(file.record_count for file in group.output.data_files)
    if live != counted:
        yield f"{live} rows of the inputs are live by the map of positions, the outputs have {counted}"


_HINT = "Nothing was committed and the table is as it was. Please report it: the result of a rewrite was wrong."


@dataclass(frozen=True, slots=True)
class _Task:
    """One group with everything known about its files."""

    record: PlanRecord
    group: Group
    rescanned: Mapping[str, ScannedFile]
    facts: Mapping[str, FileFacts]

    @property
    def inputs(self) -> tuple[InputFile, ...]:
        return (*self.group.work.rewritten, *self.group.work.converted)

    @property
    def missing(self) -> frozenset[str]:
        """Rewritten files that are not in the table any more, whose rows are hidden in the outputs."""
        if self.group.output.position_map is None:
            return frozenset()
        return frozenset(file.data.path for file in self.group.work.rewritten) - self.rescanned.keys()

    @property
    def outputs(self) -> tuple[DataFile | DeleteFile, ...]:
        return (*self.group.output.data_files, *self.group.output.delete_files)


def check(record: PlanRecord, rescanned: Mapping[str, ScannedFile], facts: Mapping[str, FileFacts]) -> None:
    """Raise CheckFailed, naming task, rule and figures, unless every result of the record adds up.

    `rescanned` has each input by path with the deletes that `matching` finds now; `facts` has each output by path.
    """
    for group in record.groups:
        task = _Task(record, group, rescanned, facts)
        for name, rule in _TASK_RULES:
            for problem in rule(task):
                _fail(f"task {record.process_id}-{group.number}", name, problem)
    for name, whole_rule in _WHOLE_RULES:
        for problem in whole_rule(record):
            _fail(f"process {record.process_id}", name, problem)


def check_maps(record: PlanRecord) -> None:
    """Raise CheckFailed for a map of positions that contradicts its result: validation follows rows by these maps."""
    for group in record.groups:
        for problem in map_problems(group):
            _fail(f"task {record.process_id}-{group.number}", "left-out-rows", problem)


def _fail(subject: str, rule: str, problem: str) -> NoReturn:
    raise CheckFailed(f"{subject} fails the check {rule}: {problem}", hint=_HINT)


def _inputs_are_the_tables(task: _Task) -> Iterator[str]:
    if not task.inputs:
        yield "it has no inputs"
    for given in task.inputs:
        file = task.rescanned.get(given.data.path)
        if given.data.path in task.missing:
            continue
        if file is None:
            yield f"the input {given.data.path} is not in the table"
        elif _identity(file.data) != _identity(given.data):
            yield f"the input {given.data.path} is not the planned one: {_identity(file.data)}"
        elif file.data.sequence_number > task.record.sequence_number:
            yield f"the input {given.data.path} is newer than the plan"


def _identity(file: DataFile) -> tuple[object, ...]:
    return file.sequence_number, file.spec_id, file.partition, file.record_count, file.size_bytes


def _planned_deletes_are_the_matching_ones(task: _Task) -> Iterator[str]:
    """Only deletes up to S: newer ones are checked by validation.

    Where rows are followed, validation sees to what is deleted by position, by file or vector, and to equality deletes
    that are missing: only those that apply must have been planned.
    """
    limit = task.record.sequence_number
    followed = task.group.work.rewritten if can_translate_positions(task.group) else ()
    for given in followed:
        if given.data.path in task.missing:
            continue
        planned = {task.group.work.deletes[index].numbered for index in given.deletes}
        for delete in task.rescanned[given.data.path].deletes:
            if (
                delete.kind is DeleteKind.EQUALITY
                and delete.sequence_number <= limit
                and delete.numbered not in planned
            ):
                yield f"{given.data.path} was planned without {delete.path}, which applies"
    for given in task.group.work.converted if followed else task.inputs:
        deletes = task.rescanned[given.data.path].deletes
        is_joined = any(delete.is_vector and delete.sequence_number > limit for delete in deletes)
        planned = {
            delete.numbered
            for delete in (task.group.work.deletes[index] for index in given.deletes)
            # A newer vector stands for what was planned by position.
            if not is_joined or delete.kind is DeleteKind.EQUALITY
        }
        matching = {delete.numbered for delete in deletes if delete.sequence_number <= limit}
        if planned != matching:
            yield (
                f"{given.data.path} was planned with {len(planned)} deletes, {len(matching)} apply: "
                f"{sorted((identity.path, number) for identity, number in planned ^ matching)}"
            )


def _all_rows_were_read(task: _Task) -> Iterator[str]:
    expected = sum(
        (given if given.data.path in task.missing else task.rescanned[given.data.path]).data.record_count
        for given in task.group.work.rewritten
    )
    if task.group.output.rows_read != expected:
        yield f"read {task.group.output.rows_read} of {expected} rows"


def _rows_balance(task: _Task) -> Iterator[str]:
    out = task.group.output
    counted = sum(file.record_count for file in out.data_files)
    if not out.rows_read - out.rows_deleted == out.rows_written == counted:
        yield f"read {out.rows_read}, deleted {out.rows_deleted}, wrote {out.rows_written}, in files {counted}"
    if any(file.record_count < 0 for file in task.outputs):
        yield "an output has a negative number of rows"


def _deleted_rows_have_deletes(task: _Task) -> Iterator[str]:
    used = {index for given in task.group.work.rewritten for index in given.deletes}
    deletes = [task.group.work.deletes[index] for index in sorted(used)]
    deleted = task.group.output.rows_deleted
    if deleted < 0 or (deleted and not deletes):
        yield f"{deleted} rows deleted by {len(deletes)} deletes"
    most = sum(delete.record_count for delete in deletes)
    if all(delete.kind is DeleteKind.POSITION for delete in deletes) and deleted > most:
        yield f"{deleted} rows deleted by {most} positions"


def _outputs_stay_in_the_partition(task: _Task) -> Iterator[str]:
    places = {(given.data.spec_id, given.data.partition) for given in task.inputs}
    if len(places) > 1:
        yield f"the inputs lie in {len(places)} partitions"
    for file in task.outputs:
        if (file.spec_id, file.partition) not in places:
            yield f"{file.path} lies in another partition than the inputs (spec {file.spec_id})"


def _outputs_carry_the_plans_sequence_number(task: _Task) -> Iterator[str]:
    for file in task.outputs:
        if file.sequence_number != task.record.sequence_number:
            yield f"{file.path} has sequence number {file.sequence_number}, not {task.record.sequence_number}"
    if task.group.work.sequence_number != task.record.sequence_number:
        yield f"the task has sequence number {task.group.work.sequence_number}, not {task.record.sequence_number}"


def _outputs_have_the_tables_formats(task: _Task) -> Iterator[str]:
    """Parquet files, but for deletes by position: vectors from format 3 on, where writers may add no other."""
    by_position = FileFormat.PARQUET
    if task.group.work.table.format_version >= FORMAT_WITH_VECTORS:
        by_position = FileFormat.PUFFIN
    for file in task.group.output.data_files:
        if file.file_format is not FileFormat.PARQUET:
            yield f"{file.path} is {file.file_format}"
    for delete in task.group.output.delete_files:
        if delete.file_format is not by_position:
            yield f"{delete.path} is {delete.file_format}"


def _outputs_lie_where_they_should(task: _Task) -> Iterator[str]:
    prefix = normalise(task.group.work.table.data_location) + "/"
    start = f"{task.record.process_id}-{task.group.number}-"
    for file in task.outputs:
        path = normalise(file.path)
        if not path.startswith(prefix) or ".." in path.split("/"):
            yield f"{file.path} is not below {task.group.work.table.data_location}"
        if not path.rpartition("/")[2].startswith(start):
            yield f"the name of {file.path} does not start with {start}"


def _files_are_as_reported(task: _Task) -> Iterator[str]:
    for file in task.outputs:
        facts = task.facts.get(file.path)
        if facts is None:
            yield f"{file.path} was not checked"
        elif isinstance(file, DeleteFile) and file.is_vector:
            if file.size_bytes != facts.size_bytes:
                yield f"{file.path} has {facts.size_bytes} bytes, reported were {file.size_bytes}"
        elif (facts.size_bytes, facts.record_count) != (file.size_bytes, file.record_count):
            yield (
                f"{file.path} has {facts.size_bytes} bytes and {facts.record_count} rows, "
                f"reported were {file.size_bytes} and {file.record_count}"
            )


def _column_counts_are_as_reported(task: _Task) -> Iterator[str]:
    """Only for fields that the file counts: writers count repeated fields differently."""
    for file in task.outputs:
        facts = task.facts[file.path]
        for noun, reported, counts in (
            ("values", file.metrics.value_counts, facts.value_counts),
            ("nulls", file.metrics.null_value_counts, facts.null_value_counts),
        ):
            for field_id, count in reported.items():
                if field_id in counts and counts[field_id] != count:
                    yield f"{file.path} reports {count} {noun} of field {field_id}, the file has {counts[field_id]}"


def _columns_are_complete(task: _Task) -> Iterator[str]:
    """A column that is neither nested nor repeated has one value, null included, for each row."""
    for file in task.group.output.data_files:
        if not file.record_count:
            continue
        counts = task.facts[file.path].value_counts
        for field_id in _plain_columns(task.group.work.table.schema_json):
            if counts.get(field_id) != file.record_count:
                yield f"{file.path} has {counts.get(field_id)} values of field {field_id} in {file.record_count} rows"


def _nulls_do_not_grow(task: _Task) -> Iterator[str]:
    """A column that could not be read would become nulls; deletes can only reduce nulls."""
    if task.missing:
        return
    inputs = [task.rescanned[given.data.path].data.metrics.null_value_counts for given in task.group.work.rewritten]
    outputs = [task.facts[file.path].null_value_counts for file in task.group.output.data_files]
    for field_id in _plain_columns(task.group.work.table.schema_json):
        if not all(field_id in counts for counts in (*inputs, *outputs)):
            continue
        before, after = (sum(counts[field_id] for counts in side) for side in (inputs, outputs))
        if after > before or (after != before and not task.group.output.rows_deleted):
            yield f"field {field_id} had {before} nulls and has {after}, with {task.group.output.rows_deleted} deleted"


def _plain_columns(schema_json: str) -> list[int]:
    """Field ids of the top-level columns of primitive type."""
    fields = json.loads(schema_json)["fields"]
    return [field["id"] for field in fields if isinstance(field["type"], str) and field["type"] != "unknown"]


def _position_deletes_belong_to_converted_files(task: _Task) -> Iterator[str]:
    rows = {given.data.path: given.data.record_count for given in task.group.work.converted}
    least = 0 if task.group.work.marks_converted else 1
    seen: set[str] = set()
    for file in task.group.output.delete_files:
        named = file.referenced_data_file
        if file.kind is not DeleteKind.POSITION or file.equality_ids:
            yield f"{file.path} is not a position delete file"
        elif named is None or named not in rows:
            yield f"{file.path} names {named}, which the task does not convert"
        elif named in seen:
            yield f"{named} has more than one new position delete file"
        elif not least <= file.record_count <= rows[named]:
            yield f"{file.path} has {file.record_count} positions of {rows[named]} rows"
        elif not _admits(file, named):
            yield f"the bounds of {file.path} leave out {named}, which it names"
        else:
            seen.add(named)


def _admits(delete: DeleteFile, path: str) -> bool:
    lower = delete.metrics.lower_bounds.get(DELETE_PATH_FIELD_ID, b"")
    upper = delete.metrics.upper_bounds.get(DELETE_PATH_FIELD_ID)
    return lower <= path.encode() and (upper is None or path.encode() <= upper)


def _vectors_are_as_reported(task: _Task) -> Iterator[str]:
    """Each vector is in its file where its entry will say, of the data file that it names; the file holds no other."""
    rows = {given.data.path: given.data.record_count for given in task.group.work.converted}
    vectors = [file for file in task.group.output.delete_files if file.is_vector]
    for file in vectors:
        reported = file.referenced_data_file or "", file.content_size_bytes, file.record_count
        actual = task.facts[file.path].vectors.get(file.identity.offset)
        if actual is None or (actual.data_file, actual.size_bytes, actual.record_count) != reported:
            yield f"{file.path} has at {file.identity.offset} not the vector that was reported: {actual}"
        elif actual.last_position >= rows[actual.data_file]:
            yield f"{file.path} deletes row {actual.last_position} of {rows[actual.data_file]} of {actual.data_file}"
    if len({file.path for file in vectors}) > 1:
        yield "its vectors lie in several files"
    for path in {file.path for file in vectors}:
        if others := task.facts[path].vectors.keys() - {file.identity.offset for file in vectors}:
            yield f"{path} has vectors that were not reported, at {sorted(others)}"


def _vectors_lose_no_positions(task: _Task) -> Iterator[str]:
    """A converted file's new vector replaces the one it had, and must hold all of its positions."""
    written = {file.referenced_data_file: file.record_count for file in task.group.output.delete_files}
    for given in task.group.work.converted:
        planned = [task.group.work.deletes[index] for index in given.deletes]
        most = max((delete.record_count for delete in planned if delete.is_vector), default=0)
        if written.get(given.data.path, 0) < most:
            yield f"{given.data.path} had {most} positions and has {written.get(given.data.path, 0)}"


def _no_output_is_named_as_a_map(task: _Task) -> Iterator[str]:
    """Files of such names are deleted without asking whether a snapshot has them."""
    for file in task.outputs:
        if file.path.endswith(MAP_ENDING):
            yield f"{file.path} has the name of a map of positions"


def _positions_balance(task: _Task) -> Iterator[str]:
    counted = sum(file.record_count for file in task.group.output.delete_files)
    if counted != task.group.output.positions_written:
        yield f"{task.group.output.positions_written} positions reported, {counted} in files"


#: The order matters: later rules rely on inputs that are in the table and on outputs that were checked.
_TASK_RULES: tuple[tuple[str, Callable[[_Task], Iterator[str]]], ...] = (
    ("inputs", _inputs_are_the_tables),
    ("deletes", _planned_deletes_are_the_matching_ones),
    ("rows-read", _all_rows_were_read),
    ("rows", _rows_balance),
    ("rows-deleted", _deleted_rows_have_deletes),
    ("partition", _outputs_stay_in_the_partition),
    ("sequence-number", _outputs_carry_the_plans_sequence_number),
    ("format", _outputs_have_the_tables_formats),
    ("location", _outputs_lie_where_they_should),
    ("files", _files_are_as_reported),
    ("column-counts", _column_counts_are_as_reported),
    ("columns", _columns_are_complete),
    ("nulls", _nulls_do_not_grow),
    ("lineage", lambda task: lineage_problems(task.group, task.rescanned, task.facts)),
    ("position-deletes", _position_deletes_belong_to_converted_files),
    ("vectors", _vectors_are_as_reported),
    ("vectors-grow", _vectors_lose_no_positions),
    ("positions", _positions_balance),
    ("left-out-rows", lambda task: map_problems(task.group)),
    ("names", _no_output_is_named_as_a_map),
)


def _paths_are_used_once(record: PlanRecord) -> Iterator[str]:
    """Over all tasks: an input rewritten twice, or an output listed twice, would duplicate its rows."""
    inputs = [given.data.path for group in record.groups for given in (*group.work.rewritten, *group.work.converted)]
    outputs = [file.path for group in record.groups for file in group.output.data_files]
    for group in record.groups:  # the vectors of one task share a file
        outputs += list(dict.fromkeys(file.path for file in group.output.delete_files if file.is_vector))
        outputs += [file.path for file in group.output.delete_files if not file.is_vector]
    deletes = {normalise(delete.path) for group in record.groups for delete in group.work.deletes}
    for path, count in Counter(map(normalise, (*inputs, *outputs))).items():
        if count > 1:
            yield f"{path} is used more than once"
    for path in outputs:
        if normalise(path) in deletes:
            yield f"the output {path} is a delete file of the inputs"


#: Where every task balances and no path is used twice, the rows of the process balance too.
_WHOLE_RULES: tuple[tuple[str, Callable[[PlanRecord], Iterator[str]]], ...] = (("paths", _paths_are_used_once),)

"""The check before a commit: figures that do not add up, maps of rows left out, lineage of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from amoro_core.actions.rewriting import inputs_of
from amoro_core.errors import CheckFailed
from amoro_core.model.commits import CommitContent, FileFacts, Group, Head, PlanRecord
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    LAST_UPDATED_FIELD_ID,
    ROW_ID_FIELD_ID,
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteKind,
    FileFormat,
    ScannedFile,
    TableScan,
)
from amoro_core.model.task_payload import MAP_ENDING, DeletedRows, InputFile, PositionMap, RewriteInput, RewriteOutput
from amoro_core.scan.columns import columns_of
from amoro_core.scan.live_files import EqualityIndex, LiveFiles, paired
from amoro_core.validation import check
from amoro_core.validation.result_check import check_maps
from amoro_core.validation.rules import row_ids_are_the_planned_ones
from amoro_core.validation.view import ValidationView, build_view
from tests.unit.test_validating import CONTEXT as LIVE_CONTEXT
from tests.unit.test_validating import E7, P8, group, record
from tests.unit.test_validating import A as LIVE_A
from tests.unit.test_validating import B as LIVE_B
from tests.unit.test_validating import head as live_head

S = 10
SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "name", "required": False, "type": "string"},
        {
            "id": 3,
            "name": "tags",
            "required": False,
            "type": {"type": "list", "element-id": 4, "element": "string", "element-required": False},
        },
    ],
}
CONTEXT = replace(LIVE_CONTEXT, schema_json=json.dumps(SCHEMA))
PLACE = (0, (b"x",))


def metrics(rows: int, nulls: int, values: int | None = None) -> ColumnMetrics:
    counts = {1: rows, 2: rows, 4: 3 * rows if values is None else values}
    return ColumnMetrics(value_counts=counts, null_value_counts={1: 0, 2: nulls, 4: 0})


def data(path: str, sequence: int, rows: int, nulls: int) -> DataFile:
    return DataFile(
        f"file:///w/t/data/{path}", FileFormat.PARQUET, *PLACE, rows, 1000 + rows, sequence, metrics(rows, nulls)
    )


EQUALITY = DeleteFile("eq", DeleteKind.EQUALITY, FileFormat.PARQUET, *PLACE, 30, 100, 8, equality_ids=(1,))
POSITION = DeleteFile("pos", DeleteKind.POSITION, FileFormat.PARQUET, *PLACE, 5, 100, 9)
A, B, C = data("a", 5, 100, 10), data("b", 6, 50, 0), data("c", 7, 1000, 0)
OUT = data("p-1-1-u1.parquet", S, 140, 9)
CONVERTED = DeleteFile(
    "file:///w/t/data/p-1-1-u2.parquet",
    DeleteKind.POSITION,
    FileFormat.PARQUET,
    *PLACE,
    20,
    200,
    S,
    referenced_data_file=C.path,
    metrics=ColumnMetrics(
        lower_bounds={DELETE_PATH_FIELD_ID: C.path.encode()}, upper_bounds={DELETE_PATH_FIELD_ID: C.path.encode()}
    ),
)
GROUP = Group(
    1,
    RewriteInput(
        CONTEXT, (InputFile(A, (0, 1)), InputFile(B, (0,))), (InputFile(C, (0,)),), (EQUALITY, POSITION), S, 1, 1
    ),
    RewriteOutput((OUT,), (CONVERTED,), 150, 10, 140, 20, 0, 0, 0),
)
PURE_D, PURE_OUT = data("d", 5, 60, 4), data("p-2-1-u3.parquet", S, 60, 4)
PURE = Group(
    2,
    RewriteInput(CONTEXT, (InputFile(PURE_D),), (), (), S, 1, 1),
    RewriteOutput((PURE_OUT,), (), 60, 0, 60, 0, 0, 0, 0),
)
BY_POSITION = Group(
    2,
    replace(PURE.work, rewritten=(InputFile(PURE_D, (0,)),), deletes=(POSITION,)),
    RewriteOutput((replace(PURE_OUT, record_count=55, metrics=metrics(55, 4)),), (), 60, 5, 55, 0, 0, 0, 0),
)
RECORD = PlanRecord("p", "uuid-1", 2, 100, S, 4, (GROUP, PURE))


def scanned_of(record: PlanRecord) -> dict[str, ScannedFile]:
    """The inputs with the deletes they were planned with."""
    return {
        given.data.path: ScannedFile(given.data, tuple(group.work.deletes[index] for index in given.deletes))
        for group in record.groups
        for given in (*group.work.rewritten, *group.work.converted)
    }


def facts_of(record: PlanRecord) -> dict[str, FileFacts]:
    """The outputs as they were reported."""
    return {
        file.path: FileFacts(
            file.size_bytes, file.record_count, file.metrics.value_counts, file.metrics.null_value_counts
        )
        for group in record.groups
        for file in (*group.output.data_files, *group.output.delete_files)
    }


SCANNED, FACTS = scanned_of(RECORD), facts_of(RECORD)


def with_group(change: Callable[[Group], Group], group: Group = GROUP) -> PlanRecord:
    others = tuple(one for one in RECORD.groups if one.number != group.number)
    return replace(RECORD, groups=(change(group), *others))


def output(group: Group = GROUP, **changes: object) -> PlanRecord:
    return with_group(lambda one: replace(one, output=replace(one.output, **changes)), group)


def work(group: Group = GROUP, **changes: object) -> PlanRecord:
    return with_group(lambda one: replace(one, work=replace(one.work, **changes)), group)


def data_output(**changes: object) -> PlanRecord:
    return output(data_files=(replace(OUT, **changes),))


def delete_output(**changes: object) -> PlanRecord:
    return output(delete_files=(replace(CONVERTED, **changes),))


def positions(count: int) -> PlanRecord:
    return output(delete_files=(replace(CONVERTED, record_count=count),), positions_written=count)


def pure(given: ColumnMetrics, nulls: int) -> PlanRecord:
    """The second group, whose input has these figures and whose output has so many nulls."""
    inputs, files = (InputFile(replace(PURE_D, metrics=given)),), (replace(PURE_OUT, metrics=metrics(60, nulls)),)
    return with_group(
        lambda one: replace(
            one, work=replace(one.work, rewritten=inputs), output=replace(one.output, data_files=files)
        ),
        PURE,
    )


UNKNOWN = {"id": 9, "name": "u", "required": False, "type": "unknown"}
ELSEWHERE = replace(C, path="/w/t/data/c")
PASSING = {
    "as it was planned": RECORD,
    "inputs and deletes as new as the plan": work(
        rewritten=(InputFile(A, (0, 1)), InputFile(replace(B, sequence_number=S), (1,))),
        deletes=(EQUALITY, replace(POSITION, sequence_number=S)),
    ),
    **{f"{count} positions of a converted file": positions(count) for count in (1, 1000)},
    "a path in another spelling, without bounds": with_group(
        lambda one: replace(
            one,
            work=replace(one.work, converted=(InputFile(ELSEWHERE, (0,)),)),
            output=replace(
                one.output,
                delete_files=(replace(CONVERTED, referenced_data_file=ELSEWHERE.path, metrics=ColumnMetrics()),),
            ),
        )
    ),
    "a column of unknown type has no values to count": work(
        table=replace(CONTEXT, schema_json=json.dumps({**SCHEMA, "fields": [*SCHEMA["fields"], UNKNOWN]}))
    ),
    "all rows were deleted": with_group(
        lambda one: replace(
            one, work=replace(one.work, converted=()), output=RewriteOutput((), (), 150, 150, 0, 0, 0, 0, 0)
        )
    ),
    "as many rows deleted as positions": replace(RECORD, groups=(BY_POSITION,)),
    "an input does not count its nulls": pure(ColumnMetrics(), 50),
}


@pytest.mark.parametrize("record", PASSING.values(), ids=PASSING)
def test_results_that_add_up_pass(record: PlanRecord) -> None:
    check(record, scanned_of(record), facts_of(record))


def test_a_converted_file_has_no_positions_only_where_that_is_a_mark() -> None:
    record = positions(0)
    marks = with_group(
        lambda one: replace(one, work=replace(one.work, marks_converted=True), output=record.groups[0].output)
    )

    with pytest.raises(CheckFailed, match="has 0 positions of 1000 rows"):
        check(record, SCANNED, facts_of(record))
    check(marks, SCANNED, facts_of(marks))


def test_what_the_plan_and_the_files_do_not_tell_is_not_compared() -> None:
    newer = replace(EQUALITY, path="newer", sequence_number=S + 1)

    check(RECORD, {**SCANNED, A.path: ScannedFile(A, (EQUALITY, POSITION, newer))}, FACTS)
    plain = replace(FACTS[OUT.path], value_counts={1: 140, 2: 140}, null_value_counts={1: 0})

    check(RECORD, SCANNED, {**FACTS, OUT.path: plain})


#: What is wrong, the rule that must find it, and the figures it must name.
CORRUPTIONS = {
    "a row not read": (output(rows_read=149, rows_deleted=9), "rows-read", "read 149 of 150 rows"),
    "a row lost": (output(rows_written=139), "rows", "read 150, deleted 10, wrote 139, in files 140"),
    "a row too many in the files": (data_output(record_count=141), "rows", "in files 141"),
    "a negative number of rows": (
        output(data_files=(replace(OUT, record_count=141), replace(OUT, path=OUT.path + "x", record_count=-1))),
        "rows",
        "negative",
    ),
    "rows deleted without deletes": (
        output(PURE, rows_deleted=1, rows_written=59, data_files=(replace(PURE_OUT, record_count=59),)),
        "rows-deleted",
        "1 rows deleted by 0 deletes",
    ),
    "more rows deleted than positions": (
        output(BY_POSITION, rows_deleted=6, rows_written=54, data_files=(replace(PURE_OUT, record_count=54),)),
        "rows-deleted",
        "6 rows deleted by 5 positions",
    ),
    "another partition": (data_output(partition=(b"y",)), "partition", "another partition"),
    "another spec": (data_output(spec_id=1), "partition", "(spec 1)"),
    "deletes in another partition": (delete_output(partition=(b"y",)), "partition", "another partition"),
    "inputs of two partitions": (
        work(converted=(InputFile(replace(C, partition=(b"y",)), (0,)),)),
        "partition",
        "the inputs lie in 2 partitions",
    ),
    "a newer sequence number": (
        data_output(sequence_number=S + 1),
        "sequence-number",
        "has sequence number 11, not 10",
    ),
    "an older sequence number": (delete_output(sequence_number=9), "sequence-number", "has sequence number 9, not 10"),
    "a task of another plan": (work(sequence_number=11), "sequence-number", "the task has sequence number 11"),
    "another format": (data_output(file_format=FileFormat.ORC), "format", "is orc"),
    "a file elsewhere": (data_output(path="file:///w/u/data/p-1-1-u1.parquet"), "location", "is not below"),
    "a file beside": (data_output(path="file:///w/t/data2/p-1-1-u1.parquet"), "location", "is not below"),
    "a path that climbs": (data_output(path="file:///w/t/data/../p-1-1-u1.parquet"), "location", "is not below"),
    "a name of another task": (data_output(path="file:///w/t/data/p-11-1-u1.parquet"), "location", "start with p-1-"),
    "a file smaller than reported": (data_output(size_bytes=1141), "files", "has 1140 bytes and 140 rows"),
    "more values reported": (
        data_output(metrics=metrics(140, 9, 421)),
        "column-counts",
        "reports 421 values of field 4",
    ),
    "fewer nulls reported": (data_output(metrics=metrics(140, 8)), "column-counts", "reports 8 nulls of field 2"),
    "an equality delete": (delete_output(kind=DeleteKind.EQUALITY), "position-deletes", "not a position delete file"),
    "deletes for a rewritten file": (
        delete_output(referenced_data_file=A.path),
        "position-deletes",
        "does not convert",
    ),
    "deletes for no file": (delete_output(referenced_data_file=None), "position-deletes", "does not convert"),
    "bounds beside the path": (
        delete_output(metrics=ColumnMetrics(lower_bounds={DELETE_PATH_FIELD_ID: b"z"})),
        "position-deletes",
        "leave out",
    ),
    "bounds below the path": (
        delete_output(metrics=ColumnMetrics(upper_bounds={DELETE_PATH_FIELD_ID: b"a"})),
        "position-deletes",
        "leave out",
    ),
    "two deletes for one file": (
        output(delete_files=(CONVERTED, replace(CONVERTED, path=CONVERTED.path + "x")), positions_written=40),
        "position-deletes",
        "more than one",
    ),
    "positions not reported": (output(positions_written=19), "positions", "19 positions reported, 20 in files"),
    "an output listed by two tasks": (
        replace(RECORD, groups=(GROUP, replace(PURE, number=1, work=PURE.work, output=GROUP.output))),
        "rows-read",
        "read 150 of 60",
    ),
    "a task without inputs": (work(rewritten=(), converted=()), "inputs", "no inputs"),
    "an input that is not live": (work(rewritten=(InputFile(data("gone", 5, 1, 0)),)), "inputs", "not in the table"),
    "an input that changed": (
        work(rewritten=(InputFile(replace(A, record_count=99), (0, 1)),)),
        "inputs",
        "planned one",
    ),
    "a delete not planned": (
        work(rewritten=(InputFile(A, (0,)), InputFile(B, (0,)))),
        "deletes",
        "was planned with 1 deletes, 2 apply: [('pos', 9)]",
    ),
    "a delete too many": (
        work(rewritten=(InputFile(A, (0, 1)), InputFile(B, (0, 1)))),
        "deletes",
        "was planned with 2 deletes, 1 apply",
    ),
}


@pytest.mark.parametrize(("record", "rule", "figures"), CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_a_result_that_does_not_add_up_is_refused(record: PlanRecord, rule: str, figures: str) -> None:
    scanned = {**SCANNED, **({PURE_D.path: ScannedFile(PURE_D, (POSITION,))} if _by_position(record) else {})}
    if rule == "partition":
        scanned |= scanned_of(record)
    facts = {**facts_of(record), **FACTS}

    with pytest.raises(CheckFailed) as refused:
        check(record, scanned, facts)

    assert f" fails the check {rule}: " in refused.value.message
    assert figures in refused.value.message
    assert refused.value.message.startswith(("task p-1 ", "task p-2 "))


def _by_position(record: PlanRecord) -> bool:
    return any(group.work.rewritten == BY_POSITION.work.rewritten for group in record.groups)


def test_a_file_that_nobody_looked_at_or_that_is_not_as_planned_is_refused() -> None:
    with pytest.raises(CheckFailed, match=r"check files: .*u1.parquet was not checked"):
        check(RECORD, SCANNED, {path: facts for path, facts in FACTS.items() if path != OUT.path})
    with pytest.raises(CheckFailed, match="has 1140 bytes and 139 rows, reported were 1140 and 140"):
        check(RECORD, SCANNED, {**FACTS, OUT.path: replace(FACTS[OUT.path], record_count=139)})
    newer = replace(B, sequence_number=S + 1)
    record = work(rewritten=(InputFile(A, (0, 1)), InputFile(newer, (0,))))

    with pytest.raises(CheckFailed, match=r"check inputs: .* is newer than the plan"):
        check(record, scanned_of(record), FACTS)


def counts(values: Mapping[int, int]) -> ColumnMetrics:
    return ColumnMetrics(value_counts=values, null_value_counts={1: 0, 2: 9, 4: 0})


def nulls(group: Group, count: int) -> PlanRecord:
    file = group.output.data_files[0]
    return output(group, data_files=(replace(file, metrics=metrics(file.record_count, count)),))


def twin(path: str) -> PlanRecord:
    return output(PURE, data_files=(PURE_OUT, replace(PURE_OUT, path=path, record_count=0, metrics=ColumnMetrics())))


EMPTY = replace(OUT, path=OUT.path + "x", record_count=0, metrics=ColumnMetrics())
OLD_DELETE = replace(EQUALITY, path="file:///w/t/data/p-1-1-old.parquet")
#: What the footers say, too, and how it is refused.
AS_REPORTED: Mapping[str, tuple[PlanRecord, str]] = {
    **{f"{count} positions": (positions(count), f"has {count} positions of 1000 rows") for count in (0, 1001)},
    "no values of a column": (
        data_output(metrics=counts({1: 140, 4: 420})), "check columns: .* has None values of field 2 in 140 rows"
    ),
    "fewer values than rows": (
        data_output(metrics=counts({1: 140, 2: 139, 4: 420})), "check columns: .* has 139 values of field 2 in 140 rows"
    ),
    "a column that is lacking after an empty file": (
        output(data_files=(EMPTY, replace(OUT, metrics=counts({1: 140})))),
        "check columns: .* has None values of field 2 in 140 rows",
    ),
    "nulls after a column that is not counted": (
        pure(ColumnMetrics(null_value_counts={2: 4}), 5),
        "check nulls: field 2 had 4 nulls and has 5, with 0 deleted",
    ),
    **{
        f"{case} nulls": (nulls(group, count), f"check nulls: field 2 had .* and has {count}")
        for case, group, count in (("more", GROUP, 11), ("new", PURE, 5), ("fewer", PURE, 3))
    },
    "the path of an input": (twin(A.path), "^task p-2 fails the check location: "),
    "another task's output": (twin("file:/w/t/data/p-2-1-u3.parquet"), "^process p fails the check paths: "),
    "a delete file of the inputs": (
        with_group(
            lambda one: replace(
                one,
                work=replace(one.work, deletes=(OLD_DELETE, POSITION)),
                output=replace(one.output, data_files=(replace(OUT, path=OLD_DELETE.path),)),
            )
        ),
        "check paths: .* is a delete file of the inputs",
    ),
    # A file of such a name is deleted without asking whether a snapshot has it.
    **{
        f"{kind} that are named as a map": (
            change(path=file.path.replace(".parquet", MAP_ENDING)),
            f"^task p-1 fails the check names: .*{MAP_ENDING} has the name of a map of positions$",
        )
        for kind, file, change in (("data", OUT, data_output), ("deletes", CONVERTED, delete_output))
    },
}  # fmt: skip


@pytest.mark.parametrize(("record", "told"), AS_REPORTED.values(), ids=AS_REPORTED)
def test_a_wrong_result_is_refused_though_the_files_are_as_reported(record: PlanRecord, told: str) -> None:
    with pytest.raises(CheckFailed, match=told):
        check(record, scanned_of(record), facts_of(record))


# Maps that tell which rows a task left out


MAP = f"file:///w/t/data/p-1-1-u1{MAP_ENDING}"


def left_out(*rows: tuple[int, int], **changes: Any) -> PlanRecord:
    """A task that left so many rows out of each of these inputs; ten in all were deleted, of 100 and of 50 rows."""
    told = tuple(DeletedRows(at, 4 + 100 * at, 100, count) for at, count in rows)
    return output(position_map=PositionMap(MAP, 300, told, **changes))


@pytest.mark.parametrize(
    ("rows", "figures"),
    [
        ([], "10 rows were deleted, the map of positions has 0"),
        ([(0, 9)], "10 rows were deleted, the map of positions has 9"),
        ([(0, 4), (1, 7)], "10 rows were deleted, the map of positions has 11"),
        ([(1, 6), (0, 4)], "the map of positions tells of the inputs [1, 0]"),
        ([(0, 6), (0, 4)], "the map of positions tells of the inputs [0, 0]"),
        ([(2, 10)], "the map of positions tells of the inputs [2]"),
        ([(-1, 10)], "the map of positions tells of the inputs [-1]"),
        ([(0, 110), (1, -100)], "the map of positions leaves 110 rows of input 0 out"),
        ([(0, 10), (1, 0)], "the map of positions leaves 0 rows of input 1 out"),
    ],
)
def test_a_map_that_does_not_add_up_is_refused(rows: list[tuple[int, int]], figures: str) -> None:
    with pytest.raises(CheckFailed) as failed:
        check(left_out(*rows), SCANNED, FACTS)
    assert failed.value.message == f"task p-1 fails the check left-out-rows: {figures}"


@pytest.mark.parametrize("order", [(0, 0), (1,), (0, 1, 2)])
def test_a_map_of_an_order_that_is_none_of_the_inputs_is_refused(order: tuple[int, ...]) -> None:
    with pytest.raises(CheckFailed, match="the map of positions tells of the inputs in the order"):
        check(left_out((0, 10), order=order), SCANNED, FACTS)


def test_outputs_of_other_rows_than_the_map_leaves_are_refused_before_rows_are_followed() -> None:
    record = left_out((0, 10))
    check_maps(record)
    fewer = output(position_map=record.groups[0].output.position_map, data_files=(replace(OUT, record_count=1),))
    with pytest.raises(CheckFailed, match=r"left-out-rows: \d+ rows of the inputs are live by the map of positions"):
        check_maps(fewer)


# Rows that got ids since the plan, and outputs without the lineage of their rows


FILES = {"A": A, "B": B, "C": C}


def with_first(group: Group, first: int | None) -> Group:
    """The group in format 3, with rewritten files whose first row ids begin there."""
    rewritten = tuple(replace(one, data=replace(one.data, first_row_id=first)) for one in group.work.rewritten)
    table = replace(group.work.table, format_version=3)
    return replace(group, work=replace(group.work, rewritten=rewritten, table=table))


def seen(**first_row_ids: int | None) -> ValidationView:
    """A head with these files."""
    files = [ScannedFile(replace(FILES[name], first_row_id=first)) for name, first in first_row_ids.items()]
    return build_view(RECORD, Head("uuid-1", 3, 7, S, True, frozenset(), TableScan(7, S, files), ()))


@pytest.mark.parametrize(("planned", "found"), [(None, 500), (500, None), (500, 501), (None, 0)])
def test_an_input_whose_rows_got_other_ids_since_the_plan_refuses_its_group(
    planned: int | None, found: int | None
) -> None:
    """The converted file C stays: it may get ids meanwhile."""
    group = with_first(GROUP, planned)
    assert row_ids_are_the_planned_ones(group, seen(A=planned, B=planned)) is None
    assert row_ids_are_the_planned_ones(group, seen(A=planned, B=planned, C=90)) is None
    reason = row_ids_are_the_planned_ones(group, seen(A=planned, B=found))
    assert reason is not None
    assert B.path in reason
    assert all(("none" if one is None else str(one)) in reason for one in (planned, found))


def in_format_3(first: int | None = 40) -> PlanRecord:
    """Two groups in which no file is converted."""
    work = replace(GROUP.work, converted=())
    rewriting = replace(GROUP, work=work, output=replace(GROUP.output, delete_files=(), positions_written=0))
    return replace(RECORD, format_version=3, groups=(with_first(rewriting, first), with_first(PURE, first)))


def counted(record: PlanRecord, nulls: Mapping[int, int | None]) -> dict[str, FileFacts]:
    """The outputs' footers with both columns; `nulls` of each by field id, None where they are not counted."""
    facts = facts_of(record)
    for one in record.groups:
        for file in one.output.data_files:
            told = facts[file.path]
            known = {field_id: count for field_id, count in nulls.items() if count is not None}
            facts[file.path] = replace(
                told,
                value_counts={**told.value_counts, **dict.fromkeys(nulls, file.record_count)},
                null_value_counts={**told.null_value_counts, **known},
            )
    return facts


BOTH: Mapping[int, int | None] = {ROW_ID_FIELD_ID: 0, LAST_UPDATED_FIELD_ID: 0}


def test_rows_of_files_without_a_first_row_id_have_none_yet_but_a_last_update() -> None:
    check(in_format_3(), scanned_of(in_format_3()), counted(in_format_3(), BOTH))
    record = in_format_3(None)
    check(record, scanned_of(record), counted(record, {**BOTH, ROW_ID_FIELD_ID: 60}))
    with pytest.raises(CheckFailed, match=f"has 60 nulls of field {LAST_UPDATED_FIELD_ID}"):
        check(record, scanned_of(record), counted(record, dict.fromkeys(BOTH, 60)))


@pytest.mark.parametrize("field_id", BOTH)
def test_an_output_with_rows_without_lineage_is_not_committed(field_id: int) -> None:
    record, others = in_format_3(), {one: 0 for one in BOTH if one != field_id}
    for nulls, told in (
        (others, f"check lineage: .* has None values of field {field_id} in 140 rows"),
        ({**others, field_id: 1}, f"has 1 nulls of field {field_id}"),
        ({**others, field_id: None}, f"has uncounted nulls of field {field_id}"),
    ):
        with pytest.raises(CheckFailed, match=told):
            check(record, scanned_of(record), counted(record, nulls))


def test_first_row_ids_are_those_of_the_plan_and_outputs_have_none() -> None:
    record, later = in_format_3(None), in_format_3(90)
    with pytest.raises(CheckFailed, match=f"the first row id of {A.path} is 90, planned was none"):
        check(record, scanned_of(later), counted(record, BOTH))
    record = in_format_3()
    made: tuple[DataFile, ...] = (replace(PURE_OUT, first_row_id=4),)
    pure = replace(record.groups[1], output=replace(record.groups[1].output, data_files=made))
    record = replace(record, groups=(record.groups[0], pure))
    with pytest.raises(CheckFailed, match="has the first row id 4, which only a commit gives"):
        check(record, scanned_of(record), counted(record, BOTH))


# A mistake of the matcher behind a plan can't certify itself


def test_inputs_have_the_deletes_that_match_though_the_scan_says_that_these_dangle() -> None:
    blind = LiveFiles(columns_of([LIVE_A, LIVE_B]), (E7, P8), EqualityIndex(), paired())
    lying = replace(live_head(), scan=TableScan(200, 20, blind, (E7, P8)))
    plan = record(group(1, rewritten=[ScannedFile(LIVE_A), ScannedFile(LIVE_B)]))
    content = CommitContent((1,), (LIVE_A, LIVE_B), (), (), ())

    found = inputs_of(plan, content, lying)

    assert [[delete.path for delete in file.deletes] for file in found] == [["e7", "p8"]] * 2
    with pytest.raises(CheckFailed, match="was planned with 0 deletes, 2 apply"):
        check(plan, {file.data.path: file for file in found}, {})

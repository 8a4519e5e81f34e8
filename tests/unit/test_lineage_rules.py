"""Rows that got ids since the plan, and outputs without the lineage of their rows, are never committed."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from amoro_core.errors import CheckFailed
from amoro_core.model.commits import FileFacts, Group, PlanRecord
from amoro_core.model.files import DataFile, ScannedFile
from amoro_core.model.lineage import LAST_UPDATED_FIELD_ID, ROW_ID_FIELD_ID
from amoro_core.validating.check import check
from amoro_core.validating.lineage import first_row_ids_are_the_planned_ones
from tests.unit.test_check import GROUP, PURE, PURE_OUT, RECORD, A, B, C, facts_of, scanned_of

FILES = {"A": A, "B": B, "C": C}


def with_first(group: Group, first: int | None) -> Group:
    """The group in format 3, with rewritten files whose first row ids begin there."""
    rewritten = tuple(replace(one, data=replace(one.data, first_row_id=first)) for one in group.work.rewritten)
    table = replace(group.work.table, format_version=3)
    return replace(group, work=replace(group.work, rewritten=rewritten, table=table))


def head(**first_row_ids: int | None) -> dict[str, tuple[ScannedFile, ...]]:
    return {
        FILES[name].path.replace("file://", ""): (ScannedFile(replace(FILES[name], first_row_id=first)),)
        for name, first in first_row_ids.items()
    }


@pytest.mark.parametrize(("planned", "found"), [(None, 500), (500, None), (500, 501), (None, 0)])
def test_an_input_whose_rows_got_other_ids_since_the_plan_refuses_its_group(
    planned: int | None, found: int | None
) -> None:
    group = with_first(GROUP, planned)
    assert first_row_ids_are_the_planned_ones(group, head(A=planned, B=planned)) is None
    reason = first_row_ids_are_the_planned_ones(group, head(A=planned, B=found))
    assert reason is not None
    assert B.path in reason
    assert all(("none" if one is None else str(one)) in reason for one in (planned, found))


def test_a_file_that_stays_may_get_ids_meanwhile() -> None:
    group = with_first(GROUP, 7)
    assert first_row_ids_are_the_planned_ones(group, head(A=7, B=7, C=90)) is None


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


def test_outputs_with_the_lineage_of_every_row_add_up() -> None:
    check(in_format_3(), scanned_of(in_format_3()), counted(in_format_3(), BOTH))


@pytest.mark.parametrize("field_id", BOTH)
def test_an_output_without_one_of_the_two_columns_is_not_committed(field_id: int) -> None:
    record = in_format_3()
    with pytest.raises(CheckFailed, match=f"check lineage: .* has None values of field {field_id} in 140 rows"):
        check(record, scanned_of(record), counted(record, {one: 0 for one in BOTH if one != field_id}))


@pytest.mark.parametrize("field_id", BOTH)
@pytest.mark.parametrize("nulls", [1, None])
def test_an_output_with_rows_without_lineage_is_not_committed(field_id: int, nulls: int | None) -> None:
    record = in_format_3()
    with pytest.raises(CheckFailed, match=f"has {'uncounted' if nulls is None else nulls} nulls of field {field_id}"):
        check(record, scanned_of(record), counted(record, {**BOTH, field_id: nulls}))


def test_rows_of_files_without_a_first_row_id_have_none_yet_but_a_last_update() -> None:
    record = in_format_3(None)
    check(record, scanned_of(record), counted(record, {**BOTH, ROW_ID_FIELD_ID: 60}))
    with pytest.raises(CheckFailed, match=f"has 60 nulls of field {LAST_UPDATED_FIELD_ID}"):
        check(record, scanned_of(record), counted(record, dict.fromkeys(BOTH, 60)))


def test_the_first_row_id_of_an_input_is_that_of_the_plan() -> None:
    record, later = in_format_3(None), in_format_3(90)
    with pytest.raises(CheckFailed, match=f"the first row id of {A.path} is 90, planned was none"):
        check(record, scanned_of(later), counted(record, BOTH))


def test_outputs_have_no_first_row_id_of_their_own() -> None:
    record = in_format_3()
    made: tuple[DataFile, ...] = (replace(PURE_OUT, first_row_id=4),)
    pure = replace(record.groups[1], output=replace(record.groups[1].output, data_files=made))
    record = replace(record, groups=(record.groups[0], pure))
    with pytest.raises(CheckFailed, match="has the first row id 4, which only a commit gives"):
        check(record, scanned_of(record), counted(record, BOTH))


def test_earlier_formats_have_no_lineage() -> None:
    check(RECORD, scanned_of(RECORD), facts_of(RECORD))

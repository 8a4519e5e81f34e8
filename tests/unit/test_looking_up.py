"""Rules of tasks whose rows are looked up in outputs of another order: what is not found there is not committed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from amoro_core.model.commits import Group, Head, LookUp, PlanRecord
from amoro_core.model.files import DeleteFile, ScannedFile
from amoro_core.positions import PositionSet
from amoro_core.validating.looking_up import to_look_up
from amoro_core.validating.reading import to_read
from amoro_core.validating.rules import GROUP_RULES, WHOLE_RULES, carried_over
from amoro_core.validating.sight import Found, Read, look
from tests.unit.test_state_rules import E7, OUT, P8, A, B, read
from tests.unit.test_validating import S, data, equality, group, head, position, record, scanned, validate

NEW = position("new", S + 1, names=A)
FOUND = Found({0: PositionSet.of([7])})
READ = {P8: {"a": [0, 1, 2, 3]}, NEW: {"a": [3, 4, 50]}}


def ordered(rewritten: Sequence[ScannedFile] = (scanned(A, E7, P8), scanned(B, E7))) -> Group:
    return replace(group(1, rewritten, (), (OUT,)), is_reordered=True, look_up=LookUp((1,), 10))


def was_read(positions: Mapping[DeleteFile, Mapping[str, Sequence[int]]], found: Found | None = FOUND) -> Read:
    return replace(read(positions, None), found={} if found is None else {1: found})


def wanted(plan: PlanRecord, now: Head, positions: Mapping[DeleteFile, Mapping[str, Sequence[int]]]) -> object:
    return [(one.number, rows) for one, rows in to_look_up(look(plan, now, was_read(positions)))]


def refusing(plan: PlanRecord, now: Head, read: Read) -> list[str]:
    whole = [rule.__name__ for rule in WHOLE_RULES if rule(plan, now)]
    sight = look(plan, now, read)
    return whole + [rule.__name__ for rule in GROUP_RULES for one in plan.groups if rule(one, sight)]


def test_rows_that_others_have_deleted_since_the_plan_are_looked_up_and_hidden_where_they_were_found() -> None:
    plan = record(ordered())
    now = head(scanned(A, E7, P8, NEW), scanned(B, E7))
    assert to_read(look(plan, now)) == ((NEW, P8), ())
    assert wanted(plan, now, READ) == [(1, {0: PositionSet.of([4, 50])})]
    done = validate(plan, now, was_read(READ))
    assert (done.conflict, done.dropped) == (None, {})
    assert done.content is not None
    rows = carried_over(look(plan, now, was_read(READ)), done.content)
    assert [(one.group, one.output, one.positions) for one in rows] == [(1, OUT, PositionSet.of([7]))]


def test_nothing_is_read_and_looked_up_where_nothing_happened_to_the_inputs() -> None:
    plan = record(ordered())
    now = head(scanned(A, E7, P8), scanned(B, E7), scanned(data("c", S + 1), NEW))
    assert to_read(look(plan, now)) == ((), ())
    assert wanted(plan, now, {}) == []
    assert refusing(plan, now, was_read({}, None)) == []


@pytest.mark.parametrize(
    ("found", "why"),
    [(None, "they were not looked up"), (Found(problem="they are 11"), "they are 11")],
    ids=["not looked up", "not found"],
)
def test_rows_that_were_not_found_drop_the_group(found: Found | None, why: str) -> None:
    plan = record(ordered())
    now = head(scanned(A, E7, P8, NEW), scanned(B, E7))
    assert refusing(plan, now, was_read(READ, found)) == ["hidden_rows_were_found"]
    done = validate(plan, now, was_read(READ, found))
    assert done.dropped[1].endswith(f"can't be found in the outputs: {why}")


@pytest.mark.parametrize("unread", [P8, NEW], ids=["planned", "new"])
def test_a_position_delete_that_was_not_read_drops_the_group(unread: DeleteFile) -> None:
    plan = record(ordered())
    now = head(scanned(A, E7, P8, NEW), scanned(B, E7))
    known = {delete: named for delete, named in READ.items() if delete is not unread}
    assert wanted(plan, now, known) == []
    assert "position_deletes_were_read" in refusing(plan, now, was_read(known, None))


def test_an_input_that_is_gone_drops_the_group() -> None:
    plan = record(ordered())
    done = validate(plan, head(scanned(A, E7, P8)), was_read({}, None))
    assert done.dropped == {1: f"{B.path} is no longer live"}


def test_a_row_that_came_back_drops_the_group() -> None:
    plan, less = record(ordered()), position("less", 8, names=A)
    now = head(scanned(A, E7, less), scanned(B, E7))
    positions = {P8: {"a": [0, 1, 2, 3]}, less: {"a": [0, 1, 2, 50]}}
    assert refusing(plan, now, was_read(positions)) == ["planned_positions_are_still_deleted"]


def test_compacted_position_deletes_stand_for_the_planned_ones() -> None:
    plan, compacted = record(ordered()), position("compacted", 8, names=A)
    now = head(scanned(A, E7, compacted), scanned(B, E7))
    positions = {P8: {"a": [0, 1, 2, 3]}, compacted: {"a": [0, 1, 2, 3, 7]}}
    assert set(to_read(look(plan, now))[0]) == {compacted, P8}
    assert wanted(plan, now, positions) == [(1, {0: PositionSet.of([7])})]
    assert refusing(plan, now, was_read(positions)) == []


def test_a_planned_equality_delete_that_is_gone_drops_the_group() -> None:
    """Which rows it had hit, and the outputs lack, is not known: they may be alive again."""
    plan, instead = record(ordered()), position("instead", S + 1, names=A)
    now = head(scanned(A, P8, instead), scanned(B))
    positions = {P8: {"a": [0, 1, 2, 3]}, instead: {"a": [50]}}
    assert refusing(plan, now, was_read(positions)) == ["planned_equality_deletes_still_apply"]


def test_newer_equality_deletes_that_were_removed_need_not_be_known() -> None:
    """Whoever removed one has left positions or vectors in its place, which are looked up."""
    plan = record(ordered())
    now = [scanned(A, E7, P8), scanned(B, E7)]
    assert refusing(plan, head(*now, removed_equality_deletes=(equality("gone", S + 1),)), was_read({}, None)) == []
    assert refusing(plan, head(*now, removed_equality_deletes=None), was_read({}, None)) == []

"""Converted files whose vector others have written anew since the plan: what is committed hides the rows of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from amoro_core.model.commits import CommitContent, Group, Head, PlanRecord
from amoro_core.model.files import DataFile, DeleteFile
from amoro_core.model.paths import normalise
from amoro_core.positions import PositionSet
from amoro_core.validating.reading import to_read
from amoro_core.validating.rules import GROUP_RULES, WHOLE_RULES, carried_over
from amoro_core.validating.sight import NOTHING_READ, Read, look
from tests.unit.test_validating import S, data, equality, group, head, position, record, scanned, validate
from tests.unit.test_vectors_needed import OURS, vector

A, B = data("a"), data("b")
OLD, E7, SHARED = vector(A, 8, path="old.puffin"), equality("e7", 7), position("p8", 8)
OF_A, OF_B = vector(A, S, 4, OURS), vector(B, S, 60, OURS)
THEIRS = vector(A, S + 1, path="theirs.puffin")
#: What the conversion found: the old positions and one that the equality delete hides.
OLD_ROWS, OUR_ROWS = [1, 2], [1, 2, 50]


def converting(vectors: Sequence[DeleteFile] = (OF_A, OF_B)) -> Group:
    """A has a vector, B a position delete file; an equality delete applies to both."""
    return group(1, converted=[scanned(A, E7, OLD), scanned(B, E7, SHARED)], new_deletes=vectors)


def planned(one: Group) -> PlanRecord:
    return record(one, format_version=3)


def now(*deletes_of_a: DeleteFile, of_b: Sequence[DeleteFile] = (E7, SHARED)) -> Head:
    return head(scanned(A, *deletes_of_a), scanned(B, *of_b), format_version=3)


def read(rows: Mapping[DeleteFile, Sequence[int]], of: DataFile = A) -> Read:
    return Read({one.identity: {normalise(of.path): PositionSet.of(found)} for one, found in rows.items()})


def refusing(plan: PlanRecord, seen: Head, was_read: Read = NOTHING_READ) -> list[str]:
    whole = [rule.__name__ for rule in WHOLE_RULES if rule(plan, seen)]
    sight = look(plan, seen, was_read)
    return whole + [rule.__name__ for rule in GROUP_RULES for one in plan.groups if rule(one, sight)]


def committed(plan: PlanRecord, seen: Head, was_read: Read) -> tuple[CommitContent, dict[str, list[int]]]:
    """The content and the vectors to be written, by data file; the commit must be allowed."""
    done = validate(plan, seen, was_read)
    assert (done.conflict, done.dropped) == (None, {})
    assert done.content is not None
    carried = carried_over(look(plan, seen, was_read), done.content)
    assert all(one.is_joined for one in carried)
    return done.content, {one.output.path: one.positions.ascending().tolist() for one in carried}


def test_the_new_vector_holds_the_rows_of_both_and_both_go() -> None:
    plan, seen = planned(converting()), now(E7, THEIRS)
    assert set(to_read(look(plan, seen))[0]) == {OLD, OF_A, THEIRS}
    content, written = committed(plan, seen, read({OLD: OLD_ROWS, OF_A: OUR_ROWS, THEIRS: [1, 2, 7]}))
    assert written == {A.path: [1, 2, 7, 50]}
    assert content.added_deletes == (OF_B,)
    assert set(content.removed_deletes) == {E7, SHARED, THEIRS}


def test_nothing_is_read_or_joined_where_the_head_has_what_was_planned() -> None:
    plan, seen = planned(converting()), now(E7, OLD)
    assert to_read(look(plan, seen)) == ((), ())
    content, written = committed(plan, seen, NOTHING_READ)
    assert (written, content.added_deletes) == ({}, (OF_A, OF_B))
    assert set(content.removed_deletes) == {E7, SHARED, OLD}


def test_a_first_vector_stands_for_the_position_delete_files_that_it_hides() -> None:
    plan, theirs = planned(converting()), vector(B, S + 1, path="theirs.puffin")
    seen = now(E7, OLD, of_b=(E7, theirs))
    assert set(to_read(look(plan, seen))[0]) == {SHARED, OF_B, theirs}
    rows = {SHARED: [3], OF_B: [3, 50], theirs: [3, 9]}
    content, written = committed(plan, seen, read(rows, B))
    assert (written, content.added_deletes) == ({B.path: [3, 9, 50]}, (OF_A,))
    came_back = read({**rows, theirs: [9]}, B)
    assert refusing(plan, seen, came_back) == ["no_row_of_a_converted_file_came_back"]


def test_a_row_that_came_back_drops_the_group() -> None:
    plan, seen = planned(converting()), now(E7, THEIRS)
    was_read = read({OLD: OLD_ROWS, OF_A: OUR_ROWS, THEIRS: [1, 7]})
    assert refusing(plan, seen, was_read) == ["no_row_of_a_converted_file_came_back"]
    assert validate(plan, seen, was_read).content is None


def test_what_was_not_read_drops_the_group() -> None:
    plan, seen = planned(converting()), now(E7, THEIRS)
    every = {OLD: OLD_ROWS, OF_A: OUR_ROWS, THEIRS: [1, 2]}
    for missing in every:
        some = read({one: rows for one, rows in every.items() if one != missing})
        assert "joined_vectors_were_read" in refusing(plan, seen, some)


def test_a_vector_stays_where_the_task_found_no_row() -> None:
    one = group(1, converted=[scanned(A, E7), scanned(B, E7, SHARED)], new_deletes=(OF_B,))
    content, written = committed(planned(one), now(E7, THEIRS), read({THEIRS: [7]}))
    assert (written, content.added_deletes) == ({}, (OF_B,))
    assert THEIRS not in content.removed_deletes


def test_an_equality_delete_that_went_drops_the_group_although_vectors_could_be_joined() -> None:
    was_read = read({OLD: OLD_ROWS, OF_A: OUR_ROWS, THEIRS: OUR_ROWS})
    assert refusing(planned(converting()), now(THEIRS), was_read) == ["planned_deletes_still_apply"]


def test_a_new_position_delete_file_is_never_taken_for_a_vector() -> None:
    added = replace(position("new", S + 1), referenced_data_file=A.path)
    assert refusing(planned(converting()), now(E7, OLD, added)) == ["no_unknown_deletes_on_converted_files"]

"""Commits that follow rows into the outputs of a rewrite and carry over what other writers deleted."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amoro_core.model.commits import CommitContent, Group, Head, LookUp, PlanRecord
from amoro_core.model.files import DataFile, DeleteFile, ScannedFile
from amoro_core.model.paths import normalise
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import DeletedRows, PositionMap
from amoro_core.validation.rules import carried_over
from amoro_core.validation.view import (
    NOTHING_READ,
    Read,
    RowLookup,
    build_view,
    carried_deletes,
    hidden_rows,
    to_look_up,
    to_read,
    translate,
)
from tests.unit.test_removal import OURS, vector
from tests.unit.test_validating import S, data, equality, group, head, position, record, refusing, scanned, validate

A, B = data("a"), data("b")
OUT = data("out", S, rows=195)
P8, E7 = position("p8", 8, names=A), equality("e7", 7)
#: A lost five rows, four of them by position.
LEFT = {0: PositionSet.of([0, 1, 2, 3, 50])}
PLACE = {"a": normalise(A.path), "b": normalise(B.path)}
Positions = Mapping[DeleteFile, Mapping[str, Sequence[int]]]


def followed(
    rewritten: Sequence[ScannedFile] = (scanned(A, E7, P8), scanned(B, E7)),
    converted: Sequence[ScannedFile] = (),
    outputs: Sequence[DataFile] = (OUT,),
    left_out: Mapping[int, PositionSet] = LEFT,
    ratio: float = 0.2,
) -> Group:
    made = group(1, rewritten, converted, outputs)
    rows = tuple(DeletedRows(at, 4, 10, len(positions)) for at, positions in left_out.items())
    output = replace(made.output, position_map=PositionMap("map", 100, rows))
    return replace(made, output=output, work=replace(made.work, max_hidden_ratio=ratio))


def read(positions: Positions, left_out: Mapping[int, PositionSet] | None = LEFT) -> Read:
    found = {
        delete.identity: {PLACE[name]: PositionSet.of(rows) for name, rows in named.items()}
        for delete, named in positions.items()
    }
    return Read(found, {} if left_out is None else {1: left_out})


def carried(plan: PlanRecord, now: Head, was_read: Read) -> dict[str, list[int]]:
    """The rows carried over, by output; the commit must be allowed."""
    done = validate(plan, now, was_read)
    assert (done.conflict, done.dropped) == (None, {})
    assert done.content is not None
    rows = carried_over(build_view(plan, now, was_read), done.content)
    return {one.output.path: one.positions.ascending().tolist() for one in rows}


NEW, COMPACTED, LESS = position("new", S + 1, names=A), position("compacted", 8, names=A), position("less", 8, names=A)
ANY, INSTEAD, OLD_KEYS = position("any", S + 1), position("instead", S + 1, names=A), equality("old", S)
PLANNED = {"a": [0, 1, 2, 3]}
CAME_BACK = {P8: PLANNED, LESS: {"a": [0, 1, 2, 50]}}
COMPACTED_ROWS = {P8: PLANNED, COMPACTED: {"a": [0, 1, 2, 3, 7]}}
#: Deletes of A and of B on the head, the positions that were read, and the rows carried over, or the rule that refuses.
FOLLOWED: Mapping[str, tuple[Sequence[DeleteFile], Sequence[DeleteFile], Positions, list[int] | str]] = {
    # Row 4 is the first one that A kept, row 50 was left out; A has 95 live rows.
    "a new delete": ((E7, P8, ANY), (E7, ANY), {ANY: {"a": [4, 50, 99], "b": [0, 99]}}, [0, 94, 95, 194]),
    "nothing happened": ((E7, P8), (E7,), {}, []),
    "rows that were left out": ((E7, P8, NEW), (E7,), {NEW: {"a": [2, 50]}}, []),
    "compacted deletes": ((E7, COMPACTED), (E7,), COMPACTED_ROWS, [3]),
    "keys that became positions": ((P8, INSTEAD), (), {P8: PLANNED, INSTEAD: {"a": [50]}}, []),
    "a delete that was not read": ((E7, P8, NEW), (E7,), {}, "position_deletes_were_read"),
    "a row that came back": ((E7, LESS), (E7,), CAME_BACK, "planned_positions_are_still_deleted"),
    "keys that are gone": ((P8,), (), {P8: PLANNED}, "planned_equality_deletes_still_apply"),
    "old keys that were not planned": ((E7, OLD_KEYS, P8), (E7, OLD_KEYS), {}, "no_unplanned_old_equality_deletes"),
}


@pytest.mark.parametrize(("of_a", "of_b", "positions", "expected"), FOLLOWED.values(), ids=FOLLOWED)
def test_rows_are_followed_into_the_outputs_or_one_rule_drops_the_group(
    of_a: Sequence[DeleteFile], of_b: Sequence[DeleteFile], positions: Positions, expected: list[int] | str
) -> None:
    plan, now = record(followed()), head(scanned(A, *of_a), scanned(B, *of_b))
    if isinstance(expected, str):
        assert refusing(plan, now, read(positions)) == [expected]
        return
    deletes, maps = to_read(build_view(plan, now))
    assert (set(deletes), maps) == (positions.keys(), plan.groups if positions else ())
    assert carried(plan, now, read(positions)) == ({OUT.path: expected} if expected else {})


def test_rows_are_followed_into_outputs_that_were_written_in_another_order() -> None:
    made, new = followed(), position("new", S + 1)
    assert made.output.position_map is not None
    told = replace(made.output, position_map=replace(made.output.position_map, order=(1, 0)))
    now = head(scanned(A, E7, P8, new), scanned(B, E7, new))
    found = carried(record(replace(made, output=told)), now, read({new: {"a": [4, 50, 99], "b": [0, 99]}}))
    assert found == {OUT.path: [0, 99, 100, 194]}


def test_rows_are_never_followed_without_what_was_to_be_read() -> None:
    """A second guard behind the rules."""
    plan, new = record(followed()), position("new", S + 1, names=A)
    view = build_view(plan, head(scanned(A, E7, P8, new), scanned(B, E7)), read({}))
    with pytest.raises(ValueError, match="the position delete new was not read"):
        hidden_rows(plan.groups[0], view)


def test_a_map_that_was_not_read_drops_the_group() -> None:
    plan, new = record(followed()), position("new", S + 1, names=A)
    now = head(scanned(A, E7, P8, new), scanned(B, E7))
    assert refusing(plan, now, read({new: {"a": [9]}}, None)) == ["omitted_rows_were_read"]


@pytest.mark.parametrize("removed", [(equality("gone", S + 1),), None], ids=["removed", "not known"])
def test_newer_equality_deletes_that_were_removed_count_for_converted_files_alone(
    removed: tuple[DeleteFile, ...] | None,
) -> None:
    """Whoever removed one has left positions or vectors in its place, which are followed or looked up."""
    now = head(scanned(A, E7, P8), scanned(B, E7), removed_equality_deletes=removed)
    assert refusing(record(followed()), now) == []
    assert refusing(record(ordered()), now, was_read({}, None)) == []
    both = record(followed([scanned(A, E7, P8)], [scanned(B, E7)], [replace(OUT, record_count=95)]))
    rule = "removed_equality_deletes_were_read" if removed is None else "newer_equality_deletes_remain"
    assert rule in refusing(both, now)


def test_the_rows_of_an_input_that_is_gone_are_hidden() -> None:
    small = data("small", rows=20)
    plan = record(followed([scanned(A, P8), scanned(small)], outputs=[replace(OUT, record_count=115)]))
    found = carried(plan, head(scanned(A, P8)), read({}))
    assert found == {OUT.path: list(range(95, 115))}
    done = validate(plan, head(scanned(A, P8)), read({}))
    assert done.content is not None
    assert done.content.removed_data == (A,)


def test_a_receipt_names_the_files_whose_deletes_were_carried_over_most_rows_first() -> None:
    """Rows that the task left out, or that were deleted before, count for nobody."""
    small, left_out = data("small", rows=20), {**LEFT, 1: PositionSet.of([0, 1])}
    plan = record(followed([scanned(A, P8), scanned(small)], left_out=left_out))
    news = [position(f"n{number:02}", S + number, names=A) for number in range(1, 13)]
    rows = {delete: {"a": [0, *range(60, 60 + at)]} for at, delete in enumerate(news)}
    was_read = read({P8: {"a": [0, 1, 2, 3, 60]}, **rows}, left_out)
    seen = head(scanned(A, P8, *news), authors={S + 12: "snapshot 7 of spark"})
    told = carried_deletes(plan.groups, build_view(plan, seen, was_read))
    assert told == (
        f"18 in {small.path}, which is gone",
        "10 in n12 of snapshot 7 of spark",
        *(f"{number - 2} in n{number:02} of sequence number {S + number}" for number in range(11, 3, -1)),
        "those in 1 more files",
    )
    view = build_view(plan, head(scanned(A, P8, *news[:3]), scanned(small)), was_read)
    assert carried_deletes(plan.groups, view) == (f"1 in n03 of sequence number {S + 3}",)
    many = position("many", S + 1, names=A)
    view = build_view(plan, head(scanned(A, P8, many), scanned(small)), read({P8: {}, many: {"a": range(5000)}}, {}))
    assert carried_deletes(plan.groups, view) == (f"5,000 in many of sequence number {S + 1}",)


@pytest.mark.parametrize(("ratio", "rules"), [(0.2, []), (0.17, ["few_rows_of_missing_inputs"])])
def test_outputs_of_which_too_much_would_be_hidden_drop_the_group(ratio: float, rules: list[str]) -> None:
    small = data("small", rows=20)
    inputs = [scanned(A, P8), scanned(small)]
    plan = record(followed(inputs, outputs=[replace(OUT, record_count=115)], ratio=ratio))
    assert refusing(plan, head(scanned(A, P8)), read({})) == rules


def test_a_group_whose_inputs_are_all_gone_is_dropped() -> None:
    plan = record(followed(ratio=1.0))
    assert refusing(plan, head(), read({})) == ["few_rows_of_missing_inputs"]


def test_an_input_whose_rows_got_ids_drops_the_group_unless_it_stays() -> None:
    now = head(scanned(replace(A, first_row_id=7), E7, P8), scanned(B, E7))
    assert refusing(record(followed()), now) == ["row_ids_are_the_planned_ones"]
    stays = record(followed([scanned(B, E7)], [scanned(A, E7, P8)], [replace(OUT, record_count=100)], {}))
    assert refusing(stays, now) == []


def test_an_input_that_is_gone_drops_the_group_in_format_1_where_no_row_can_be_hidden() -> None:
    small = data("small", rows=20)
    inputs = [scanned(data("big")), scanned(small)]
    plan = record(followed(inputs, outputs=[replace(OUT, record_count=120)], left_out={}), format_version=1)
    now = head(scanned(data("big")), format_version=1)
    assert refusing(plan, now, read({}, {})) == ["few_rows_of_missing_inputs"]


# Translation of deleted rows into positions of outputs


@st.composite
def rewrites(draw: st.DrawFn) -> tuple[list[list[bool]], list[list[bool]], list[int]]:
    """For each row of each input, whether it was left out and whether it is hidden; and the rows of each output."""
    counts = draw(st.lists(st.integers(0, 12), max_size=5))
    out = [draw(st.lists(st.booleans(), min_size=count, max_size=count)) for count in counts]
    hidden = [draw(st.lists(st.booleans(), min_size=count, max_size=count)) for count in counts]
    live = sum(not left for rows in out for left in rows)
    cuts = sorted(draw(st.lists(st.integers(0, live), max_size=3)))
    return out, hidden, [end - start for start, end in zip([0, *cuts], [*cuts, live], strict=True)]


def _positions(flags: list[list[bool]]) -> dict[int, PositionSet]:
    return {
        at: PositionSet.of([position for position, is_set in enumerate(rows) if is_set])
        for at, rows in enumerate(flags)
        if any(rows)
    }


@given(rewrites(), st.randoms(use_true_random=False))
@example(([[True, False, False], [False, True]], [[True, False, True], [True, True]], [1, 2]), random.Random(1))
def test_each_hidden_row_is_found_where_it_was_written(
    given_: tuple[list[list[bool]], list[list[bool]], list[int]], chance: random.Random
) -> None:
    left_out, hidden, output_rows = given_
    order = list(range(len(left_out)))
    chance.shuffle(order)
    written = [
        (number, position)
        for number in order
        for position, is_left_out in enumerate(left_out[number])
        if not is_left_out
    ]
    wanted: dict[int, set[int]] = {}
    start = 0
    for output, count in enumerate(output_rows):
        for at, (number, of_input) in enumerate(written[start : start + count]):
            if hidden[number][of_input]:
                wanted.setdefault(output, set()).add(at)
        start += count
    found = translate([len(rows) for rows in left_out], _positions(left_out), _positions(hidden), output_rows, order)
    assert found == {output: PositionSet.of(positions) for output, positions in wanted.items()}


def test_outputs_with_other_rows_than_the_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="5 rows of the inputs are live, the outputs have 4"):
        translate([6], {0: PositionSet.of([2])}, {}, [4])
    with pytest.raises(ValueError, match=r"2 inputs can't have the order \[0, 0\]"):
        translate([3, 3], {}, {}, [6], [0, 0])


# Rows that are looked up in outputs of another order


FOUND = RowLookup({0: PositionSet.of([7])})
READ = {P8: {"a": [0, 1, 2, 3]}, NEW: {"a": [3, 4, 50]}}


def ordered(rewritten: Sequence[ScannedFile] = (scanned(A, E7, P8), scanned(B, E7))) -> Group:
    return replace(group(1, rewritten, (), (OUT,)), is_reordered=True, look_up=LookUp((1,), 10))


def was_read(positions: Positions, found: RowLookup | None = FOUND) -> Read:
    return replace(read(positions, None), found={} if found is None else {1: found})


def wanted(plan: PlanRecord, now: Head, positions: Positions) -> object:
    return [(one.number, rows) for one, rows in to_look_up(build_view(plan, now, was_read(positions)))]


def test_rows_that_others_have_deleted_since_the_plan_are_looked_up_and_hidden_where_they_were_found() -> None:
    plan = record(ordered())
    now = head(scanned(A, E7, P8, NEW), scanned(B, E7))
    assert to_read(build_view(plan, now)) == ((NEW, P8), ())
    assert wanted(plan, now, READ) == [(1, {0: PositionSet.of([4, 50])})]
    done = validate(plan, now, was_read(READ))
    assert (done.conflict, done.dropped) == (None, {})
    assert done.content is not None
    rows = carried_over(build_view(plan, now, was_read(READ)), done.content)
    assert [(one.group, one.output, one.positions) for one in rows] == [(1, OUT, PositionSet.of([7]))]


def test_nothing_is_read_and_looked_up_where_nothing_happened_to_the_inputs() -> None:
    plan = record(ordered())
    now = head(scanned(A, E7, P8), scanned(B, E7), scanned(data("c", S + 1), NEW))
    assert to_read(build_view(plan, now)) == ((), ())
    assert wanted(plan, now, {}) == []
    assert refusing(plan, now, was_read({}, None)) == []


@pytest.mark.parametrize(
    ("found", "why"),
    [(None, "they were not looked up"), (RowLookup(problem="they are 11"), "they are 11")],
    ids=["not looked up", "not found"],
)
def test_rows_that_were_not_found_drop_the_group(found: RowLookup | None, why: str) -> None:
    plan = record(ordered())
    now = head(scanned(A, E7, P8, NEW), scanned(B, E7))
    assert refusing(plan, now, was_read(READ, found)) == ["hidden_rows_were_located"]
    done = validate(plan, now, was_read(READ, found))
    assert done.dropped[1].endswith(f"can't be found in the outputs: {why}")


@pytest.mark.parametrize("unread", [P8, NEW], ids=["planned", "new"])
def test_a_position_delete_that_was_not_read_drops_the_group_whose_rows_are_looked_up(unread: DeleteFile) -> None:
    plan = record(ordered())
    now = head(scanned(A, E7, P8, NEW), scanned(B, E7))
    known = {delete: named for delete, named in READ.items() if delete is not unread}
    assert wanted(plan, now, known) == []
    assert "position_deletes_were_read" in refusing(plan, now, was_read(known, None))


def test_what_was_planned_has_to_be_deleted_still_where_rows_are_looked_up() -> None:
    """Which rows a planned equality delete had hit, and the outputs lack, is not known: they may be alive again."""
    plan, less, gone = record(ordered()), head(scanned(A, E7, LESS), scanned(B, E7)), head(scanned(A, P8), scanned(B))
    assert refusing(plan, less, was_read(CAME_BACK)) == ["planned_positions_are_still_deleted"]
    assert refusing(plan, gone, was_read({P8: PLANNED})) == ["planned_equality_deletes_still_apply"]
    compacted = head(scanned(A, E7, COMPACTED), scanned(B, E7))
    assert set(to_read(build_view(plan, compacted))[0]) == {COMPACTED, P8}
    assert wanted(plan, compacted, COMPACTED_ROWS) == [(1, {0: PositionSet.of([7])})]
    assert refusing(plan, compacted, was_read(COMPACTED_ROWS)) == []
    done = validate(plan, head(scanned(A, E7, P8)), was_read({}, None))
    assert done.dropped == {1: f"{B.path} is no longer live"}


# Converted files whose vector others have written anew since the plan


OLD, SHARED = vector(A, 8, path="old.puffin"), position("p8", 8)
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


def read_rows(rows: Mapping[DeleteFile, Sequence[int]], of: DataFile = A) -> Read:
    return Read({one.identity: {normalise(of.path): PositionSet.of(found)} for one, found in rows.items()})


def committed(plan: PlanRecord, seen: Head, was_read: Read) -> tuple[CommitContent, dict[str, list[int]]]:
    """The content and the vectors to be written, by data file; the commit must be allowed."""
    done = validate(plan, seen, was_read)
    assert (done.conflict, done.dropped) == (None, {})
    assert done.content is not None
    carried = carried_over(build_view(plan, seen, was_read), done.content)
    assert all(one.is_joined for one in carried)
    return done.content, {one.output.path: one.positions.ascending().tolist() for one in carried}


def test_the_new_vector_holds_the_rows_of_both_and_both_go() -> None:
    plan, seen = planned(converting()), now(E7, THEIRS)
    assert set(to_read(build_view(plan, seen))[0]) == {OLD, OF_A, THEIRS}
    content, written = committed(plan, seen, read_rows({OLD: OLD_ROWS, OF_A: OUR_ROWS, THEIRS: [1, 2, 7]}))
    assert written == {A.path: [1, 2, 7, 50]}
    assert content.added_deletes == (OF_B,)
    assert set(content.removed_deletes) == {E7, SHARED, THEIRS}


def test_nothing_is_read_or_joined_where_the_head_has_what_was_planned() -> None:
    plan, seen = planned(converting()), now(E7, OLD)
    assert to_read(build_view(plan, seen)) == ((), ())
    content, written = committed(plan, seen, NOTHING_READ)
    assert (written, content.added_deletes) == ({}, (OF_A, OF_B))
    assert set(content.removed_deletes) == {E7, SHARED, OLD}


def test_a_first_vector_stands_for_the_position_delete_files_that_it_hides() -> None:
    plan, theirs = planned(converting()), vector(B, S + 1, path="theirs.puffin")
    seen = now(E7, OLD, of_b=(E7, theirs))
    assert set(to_read(build_view(plan, seen))[0]) == {SHARED, OF_B, theirs}
    rows = {SHARED: [3], OF_B: [3, 50], theirs: [3, 9]}
    content, written = committed(plan, seen, read_rows(rows, B))
    assert (written, content.added_deletes) == ({B.path: [3, 9, 50]}, (OF_A,))
    came_back = read_rows({**rows, theirs: [9]}, B)
    assert refusing(plan, seen, came_back) == ["no_row_of_a_converted_file_came_back"]


@pytest.mark.parametrize(
    ("of_a", "rows", "rule"),
    [
        ((E7, THEIRS), [1, 7], "no_row_of_a_converted_file_came_back"),
        ((THEIRS,), OUR_ROWS, "planned_deletes_still_apply"),
        ((E7, OLD, position("new", S + 1, names=A)), [], "no_unknown_deletes_on_converted_files"),
    ],
    ids=["a row that came back", "keys that went", "a position delete file"],
)
def test_a_conversion_is_dropped_where_vectors_can_not_be_joined(
    of_a: tuple[DeleteFile, ...], rows: list[int], rule: str
) -> None:
    plan, seen = planned(converting()), now(*of_a)
    was_read = read_rows({OLD: OLD_ROWS, OF_A: OUR_ROWS, THEIRS: rows}) if rows else NOTHING_READ
    assert refusing(plan, seen, was_read) == [rule]
    assert validate(plan, seen, was_read).content is None


def test_what_was_not_read_drops_the_group() -> None:
    plan, seen = planned(converting()), now(E7, THEIRS)
    every = {OLD: OLD_ROWS, OF_A: OUR_ROWS, THEIRS: [1, 2]}
    for missing in every:
        some = read_rows({one: rows for one, rows in every.items() if one != missing})
        assert "joined_vectors_were_read" in refusing(plan, seen, some)


def test_a_vector_stays_where_the_task_found_no_row() -> None:
    one = group(1, converted=[scanned(A, E7), scanned(B, E7, SHARED)], new_deletes=(OF_B,))
    content, written = committed(planned(one), now(E7, THEIRS), read_rows({THEIRS: [7]}))
    assert (written, content.added_deletes) == ({}, (OF_B,))
    assert THEIRS not in content.removed_deletes

"""Rules of tasks whose rows are followed into their outputs: the head counts, not how it came about."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from amoro_core.model.commits import Group, Head, PlanRecord
from amoro_core.model.files import DataFile, DeleteFile, ScannedFile
from amoro_core.model.paths import normalise
from amoro_core.model.rewrite import LeftOutRows, PositionMap
from amoro_core.positions import PositionSet
from amoro_core.validating.reading import to_read
from amoro_core.validating.rules import GROUP_RULES, WHOLE_RULES, carried_over
from amoro_core.validating.sight import NOTHING_READ, Read, look
from tests.unit.test_validating import S, data, equality, group, head, position, record, scanned, validate

A, B = data("a"), data("b")
OUT = data("out", S, rows=195)
P8, E7 = position("p8", 8, names=A), equality("e7", 7)
#: A lost five rows, four of them by position.
LEFT = {0: PositionSet.of([0, 1, 2, 3, 50])}
PLACE = {"a": normalise(A.path), "b": normalise(B.path)}


def followed(
    rewritten: Sequence[ScannedFile] = (scanned(A, E7, P8), scanned(B, E7)),
    converted: Sequence[ScannedFile] = (),
    outputs: Sequence[DataFile] = (OUT,),
    left_out: Mapping[int, PositionSet] = LEFT,
    ratio: float = 0.2,
) -> Group:
    made = group(1, rewritten, converted, outputs)
    rows = tuple(LeftOutRows(at, 4, 10, len(positions)) for at, positions in left_out.items())
    output = replace(made.output, position_map=PositionMap("map", 100, rows))
    return replace(made, output=output, work=replace(made.work, max_hidden_ratio=ratio))


def read(
    positions: Mapping[DeleteFile, Mapping[str, Sequence[int]]], left_out: Mapping[int, PositionSet] | None = LEFT
) -> Read:
    found = {
        delete.identity: {PLACE[name]: PositionSet.of(rows) for name, rows in named.items()}
        for delete, named in positions.items()
    }
    return Read(found, {} if left_out is None else {1: left_out})


def refusing(plan: PlanRecord, now: Head, was_read: Read = NOTHING_READ) -> list[str]:
    whole = [rule.__name__ for rule in WHOLE_RULES if rule(plan, now)]
    sight = look(plan, now, was_read)
    return whole + [rule.__name__ for rule in GROUP_RULES for one in plan.groups if rule(one, sight)]


def carried(plan: PlanRecord, now: Head, was_read: Read) -> dict[str, list[int]]:
    """The rows carried over, by output; the commit must be allowed."""
    done = validate(plan, now, was_read)
    assert (done.conflict, done.dropped) == (None, {})
    assert done.content is not None
    rows = carried_over(look(plan, now, was_read), done.content)
    return {one.output.path: one.positions.ascending().tolist() for one in rows}


def test_a_new_position_delete_follows_the_rows_into_the_outputs() -> None:
    plan, new = record(followed()), position("new", S + 1)
    now = head(scanned(A, E7, P8, new), scanned(B, E7, new))
    assert to_read(look(plan, now)) == ((new,), plan.groups)
    # Row 4 is the first one that A kept, row 50 was left out; A has 95 live rows.
    found = carried(plan, now, read({new: {"a": [4, 50, 99], "b": [0, 99]}}))
    assert found == {OUT.path: [0, 94, 95, 194]}


def test_nothing_is_read_where_nothing_happened_to_the_inputs() -> None:
    plan, now = record(followed()), head(scanned(A, E7, P8), scanned(B, E7), scanned(data("c", S + 1)))
    assert to_read(look(plan, now)) == ((), ())
    assert carried(plan, now, NOTHING_READ) == {}


def test_a_delete_of_rows_that_were_left_out_needs_nothing() -> None:
    plan, new = record(followed()), position("new", S + 1, names=A)
    assert carried(plan, head(scanned(A, E7, P8, new), scanned(B, E7)), read({new: {"a": [2, 50]}})) == {}


def test_a_position_delete_that_was_not_read_drops_the_group() -> None:
    plan, new = record(followed()), position("new", S + 1, names=A)
    now = head(scanned(A, E7, P8, new), scanned(B, E7))
    assert refusing(plan, now, read({})) == ["position_deletes_were_read"]


def test_a_map_that_was_not_read_drops_the_group() -> None:
    plan, new = record(followed()), position("new", S + 1, names=A)
    now = head(scanned(A, E7, P8, new), scanned(B, E7))
    assert refusing(plan, now, read({new: {"a": [9]}}, None)) == ["left_out_rows_are_known"]


def test_compacted_position_deletes_stand_for_the_planned_ones() -> None:
    plan, compacted = record(followed()), position("compacted", 8, names=A)
    now = head(scanned(A, E7, compacted), scanned(B, E7))
    assert set(to_read(look(plan, now))[0]) == {compacted, P8}
    was_read = read({P8: {"a": [0, 1, 2, 3]}, compacted: {"a": [0, 1, 2, 3, 7]}})
    assert carried(plan, now, was_read) == {OUT.path: [3]}


def test_a_row_that_was_deleted_by_position_and_came_back_drops_the_group() -> None:
    plan, less = record(followed()), position("less", 8, names=A)
    now = head(scanned(A, E7, less), scanned(B, E7))
    was_read = read({P8: {"a": [0, 1, 2, 3]}, less: {"a": [0, 1, 2, 50]}})
    assert refusing(plan, now, was_read) == ["planned_positions_are_still_deleted"]


def test_an_equality_delete_that_became_positions_is_no_conflict() -> None:
    plan, instead = record(followed()), position("instead", S + 1, names=A)
    now = head(scanned(A, P8, instead), scanned(B))
    was_read = read({P8: {"a": [0, 1, 2, 3]}, instead: {"a": [50]}})
    assert set(to_read(look(plan, now))[0]) == {P8, instead}
    assert carried(plan, now, was_read) == {}


def test_a_row_of_an_equality_delete_that_is_gone_drops_the_group() -> None:
    plan, now = record(followed()), head(scanned(A, P8), scanned(B))
    assert refusing(plan, now, read({P8: {"a": [0, 1, 2, 3]}})) == ["planned_equality_deletes_still_apply"]


def test_an_old_equality_delete_that_was_not_planned_drops_the_group() -> None:
    plan, old = record(followed()), equality("old", S)
    now = head(scanned(A, E7, old, P8), scanned(B, E7, old))
    assert refusing(plan, now) == ["no_unplanned_old_equality_deletes"]


def test_a_newer_equality_delete_that_was_removed_counts_for_converted_files_alone() -> None:
    gone = {"removed_equality_deletes": (equality("gone", S + 1),)}
    now = head(scanned(A, E7, P8), scanned(B, E7), **gone)
    assert refusing(record(followed()), now) == []
    both = record(followed([scanned(A, E7, P8)], [scanned(B, E7)], [replace(OUT, record_count=95)]))
    assert refusing(both, now) == ["newer_equality_deletes_are_kept"]


def test_what_was_removed_since_need_not_be_known_without_converted_files() -> None:
    unknown = {"removed_equality_deletes": None}
    assert refusing(record(followed()), head(scanned(A, E7, P8), scanned(B, E7), **unknown)) == []


def test_the_rows_of_an_input_that_is_gone_are_hidden() -> None:
    small = data("small", rows=20)
    plan = record(followed([scanned(A, P8), scanned(small)], outputs=[replace(OUT, record_count=115)]))
    found = carried(plan, head(scanned(A, P8)), read({}))
    assert found == {OUT.path: list(range(95, 115))}
    done = validate(plan, head(scanned(A, P8)), read({}))
    assert done.content is not None
    assert done.content.removed_data == (A,)


@pytest.mark.parametrize(("ratio", "rules"), [(0.2, []), (0.17, ["few_rows_of_gone_inputs"])])
def test_outputs_of_which_too_much_would_be_hidden_drop_the_group(ratio: float, rules: list[str]) -> None:
    small = data("small", rows=20)
    inputs = [scanned(A, P8), scanned(small)]
    plan = record(followed(inputs, outputs=[replace(OUT, record_count=115)], ratio=ratio))
    assert refusing(plan, head(scanned(A, P8)), read({})) == rules


def test_a_group_whose_inputs_are_all_gone_is_dropped() -> None:
    plan = record(followed(ratio=1.0))
    assert refusing(plan, head(), read({})) == ["few_rows_of_gone_inputs"]


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
    assert refusing(plan, now, read({}, {})) == ["few_rows_of_gone_inputs"]

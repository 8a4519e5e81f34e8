import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from amoro_core.model.commits import CommitContent, Group, Head, PlanRecord, Validation
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteIdentity,
    DeleteKind,
    FileFormat,
    Partition,
    ScannedFile,
    TableScan,
)
from amoro_core.model.paths import normalise
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import InputFile, RewriteInput, RewriteOutput, TableContext
from amoro_core.validation import validate as validate_sight
from amoro_core.validation.removable_deletes import removable_deletes
from amoro_core.validation.rules import GROUP_RULES, WHOLE_RULES, field_ids
from amoro_core.validation.view import NOTHING_READ, Read, build_view, to_read

S = 10
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "name", "required": False, "type": "string"},
    ],
}
CONTEXT = TableContext(
    catalog="cat",
    table="cat.db.t",
    table_uuid="uuid-1",
    format_version=2,
    location="file:///w/t",
    data_location="file:///w/t/data",
    schema_json=json.dumps(SCHEMA),
    spec_json="{}",
    name_mapping_json=None,
    dropped_fields_json=(),
    sort_order_json=None,
    properties={},
    read_locations=("file:///w",),
)


def data(path: str, sequence: int = 5, spec: int = 0, partition: Partition = (), rows: int = 100) -> DataFile:
    return DataFile(f"file:///w/t/data/{path}", FileFormat.PARQUET, spec, partition, rows, 1000, sequence)


def equality(
    path: str, sequence: int, spec: int = 0, partition: Partition = (), ids: tuple[int, ...] = (1,)
) -> DeleteFile:
    kind = DeleteKind.EQUALITY
    return DeleteFile(path, kind, FileFormat.PARQUET, spec, partition, 3, 100, sequence, equality_ids=ids)


def position(
    path: str, sequence: int, spec: int = 0, partition: Partition = (), names: DataFile | None = None
) -> DeleteFile:
    kind, named = DeleteKind.POSITION, names.path if names else None
    return DeleteFile(path, kind, FileFormat.PARQUET, spec, partition, 3, 100, sequence, referenced_data_file=named)


def bounded(path: str, sequence: int, lowest: DataFile, highest: DataFile) -> DeleteFile:
    bounds = [{DELETE_PATH_FIELD_ID: one.path.encode()} for one in (lowest, highest)]
    return replace(position(path, sequence), metrics=ColumnMetrics(lower_bounds=bounds[0], upper_bounds=bounds[1]))


def by_bounds(delete: DeleteFile) -> DeleteFile:
    """The position delete of one file as Spark writes it: without a reference, by equal bounds."""
    assert delete.referenced_data_file is not None
    bound = {DELETE_PATH_FIELD_ID: delete.referenced_data_file.encode()}
    metrics = ColumnMetrics(lower_bounds=bound, upper_bounds=bound)
    return replace(delete, referenced_data_file=None, metrics=metrics)


def group(
    number: int = 1,
    rewritten: Sequence[ScannedFile] = (),
    converted: Sequence[ScannedFile] = (),
    outputs: Sequence[DataFile] | None = None,
    new_deletes: Sequence[DeleteFile] | None = None,
) -> Group:
    every = (*rewritten, *converted)
    deletes = tuple(dict.fromkeys(delete for scanned in every for delete in scanned.deletes))

    def inputs(files: Sequence[ScannedFile]) -> tuple[InputFile, ...]:
        return tuple(InputFile(one.data, tuple(deletes.index(delete) for delete in one.deletes)) for one in files)

    place = (every[0].data.spec_id, every[0].data.partition)
    if outputs is None:
        outputs = [data(f"out-{number}", S, *place)] if rewritten else []
    if new_deletes is None:
        new_deletes = [position(f"new-{number}-{at}", S, *place, one.data) for at, one in enumerate(converted)]
    work = RewriteInput(CONTEXT, inputs(rewritten), inputs(converted), deletes, S, 1000, len(outputs))
    return Group(number, work, RewriteOutput(tuple(outputs), tuple(new_deletes), 0, 0, 0, 0, 0, 0, 0))


def record(*groups: Group, **changes: Any) -> PlanRecord:
    plan = PlanRecord("p", "uuid-1", 2, 100, S, 2, groups)
    return replace(plan, **changes)


def head(*files: ScannedFile, dangling: Sequence[DeleteFile] = (), **changes: Any) -> Head:
    scan = TableScan(200, 20, files, tuple(dangling))
    return replace(Head("uuid-1", 2, 200, 20, True, frozenset({1, 2}), scan, ()), **changes)


def scan_of(*files: ScannedFile) -> TableScan:
    return TableScan(200, 20, files)


def scanned(file: DataFile, *deletes: DeleteFile) -> ScannedFile:
    return ScannedFile(file, tuple(sorted(deletes, key=lambda one: (one.sequence_number, one.path))))


A, B, C = data("a"), data("b"), data("c", 6)
E7, P8 = equality("e7", 7), position("p8", 8)
NOT_FOLLOWED = f"the position delete new came after the plan and may apply to {B.path}; {{}}"


def ambiguous_deletes(plan: PlanRecord, now: Head) -> tuple[DeleteFile, ...]:
    return to_read(build_view(plan, now))[0]


def naming(named: Mapping[DeleteIdentity, frozenset[str]]) -> Read:
    """Deletes that were read, each with the files that it names."""
    some = PositionSet.of([1])
    return Read({identity: {normalise(path): some for path in paths} for identity, paths in named.items()})


def validate(plan: PlanRecord, now: Head, read: Read = NOTHING_READ) -> Validation:
    return validate_sight(build_view(plan, now, read))


def refusing(plan: PlanRecord, now: Head, read: Read = NOTHING_READ) -> list[str]:
    """The names of all rules that refuse, so that a test shows what is lost without one of them."""
    whole = [rule.__name__ for rule in WHOLE_RULES if rule(plan, now)]
    view = build_view(plan, now, read)
    return whole + [rule.__name__ for rule in GROUP_RULES for one in plan.groups if rule(one, view)]


WHOLE, HIT_NOTHING = group(1, rewritten=[scanned(A, E7), scanned(B, E7, P8)]), group(1, [], [scanned(A, E7)], (), ())
CONVERTING = group(1, converted=[scanned(A, E7)])
EMPTIED, REWRITING = group(1, [scanned(A, E7)], (), ()), group(1, [scanned(A), scanned(B)])
OLD_AND_ELSEWHERE = equality("old", 4), equality("newer", S + 1, 0, (b"other",))
#: The group, the head, and what is committed of it.
COMMITTED: Mapping[str, tuple[Group, Head, CommitContent | None]] = {
    "an unchanged table": (
        WHOLE,
        head(*(scanned(A, E7), scanned(B, E7, P8))),
        CommitContent((1,), (A, B), (E7, P8), WHOLE.output.data_files, ()),
    ),
    "new position deletes on a converted file go on applying": (
        CONVERTING,
        head(scanned(A, E7, position("new", S + 1))),
        CommitContent((1,), (), (E7,), (), CONVERTING.output.delete_files),
    ),
    "files of which no row is left go though their delete stays": (
        EMPTIED, head(scanned(A, E7), scanned(B, E7)), CommitContent((1,), (A,), (), (), ())
    ),
    "a conversion that hit nothing takes its delete away": (
        HIT_NOTHING, head(scanned(A, E7)), CommitContent((1,), (), (E7,), (), ())
    ),
    "nothing left is neither a conflict nor a content": (group(1, [scanned(A)]), head(scanned(C)), None),
    "a conversion that hit nothing and removes nothing": (HIT_NOTHING, head(scanned(A, E7), scanned(B, E7)), None),
    "a delete that dangles goes with the next rewrite": (
        REWRITING,
        head(scanned(A), scanned(B), dangling=OLD_AND_ELSEWHERE),
        CommitContent((1,), (A, B), OLD_AND_ELSEWHERE[:1], REWRITING.output.data_files, ()),
    ),
    "a dangling delete alone": (group(1, [scanned(A)]), head(scanned(B), dangling=OLD_AND_ELSEWHERE[:1]), None),
}  # fmt: skip


@pytest.mark.parametrize(("one", "now", "content"), COMMITTED.values(), ids=COMMITTED)
def test_what_is_committed_of_a_group(one: Group, now: Head, content: CommitContent | None) -> None:
    done = validate(record(one), now)
    assert (done.conflict, list(done.dropped), done.content) == (None, [] if content else [1], content)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"table_uuid": "uuid-2"}, "table_is_the_planned_one"),
        ({"format_version": 3}, "format_version_is_the_planned_one"),
        ({"descends": False}, "plan_is_an_ancestor"),
        ({"descends": None}, "plan_is_an_ancestor"),
        ({"removed_equality_deletes": None}, "removed_equality_deletes_were_read"),
    ],
)
def test_a_head_of_another_history_conflicts_wholly_by_one_rule(change: dict[str, Any], rule: str) -> None:
    plan = record(group(1, rewritten=[scanned(A)]), group(2, rewritten=[scanned(B)]))
    now = head(scanned(A), scanned(B), **change)

    done = validate(plan, now)

    assert refusing(plan, now) == [rule]
    assert done.conflict is not None
    assert (done.dropped, done.content) == ({}, None)


@pytest.mark.parametrize(
    ("place", "left"), [((3, ()), ()), ((3, (None,)), ()), ((0, (b"x",)), (2, 3))], ids=["all", "nulls", "partition"]
)
def test_a_newer_equality_delete_that_was_removed_drops_the_groups_where_it_held(
    place: tuple[int, Partition], left: tuple[int, ...]
) -> None:
    here, there = replace(A, partition=(b"x",)), replace(B, partition=(b"y",))
    other = replace(C, partition=(b"x",), spec_id=1)
    plan = record(*(group(number, rewritten=[scanned(one)]) for number, one in enumerate((here, there, other), 1)))
    gone = equality("gone", S + 1, *place)
    now = head(scanned(here), scanned(there), scanned(other), removed_equality_deletes=(gone,))
    dropped = [number for number in (1, 2, 3) if number not in left]

    done = validate(plan, now)

    assert refusing(plan, now) == ["newer_equality_deletes_remain"] * len(dropped)
    why = f"the equality delete {gone.path}, newer than the plan, was removed meanwhile"
    assert done.dropped == dict.fromkeys(dropped, why)
    assert (() if done.content is None else done.content.groups) == left


def test_a_conflict_names_the_columns_or_the_file() -> None:
    unwritten, all_columns = record(group(1, rewritten=[scanned(A)]), last_column_id=3), frozenset({1, 2, 3})
    now = head(scanned(A), field_ids=all_columns)
    assert refusing(unwritten, now) == ["outputs_hold_all_columns"]
    assert validate(unwritten, now).conflict == "columns of the table are not in the rewritten files: field ids [3]"

    twice = record(group(1, rewritten=[scanned(A)]), group(2, converted=[scanned(A)]))
    assert refusing(twice, head(scanned(A))) == ["inputs_are_planned_once"]
    assert validate(twice, head(scanned(A))).conflict == f"{A.path} was planned more than once"

    newer = data("newer", S + 1)
    nothing_left = head(scanned(A, E7), scanned(B, E7))
    assert validate(record(HIT_NOTHING), nothing_left).dropped == {1: "nothing is left to change on this head"}
    above = record(group(1, rewritten=[scanned(newer)]))
    assert refusing(above, head(scanned(newer))) == ["inputs_are_not_newer_than_the_plan"]
    assert validate(above, head(scanned(newer))).dropped == {1: f"{newer.path} is newer than the plan"}


@pytest.mark.parametrize(
    "live",
    [
        [],
        [scanned(replace(A, sequence_number=6))],
        [scanned(replace(A, spec_id=1))],
        [scanned(replace(A, partition=(b"x",)))],
        [scanned(replace(A, record_count=99))],
        [scanned(replace(A, size_bytes=99))],
        [scanned(A), scanned(replace(A, sequence_number=6))],
        [scanned(A), scanned(replace(A, path="file:/w/t/data/a"))],
        [scanned(A), scanned(A)],
    ],
    ids=["gone", "sequence", "spec", "partition", "rows", "size", "twice", "twice-spelled-otherwise", "twice-the-same"],
)
def test_a_group_whose_input_is_not_live_as_planned_is_dropped(live: list[ScannedFile]) -> None:
    plan = record(group(1, rewritten=[scanned(A)]), group(2, rewritten=[scanned(B)]))
    now = head(*live, scanned(B))

    done = validate(plan, now)

    assert list(done.dropped) == [1]
    assert A.path in done.dropped[1]
    assert done.content is not None
    assert done.content.groups == (2,)


def test_a_new_position_delete_on_a_rewritten_file_drops_the_group() -> None:
    plan = record(group(1, rewritten=[scanned(A, P8), scanned(B)]), group(2, rewritten=[scanned(C)]))
    new = position("new", S + 1)
    now = head(scanned(A, P8), scanned(B, new), scanned(C))

    done = validate(plan, now)

    assert refusing(plan, now) == ["no_new_position_deletes_on_rewritten_files"]
    assert done.dropped == {1: NOT_FOLLOWED.format("self-optimizing.rebase.enabled was false when it was planned")}
    assert done.content is not None
    assert done.content.removed_data == (C,)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"is_reordered": True}, "the outputs hold the rows in another order"),
        ({}, "the optimizer did not tell which rows it left out"),
    ],
    ids=["another order", "an optimizer that does not tell"],
)
def test_the_reason_says_why_rows_are_not_followed(changes: Mapping[str, bool], why: str) -> None:
    one = group(1, rewritten=[scanned(B)])
    one = replace(one, work=replace(one.work, tells_left_out=True), **changes)
    done = validate(record(one), head(scanned(B, position("new", S + 1))))
    assert done.dropped[1].startswith(NOT_FOLLOWED.format(why))


def test_a_new_position_delete_that_was_read_and_names_other_files_is_no_conflict() -> None:
    one = group(1, rewritten=[scanned(A, P8), scanned(B)])
    new, wide = position("new", S + 1), bounded("wide", S + 2, A, C)
    now = head(scanned(A, P8, new, wide), scanned(B, new, wide), scanned(C, new, wide))
    named = naming({new.identity: frozenset({"file:/w/t/data/c"}), wide.identity: frozenset({"file:/w/t/data/c"})})

    assert refusing(record(one), now, named) == []
    # The planned delete stays: by its partition alone it may name the file outside.
    assert validate(record(one), now, named) == Validation(
        None, {}, CommitContent((1,), (A, B), (), one.output.data_files, ())
    )


@pytest.mark.parametrize(
    "named",
    [{}, {"other": frozenset()}, {"new": frozenset({"file:/w/t/data/b", "file:/w/t/data/c"})}],
    ids=["not read", "another was read", "names it"],
)
def test_a_new_position_delete_that_may_name_a_rewritten_file_drops_its_group_alone(
    named: dict[str, frozenset[str]],
) -> None:
    plan = record(group(1, rewritten=[scanned(B)]), group(2, rewritten=[scanned(data("x", 5, 0, (b"x",)))]))
    new = position("new", S + 1)
    now = head(scanned(B, new), scanned(C, new), scanned(data("x", 5, 0, (b"x",))))
    read = naming({replace(new, path=path).identity: paths for path, paths in named.items()})

    done = validate(plan, now, read)

    assert refusing(plan, now, read) == ["no_new_position_deletes_on_rewritten_files"]
    assert done.dropped == {1: NOT_FOLLOWED.format("self-optimizing.rebase.enabled was false when it was planned")}
    assert done.content is not None
    assert done.content.groups == (2,)


@pytest.mark.parametrize("delete", [position("new", S + 1, names=A), bounded("new", S + 1, A, A), position("new", S)])
def test_what_a_delete_names_counts_only_where_bounds_leave_it_open_and_the_plan_is_older(delete: DeleteFile) -> None:
    plan, now = record(group(1, rewritten=[scanned(A)])), head(scanned(A, delete))

    assert ambiguous_deletes(plan, now) == ()
    assert refusing(plan, now, naming({delete.identity: frozenset()})) == ["no_new_position_deletes_on_rewritten_files"]


def test_ambiguous_are_new_position_deletes_that_may_name_a_rewritten_file() -> None:
    plan = record(group(1, rewritten=[scanned(A, P8), scanned(B)], converted=[scanned(C)]))
    new, wide, late = position("new", S + 1), bounded("wide", S + 2, A, C), position("late", S + 3)
    now = head(
        scanned(replace(A, path="file:/w/t/data/a"), P8, new),
        scanned(B, wide, new, equality("e", S + 1), position("exact", S + 1, names=B)),
        scanned(C, late),
        dangling=[position("dangling", S + 1)],
    )

    assert ambiguous_deletes(plan, now) == (new, wide)


@pytest.mark.parametrize("kind", ["rewritten", "converted"])
def test_a_planned_delete_that_no_longer_applies_drops_the_group(kind: str) -> None:
    plan = record(group(1, **{kind: [scanned(A, E7, P8)]}))
    now = head(scanned(A, E7))

    assert refusing(plan, now) == ["planned_deletes_still_apply"]
    assert validate(plan, now).dropped == {1: f"the delete p8 no longer applies to {A.path}"}


def test_a_newer_equality_delete_over_all_files_of_a_group_is_no_conflict_and_stays() -> None:
    newer = equality("newer", S + 1)
    one = group(1, rewritten=[scanned(A, E7), scanned(B, E7)], converted=[scanned(C, E7)])

    done = validate(record(one), head(*(scanned(file, E7, newer) for file in (A, B, C))))

    assert done.content is not None
    assert done.content.removed_deletes == (E7,)


X, Y = data("x", 5, 0, (b"x",)), data("y", 5, 0, (b"y",))
NEWER, NEWER_OF_Y = equality("newer", S + 1), equality("newer", S + 1, 0, (b"y",))
VOID = equality("newer", S + 1, 1, (None,))  # of a spec with a void transform, as the matcher knows
PLAN_A, PLAN_X = record(group(1, rewritten=[scanned(A)])), record(group(1, rewritten=[scanned(X)]))
NEWEST = scanned(data("newest", S), position("newest-delete", S))
MORE_COLUMNS = frozenset({1, 2, 3})
COVER, KNOW = "newer_equality_deletes_cover_all_or_none", "newer_equality_deletes_know_the_outputs"
#: The plan, the head, and the only rule by which the group is dropped; "" for none.
CASES: Mapping[str, tuple[PlanRecord, Head, str]] = {
    "inputs and deletes as new as the plan": (record(group(1, rewritten=[NEWEST])), head(NEWEST), ""),
    "an equality delete up to the plan was removed": (
        PLAN_A, head(scanned(A), removed_equality_deletes=(equality("gone", S),)), ""
    ),
    "a column was added after the plan": (PLAN_A, head(scanned(A), field_ids=MORE_COLUMNS), ""),
    "converting writes no columns": (
        record(CONVERTING, last_column_id=3), head(scanned(A, E7), field_ids=MORE_COLUMNS), ""
    ),
    "a position delete of the plan's number": (
        PLAN_A, head(scanned(A, position("other", S))), "no_new_position_deletes_on_rewritten_files"
    ),
    "a delete of another number": (
        record(group(1, rewritten=[scanned(A, E7)])), head(scanned(A, replace(E7, sequence_number=8))), "both"
    ),
    "an old position delete on a converted file": (
        record(CONVERTING), head(scanned(A, E7, position("new", S))), "no_unknown_deletes_on_converted_files"
    ),
    "a position delete file on a converted file in format 3": (
        record(CONVERTING, format_version=3),
        head(scanned(A, E7, position("new", S + 1)), format_version=3),
        "no_unknown_deletes_on_converted_files",
    ),
    "an old equality delete on a rewritten file": (
        PLAN_A, head(scanned(A, equality("old", S))), "no_unplanned_old_equality_deletes"
    ),
    "an old equality delete on a converted file": (
        record(group(1, converted=[scanned(A)])),
        head(scanned(A, equality("old", S))),
        "no_unplanned_old_equality_deletes",
    ),
    "a planned delete above the plan": (
        record(group(1, rewritten=[scanned(A, NEWER)])),
        head(scanned(A, NEWER)),
        "planned_deletes_are_not_newer_than_the_plan",
    ),
    "over a part of the inputs": (
        record(group(1, rewritten=[scanned(A), scanned(B)])), head(scanned(A, NEWER), scanned(B)), COVER
    ),
    "over the outputs only": (
        record(group(1, rewritten=[scanned(Y)], outputs=[data("out", S, 0, (b"x",))])),
        head(scanned(Y), dangling=[equality("newer", S + 1, 0, (b"x",))]),
        COVER,
    ),
    "over the inputs only": (
        record(group(1, rewritten=[scanned(A)], outputs=[data("out", S + 1)])), head(scanned(A, NEWER)), COVER
    ),
    "global, over inputs and outputs": (PLAN_X, head(scanned(X, VOID)), ""),
    "global, missing the inputs": (PLAN_X, head(scanned(X), dangling=[equality("newer", S + 1, 1)]), COVER),
    "of another partition": (PLAN_X, head(scanned(X), scanned(Y, NEWER_OF_Y)), ""),
    **{
        f"with the keys {ids}": (
            PLAN_A, head(scanned(A, replace(NEWER, equality_ids=ids)), field_ids=MORE_COLUMNS), KNOW
        )
        for ids in ((3,), (1, 3), ())
    },
    "global, with a key that outputs lack": (PLAN_X, head(scanned(X, replace(VOID, equality_ids=(3,)))), KNOW),
    "of another partition, with a key that outputs lack": (
        PLAN_X, head(scanned(X), scanned(Y, replace(NEWER_OF_Y, equality_ids=(3,)))), ""
    ),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "now", "rule"), CASES.values(), ids=CASES)
def test_a_group_is_dropped_by_one_rule_or_committed(plan: PlanRecord, now: Head, rule: str) -> None:
    done = validate(plan, now)
    both = ["planned_deletes_still_apply", "no_unplanned_old_equality_deletes"]
    assert refusing(plan, now) == (both if rule == "both" else [rule] if rule else [])
    assert (list(done.dropped), done.content is not None) == (([1], False) if rule else ([], True))


def removed(plan: PlanRecord, now: Head) -> tuple[DeleteFile, ...]:
    done = validate(plan, now)
    assert done.content is not None, (done.conflict, done.dropped)
    return done.content.removed_deletes


def test_a_delete_that_a_dropped_group_needs_stays() -> None:
    plan = record(group(1, rewritten=[scanned(A, E7)]), group(2, rewritten=[scanned(B, E7)]))

    assert removed(plan, head(scanned(A, E7), scanned(B, E7))) == (E7,)
    assert removed(plan, head(scanned(A, E7), scanned(B, E7, position("new", S + 1)))) == ()


@pytest.mark.parametrize("cut", ["file:///w/t/data/a", "file:///w/t/dat", "file:/w/t"])
def test_equal_bounds_that_a_writer_may_have_cut_keep_the_delete_while_a_live_path_goes_on_from_them(cut: str) -> None:
    """The upper bound of a path that was cut is raised; a writer that forgets it must not cost anybody a delete."""
    longer = data("a-and-more")
    named = bounded("named", 8, replace(A, path=cut), replace(A, path=cut))
    given, both = scanned(A, named), [scanned(A, named), scanned(longer)]
    converting, gone = [group(1, converted=[given])], (named,) if cut == A.path else ()

    assert removable_deletes(converting, scan_of(*both), S) == ()
    assert removable_deletes([group(1, converted=both)], scan_of(*both), S) == ()
    assert removable_deletes(converting, scan_of(given, scanned(B)), S) == gone


def test_equal_bounds_cut_within_a_character_name_no_file() -> None:
    half = "file:///w/t/data/\u00e9".encode()[:-1]
    metrics = ColumnMetrics(lower_bounds={DELETE_PATH_FIELD_ID: half}, upper_bounds={DELETE_PATH_FIELD_ID: half})
    delete = replace(position("cut", 8), metrics=metrics)
    given = scanned(A, delete)

    assert delete.named_file is None
    assert removable_deletes([group(1, rewritten=[given])], scan_of(given, scanned(B)), S) == ()


def test_a_dangling_delete_or_one_above_the_plan_goes_only_up_to_its_number() -> None:
    newer = equality("newer", S + 1)
    one = group(1, rewritten=[scanned(A, E7, newer)])

    assert removable_deletes([one], scan_of(scanned(A, E7, newer)), S) == (E7,)
    assert removable_deletes([one], scan_of(scanned(A, E7, newer)), S + 1) == (E7, newer)
    same, newer = equality("same", S), equality("newer", S + 1)
    found = TableScan(200, 20, (scanned(A),), (same, newer))

    assert removable_deletes([group(1, rewritten=[scanned(A)])], found, S) == (same,)


@pytest.mark.parametrize("delete", [equality("e", 7, 0, (b"x",)), position("p", 7, 0, (b"x",)), position("g", 7, 1)])
def test_a_converted_file_of_another_partition_keeps_no_delete(delete: DeleteFile) -> None:
    x, y = data("x", 5, delete.spec_id, delete.partition), data("y", 5, 0, (b"y",))
    groups = [group(1, rewritten=[scanned(x, delete)]), group(2, converted=[scanned(y)])]

    assert removable_deletes(groups, scan_of(scanned(x, delete), scanned(y)), S) == (delete,)


def own(of: DataFile, sequence: int = 8, rows: int = 3) -> DeleteFile:
    """The position delete of a data file as a conversion at that number names it."""
    name = f"0198c0de-0000-7000-8000-000000000001-1-1-{sequence:032x}-deletes.parquet"
    return replace(position(f"{of.path}/{name}", sequence, of.spec_id, of.partition, of), record_count=rows)


NAMED_A, NAMED_B = position("named", 8, names=A), position("named", 8, names=B)
SPELLED, BETWEEN = position("named", 8, names=replace(A, path="file:/w/t/data/a")), bounded("between", 8, A, B)
EVERYWHERE, WITH_NULLS = equality("everywhere", 7, 1), equality("void", 7, 1, (None,))
SHARED, FOLDED, OF_Z = position("shared", 8), own(B), data("z", 9, 0, (b"y",))
FOR_A, ON_X = scanned(A, E7, SHARED), [scanned(X, EVERYWHERE, WITH_NULLS)]
#: What is rewritten, what is converted, what else is live, and which deletes go.
GOING: Mapping[str, tuple[list[ScannedFile], list[ScannedFile], list[ScannedFile], tuple[DeleteFile, ...]]] = {
    "a file outside needs it": ([scanned(A, E7)], [], [scanned(B, E7)], ()),
    "the file outside is as young": ([scanned(A, E7)], [], [scanned(data("young", 7))], (E7,)),
    "the oldest of two files outside": ([scanned(A, E7)], [], [scanned(data("old", 6)), scanned(data("new", 9))], ()),
    # Position deletes that may name several files.
    "bounds alone keep it from a file outside": ([scanned(A, P8)], [], [scanned(B)], ()),
    "a file outside as new": ([scanned(A, P8)], [], [scanned(data("as-new", 8))], ()),
    "a newer file outside": ([scanned(A, P8)], [], [scanned(data("newer", 9))], (P8,)),
    "a file of another partition": ([scanned(A, P8)], [], [scanned(X)], (P8,)),
    "not folded into another converted file": ([], [scanned(A, P8), scanned(B, E7)], [], ()),
    "bounds of two files, one of them converted": ([], [scanned(A, BETWEEN)], [scanned(B, BETWEEN)], ()),
    "bounds of two files, one of them without it": ([], [scanned(A, BETWEEN)], [scanned(B)], ()),
    "bounds of two files, both converted": ([], [scanned(A, BETWEEN), scanned(B, BETWEEN)], [], (BETWEEN,)),
    # Those that name one, by a reference or by equal bounds.
    **{
        f"{case}, by {form}": (rewritten, converted, others, (delete,) if goes else ())
        for form, delete, of_a in (
            ("reference", SPELLED, NAMED_A),
            ("bounds", by_bounds(SPELLED), by_bounds(NAMED_A)),
        )
        for case, rewritten, converted, others, delete, goes in (
            ("its file is rewritten", [scanned(A, delete)], [], [scanned(B)], delete, True),
            ("another file has it, too", [scanned(A, delete)], [], [scanned(B, delete)], delete, False),
            ("whatever others fold", [], [scanned(A, of_a), scanned(B)], [], of_a, True),
        )
    },
    "it names a file outside that the scan missed": ([scanned(A, NAMED_B)], [], [scanned(B)], ()),
    # Equality deletes that hold everywhere.
    "everywhere": ([scanned(X, EVERYWHERE)], [], [], (EVERYWHERE,)),
    "everywhere, another spec": ([scanned(X, EVERYWHERE)], [], [scanned(data("y", 6, 2, (b"y",)))], ()),
    "everywhere, not folded": ([scanned(X, EVERYWHERE)], [scanned(data("y", 5, 0, (b"x",)))], [], ()),
    "everywhere, the older of two": (ON_X, [], [scanned(replace(Y, sequence_number=6), WITH_NULLS), scanned(OF_Z)], ()),
    "everywhere, newer ones": (ON_X, [], [scanned(OF_Z)], (EVERYWHERE, WITH_NULLS)),
    # What an earlier conversion has folded is not needed by the file that it converted; what came after it is.
    "folded before": ([], [FOR_A], [scanned(B, E7, SHARED, FOLDED)], (E7, SHARED)),
    "not folded before": ([], [FOR_A], [scanned(B, E7, SHARED)], ()),
    "folded before, and a third": ([], [FOR_A], [scanned(B, E7, SHARED, FOLDED), scanned(C, E7, SHARED)], ()),
    **{
        f"newer, spec {same.spec_id}": ([scanned(A, same, newer)], [], [scanned(B, same, newer, FOLDED)], (same,))
        for same, newer in [(equality("same", 8, spec), equality("newer", 9, spec)) for spec in (0, 1)]
    },
}  # fmt: skip


@pytest.mark.parametrize(("rewritten", "converted", "others", "expected"), GOING.values(), ids=GOING)
def test_a_delete_goes_once_no_live_file_can_need_it(
    rewritten: list[ScannedFile],
    converted: list[ScannedFile],
    others: list[ScannedFile],
    expected: tuple[DeleteFile, ...],
) -> None:
    live = scan_of(*rewritten, *converted, *others)
    assert removable_deletes([group(1, rewritten, converted)], live, S) == expected


@pytest.mark.parametrize(
    "foreign",
    [
        position("00000-25-6ddb47ea-b43d-46d8-adff-d52c1f0b7d11-00001-deletes.parquet", 8, names=B),
        replace(own(B), referenced_data_file=None),
        replace(own(B), path="0198c0de-0000-7000-8000-000000000001-1-1-deletes.parquet"),
        replace(own(B), path=own(B).path.replace("0198c0de-0000-7", "0198c0de-0000-4")),
        replace(own(B), path=f"{B.path.removesuffix('.parquet')}-delete-0001.parquet"),
    ],
    ids=["Spark's", "of several files", "shorter", "another version of UUID", "Amoro's"],
)
def test_only_a_conversion_of_ours_tells_what_it_folded(foreign: DeleteFile) -> None:
    """Amoro's carries the number of its commit, before which a delete may have come that it did not fold."""
    live = (scanned(A, E7), scanned(B, E7, foreign))

    assert live[1].carried_through == -1
    assert removable_deletes([group(1, rewritten=[live[0]])], scan_of(*live), S) == ()


def test_a_mark_without_positions_goes_when_nothing_is_left_of_what_it_tells() -> None:
    mark, told = own(B, rows=0), own(C)
    live = (scanned(A, E7), scanned(B, E7, mark), scanned(C, E7, told))
    one = group(1, converted=[live[0]])
    old = equality("old", 6, 1)

    assert removable_deletes([one], scan_of(*live), S) == (E7, mark)
    assert removable_deletes([one], scan_of(live[0], scanned(B, old, E7, mark), live[2]), S) == (E7,)
    assert removable_deletes([one], scan_of(*live, scanned(data("d"), E7)), S) == ()
    # What nobody needs any more may have gone with another's commit.
    assert removable_deletes([group(1, rewritten=[scanned(A)])], scan_of(scanned(A), scanned(B, mark)), S) == (mark,)


def test_field_ids_are_those_of_nested_fields_too() -> None:
    element = {"type": "list", "element-id": 5, "element-required": False, "element": "int"}
    entry = {"type": "map", "key-id": 6, "key": "int", "value-id": 7, "value-required": False, "value": element}
    inner = {"type": "struct", "fields": [{"id": 4, "name": "m", "required": False, "type": entry}]}
    schema = {"type": "struct", "fields": [{"id": 3, "name": "s", "required": False, "type": inner}]}

    assert field_ids(json.dumps(schema)) == frozenset({3, 4, 5, 6, 7})

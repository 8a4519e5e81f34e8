"""The rules of undo, one by one: each is alone in refusing what it is there for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from amoro_core.actions import undoing as action
from amoro_core.errors import CommitConflict
from amoro_core.model.commits import Head, Operation
from amoro_core.model.files import DataFile, DeleteFile, ScannedFile, TableScan
from amoro_core.validation import revert_rules
from amoro_core.validation.matching import match
from amoro_core.validation.revert_rules import RULES, CommitChange, Named, Revert

from .test_validating import bounded, by_bounds, data, equality, position

if TYPE_CHECKING:
    from amoro_core.formats.ports import AnyTable

A: tuple[bytes | None, ...] = (b"a",)
#: Committed with the number 12, planned at 10.
S, COMMIT = 10, 12
IN1, IN2 = data("in-1", 4, 0, A), data("in-2", 6, 0, A)
OUT = data("out", S, 0, A, 200)
OTHER = data("other", 8, 0, A)
OLD, LATE = equality("eq-5", 5, 0, A), equality("eq-15", 15, 0, A)
MARK = position("pos-5", 5, 0, A, IN1)


def scan(data_files: Iterable[DataFile], deletes: Iterable[DeleteFile] = (), number: int = 11) -> TableScan:
    files, dangling = match(list(data_files), list(deletes), frozenset({7}))
    return TableScan(number * 10, number, files, dangling, frozenset({7}))


UNDONE = CommitChange(scan([IN1, IN2, OTHER], [OLD, MARK]), scan([OUT, OTHER], [], COMMIT))


def head(data_files: Iterable[DataFile], deletes: Iterable[DeleteFile] = (), **changes: Any) -> Head:
    found = scan(data_files, deletes, 20)
    return replace(Head("uuid-1", 2, found.snapshot_id, 20, True, frozenset({1, 2}), found, ()), **changes)


def revert(undone: CommitChange, now: Head, named: Named | None = None) -> Revert:
    return revert_rules.revert([undone], [now], named)


def ambiguous_since(undone: CommitChange, now: Head) -> tuple[DeleteFile, ...]:
    return revert_rules.ambiguous_since([undone], [now])


def refusals(undone: CommitChange, now: Head, named: Any = None) -> list[str]:
    """What each rule alone says, by name."""
    found = []
    for rule in RULES:
        view = revert_rules._RevertView((undone,), (now,), named or {})
        if next(iter(rule(view)), ""):
            found.append(rule.__name__)
    return found


def taken_back(made: Revert) -> tuple[list[str], ...]:
    """Names of data and deletes that go, then of those that come back."""
    assert made.content is not None, made.refusal
    content = made.content
    parts: Sequence[Sequence[DataFile | DeleteFile]] = (
        content.removed_data, content.removed_deletes, content.added_data, content.added_deletes,
    )  # fmt: skip
    return tuple([one.path.rpartition("/")[2] for one in part] for part in parts)


def test_inputs_and_their_deletes_come_back_and_outputs_go() -> None:
    made = revert(UNDONE, head([OUT, OTHER, data("new", 18, 0, A)], [LATE]))
    assert taken_back(made) == (["out"], [], ["in-1", "in-2"], ["eq-5", "pos-5"])
    assert made.content is not None
    assert made.content.operation is Operation.REPLACE
    assert [one.sequence_number for one in (*made.content.added_data, *made.content.added_deletes)] == [4, 6, 5, 5]


KEPT_FILE, DANGLING, EVERYWHERE = data("kept", 3, 0, A), equality("eq-2", 2, 0, A), equality("everywhere", 5, 7)
WITH_KEPT = scan([IN1, KEPT_FILE], [OLD]), scan([OUT, KEPT_FILE], [OLD], COMMIT)
IN_FORMAT_1, OUT_FORMAT_1 = (replace(one, sequence_number=0) for one in (IN1, OUT))
#: What was committed, the head, and the names of deletes that come back.
PUT_BACK: Mapping[str, tuple[CommitChange, Head, list[str]]] = {
    "a delete that is live still": (CommitChange(*WITH_KEPT), head([OUT, KEPT_FILE], [OLD]), []),
    "a delete that went later": (CommitChange(*WITH_KEPT), head([OUT]), ["eq-5"]),
    "a dangling delete": (
        CommitChange(scan([IN1], [DANGLING, OLD]), scan([OUT], [], COMMIT)), head([OUT]), ["eq-5"]
    ),
    "format 1, which has no numbers": (
        CommitChange(scan([IN_FORMAT_1], (), 0), replace(scan([OUT_FORMAT_1], (), 0), snapshot_id=5)),
        head([OUT_FORMAT_1]),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("undone", "now", "deletes"), PUT_BACK.values(), ids=PUT_BACK)
def test_deletes_come_back_that_went_with_their_inputs(undone: CommitChange, now: Head, deletes: list[str]) -> None:
    assert taken_back(revert(undone, now)) == (["out"], [], ["in-1"], deletes)


def test_a_delete_that_held_everywhere_and_was_folded_into_nothing_comes_back() -> None:
    undone = CommitChange(scan([IN1], [EVERYWHERE]), scan([IN1], [], COMMIT))
    assert taken_back(revert(undone, head([IN1]))) == ([], [], [], ["everywhere"])


def test_a_conversion_is_taken_back_by_its_deletes_alone() -> None:
    ours = position("new", S, 0, A, IN1)
    undone = CommitChange(scan([IN1, OTHER], [OLD]), scan([IN1, OTHER], [ours], COMMIT))
    added = position("theirs", 16, 0, A, IN1)
    assert taken_back(revert(undone, head([IN1, OTHER], [ours, added, LATE]))) == ([], ["new"], [], ["eq-5"])
    assert refusals(undone, head([IN1, OTHER], [added])) == ["outputs_are_live"]
    assert refusals(undone, head([OTHER], [ours])) == ["outputs_are_live"]


def test_files_that_were_removed_with_their_rows_come_back_as_an_overwrite() -> None:
    undone = CommitChange(scan([IN1, IN2, OTHER], [OLD]), scan([OTHER], [], COMMIT))
    made = revert(undone, head([OTHER], [LATE]))
    assert taken_back(made) == ([], [], ["in-1", "in-2"], ["eq-5"])
    assert made.content is not None
    assert made.content.operation is Operation.OVERWRITE


NOT_LIVE = "outputs_are_live"
ON_OUTPUT = "no_position_deletes_on_outputs"
SAME = "deletes_of_inputs_are_the_same"
KEPT = "newer_equality_deletes_remain"
COVERS = "deletes_that_come_back_cover_no_other_file"
CASES: list[tuple[str, Head, list[str]]] = [
    ("another branch", head([OUT, OTHER], descends=False), ["commit_is_in_the_history"]),
    ("a history that was cut", head([OUT, OTHER], descends=None), ["commit_is_in_the_history"]),
    ("an output that is gone", head([OTHER]), [NOT_LIVE]),
    ("an output of another size", head([replace(OUT, size_bytes=1), OTHER]), [NOT_LIVE]),
    ("an output with another number", head([replace(OUT, sequence_number=13), OTHER]), [NOT_LIVE]),
    ("an input that is live again", head([OUT, OTHER, IN1]), ["inputs_are_not_live", COVERS]),
    ("an input in another spelling", head([OUT, replace(IN2, path="file:/w/t/data/in-2")]), ["inputs_are_not_live"]),
    ("a newer equality delete that went", head([OUT], removed_equality_deletes=(LATE,)), [KEPT]),
    ("nobody knows which went", head([OUT], removed_equality_deletes=None), [KEPT]),
    ("one that held everywhere went", head([OUT], removed_equality_deletes=(equality("g", 15, 7),)), [KEPT]),
    ("one as old as the commit that went", head([OUT], removed_equality_deletes=(equality("e", COMMIT, 0, A),)), []),
    ("an older one that went", head([OUT], removed_equality_deletes=(OLD,)), []),
    ("one of another partition that went", head([OUT], removed_equality_deletes=(equality("b", 15, 0, (b"b",)),)), []),
    ("a row of an output deleted", head([OUT], [position("p", 16, 0, A, OUT)]), [ON_OUTPUT]),
    ("the same by bounds", head([OUT], [by_bounds(position("p", 16, 0, A, OUT))]), [ON_OUTPUT]),
    ("a delete that may name all", head([OUT], [position("p", 16, 0, A)]), [ON_OUTPUT, SAME]),
    ("a position of an input", head([OUT], [position("p", 16, 0, A, IN1)]), [SAME]),
    ("one as old as the commit", head([OUT], [equality("eq-12", COMMIT, 0, A)]), [SAME]),
    ("an old equality delete of others", head([OUT], [equality("eq-7", 7, 0, A)]), [SAME]),
    ("a file that a delete would cover", head([OUT, data("low", 4, 0, A)]), [COVERS]),
    ("a file of another partition", head([OUT, data("low", 4, 0, (b"b",))]), []),
]  # fmt: skip


@pytest.mark.parametrize(("case", "now", "expected"), CASES, ids=[one[0] for one in CASES])
def test_each_rule_refuses_what_no_other_sees(case: str, now: Head, expected: list[str]) -> None:
    found = refusals(UNDONE, now)
    if expected == [NOT_LIVE]:
        assert NOT_LIVE in found
    else:
        assert found == expected
    made = revert(UNDONE, now)
    assert (made.content is None, bool(made.refusal)) == (bool(expected), bool(expected))


def test_a_refusal_names_what_is_not_as_it_was() -> None:
    assert revert(UNDONE, head([OTHER])).refusal == f"{OUT.path} is no longer live"
    ours = position("new", S, 0, A, IN1)
    converted = CommitChange(scan([IN1], [OLD]), scan([IN1], [ours], COMMIT))
    assert revert(converted, head([IN1])).refusal == "the delete new that it wrote is no longer live"
    assert revert(converted, head([], [ours])).refusal == f"{IN1.path} is no longer live"


def test_what_would_not_apply_as_before_is_refused() -> None:
    # As one that held everywhere, should its spec be no unpartitioned one by now.
    undone = CommitChange(scan([IN1], [equality("everywhere", 5, 7)]), scan([OUT], [], COMMIT))
    now = head([OUT])
    assert revert(undone, now).content is not None
    partitioned = replace(now, scan=replace(now.scan, unpartitioned_specs=frozenset()))
    assert revert(undone, partitioned).refusal == f"the delete everywhere would no longer apply to {IN1.path}"
    now = head([OUT, OTHER])
    twice = replace(
        now, scan=replace(now.scan, files=(*now.scan.files, ScannedFile(replace(OUT, path="file:/w/t/data/out"))))
    )
    assert "live 2 times" in revert(UNDONE, twice).refusal
    with pytest.raises(ValueError, match="changed nothing"):
        CommitChange(UNDONE.before, UNDONE.before)


def test_an_equality_delete_that_would_cover_only_inputs_is_refused() -> None:
    """Files of one partition have the same deletes, unless a scan says otherwise."""
    now = head([OUT, OTHER], [LATE])
    bare = replace(now, scan=replace(now.scan, files=(ScannedFile(OUT), ScannedFile(OTHER)), dangling=(LATE,)))
    assert refusals(UNDONE, bare) == ["newer_equality_deletes_cover_all_or_none"]


def test_position_deletes_that_were_read_and_name_others_are_no_obstacle() -> None:
    delete = bounded("p", 16, data("a", 1), data("z", 1))
    delete = replace(delete, partition=A)
    now = head([OUT, OTHER], [delete])
    assert ambiguous_since(UNDONE, now) == (delete,)
    others = [LATE, position("named", 16, 0, A, OUT)]
    assert ambiguous_since(UNDONE, head([OUT, OTHER], [delete, *others])) == (delete,)
    old = position("old", 6, 0, A)
    before = CommitChange(scan([IN1, IN2], [old]), scan([OUT], [], COMMIT))
    assert ambiguous_since(before, head([OUT], others)) == (), "what was known before names rows that it was meant for"
    assert revert(UNDONE, now).refusal
    assert revert(UNDONE, now, {delete.identity: frozenset({OTHER.path})}).content is not None
    for named in (OUT, IN1):
        assert revert(UNDONE, now, {delete.identity: frozenset({OTHER.path, named.path})}).refusal


#: A second commit of the same process, with an equality delete of others between the two.
IN3, OUT3 = data("in-3", 7, 0, A), data("out-3", S, 0, A)
BETWEEN = equality("eq-13", 13, 0, A)
SECOND = CommitChange(
    replace(scan([OUT, IN3], [BETWEEN], 13), snapshot_id=130),
    replace(scan([OUT, OUT3], [BETWEEN], 14), snapshot_id=140),
)
FIRST = CommitChange(scan([IN1, IN2, IN3]), scan([OUT, IN3], [], COMMIT))


def both(now: Head, later: Head | None = None) -> Revert:
    return revert_rules.revert([FIRST, SECOND], [now, later or now])


def test_all_commits_of_a_process_are_undone_together_or_none() -> None:
    now = head([OUT, OUT3, data("new", 18, 0, A)], [BETWEEN, LATE])
    assert taken_back(both(now)) == (["out", "out-3"], [], ["in-1", "in-2", "in-3"], [])
    good = head([OUT, OUT3], [BETWEEN])
    assert both(good).content is not None
    assert "does not descend from its snapshot 140" in both(good, replace(good, descends=False)).refusal
    assert both(head([OUT], [BETWEEN])).refusal == f"{OUT3.path} is no longer live"
    assert "newer than the commit, was removed since" in both(replace(good, removed_equality_deletes=(LATE,))).refusal


def test_an_equality_delete_between_two_commits_is_new_to_the_first_and_known_to_the_second() -> None:
    assert both(head([OUT, OUT3], [BETWEEN])).content is not None
    gone = head([OUT, OUT3], removed_equality_deletes=(BETWEEN,))
    assert both(gone).refusal == f"the equality delete {BETWEEN.path}, newer than the commit, was removed since"
    unknown = equality("eq-13b", 13, 0, A)
    assert both(head([OUT, OUT3], [BETWEEN, unknown])).refusal == (
        f"the delete {unknown.path} would begin to apply to {IN3.path}"
    )


def test_a_file_that_two_commits_changed_stays_as_it_is() -> None:
    ours = position("new", 12, 0, A, IN1)
    converted = CommitChange(scan([IN1], [OLD]), scan([IN1], [ours], COMMIT))
    moved = CommitChange(
        replace(scan([IN1], [ours], 13), snapshot_id=130), replace(scan([OUT], [], 14), snapshot_id=140)
    )
    now = head([OUT])
    assert (
        revert_rules.revert([converted, moved], [now, now]).refusal == f"{IN1.path} was changed by two of its commits"
    )


class _Moving:
    """A table whose head changes after so many looks."""

    def __init__(self, moves: int) -> None:
        self.looks, self.moves = 0, moves

    def head(self, snapshot_id: int, number: int) -> Head:
        self.looks += 1
        return replace(head([OUT]), snapshot_id=1000 + min(self.looks, self.moves))


def test_all_commits_are_seen_from_one_head() -> None:
    found = action._heads(cast("AnyTable", _Moving(3)), [FIRST, SECOND])
    assert [one.snapshot_id for one in found] == [1003, 1003]
    with pytest.raises(CommitConflict, match="other writers committed during each of"):
        action._heads(cast("AnyTable", _Moving(1000)), [FIRST, SECOND])

"""Pages of lines that move while they are read, and revisions that grow with changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from amoro_core.model.paging import KINDS, START, QueueCursor, QueuePage, packed, part, unpacked
from tests.tiers import count

Lines = Mapping[str, Sequence[str]]


def page(lines: Lines, after: QueueCursor, limit: int) -> QueuePage[tuple[int, str]]:
    return part([group for group, line in lines.items() if line], lambda group: lines[group], str, after, limit)


def names(found: QueuePage[tuple[int, str]]) -> str:
    return " ".join(name for _, name in found.entries)


def following(lines: Lines, limit: int) -> QueueCursor:
    """Where the first page ends."""
    found = page(lines, START, limit).following
    assert found is not None
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
def test_lines_that_do_not_move_are_read_by_group_and_place(limit: int) -> None:
    lines = {"b": ["5", "4"], "a": ["9", "8", "7"], "c": ["1"]}
    entries: list[tuple[int, str]] = []
    after: QueueCursor | None = START
    while after is not None:
        found = page(lines, after, limit)
        assert 1 <= len(found.entries) <= limit
        assert not found.order_changed
        entries += found.entries
        after = found.following
    assert entries == [(1, "9"), (2, "8"), (3, "7"), (1, "5"), (2, "4"), (1, "1")]


def test_no_line_is_a_page_of_nothing() -> None:
    assert page({}, START, 5) == QueuePage((), None, False)


def test_a_page_goes_on_behind_what_has_left_and_says_so() -> None:
    after = following({"a": list("123456789")}, 5)
    found = page({"a": list("456789")}, after, 5)
    assert (found.entries, found.order_changed) == (((3, "6"), (4, "7"), (5, "8"), (6, "9")), True)


def test_what_joined_in_front_moves_nothing_onto_a_second_page() -> None:
    after = following({"a": list("123456789")}, 5)
    found = page({"a": ["x", "y", "z", *"123456789"]}, after, 2)
    assert (found.entries, found.order_changed) == (((9, "6"), (10, "7")), True)


def test_a_line_that_is_gone_is_followed_by_the_next_group_and_told() -> None:
    lines = {"a": list("123"), "b": list("456")}
    found = page({"b": list("456")}, following(lines, 2), 9)
    assert (names(found), found.order_changed) == ("4 5 6", True)
    found = page({"a": list("123"), "b": list("789")}, following(lines, 2), 9)
    assert (names(found), found.order_changed) == ("3 7 8 9", False)


@pytest.mark.parametrize("seed", range(count(12, 60)))
def test_one_change_between_two_pages_hides_no_other_entry_and_repeats_none(seed: int) -> None:
    still, seen = _read(random.Random(seed), 1)
    assert {name: seen[name] for name in still if seen[name] != 1} == {}


@pytest.mark.parametrize("seed", range(count(12, 60)))
def test_changes_between_two_pages_hide_no_other_entry(seed: int) -> None:
    """As long as of the last three entries before the page one changes at most."""
    still, seen = _read(random.Random(seed), 6)
    assert [name for name in still if not seen[name]] == []


def _read(chance: random.Random, changes: int) -> tuple[set[str], Counter[str]]:
    """Read all pages, at most so many changes between two: the entries that stayed, and how often each was read."""
    lines = {group: [f"{group}{number}" for number in range(chance.randrange(1, 20))] for group in "abc"}
    still = {name for line in lines.values() for name in line}
    seen: Counter[str] = Counter()
    after: QueueCursor | None = START
    for number in range(1000):
        if after is None:
            break
        found = page(lines, after, chance.randrange(1, 6))
        seen.update(name for _, name in found.entries)
        after = found.following
        kept = set(after.last) - {chance.choice(after.last)} if after and after.place > len(after.last) else set()
        for place in range(chance.randrange(changes + 1)):
            still -= _change(chance, lines, f"new{number}.{place}", kept)
    assert after is None
    return still, seen


def _change(chance: random.Random, lines: dict[str, list[str]], added: str, kept: set[str]) -> set[str]:
    """An entry comes, leaves or moves within its line, but for those that are kept; the names of those that changed."""
    line = lines[chance.choice("abc")]
    known = [name for name in line if name not in kept]
    match chance.randrange(3):
        case 0 if sum(map(len, lines.values())) < 60:
            name = added
        case 1 if known:
            name = chance.choice(known)
            line.remove(name)
            return {name}
        case _:
            if not known:
                return set()
            name = chance.choice(known)
            line.remove(name)
    line.insert(chance.randrange(len(line) + 1), name)
    return {name}


def test_a_mark_is_packed_as_values_for_a_cursor() -> None:
    mark = following({"a": list("12345")}, 4)
    assert mark.last == ("2", "3", "4")
    for one in (mark, None):
        assert tuple(map(type, packed(one))) == KINDS
        assert unpacked(packed(one)) == one

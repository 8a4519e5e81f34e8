"""Lines: what waits, group by group, in an order that is computed anew for each page.

The order moves between two pages. A mark tells where a page ended by what stood there, not by a place or a rank: both
change while one reads.
"""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any, Generic, TypeVar

from amoro_core.model.cursors import Key
from amoro_core.records import record

Item = TypeVar("Item")
Other = TypeVar("Other")

_DIGITS = 16
#: How many of the last names a mark knows: of three, one may leave or move, and the others still tell the place.
_KNOWN = 3
#: The kinds of the values of a packed mark.
KINDS = (str, int, str, str)


class Line(StrEnum):
    """What waits: tables for a plan, processes for threads."""

    PENDING = "pending"
    WAITING = "waiting"


@record
class Mark:
    """Where in a list of lines a page has ended."""

    group: str = ""  # "": before the first line
    place: int = 0  # in its group's line, from 1
    digest: str = ""  # of the names up to there
    last: tuple[str, ...] = ()  # the last names up to there, at most three


START = Mark()


@record
class Part(Generic[Item]):
    """A page of a list of lines."""

    entries: tuple[Item, ...]
    following: Mark | None  # where the next page begins; None: nothing is left
    order_changed: bool  # whether the line before the page is another than it was

    def mapped(self, change: Callable[[Item], Other]) -> "Part[Other]":
        """The same page with each entry converted."""
        return Part(tuple(map(change, self.entries)), self.following, self.order_changed)


NOTHING: Part[Any] = Part((), None, False)


def packed(mark: Mark | None) -> tuple[Key, ...]:
    """The mark as values for a cursor; None stands for a list that is not read on."""
    return ("", -1, "", "") if mark is None else (mark.group, mark.place, mark.digest, " ".join(mark.last))


def unpacked(values: Sequence[Key]) -> Mark | None:
    """The mark of these values, which are of `KINDS`."""
    group, place, digest, last = values
    return None if int(place) < 0 else Mark(str(group), int(place), str(digest), tuple(str(last).split()))


def part(
    groups: Collection[str],
    line_of: Callable[[str], Sequence[Item]],
    name: Callable[[Item], str],
    after: Mark,
    limit: int,
) -> Part[tuple[int, Item]]:
    """At most `limit` entries after the mark, by group, each with its place in its group's line, from 1.

    `groups` are those that have a line, `line_of` gives it in its order. Names have no blanks and occur once in a line.
    Whatever came, left or moved since the mark was made hides no other entry, and a single change repeats none. Some
    may be left out only if two of the last three entries before the mark left or moved.
    """
    entries: list[tuple[int, Item]] = []
    left = sorted(group for group in groups if group >= after.group)
    end, order_changed = after, after.place > 0 and after.group not in groups
    for number, group in enumerate(left, 1):
        line = line_of(group)
        names = [name(item) for item in line]
        start, seen = 0, frozenset[str]()
        if group == after.group:
            start, seen, order_changed = _resumed(names, after)
        places = [place for place in range(start, len(line)) if names[place] not in seen]
        taken = places[: limit - len(entries)]
        if taken:
            entries += [(place + 1, line[place]) for place in taken]
            end = _mark(group, names, taken[-1] + 1, seen)
        if len(entries) == limit:
            goes_on = len(taken) < len(places) or number < len(left)
            return Part(tuple(entries), end if goes_on else None, order_changed)
    return Part(tuple(entries), None, order_changed)


def _mark(group: str, names: Sequence[str], place: int, seen: Collection[str]) -> Mark:
    """The mark at that place in the line, or behind those after it that were on pages before."""
    while place < len(names) and names[place] in seen:
        place += 1
    return Mark(group, place, _digest(names[:place]), tuple(names[max(0, place - _KNOWN) : place]))


def _resumed(names: Sequence[str], after: Mark) -> tuple[int, frozenset[str], bool]:
    """How many of the line's names were on pages before, which others were, and whether that is another line now."""
    if _digest(names[: after.place]) == after.digest:
        return after.place, frozenset(), False
    seen = frozenset(after.last)
    places = [place for place, one in enumerate(names, 1) if one in seen]
    if not places or after.place <= _KNOWN:
        return 0, seen, True  # nothing tells where it was, or all that was seen is known
    return places[(len(places) - 1) // 2], seen, True


def _digest(names: Sequence[str]) -> str:
    return sha256("\n".join(names).encode()).hexdigest()[:_DIGITS]

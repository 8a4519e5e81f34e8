"""Paged lists: requests and answers."""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Generic, TypeVar

from amoro_core.errors import InvalidArgument

Item = TypeVar("Item")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class Window:
    """The requested part of a list: at most `limit` items after the one named by `after`."""

    limit: int = 0  # 0: no limit of its own
    after: str = ""  # "": from the start


ALL = Window()
#: Items on a page: with all their text about a tenth of the size limit of a message.
PAGE = 1000


def page_limit(limit: int, most: int = PAGE) -> int:
    """The number of items on a page for a requested limit. Raises InvalidArgument below 0."""
    if limit < 0:
        raise InvalidArgument(f"{limit} is no limit", hint="Give 1 or more, or 0 for a whole page.")
    return min(limit or most, most)


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, and how many there are on all pages."""

    items: tuple[Item, ...]
    total: int
    next: str = ""  # the key after which the next page begins; "": nothing is left
    total_is_exact: bool = True  # else there are more than `total`

    def mapped(self, change: Callable[[Item], Other]) -> "Page[Other]":
        """The same page with each item converted."""
        return Page(tuple(map(change, self.items)), self.total, self.next, self.total_is_exact)


def cut(found: Sequence[Item], limit: int, total: int, name: Callable[[Item], str]) -> Page[Item]:
    """The page of what was found when `limit` + 1 items were requested."""
    items = tuple(found[:limit])
    return Page(items, total, name(items[-1]) if items and len(found) > limit else "")


def page_in_order(items: Sequence[Item], after: str, limit: int, name: Callable[[Item], str]) -> Page[Item]:
    """The page of items in another order that follow the item named `after`. Raises ValueError if it does not exist."""
    start = 0
    if after:
        places = [place for place, item in enumerate(items) if name(item) == after]
        if not places:
            raise ValueError(after)
        start = places[-1] + 1
    return cut(items[start : start + limit + 1], limit, len(items), name)


#: A value by which a list is ordered.
Key = str | int

_DIGEST_BYTES = 8
_START_AGAIN = "Give the cursor of the page before, with the same filters and order, or start without one."


def sealed(scope: Sequence[object], values: Sequence[Key]) -> str:
    """The cursor after an item with these values, in the list that `scope` names: which one, its order and filters."""
    place = json.dumps(list(values), ensure_ascii=False, separators=(",", ":")).encode()
    body = _digest(scope) + place
    return urlsafe_b64encode(_check(body) + body).decode().rstrip("=")


def opened(cursor: str, scope: Sequence[object], kinds: Sequence[type]) -> tuple[Key, ...]:
    """The values, of these kinds, that were sealed in the cursor of a list.

    Raises InvalidArgument for a broken cursor, and for one of another list.
    """
    try:
        raw = b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise _broken(cursor) from error
    check, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
    if not body or check != _check(body):
        raise _broken(cursor)
    if body[:_DIGEST_BYTES] != _digest(scope):
        raise InvalidArgument("the cursor belongs to a list with other filters or another order", hint=_START_AGAIN)
    values = tuple(json.loads(body[_DIGEST_BYTES:]))
    if tuple(map(type, values)) != tuple(kinds):
        raise _broken(cursor)
    return values


def opened_pair(cursor: str, scope: Sequence[object]) -> tuple[int, str] | None:
    """The number and the text that were sealed in the cursor of a list; None for "". Raises InvalidArgument."""
    if not cursor:
        return None
    number, text = opened(cursor, scope, (int, str))
    return int(number), str(text)


def _digest(scope: Sequence[object]) -> bytes:
    return _check(json.dumps(list(scope), ensure_ascii=False, separators=(",", ":")).encode())


def _check(body: bytes) -> bytes:
    return sha256(body).digest()[:_DIGEST_BYTES]


def _broken(cursor: str) -> InvalidArgument:
    return InvalidArgument(f"{cursor[:100]!r} is no cursor", hint=_START_AGAIN)


_DIGITS = 16
#: How many of the last names a mark knows: of three, one may leave or move, and the others still tell the place.
_KNOWN = 3
#: The kinds of the values of a packed mark.
KINDS = (str, int, str, str)


class Line(StrEnum):
    """What waits: tables for a plan, processes for threads."""

    PENDING = "pending"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class QueueCursor:
    """Where in a list of lines a page has ended."""

    group: str = ""  # "": before the first line
    place: int = 0  # in its group's line, from 1
    digest: str = ""  # of the names up to there
    last: tuple[str, ...] = ()  # the last names up to there, at most three


START = QueueCursor()


@dataclass(frozen=True, slots=True)
class QueuePage(Generic[Item]):
    """A page of a list of lines."""

    entries: tuple[Item, ...]
    following: QueueCursor | None  # where the next page begins; None: nothing is left
    order_changed: bool  # whether the line before the page is another than it was

    def mapped(self, change: Callable[[Item], Other]) -> "QueuePage[Other]":
        """The same page with each entry converted."""
        return QueuePage(tuple(map(change, self.entries)), self.following, self.order_changed)


NOTHING: QueuePage[Any] = QueuePage((), None, False)


def packed(mark: QueueCursor | None) -> tuple[Key, ...]:
    """The mark as values for a cursor; None stands for a list that is not read on."""
    return ("", -1, "", "") if mark is None else (mark.group, mark.place, mark.digest, " ".join(mark.last))


def unpacked(values: Sequence[Key]) -> QueueCursor | None:
    """The mark of these values, which are of `KINDS`."""
    group, place, digest, last = values
    return None if int(place) < 0 else QueueCursor(str(group), int(place), str(digest), tuple(str(last).split()))


def part(
    groups: Collection[str],
    line_of: Callable[[str], Sequence[Item]],
    name: Callable[[Item], str],
    after: QueueCursor,
    limit: int,
) -> QueuePage[tuple[int, Item]]:
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
            return QueuePage(tuple(entries), end if goes_on else None, order_changed)
    return QueuePage(tuple(entries), None, order_changed)


def _mark(group: str, names: Sequence[str], place: int, seen: Collection[str]) -> QueueCursor:
    """The mark at that place in the line, or behind those after it that were on pages before."""
    while place < len(names) and names[place] in seen:
        place += 1
    return QueueCursor(group, place, _names_digest(names[:place]), tuple(names[max(0, place - _KNOWN) : place]))


def _resumed(names: Sequence[str], after: QueueCursor) -> tuple[int, frozenset[str], bool]:
    """How many of the line's names were on pages before, which others were, and whether that is another line now."""
    if _names_digest(names[: after.place]) == after.digest:
        return after.place, frozenset(), False
    seen = frozenset(after.last)
    places = [place for place, one in enumerate(names, 1) if one in seen]
    if not places or after.place <= _KNOWN:
        return 0, seen, True  # nothing tells where it was, or all that was seen is known
    return places[(len(places) - 1) // 2], seen, True


def _names_digest(names: Sequence[str]) -> str:
    return sha256("\n".join(names).encode()).hexdigest()[:_DIGITS]

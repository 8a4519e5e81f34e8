"""Paged lists: requests and answers."""

import json
import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Generic, TypeVar

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
        raise InvalidArgument(f"limit must be ≥ 0, got {limit}", hint="Give 1 or more, or 0 for a whole page.")
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


def cut(
    rows: Sequence[Item], limit: int, total: int, name: Callable[[Item], str], counted: int | None = None
) -> Page[Item]:
    """The page of what was found when `limit` + 1 items were requested; the total is exact up to `counted`."""
    items = tuple(rows[:limit])
    after = name(items[-1]) if items and len(rows) > limit else ""
    return Page(items, total if counted is None else min(total, counted), after, counted is None or total <= counted)


def page_in_order(items: Sequence[Item], window: Window, noun: str, name: Callable[[Item], str]) -> Page[Item]:
    """The page of a table's items in another order. Raises InvalidArgument if it has none of the name `after`."""
    start = 0
    if window.after:
        places = [place for place, item in enumerate(items) if name(item) == window.after]
        if not places:
            raise InvalidArgument(f"the table has no {noun} {window.after!r}", hint="List them anew.")
        start = places[-1] + 1
    return cut(items[start : start + window.limit + 1], window.limit, len(items), name)


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


def numbers(text: str, count: int, noun: str, hint: str) -> tuple[int, ...]:
    """The numbers in a text such as 3-2; () for "". Raises InvalidArgument unless there are `count`."""
    parts = text.split("-")
    if text and (len(parts) != count or not all(re.fullmatch("[0-9]{1,13}", part) for part in parts)):
        raise InvalidArgument(f"{text!r} is not {noun}", hint=hint)
    return tuple(map(int, parts)) if text else ()


def _digest(scope: Sequence[object]) -> bytes:
    return _check(json.dumps(list(scope), ensure_ascii=False, separators=(",", ":")).encode())


def _check(body: bytes) -> bytes:
    return sha256(body).digest()[:_DIGEST_BYTES]


def _broken(cursor: str) -> InvalidArgument:
    return InvalidArgument(f"{cursor[:100]!r} is not a cursor", hint=_START_AGAIN)


class Line(StrEnum):
    """The lists of the queue: tables that wait for a plan, processes that wait for threads."""

    PENDING = "pending"
    WAITING = "waiting"

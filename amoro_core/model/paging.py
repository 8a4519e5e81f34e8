"""Paged lists: requests and answers."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from amoro_core.errors import InvalidArgument
from amoro_core.records import record

Item = TypeVar("Item")
Other = TypeVar("Other")


@record
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


@record
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

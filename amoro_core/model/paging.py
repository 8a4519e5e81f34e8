"""Lists in pages: what is asked for, and what is answered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a list that somebody wants: so many items, which follow the one that `after` names."""

    limit: int = 0  # 0: no limit of its own
    after: str = ""  # "": from the start


ALL = Window()


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, and how many there are on all pages."""

    items: tuple[Item, ...]
    total: int
    next: str = ""  # what the page after it follows; "": nothing is left

    def mapped(self, change: Callable[[Item], Other]) -> "Page[Other]":
        """The same page of other values."""
        return Page(tuple(map(change, self.items)), self.total, self.next)


def cut(found: Sequence[Item], limit: int, total: int, name: Callable[[Item], str]) -> Page[Item]:
    """The page of what was found when one item more than `limit` was asked for."""
    items = tuple(found[:limit])
    return Page(items, total, name(items[-1]) if items and len(found) > limit else "")


def page_by_name(items: Sequence[Item], after: str, limit: int, name: Callable[[Item], str]) -> Page[Item]:
    """The page of items that stand in order of their names and follow a name, known or not."""
    return cut([item for item in items if name(item) > after][: limit + 1], limit, len(items), name)


def page_in_order(items: Sequence[Item], after: str, limit: int, name: Callable[[Item], str]) -> Page[Item]:
    """The page of items that stand in another order, after the item of that name. Raises ValueError without it."""
    start = 0
    if after:
        places = [place for place, item in enumerate(items) if name(item) == after]
        if not places:
            raise ValueError(after)
        start = places[-1] + 1
    return cut(items[start : start + limit + 1], limit, len(items), name)

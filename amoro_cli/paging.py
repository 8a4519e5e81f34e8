"""Paged lists: their options, and fetching one page after the other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Generic, Protocol, TypeVar

import typer

from amoro_core.documents.quantities import format_count
from amoro_core.model.paging import Window
from amoro_core.records import record

Item = TypeVar("Item")
Answer = TypeVar("Answer", bound="Paged")

LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", help="How many to list at most [default: all].", min=1, max=1_000_000_000, show_default=False
    ),
]


def after_option(what: str) -> Any:
    """The option --after; `what` names the key of the list's items."""
    return typer.Option("--after", metavar=what, help="Only what follows this one in the list.", show_default=False)


def window(limit: int | None, after: str) -> Window:
    """The window that the two options select."""
    return Window(limit or 0, after)


class Paged(Protocol):
    """An answer that may be one of several pages."""

    @property
    def next(self) -> str:
        """The key after which the next page begins; "" on the last page."""

    @property
    def total(self) -> int:
        """How many items there are on all pages."""


@record
class Part(Generic[Item]):
    """The requested part of a list, or one page of it."""

    items: Sequence[Item]
    total: int = 0  # items in the whole list
    next: str = ""  # key after which the rest begins; "": nothing is left
    after: str = ""  # key after which this part begins
    total_is_exact: bool = True  # False: there are more than `total`
    before: int = 0  # items on earlier pages of the part
    goes_on: bool = False  # another page of the part follows

    @property
    def rest(self) -> tuple[str, ...]:
        """The line beneath an incomplete list."""
        left = self.total - self.before - len(self.items)
        if self.goes_on:
            return ()
        if self.after or (left <= 0 and not self.total_is_exact):
            return ("and more: see --limit",) if self.next else ()
        most = "" if self.total_is_exact else "more than "
        return (f"and {most}{format_count(left)} more: see --limit",) if left > 0 else ()

    @property
    def keys(self) -> dict[str, int | str | None]:
        """The same for programs."""
        return {"total": self.total, "next": self.next or None}


def gather(
    wanted: Window, ask: Callable[[int, str], Answer], items_of: Callable[[Answer], Sequence[Item]]
) -> tuple[Answer, Part[Item]]:
    """The first answer, and the items of all answers up to the limit. `ask` takes a limit and a key to begin after.

    The coordinator returns as many at once as one message holds.
    """
    answers: list[Answer] = []

    def parts() -> Iterator[Part[Item]]:
        for answer, part in pages(wanted, ask, items_of):
            answers[:] = answers or [answer]
            yield part

    part = whole(parts())
    return answers[0], part


def whole(parts: Iterator[Part[Item]]) -> Part[Item]:
    """All pages as one; there is at least one."""
    last = next(parts)
    found = list(last.items)
    for last in parts:
        found += last.items
    return replace(last, items=found, before=0)


def pages(
    wanted: Window, ask: Callable[[int, str], Answer], items_of: Callable[[Answer], Sequence[Item]]
) -> Iterator[tuple[Answer, Part[Item]]]:
    """The same, each answer with its items as it comes; at least one."""
    total, is_exact, seen, after = 0, True, 0, wanted.after
    while True:
        answer = ask(wanted.limit - seen if wanted.limit else 0, after)
        items = items_of(answer)
        if not seen:
            total, is_exact = answer.total, getattr(answer, "total_is_exact", True)
        goes_on = bool(answer.next) and (not wanted.limit or seen + len(items) < wanted.limit)
        if not is_exact and not answer.next and not wanted.after:
            total, is_exact = seen + len(items), True  # all of them were counted here
        yield answer, Part(items, total, answer.next, wanted.after, is_exact, seen, goes_on)
        if not goes_on:
            return
        seen, after = seen + len(items), answer.next

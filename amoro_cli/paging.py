"""Lists that come in pages: the options, and asking for one page after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar

import typer

from amoro_cli.quantities import format_count
from amoro_core.model.paging import Window

Item = TypeVar("Item")
Answer = TypeVar("Answer", bound="Paged")

LimitOption = Annotated[
    int | None,
    typer.Option("--limit", help="At most so many [default: all].", min=1, max=1_000_000_000, show_default=False),
]


def after_option(what: str) -> Any:
    """--after, by what the list's items are told by."""
    return typer.Option("--after", metavar=what, help="Only what follows this one in the list.", show_default=False)


def window(limit: int | None, after: str) -> Window:
    """What the two options say."""
    return Window(limit or 0, after)


class Paged(Protocol):
    """An answer that may be one of several pages."""

    @property
    def next(self) -> str:
        """What the next page follows; "": nothing is left."""

    @property
    def total(self) -> int:
        """How many items there are on all pages."""


@dataclass(frozen=True, slots=True)
class Part(Generic[Item]):
    """The part of a list that was asked for."""

    items: Sequence[Item]
    total: int = 0  # that the whole list has
    next: str = ""  # after which the rest follows; "": nothing is left
    after: str = ""  # which it follows

    @property
    def rest(self) -> tuple[str, ...]:
        """What is told beneath a list that is not whole."""
        left = self.total - len(self.items)
        if self.after:
            return ("and more: see --limit",) if self.next else ()
        return (f"and {format_count(left)} more: see --limit",) if left > 0 else ()

    @property
    def keys(self) -> dict[str, int | str | None]:
        """The same for programs."""
        return {"total": self.total, "next": self.next or None}


def gather(
    wanted: Window, ask: Callable[[int, str], Answer], items_of: Callable[[Answer], Sequence[Item]]
) -> tuple[Answer, Part[Item]]:
    """The first answer, and what all answers have until the limit. `ask` is given how many to ask for, and after what.

    The coordinator gives as many at once as one message holds.
    """
    first = answer = ask(wanted.limit, wanted.after)
    found = list(items_of(answer))
    while answer.next and (not wanted.limit or len(found) < wanted.limit):
        answer = ask(wanted.limit - len(found) if wanted.limit else 0, answer.next)
        found += items_of(answer)
    return first, Part(found, first.total, answer.next, wanted.after)

"""Lists: their pages, columns, order, and documents."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar

import typer

from amoro_cli.output import Block, Document, Grid
from amoro_core.documents.formatting import format_count
from amoro_core.documents.json_documents import encode_all
from amoro_core.errors import InvalidArgument
from amoro_core.model.paging import Window

if TYPE_CHECKING:
    from google.protobuf.message import Message


Item = TypeVar("Item")
PagedAnswer = TypeVar("PagedAnswer", bound="Paged")


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """One column, sorted by `key` if given, else by the text of its cells. Numbers are right-aligned."""

    title: str
    cell: Callable[[Item], str]
    key: Callable[[Item], Any] | None = None
    right: bool = False

    @property
    def name(self) -> str:
        """The column's name in options."""
        return self.title.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The requested sort keys and columns of a list: names of columns, separated by commas."""

    sort_by: str = ""  # a minus before a name reverses its order
    columns: str = ""


DEFAULT_ARRANGEMENT = Arrangement()


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """The columns of a list of items.

    On a terminal that is too narrow, `spare` columns are left out, the first ones first, and `elastic` is cut.
    """

    columns: tuple[Column[Item], ...]
    spare: tuple[str, ...] = ()
    elastic: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    def arranged(self, items: Sequence[Item], arrangement: Arrangement) -> list[Item]:
        """The items in the requested order; the sort is stable. Raises InvalidArgument."""
        found = list(items)
        for name in reversed(_names(arrangement.sort_by)):
            column = self._column(name.removeprefix("-"))
            found.sort(key=column.key or column.cell, reverse=name.startswith("-"))
        return found

    def grid(self, items: Sequence[Item], arrangement: Arrangement = DEFAULT_ARRANGEMENT, indent: int = 0) -> Grid:
        """A row for each item, with the requested columns, in that order. Raises InvalidArgument."""
        wanted = [self._column(name) for name in _names(arrangement.columns)]
        shown = wanted or list(self.columns)
        return Grid(
            tuple(column.title for column in shown),
            tuple(tuple(column.cell(item) for column in shown) for item in items),
            frozenset(column.title for column in shown if column.right),
            indent,
            () if wanted else self.spare,
            self.elastic,
        )

    def check(self, arrangement: Arrangement) -> None:
        """Raise InvalidArgument for unknown columns."""
        for name in (*_names(arrangement.sort_by), *_names(arrangement.columns)):
            self._column(name.removeprefix("-"))

    def _column(self, name: str) -> Column[Item]:
        wanted = name.lower().replace(" ", "-").replace("_", "-")
        for column in self.columns:
            if column.name == wanted:
                return column
        close = get_close_matches(wanted, self.names, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise InvalidArgument(f"{name!r} is not a column", hint=f"{meant}The columns are {', '.join(self.names)}.")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")] if text.strip() else []


def sort_option(listing: Listing[Any]) -> Any:
    """The option --sort-by, checked against the columns of the list."""
    return typer.Option(
        "--sort-by",
        metavar="COLUMNS",
        help="Sort by these columns, separated by commas; a minus before a name reverses its order.",
        show_default=False,
        callback=_checked(listing, lambda text: Arrangement(sort_by=text)),
        autocompletion=_completed(listing),
    )


def columns_option(listing: Listing[Any]) -> Any:
    """The option --columns, checked against the columns of the list."""
    return typer.Option(
        "--columns",
        metavar="COLUMNS",
        help=f"Show these columns only, in that order: {', '.join(listing.names)}.",
        show_default=False,
        callback=_checked(listing, lambda text: Arrangement(columns=text)),
        autocompletion=_completed(listing),
    )


def _checked(listing: Listing[Any], made: Callable[[str], Arrangement]) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            listing.check(made(value))
        except InvalidArgument as error:
            raise typer.BadParameter(f"{error.message}. {error.hint}") from error
        return value

    return check


def _completed(listing: Listing[Any]) -> Callable[[str], list[str]]:
    """Completions of the last name typed; the names before it are kept."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        minus = "-" if last.startswith("-") else ""
        start = last.removeprefix("-")
        return [f"{before}{comma}{minus}{name}" for name in listing.names if name.startswith(start)]

    return complete


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


@dataclass(frozen=True, slots=True)
class ListRange(Generic[Item]):
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
    wanted: Window,
    method: Callable[[Any], PagedAnswer],
    request: "Message",
    items_of: Callable[[PagedAnswer], Sequence[Item]],
) -> tuple[PagedAnswer, ListRange[Item]]:
    """The first answer of the method, and the items of all answers up to the limit.

    The coordinator returns as many at once as one message holds.
    """
    answers: list[PagedAnswer] = []

    def parts() -> Iterator[ListRange[Item]]:
        for answer, part in pages(wanted, method, request, items_of):
            answers[:] = answers or [answer]
            yield part

    part = whole(parts())
    return answers[0], part


def listed(
    wanted: Window,
    method: Callable[[Any], PagedAnswer],
    request: "Message",
    items_of: Callable[[PagedAnswer], Sequence[Item]],
) -> ListRange[Item]:
    """The same, the items alone."""
    return gather(wanted, method, request, items_of)[1]


def whole(parts: Iterator[ListRange[Item]]) -> ListRange[Item]:
    """All pages as one; there is at least one."""
    last = next(parts)
    found = list(last.items)
    for last in parts:
        found += last.items
    return replace(last, items=found, before=0)


def pages(
    wanted: Window,
    method: Callable[[Any], PagedAnswer],
    request: "Message",
    items_of: Callable[[PagedAnswer], Sequence[Item]],
) -> Iterator[tuple[PagedAnswer, ListRange[Item]]]:
    """Each answer with its items as it comes; at least one."""
    total, is_exact, seen, after = 0, True, 0, wanted.after
    while True:
        answer = method(_page_of(request, wanted.limit - seen if wanted.limit else 0, after))
        items = items_of(answer)
        if not seen:
            total, is_exact = answer.total, getattr(answer, "total_is_exact", True)
        goes_on = bool(answer.next) and (not wanted.limit or seen + len(items) < wanted.limit)
        if not is_exact and not answer.next and not wanted.after:
            total, is_exact = seen + len(items), True  # all of them were counted here
        yield answer, ListRange(items, total, answer.next, wanted.after, is_exact, seen, goes_on)
        if not goes_on:
            return
        seen, after = seen + len(items), answer.next


def _page_of(request: Any, limit: int, after: str) -> Any:
    page = type(request)(limit=limit, after=after)
    page.MergeFrom(request)
    return page


Listed = TypeVar("Listed", bound="Message")


def list_document(
    schema: str,
    listing: Listing[Listed],
    part: ListRange[Listed],
    arrangement: Arrangement,
    name: Callable[[Listed], str],
    nothing: str,
    *,
    before: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> Document:
    """The keys of `before`, the items under the schema's name except the fields in `without`, `total` and `next`.

    `nothing` is the text for an empty list.
    """
    items = listing.arranged(part.items, arrangement)
    bodies = [{field: value for field, value in item.items() if field not in without} for item in encode_all(items)]
    key = schema.removeprefix("amoro.").partition("/")[0]
    body = {**(before or {}), key: bodies, **part.keys}
    blocks: tuple[Block, ...] = (listing.grid(items, arrangement), *part.rest) if items else (nothing,)
    return Document(schema, body, tuple(map(name, items)), blocks, key)

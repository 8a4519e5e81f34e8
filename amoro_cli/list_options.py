"""Lists: their columns and documents, the options of their commands, and how their pages are fetched."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer
from google.protobuf.message import Message

from amoro_cli.context import Session, option, with_parameters
from amoro_cli.output import Block, Document, Grid
from amoro_cli.progress import INTERVAL, IntervalOption, Look, WatchOption, show_watched
from amoro_core.documents.formatting import format_count
from amoro_core.documents.json_documents import encode_all
from amoro_core.errors import InvalidArgument
from amoro_core.model.paging import Window

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient

Item = TypeVar("Item", bound=Message)

_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class ListRange(Generic[Item]):
    """The requested part of a list."""

    items: Sequence[Item]
    total: int = 0  # items in the whole list
    next: str = ""  # key after which the rest begins; "": nothing is left
    after: str = ""  # key after which this part begins
    total_is_exact: bool = True  # False: there are more than `total`

    @property
    def rest(self) -> tuple[str, ...]:
        """The line beneath an incomplete list."""
        more = self.total - len(self.items)
        if self.after or (more <= 0 and not self.total_is_exact):
            return ("and more: see --limit",) if self.next else ()
        most = "" if self.total_is_exact else "more than "
        return (f"and {most}{format_count(more)} more: see --limit",) if more > 0 else ()

    @property
    def keys(self) -> dict[str, int | str | None]:
        """The same for programs."""
        return {"total": self.total, "next": self.next or None}


def gather(client: "AdminClient", wanted: Window, request: Any) -> tuple[Any, ListRange[Any]]:
    """The first answer to the request, and the items of all answers up to the limit.

    The items are its first repeated field. The coordinator returns as many at once as one message holds.
    """

    def page(limit: int, after: str) -> Any:
        part = type(request)(limit=limit, after=after)
        part.MergeFrom(request)
        return client.answer(part)

    first = answer = page(wanted.limit, wanted.after)
    key = next(field.name for field in first.DESCRIPTOR.fields if field.is_repeated)
    items = list(getattr(first, key))
    if hasattr(request, "snapshot_id"):
        request.snapshot_id = first.snapshot_id  # further pages are of the same snapshot
    while answer.next and (not wanted.limit or len(items) < wanted.limit):
        answer = page(wanted.limit - len(items) if wanted.limit else 0, answer.next)
        items += getattr(answer, key)
    total, is_exact = first.total, getattr(first, "total_is_exact", True)
    if not is_exact and not answer.next and not wanted.after:
        total, is_exact = len(items), True  # all of them were counted here
    return first, ListRange(items, total, answer.next, wanted.after, is_exact)


def listed(client: "AdminClient", wanted: Window, request: Message) -> ListRange[Any]:
    """The same, the items alone."""
    return gather(client, wanted, request)[1]


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of a command that lists something: which part, its order and columns."""

    limit: int | None = None
    after: str = ""
    sort_by: str = ""  # names of columns, separated by commas; a minus before a name reverses its order
    columns: str = ""
    watch: bool = False
    interval: timedelta = timedelta(0)

    @property
    def window(self) -> Window:
        """The requested part."""
        return Window(self.limit or 0, self.after)


_NO_OPTIONS = ListOptions()


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """One column: lists are sorted by its values, which `write` makes texts; -1 is unknown. Numbers go to the right.

    One that is not `shown` is there for who names it.
    """

    title: str
    value: Callable[[Item], Any]
    write: Callable[[Any], str] = str
    right: bool = False
    shown: bool = True

    @property
    def name(self) -> str:
        return self.title.lower().replace(" ", "-")

    def cell(self, item: Item) -> str:
        """The text of the item's value."""
        value = self.value(item)
        return "-" if value == _UNKNOWN else self.write(value)


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """The columns of a list of items, and what its document needs.

    On a terminal that is too narrow, `spare` columns are left out, the first ones first, and `elastic` is cut.
    """

    columns: tuple[Column[Item], ...]
    spare: tuple[str, ...] = ()
    elastic: str = ""
    schema: str = ""  # its name is the key of the items
    name: Callable[[Item], str] = str  # of one item
    nothing: str = ""  # the text for an empty list
    without: Collection[str] = ()  # fields of the items that are left out

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def arranged(self, items: Sequence[Item], sort_by: str) -> list[Item]:
        """The items in the requested order; the sort is stable. Raises InvalidArgument."""
        arranged = list(items)
        for name in reversed(split_names(sort_by)):
            arranged.sort(key=self.column(name.removeprefix("-")).value, reverse=name.startswith("-"))
        return arranged

    def grid(self, items: Sequence[Item], columns: str = "", indent: int = 0) -> Grid:
        """A row for each item, with the requested columns, in that order. Raises InvalidArgument."""
        wanted = [self.column(name) for name in split_names(columns)]
        visible = wanted or [column for column in self.columns if column.shown]
        return Grid(
            tuple(column.title for column in visible),
            tuple(tuple(column.cell(item) for column in visible) for item in items),
            frozenset(column.title for column in visible if column.right),
            indent,
            () if wanted else self.spare,
            self.elastic,
        )

    def document(
        self,
        part: ListRange[Item],
        options: ListOptions = _NO_OPTIONS,
        *,
        before: Mapping[str, Any] | None = None,
        name: Callable[[Item], str] | None = None,
        nothing: str = "",
    ) -> Document:
        """The keys of `before`, the items, `total` and `next`. `name` and `nothing` replace those of the list."""
        items = self.arranged(part.items, options.sort_by)
        bodies = [{key: value for key, value in body.items() if key not in self.without} for body in encode_all(items)]
        key = self.schema.removeprefix("amoro.").partition("/")[0]
        blocks: tuple[Block, ...] = (nothing or self.nothing,)
        if items:
            blocks = (self.grid(items, options.columns), *part.rest)
        body = {**(before or {}), key: bodies, **part.keys}
        return Document(self.schema, body, tuple(map(name or self.name, items)), blocks, key)

    def column(self, name: str) -> Column[Item]:
        """The column of that name. Raises InvalidArgument."""
        wanted = name.lower().replace(" ", "-").replace("_", "-")
        for column in self.columns:
            if column.name == wanted:
                return column
        close = get_close_matches(wanted, self.names, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise InvalidArgument(f"{name!r} is not a column", hint=f"{meant}The columns are {', '.join(self.names)}.")


def split_names(text: str) -> list[str]:
    """The names in a text that separates them by commas."""
    return [name.strip() for name in text.split(",")] if text.strip() else []


def list_command(
    listing: Listing[Any], *, after: str = "", limit: int | None = None, newest_first: bool = False, watch: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator of a command that prints a list: it takes the options of lists, and gets them as `options`.

    `after` names the key of the list's items; without it the list is printed as a whole. `limit` is its default.
    """
    added = list(_parameters(listing, after, limit, newest_first, watch))

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(session: Session, **given: Any) -> None:
            options = ListOptions(**{parameter.name: given.pop(parameter.name) for parameter in added})
            function(session, options=options, **given)

        own = inspect.signature(function, eval_str=True).parameters.values()
        command.__doc__ = function.__doc__
        return with_parameters(command, [*(parameter for parameter in own if parameter.name != "options"), *added])

    return decorate


def _parameters(
    listing: Listing[Any], after: str, limit: int | None, newest_first: bool, watch: bool
) -> Iterator[inspect.Parameter]:
    def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    if after:
        most = f"How many to list at most{', newest first' if newest_first else ''}"
        bound = typer.Option(
            "--limit",
            help=f"{most}." if limit else f"{most} [default: all].",
            min=1,
            max=1_000_000_000,
            show_default=bool(limit),
        )
        yield parameter("limit", Annotated[int | None, bound], limit)
        start = option("--after", metavar=after, help="Only what follows this one in the list: `next` in JSON.")
        yield parameter("after", Annotated[str, start], "")
    order = "Sort by these columns, separated by commas; a minus before a name reverses its order."
    yield parameter("sort_by", Annotated[str, _columns_option(listing, "--sort-by", order)], "")
    text = f"Show these columns only, in that order: {', '.join(listing.names)}."
    yield parameter("columns", Annotated[str, _columns_option(listing, "--columns", text)], "")
    if watch:
        yield parameter("watch", WatchOption, False)
        yield parameter("interval", IntervalOption, INTERVAL)


def _columns_option(listing: Listing[Any], name: str, text: str) -> Any:
    """An option that takes names of columns, checked and completed."""

    def check(value: str) -> str:
        try:
            for name in split_names(value):
                listing.column(name.removeprefix("-"))
        except InvalidArgument as error:
            raise typer.BadParameter(f"{error.message}. {error.hint}") from error
        return value

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")  # names that were typed before are kept
        minus = "-" if last.startswith("-") else ""
        start = last.removeprefix("-")
        return [f"{before}{comma}{minus}{name}" for name in listing.names if name.startswith(start)]

    return option(name, metavar="COLUMNS", help=text, callback=check, autocompletion=complete)


def show_list(
    session: Session, options: ListOptions, listing: Listing[Any], request: Message, nothing: str = ""
) -> None:
    """Print the list that answers the request; with --watch, again after each change.

    `nothing` is the text for an empty list, instead of the listing's.
    """

    def ask(client: "AdminClient") -> Look:
        return Look(listing.document(listed(client, options.window, request), options, nothing=nothing))

    show_watched(session, ask, options.watch, options.interval)

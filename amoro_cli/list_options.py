"""Lists: their columns, which of them are shown, and what they are sorted by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

import typer

from amoro_cli.output import Grid
from amoro_core.errors import InvalidArgument

Item = TypeVar("Item")


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


AS_EVER = Arrangement()


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

    def grid(self, items: Sequence[Item], arrangement: Arrangement = AS_EVER, indent: int = 0) -> Grid:
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

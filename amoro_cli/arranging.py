"""The options of list commands: sort keys and columns."""

from collections.abc import Callable
from typing import Any

import typer

from amoro_cli.listing import Arrangement, Listing
from amoro_core.errors import InvalidArgument


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

"""Requests for pages: addresses, lists, confirmations, and the commands that do the same."""

import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from google.protobuf.message import Message
from starlette.requests import Request

from amoro_core.documents.formatting import format_count
from amoro_core.errors import InvalidArgument
from amoro_core.web.app_context import ask


def to(*parts: str, **query: str | int) -> str:
    """The path of a page from its parts, which are percent-encoded, with a query of what is not ""."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return path + with_query(query)


def with_query(query: Mapping[str, str | int]) -> str:
    """The query with its question mark, without parameters that are ""; "" without any."""
    given = {key: value for key, value in query.items() if value != ""}
    return f"?{urlencode(given)}" if given else ""


def to_table(name: str, table_id: int, *parts: str, **query: str | int) -> str:
    """The path of a table's page or of one below it: by the name, or by the number where the name has a slash.

    Servers decode %2F before they find the route, so that such a name would be two parts of the path. Without
    a number (0) it is searched for.
    """
    if "/" in name and not table_id:
        return to("tables", text=name)
    return to("tables", str(table_id) if "/" in name else name, *parts, **query)


def command(*words: str) -> str:
    """A command line as a shell takes it."""
    return shlex.join(words)


def within(path: str) -> str:
    """The path if it leads to a page of this site, else "/": where a login may lead is the visitor's own word."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own else "/"


Answer = TypeVar("Answer", bound=Message)
#: Fields whose blanks at the ends count: logging in takes a password as it is.
_AS_TYPED = frozenset({"password"})


@dataclass(frozen=True, slots=True)
class Page:
    """A page to show: a template, the page's title, and values for it."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    is_live: bool = False  # whether an open page refreshes itself


@dataclass(frozen=True, slots=True)
class Redirect:
    """The end of an action: the path of the next page, and its notice."""

    path: str
    notice: str = ""
    kind: str = "good"  # good, wait or bad: how the notice looks


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page by an authenticated caller."""

    request: Request

    async def ask(self, method: str, message: Message, answer: type[Answer]) -> Answer:
        """Call an operation as the visitor. Raises the operation's errors."""
        return await ask(self.request, method, message, answer)

    def named(self, name: str) -> str:
        """A part of the page's path, decoded."""
        return str(self.request.path_params[name])

    def query(self, **known: Collection[str]) -> dict[str, str]:
        """The values of the known parameters of the query, "" where one is left out or empty.

        Each has the collection of its possible values; an empty one: any text. Raises InvalidArgument with the nearest
        for a parameter or a value that is not known.
        """
        given = {key: value.strip() for key, value in self.request.query_params.multi_items()}
        given.pop("notice", None)
        for key, value in given.items():
            if key not in known:
                raise _unknown(key, tuple(known), "a parameter of this page")
            if value and known[key] and value not in known[key]:
                raise _unknown(value, tuple(known[key]), f"a value of {key}")
        return {key: given.get(key, "") for key in known}

    async def form(self, *known: str) -> dict[str, str]:
        """The fields of the form that was sent, "" where one is left out. Raises InvalidArgument for an unknown one."""
        async with self.request.form(max_files=0, max_fields=100) as sent:
            given = {key: value for key, value in sent.multi_items() if isinstance(value, str)}
        for key in given:
            if key not in known:
                raise _unknown(key, known, "a field of this form")
        return {key: value if key in _AS_TYPED else value.strip() for key in known for value in (given.get(key, ""),)}


View = Callable[[PageRequest], Awaitable[Page | Redirect]]


def whole_number(text: str, name: str, most: int) -> int | None:
    """The number from 0 to `most` in a parameter of that name; None for "". Raises InvalidArgument."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise InvalidArgument(f"{text!r} is no {name}", hint=f"It is a whole number from 0 to {most}.")
    return int(text)


def _unknown(text: str, known: Collection[str], what: str) -> InvalidArgument:
    close = get_close_matches(text, list(known), n=1)
    values = f"Did you mean {close[0]}? " if close else ""
    return InvalidArgument(f"{text!r} is not {what}", hint=f"{values}Known: {', '.join(known) or 'none'}.")


ROWS = 50  # on a page of a list
MOST_EXACT = 10_000  # a total is counted up to here


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of a list: at `path`, with these filters, in this order.

    `next` and `after` are cursors, of the page after it and of this one; "": there is none, or it is the first.
    """

    path: str
    noun: str  # of its items, in the plural
    filters: Mapping[str, str]
    shown: int
    total: int
    next: str = ""
    after: str = ""
    sort: str = ""
    order: str = ""
    total_is_exact: bool = True
    default_sort: str = ""

    @property
    def is_filtered(self) -> bool:
        """Whether a filter is set."""
        return any(self.filters.values())

    @property
    def is_whole(self) -> bool:
        """Whether it has all items of the list."""
        return self.is_first and not self.next

    @property
    def is_first(self) -> bool:
        """Whether it is the first page."""
        return not self.after

    @property
    def total_told(self) -> str:
        """How many items there are on all pages, such as 10,000+ where they were not counted to the end."""
        return format_count(self.total) + ("" if self.total_is_exact else "+")

    @property
    def first_url(self) -> str:
        """The address of the first page."""
        return self.path + with_query(self._query())

    @property
    def next_url(self) -> str:
        """The address of the page after this one; "" for the last."""
        return self.path + with_query({**self._query(), "after": self.next}) if self.next else ""

    def sorted_by(self, key: str) -> str:
        """The address of the list sorted by the key; a second time in descending order."""
        order = "desc" if key == self.sort and self.order != "desc" else ""
        return self.path + with_query({**self.filters, "sort": key, "order": order})

    def _query(self) -> dict[str, str]:
        sort = "" if self.sort == self.default_sort else self.sort
        return {**self.filters, "sort": sort, "order": self.order if self.order == "desc" else ""}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a confirmation's form: one of `values` where there are any, else by its type as in HTML."""

    name: str
    label: str
    value: str = ""
    type: str = "text"
    values: Sequence[str] = ()
    any: str = "any"  # the label of the empty choice; "": a value is required
    is_needed: bool = False


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The page that an action's link leads to: its form is sent to `target`."""

    title: str
    effects: Sequence[str]  # in sentences
    target: str
    label: str  # of the button that does it
    back: str
    same: str  # the command that does the same
    fields: Sequence[Field] = ()
    is_grave: bool = False  # it deletes, or can't be taken back

    def shown(self) -> Page:
        """The confirmation as a page."""
        values = {
            "effects": self.effects,
            "target": self.target,
            "label": self.label,
            "back": self.back,
            "same": self.same,
            "fields": self.fields,
            "is_grave": self.is_grave,
        }
        return Page("confirm.html", self.title, values)


def named(typed: str, table: str) -> bool:
    """Whether what was typed is the table's full name."""
    return typed.strip() == table

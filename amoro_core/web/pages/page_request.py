"""Requests for pages: addresses, lists, confirmations, and the commands that do the same."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from google.protobuf.message import Message
from starlette.requests import Request

from amoro_core.documents.formatting import format_count
from amoro_core.errors import InvalidArgument, WaitTimeout
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.app_context import ask

_LONGEST_FORM = 1024 * 1024  # bytes


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
    """A command line of amoro as a shell takes it."""
    return shlex.join(["amoro", *words])


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
        given = await read_form(self.request, _LONGEST_FORM)
        for key in given:
            if key not in known:
                raise _unknown(key, known, "a field of this form")
        return {key: value if key in _AS_TYPED else value.strip() for key in known for value in (given.get(key, ""),)}


async def read_form(request: Request, most_bytes: int) -> dict[str, str]:
    """The fields of an urlencoded form, at most 100. Raises InvalidArgument for a longer one."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            raise InvalidArgument(f"the form has more than {most_bytes} bytes")
    try:
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise InvalidArgument("the form has more than 100 fields") from error


View = Callable[[PageRequest], Awaitable[Page | Redirect]]


def whole_number(text: str, name: str, most: int) -> int | None:
    """The number from 0 to `most` in a parameter of that name; None for "". Raises InvalidArgument."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise InvalidArgument(f"{text!r} is no {name}", hint=f"It is a whole number from 0 to {most}.")
    return int(text)


@asynccontextmanager
async def deadline(seconds: float, failure: str, same: str) -> AsyncIterator[None]:
    """Raises WaitTimeout with `failure` after that time; its hint names the command, which waits longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as late:
        raise WaitTimeout(f"{failure} within {seconds:g} s", hint=f"The command line waits longer: {same}") from late


MOST_CHOICES = 500  # in a list to choose from; a name that is not among them is typed as text


async def group_names(visit: PageRequest) -> list[str]:
    """The names of the optimizer groups, to choose from."""
    response = await visit.ask("ListGroups", pb.ListGroupsRequest(limit=MOST_CHOICES), pb.ListGroupsResponse)
    return [group.name for group in response.groups]


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
    next: str
    after: str
    sort: str
    order: str
    total_is_exact: bool
    default_sort: str

    @property
    def is_filtered(self) -> bool:
        """Whether a filter is set."""
        return any(self.filters.values())

    @property
    def total_text(self) -> str:
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


def page_of_list(
    path: str, noun: str, query: Mapping[str, str], answer: Any, items: Sequence[Message], default_sort: str = ""
) -> Listed:
    """The page that the query has asked for, with these items of the operation's answer."""
    return Listed(
        path,
        noun,
        filters={key: value for key, value in query.items() if key not in ("sort", "order", "after", "range")},
        shown=len(items),
        total=answer.total,
        next=answer.next,
        after=query["after"],
        sort=query.get("sort") or default_sort,
        order=query.get("order", ""),
        total_is_exact=getattr(answer, "total_is_exact", True),
        default_sort=default_sort,
    )


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a confirmation's form: one of `values` where there are any, else an input of its type."""

    name: str
    label: str
    value: str = ""
    type: str = "text"  # text, number, password or hidden
    values: Sequence[str] = ()
    any: str = "any"  # the label of the empty choice; "": a value is required
    is_needed: bool = False


def confirm_page(
    title: str,
    effects: Sequence[str],
    target: str,
    label: str,
    back: str,
    same: str,
    fields: Sequence[Field] = (),
    is_grave: bool = False,
) -> Page:
    """The page that an action's link leads to: its form is sent to `target` by a button with the label.

    `effects` are sentences, `same` is the command that does the same; grave: it deletes, or can't be taken back.
    """
    values = {
        "effects": effects,
        "target": target,
        "label": label,
        "back": back,
        "same": same,
        "fields": fields,
        "is_grave": is_grave,
    }
    return Page("confirm.html", title, values)

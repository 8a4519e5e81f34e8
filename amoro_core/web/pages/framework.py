"""The frame of all pages: requests for them, addresses, lists, confirmations; views, errors, notices and navigation."""

import asyncio
import hashlib
import secrets
import shlex
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from google.protobuf.message import Message
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from amoro_core.admin.context import require
from amoro_core.documents.formatting import (
    change,
    format_bytes,
    format_count,
    format_duration,
    format_time,
    iso_time,
    many,
    short_id,
)
from amoro_core.errors import AmoroError, InvalidArgument, NotFound, UnknownToken, WaitTimeout, error_classes
from amoro_core.model.principals import Principal, Role
from amoro_core.model.properties import parse_time
from amoro_core.model.tables import TableKey, parse_table
from amoro_core.model.text_sanitizing import printable
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.operations import OPERATIONS
from amoro_core.web import static
from amoro_core.web.app_context import call, principal_of
from amoro_core.web.rest import requests

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


def command(*words: str, **options: str | int) -> str:
    """A command line of amoro as a shell takes it, with the options that are neither "" nor 0."""
    given = [word for name, value in options.items() if value for word in (f"--{name}", str(value))]
    return shlex.join(["amoro", *words, *given])


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


class PageRequest:
    """A request for a page by an authenticated caller, with the query or the form that its route takes."""

    def __init__(self, request: Request) -> None:
        self.request = request
        # Texts, "" for what is left out; `Any`, as they are fields of the operations' requests.
        self.query: dict[str, Any] = {}
        self.form: dict[str, Any] = {}

    async def ask(self, message: Message, answer: type[Answer], method: str = "") -> Answer:
        """Call an operation as the visitor: the method, else that of the request's name. Raises its errors."""
        method = method or type(message).__name__.removesuffix("Request")
        response = await call(self.request, method, message)
        if not isinstance(response, answer):
            raise TypeError(f"{method} answers {type(response).__name__}, not {answer.__name__}")
        return response

    def named(self, name: str) -> str:
        """A part of the page's path, decoded."""
        return str(self.request.path_params[name])

    def read_query(self, parameters: Mapping[str, Iterable[str]]) -> None:
        """Read the known parameters, each with its possible values; none: any text. A form that was sent stands in.

        Raises InvalidArgument with the nearest for a parameter or a value that is not known.
        """
        given = {key: value.strip() for key, value in self.request.query_params.multi_items()}
        given.pop("notice", None)
        for key, value in given.items():
            if key not in parameters:
                raise _unknown(key, tuple(parameters), "a parameter of this page")
            values = tuple(parameters[key])
            if value and values and value not in values:
                raise _unknown(value, values, f"a value of {key}")
        self.query = {key: given.get(key) or self.form.get(key, "") for key in parameters}

    async def read_form(self, names: Collection[str]) -> None:
        """Read the known fields of the form that was sent. Raises InvalidArgument for an unknown one."""
        self.form = await read_form(self.request, _LONGEST_FORM)
        for key in self.form:
            if key not in names:
                raise _unknown(key, names, "a field of this form")
        given = {key: self.form.get(key, "") for key in names}
        self.form = {key: value if key in _AS_TYPED else value.strip() for key, value in given.items()}


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


def with_times(query: Mapping[str, str]) -> dict[str, Any]:
    """The query as fields of a request: its times are since_ms and until_ms. Raises InvalidArgument."""
    fields: dict[str, Any] = dict(query)
    times = {name: fields.pop(name) for name in ("since", "until")}
    try:
        return fields | {f"{name}_ms": parse_time(text, datetime.now(UTC)) for name, text in times.items() if text}
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


Shown = Page | Redirect | Response
View = Callable[[PageRequest], Awaitable[Shown]]


def whole_number(text: str, name: str, most: int) -> int:
    """The number from 0 to `most` in a parameter of that name; 0 for "". Raises InvalidArgument."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise InvalidArgument(f"{text!r} is no {name}", hint=f"It is a whole number from 0 to {most}.")
    return int(text)


def typed_lines(text: str) -> list[str]:
    """The lines of a field that are not empty."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def typed_properties(text: str) -> dict[str, str]:
    """The properties in a field, KEY=VALUE on each line. Raises InvalidArgument."""
    pairs = [line.partition("=") for line in typed_lines(text)]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise InvalidArgument(f"{key!r} is not a property", hint="Write KEY=VALUE, one on a line.")
    return {key.strip(): value.strip() for key, _, value in pairs}


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
    response = await visit.ask(pb.ListGroupsRequest(limit=MOST_CHOICES), pb.ListGroupsResponse)
    return [group.name for group in response.groups]


def _unknown(text: str, names: Collection[str], noun: str) -> InvalidArgument:
    close = get_close_matches(text, list(names), n=1)
    values = f"Did you mean {close[0]}? " if close else ""
    return InvalidArgument(f"{text!r} is not {noun}", hint=f"{values}Known: {', '.join(names) or 'none'}.")


ROWS = 50  # on a page of a list
#: Keys by which lists begin with the greatest value.
_MOST_FIRST = ("saving", "small-files", "deletes", "size")


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of a list at `path`: the query that asked for it, and the operation's answer with these items."""

    path: str
    noun: str  # of its items, in the plural
    query: Mapping[str, str]
    answer: Any
    items: Sequence[Message]

    @property
    def filters(self) -> dict[str, str]:
        """The values of the filters, "" for one that is not set."""
        return {key: value for key, value in self.query.items() if key not in ("sort", "order", "after", "range")}

    @property
    def is_filtered(self) -> bool:
        return any(self.filters.values())

    @property
    def sort(self) -> str:
        return self.query.get("sort") or TableKey.NAME

    @property
    def is_descending(self) -> bool:
        """Whether the greatest value is first."""
        return self.query.get("order") == "desc"

    @property
    def total_text(self) -> str:
        """How many items there are on all pages, such as 10,000+ where they were not counted to the end."""
        return format_count(self.answer.total) + ("" if getattr(self.answer, "total_is_exact", True) else "+")

    @property
    def first_url(self) -> str:
        """The address of the first page."""
        return self.path + with_query({**self.query, "after": ""})

    @property
    def next_url(self) -> str:
        """The address of the page after this one; "" for the last."""
        return self.path + with_query({**self.query, "after": self.answer.next}) if self.answer.next else ""

    def sorted_by(self, key: str) -> str:
        """The address of the list sorted by the key; a second time the other way round."""
        is_second = key == self.sort and self.is_descending == (key in _MOST_FIRST)
        order = "desc" if is_second != (key in _MOST_FIRST) else ""
        return self.path + with_query({**self.filters, "sort": key, "order": order})


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a confirmation's form: one of `values` where there are any, else an input of its type."""

    name: str
    label: str
    value: str = ""
    type: str = "text"  # text, number, password, hidden or lines
    values: Iterable[str] = ()
    any: str = ""  # the label of the empty choice; "": a value is required
    is_needed: bool = False


def confirm_page(
    title: str,
    effects: Sequence[str],
    label: str,
    back: str,
    same: str,
    fields: Sequence[Field] = (),
    is_grave: bool = False,
    target: str = "",
) -> Page:
    """The page that an action's link leads to: its form is sent to `target`, "" the page's own path, by a button.

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


Value = TypeVar("Value")


class TtlStore(Generic[Value]):
    """A bounded store whose values expire; the oldest is dropped first. Used by one event loop."""

    def __init__(self, most: int, lasting: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._lasting_s = lasting.total_seconds()
        self._monotonic = monotonic
        self._values: OrderedDict[str, tuple[float, Value]] = OrderedDict()

    def add(self, value: Value) -> str:
        """Keep the value; its key."""
        key = secrets.token_urlsafe(9)
        self._values[key] = (self._monotonic() + self._lasting_s, value)
        if len(self._values) > self._most:
            self._values.popitem(last=False)
        return key

    def find(self, key: str) -> Value | None:
        """The value; None for an unknown or expired key."""
        until, value = self._values.get(key, (0.0, None))
        return value if until > self._monotonic() else None

    def take(self, key: str) -> Value | None:
        """The value, which is not kept any longer; None as `find`."""
        value = self.find(key)
        self._values.pop(key, None)
        return value


#: Pages that the navigation leads to, by their subject; each with its label. Two are for administrators.
ENTRIES = {
    "": {"/": "Overview"},
    "Tables": {
        "/tables": "Tables",
        "/catalogs": "Catalogs",
        "/maintenance": "Maintenance",
        "/trash": "Trash",
        "/sql": "SQL",
    },
    "Work": {"/processes": "Processes", "/queue": "Queue", "/groups": "Groups", "/optimizers": "Optimizers"},
    "History": {"/report": "Report", "/events": "Events", "/audit": "Audit"},
    "Administration": {"/users": "Users", "/settings": "Settings", "/system": "System", "/rest": "REST"},
}
_LABELS = {path: label for entries in ENTRIES.values() for path, label in entries.items()}

#: What an error is, in a sentence, by its code.
_MEANINGS = {code: (kind.__doc__ or "").partition("\n")[0] for code, kind in error_classes().items()}

_HERE = Path(__file__).parent.parent
_MOST_NOTICES, _NOTICES_LAST = 1000, timedelta(minutes=10)
#: As in REST, but a page says that an outcome is unknown as it says a conflict.
STATUSES = {**requests.STATUSES, 7: 409}


class Site:
    """Makes routes of views: their pages in templates, their errors as pages, their actions answered with 303."""

    def __init__(self) -> None:
        self._notices: TtlStore[Redirect] = TtlStore(_MOST_NOTICES, _NOTICES_LAST)
        self._templates = _environment()

    def page(self, path: str, view: View, **query: Iterable[str]) -> Route:
        """A read-only page for the role viewer; `query` is what `PageRequest.read_query` takes."""
        return Route(path, self._answering(_after_query(view, query)), methods=["GET"])

    def action(self, path: str, view: View, *fields: str) -> Route:
        """The target of a form with these fields."""
        return Route(path, self._answering(_after_form(view, fields)), methods=["POST"])

    def confirmed(self, path: str, ask: View, act: View, *fields: str, **query: Iterable[str]) -> tuple[Route, Route]:
        """A page with a form, and the form's target: where that fails, the page says why, with what was typed."""
        show, act = _after_query(ask, query), _after_form(act, fields)

        async def act_or_ask(visit: PageRequest) -> Shown:
            try:
                return await act(visit)
            except AmoroError as error:
                return await _with_error(visit, show, error)

        answers = self._answering(show), self._answering(act_or_ask)
        return Route(path, answers[0], methods=["GET"]), Route(path, answers[1], methods=["POST"])

    async def missing(self, request: Request, error: Any) -> Response:
        """The page for an HTTPException, where there is nothing to read at an address; a line for programs."""
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse(error.detail, error.status_code, error.headers)
        with suppress(AmoroError):
            await principal_of(request)  # whose menu the page has
        nothing = NotFound(f"there is no page {request.url.path}", hint="It may have moved, or its address is cut off.")
        if error.status_code == 405:
            nothing = NotFound(
                f"{request.url.path} is no page: a form is sent there", hint="Open the form's page again."
            )
        return self.render(request, failed(nothing, request.url.path, error.status_code))

    def _answering(self, view: View) -> Any:
        async def answer(request: Request) -> Response:
            is_fragment = request.method == "GET" and "amoro-fragment" in request.headers
            try:
                # Also for pages that call no operation.
                require(await principal_of(request), "a page", Role.VIEWER, None)
                page = await view(PageRequest(request))
            except Exception as raised:
                error = requests.as_amoro_error(raised)
                if is_fragment:
                    # A page that does not exist or is not allowed is loaded whole; other errors may be temporary.
                    return Response(status_code=404 if error.exit_status in (3, 4) else 503)
                if isinstance(error, UnknownToken):
                    return _to_login(request)
                page = failed(error, request.url.path)
            if is_fragment:
                return self._fragment(request, page)
            if isinstance(page, Response):
                return page
            return self._redirect(page) if isinstance(page, Redirect) else self.render(request, page)

        return answer

    def _redirect(self, result: Redirect) -> Response:
        path = result.path
        if result.notice:
            path += ("&" if "?" in path else "?") + f"notice={self._notices.add(result)}"
        return RedirectResponse(path, 303)

    def _fragment(self, request: Request, page: Shown) -> Response:
        """The content of a live page alone: 304 where the browser has it, 404 where the page has to be loaded whole."""
        if not isinstance(page, Page) or not page.is_live:
            return Response(status_code=404)
        content = self._rendered(request, page, is_fragment=True).encode()
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:16]}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(content, headers=headers)

    def render(self, request: Request, page: Page) -> Response:
        """The page in its template, within the layout."""
        return HTMLResponse(self._rendered(request, page), page.status)

    def _rendered(self, request: Request, page: Page, *, is_fragment: bool = False) -> str:
        key, principal = request.query_params.get("notice", ""), getattr(request.state, "principal", None)
        return self._templates.get_template(page.template).render(
            title=page.title,
            path=request.url.path,
            entries=ENTRIES,
            principal=principal,
            may=partial(may, principal),
            notice=self._notices.take(key) if key else None,
            is_fragment=is_fragment,
            is_live=page.is_live,
            **page.values,
        )


def _to_login(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(to("login", next=wanted if request.method == "GET" else ""), 303)


def may(principal: Principal | None, method: str, table: str = "") -> bool:
    """Whether a page offers an operation to its visitor, on this table if it acts on one; the operation decides."""
    if principal is None or not principal.role.allows(OPERATIONS[method].role):
        return False
    return not table or principal.may_act_on(parse_table(table))


def _after_query(view: View, parameters: Mapping[str, Iterable[str]]) -> View:
    async def show(visit: PageRequest) -> Shown:
        visit.read_query(parameters)
        return await view(visit)

    return show


def _after_form(view: View, fields: Collection[str]) -> View:
    async def act(visit: PageRequest) -> Shown:
        await visit.read_form(fields)
        return await view(visit)

    return act


def failed(error: AmoroError, path: str, status: int = 0) -> Page:
    """The page of an error at the path: it leads on to the table, or to the list, where that is."""
    status, (_, section, *below) = status or STATUSES[error.exit_status], path.split("/")
    on = f"/{section}" if f"/{section}" in _LABELS else "/"
    label = _LABELS[on]
    if section == "tables" and below[1:]:
        on, label = to(section, below[0]), below[0]
    values = {"error": error, "status": status, "on": on, "on_label": label}
    return Page("error.html", "Not found" if status == 404 else "This did not work", values, status)


async def _with_error(visit: PageRequest, ask: View, error: AmoroError) -> Shown:
    """The page that asked, with the error and with what was typed. Raises the error where there is no such page."""
    try:
        page = await ask(visit)
    except AmoroError:
        raise error from None
    if not isinstance(page, Page) or page.template != "confirm.html":
        raise error
    fields = [
        field if field.type == "password" else replace(field, value=visit.form.get(field.name, field.value))
        for field in page.values["fields"]
    ]
    values = {**page.values, "fields": fields, "error": error}
    return replace(page, values=values, status=STATUSES[error.exit_status])


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # else each page looks at the files of its templates
    )
    environment.filters.update(
        ago=ago,
        iso=iso_time,
        lasting=format_duration,
        many=many,
        meaning=lambda code: _MEANINGS.get(code, ""),
        moment=moment,
        number=format_count,
        short_id=short_id,
        size=format_bytes,
        whole=whole,
    )
    functions = {"amoro": command, "change": change, "format_bytes": format_bytes, "static": static.url}
    environment.globals.update(functions, to=to, to_table=to_table, with_query=with_query)
    return environment


def moment(milliseconds: int, never: str = "never") -> Markup:
    """A time in UTC, marked up so that the script adds the visitor's own; `never` for 0."""
    if not milliseconds:
        return escape(never)
    form = Markup('<time datetime="{}">{}</time>')
    return form.format(iso_time(milliseconds), format_time(milliseconds))


def ago(milliseconds: int, never: str = "never") -> Markup:
    """How long ago or ahead a time is, with the time itself as its title; `never` for 0."""
    if not milliseconds:
        return escape(never)
    away = time.time() * 1000 - milliseconds
    text = f"{_roughly(away)} ago" if away >= 0 else f"in {_roughly(-away)}"
    form = Markup('<time datetime="{}" title="{}">{}</time>')
    return form.format(iso_time(milliseconds), format_time(milliseconds), text)


def whole(text: str) -> Markup:
    """A text of several lines, each as it is, with characters that can't be seen escaped."""
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())


def _roughly(milliseconds: float) -> str:
    seconds = int(milliseconds / 1000)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _visible(value: Any) -> Any:
    """The text of a value: invisible characters are escaped, then HTML."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

"""The frame of all pages: routes of views, errors, notices, navigation, and the content that open pages fetch again."""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from amoro_core.admin.context import require
from amoro_core.documents.formatting import format_bytes, format_count, format_duration, format_time
from amoro_core.errors import AmoroError, UnknownToken
from amoro_core.model.principals import Principal, Role
from amoro_core.model.tables import parse_table
from amoro_core.model.text_sanitizing import printable
from amoro_core.protocol.operations import OPERATIONS
from amoro_core.web import static
from amoro_core.web.app_context import principal_of
from amoro_core.web.pages import page_request
from amoro_core.web.pages.page_request import Page, PageRequest, Redirect, View

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


#: Pages that the navigation leads to: path, label, and the role that may read them.
ENTRIES = (
    ("/", "Overview", Role.VIEWER),
    ("/catalogs", "Catalogs", Role.VIEWER),
    ("/tables", "Tables", Role.VIEWER),
    ("/processes", "Processes", Role.VIEWER),
    ("/groups", "Groups", Role.VIEWER),
    ("/optimizers", "Optimizers", Role.VIEWER),
    ("/queue", "Queue", Role.VIEWER),
    ("/maintenance", "Maintenance", Role.VIEWER),
    ("/trash", "Trash", Role.VIEWER),
    ("/events", "Events", Role.VIEWER),
    ("/audit", "Audit", Role.VIEWER),
    ("/users", "Users", Role.ADMIN),
    ("/settings", "Settings", Role.ADMIN),
    ("/system", "System", Role.VIEWER),
)

_HERE = Path(__file__).parent.parent
_MOST_NOTICES, _NOTICES_LAST = 1000, timedelta(minutes=10)
#: The HTTP status of an error by the exit status of a command that meets it.
STATUSES = {1: 500, 2: 400, 3: 404, 4: 403, 5: 409, 6: 422, 7: 409}


class Site:
    """Makes routes of views: their pages in templates, their errors as pages, their actions answered with 303."""

    def __init__(self) -> None:
        self._notices: TtlStore[Redirect] = TtlStore(_MOST_NOTICES, _NOTICES_LAST)
        self._templates = _environment()

    def page(self, path: str, view: View) -> Route:
        """A read-only page for the role viewer."""
        return Route(path, self._answering(view), methods=["GET"])

    def action(self, path: str, view: View) -> Route:
        """The target of a form that changes something."""
        return Route(path, self._answering(view), methods=["POST"])

    def confirmed(self, path: str, ask: View, act: View) -> tuple[Route, Route]:
        """A page that asks for confirmation, and the target of its form."""
        return self.page(path, ask), self.action(path, act)

    def _answering(self, view: View) -> Any:
        async def answer(request: Request) -> Response:
            is_fragment = request.method == "GET" and "amoro-fragment" in request.headers
            try:
                # Also for pages that call no operation.
                require(await principal_of(request), "a page", Role.VIEWER, None)
                page = await view(PageRequest(request))
            except AmoroError as error:
                if is_fragment:
                    # A page that does not exist or is not allowed is loaded whole; other errors may be temporary.
                    return Response(status_code=404 if error.exit_status in (3, 4) else 503)
                if isinstance(error, UnknownToken):
                    return _to_login(request)
                page = failed(error)
            if is_fragment:
                return self._fragment(request, page)
            return self._redirect(page) if isinstance(page, Redirect) else self.render(request, page)

        return answer

    def _redirect(self, result: Redirect) -> Response:
        path = result.path
        if result.notice:
            path += ("&" if "?" in path else "?") + f"notice={self._notices.add(result)}"
        return RedirectResponse(path, 303)

    def _fragment(self, request: Request, page: Page | Redirect) -> Response:
        """The content of a live page alone: 304 where the browser has it, 404 where the page has to be loaded whole."""
        if isinstance(page, Redirect) or not page.is_live:
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
        role = principal.role if principal else Role.VIEWER
        return self._templates.get_template(page.template).render(
            title=page.title,
            path=request.url.path,
            entries=[(path, label) for path, label, needed in ENTRIES if role.allows(needed)],
            principal=principal,
            may=partial(may, principal),
            notice=self._notices.take(key) if key else None,
            is_fragment=is_fragment,
            is_live=page.is_live,
            **page.values,
        )


def _to_login(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(page_request.to("login", next=wanted if request.method == "GET" else ""), 303)


def may(principal: Principal | None, method: str, table: str = "") -> bool:
    """Whether a page offers an operation to its visitor, on this table if it acts on one; the operation decides."""
    if principal is None or not principal.role.allows(OPERATIONS[method].role):
        return False
    return not table or principal.may_act_on(parse_table(table))


def failed(error: AmoroError) -> Page:
    """The page of an error."""
    status = STATUSES.get(error.exit_status, 500)
    values = {"error": error, "hint": error.hint or error.remedy, "status": status}
    return Page("error.html", "Not found" if status == 404 else "This did not work", values, status)


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
    environment.filters.update(_FILTERS)
    environment.globals.update(
        to=page_request.to, to_table=page_request.to_table, with_query=page_request.with_query, static=static.url
    )
    return environment


#: Badge classes of statuses: done, at work, waiting, needs attention.
_LOOKS = {
    "good": ("idle", "success", "yes", "commits", "alive", "running_instance"),
    "busy": (
        *("planning", "minor_optimizing", "major_optimizing", "full_optimizing", "committing"),
        *("running", "clearing", "acked", "scheduled", "starting"),
    ),
    "wait": ("pending", "planned", "held", "draining", "partial", "stopping"),
    "bad": ("refused", "failed", "commit_unknown", "ended", "lost"),
}
_LOOK_OF = {word: badge_class for badge_class, words in _LOOKS.items() for word in words}


def badge_class(status: str) -> str:
    """The badge class of a status; "" for a neutral one."""
    return _LOOK_OF.get(status, "")


def spoken(status: str) -> str:
    """A status as words: "commit unknown" of "commit_unknown"."""
    return status.replace("_", " ")


def moment(milliseconds: int, never: str = "never") -> Markup:
    """A time in UTC, marked up so that the script adds the visitor's own; `never` for 0."""
    if not milliseconds:
        return escape(never)
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"), f"{at:%Y-%m-%d %H:%M:%S}Z"
    )


def ago(milliseconds: int, never: str = "never") -> Markup:
    """How long ago or ahead a time is, with the time itself as its title; `never` for 0."""
    if not milliseconds:
        return escape(never)
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    away = time.time() * 1000 - milliseconds
    text = f"{_roughly(away)} ago" if away >= 0 else f"in {_roughly(-away)}"
    form = Markup('<time datetime="{}" title="{}">{}</time>')
    return form.format(at.isoformat(timespec="milliseconds"), format_time(milliseconds), text)


def whole(text: str) -> Markup:
    """A text of several lines, each as it is, with characters that can't be seen escaped."""
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())


def _roughly(milliseconds: float) -> str:
    seconds = int(milliseconds / 1000)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


_FILTERS: Mapping[str, Callable[..., str]] = {
    "ago": ago,
    "badge_class": badge_class,
    "lasting": format_duration,
    "moment": moment,
    "number": format_count,
    "size": format_bytes,
    "spoken": spoken,
    "whole": whole,
}


def _visible(value: Any) -> Any:
    """The text of a value: invisible characters are escaped, then HTML."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

"""The frame of all pages: routes of views, errors, notices, navigation, and the content that open pages fetch again."""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from amoro_core.admin.context import require
from amoro_core.errors import AmoroError, UnknownToken
from amoro_core.model.principals import Principal, Role
from amoro_core.model.tables import parse_table
from amoro_core.model.text_sanitizing import printable
from amoro_core.protocol.operations import OPERATIONS
from amoro_core.web import static
from amoro_core.web.app_context import principal_of
from amoro_core.web.pages import page_request, template_filters
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


@dataclass(frozen=True, slots=True)
class Entry:
    """A page that the navigation leads to, for this role and those above it."""

    path: str
    label: str
    role: Role = Role.VIEWER


ENTRIES = (
    Entry("/", "Overview"),
    Entry("/catalogs", "Catalogs"),
    Entry("/tables", "Tables"),
    Entry("/processes", "Processes"),
    Entry("/groups", "Groups"),
    Entry("/optimizers", "Optimizers"),
    Entry("/queue", "Queue"),
    Entry("/maintenance", "Maintenance"),
    Entry("/trash", "Trash"),
    Entry("/events", "Events"),
    Entry("/audit", "Audit"),
    Entry("/users", "Users", Role.ADMIN),
    Entry("/settings", "Settings", Role.ADMIN),
    Entry("/system", "System"),
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

    def page(self, path: str, view: View, name: str | None = None) -> Route:
        """A read-only page for the role viewer."""
        return Route(path, self._answering(view), methods=["GET"], name=name)

    def action(self, path: str, view: View) -> Route:
        """The target of a form that changes something."""
        return Route(path, self._answering(view), methods=["POST"])

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
            return self._gone(page) if isinstance(page, Redirect) else self.shown(request, page)

        return answer

    def _gone(self, result: Redirect) -> Response:
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

    def shown(self, request: Request, page: Page) -> Response:
        """The page in its template, within the layout."""
        return HTMLResponse(self._rendered(request, page), page.status)

    def _rendered(self, request: Request, page: Page, *, is_fragment: bool = False) -> str:
        key, principal = request.query_params.get("notice", ""), getattr(request.state, "principal", None)
        role = principal.role if principal else Role.VIEWER
        return self._templates.get_template(page.template).render(
            title=page.title,
            path=request.url.path,
            entries=[entry for entry in ENTRIES if role.allows(entry.role)],
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
    environment.filters.update({name: getattr(template_filters, name) for name in _FILTERS})
    environment.globals.update(
        to=page_request.to, to_table=page_request.to_table, with_query=page_request.with_query, static=static.url
    )
    return environment


_FILTERS = ("ago", "badge_class", "lasting", "moment", "number", "size", "spoken", "whole")


def _visible(value: Any) -> Any:
    """The text of a value: invisible characters are escaped, then HTML."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

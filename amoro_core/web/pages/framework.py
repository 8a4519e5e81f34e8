"""What open pages fetch after a hint: rendered once for all who may see the same, until something of it changes."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
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
from amoro_core.notifier import Revisions, Subject
from amoro_core.protocol.operations import OPERATIONS
from amoro_core.web import static
from amoro_core.web.app_context import offered, principal_of
from amoro_core.web.pages import page_request, template_filters
from amoro_core.web.pages.page_request import Page, PageRequest, Redirect, View

MOST_KEPT = 500
LONGEST_S = 10.0  # a fragment says how long ago things were

#: The address of the page, and what decides about its content: role, pattern.
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A rendered part of a page as it is sent, and the subjects that it shows."""

    content: bytes
    subjects: Sequence[Subject]


class Fragments:
    """Fragments by page and rights. Each is valid while it shows what those who ask have to see."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[Fragment, int, float]] = OrderedDict()
        self._locks: OrderedDict[Key, asyncio.Lock] = OrderedDict()

    async def get(
        self,
        key: Key,
        revisions: Revisions,
        make: Callable[[], Awaitable[Fragment | None]],
        hinted: int | None = None,
    ) -> bytes | None:
        """The fragment, made unless it is known; None where `make` gives none. Those who ask at once wait for one.

        It shows all that had changed up to the revision `hinted`, or until now where that is None. A page that was told
        of a revision is told of later ones by the next hint: so, while things change all the time, the pages that are
        told at once share one fragment.
        """
        lock = self._locks.setdefault(key, asyncio.Lock())
        if len(self._locks) > 2 * MOST_KEPT:
            self._locks.popitem(last=False)
        async with lock:
            known = self._kept.get(key)
            if known and known[1] >= _wanted(revisions, known[0], hinted) and time.monotonic() - known[2] < LONGEST_S:
                self._kept.move_to_end(key)
                return known[0].content
            # Noted before it is made: it may lack a change meanwhile.
            begun = revisions.latest
            made = await make()
            if made is None:
                self._kept.pop(key, None)
                return None
            self._kept[key] = (made, begun, time.monotonic())
            self._kept.move_to_end(key)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return made.content


def _wanted(revisions: Revisions, fragment: Fragment, hinted: int | None) -> int:
    """The revision up to which it has to show all."""
    newest = max(revisions.of(*subject) for subject in fragment.subjects)
    return newest if hinted is None else min(newest, hinted)


Value = TypeVar("Value")


class TtlStore(Generic[Value]):
    """At most so many values, the oldest of which goes first; each for a time. Used by one event loop."""

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
        """The value; None for a key that is not known (any more)."""
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
        self._fragments = Fragments()

    def page(self, path: str, view: View, name: str | None = None) -> Route:
        """A page, which is only read, by whoever has the role viewer."""
        return Route(path, self._answering(view), methods=["GET"], name=name)

    def action(self, path: str, view: View) -> Route:
        """The target of a form that changes something."""
        return Route(path, self._answering(view), methods=["POST"])

    def _answering(self, view: View) -> Any:
        async def answer(request: Request) -> Response:
            if request.method == "GET" and "amoro-fragment" in request.headers:
                return await self._fragment(request, view)
            since = offered(request).revisions.latest
            try:
                # Also where the page asks for nothing: it is for those who may look.
                require(await principal_of(request), "a page", Role.VIEWER, None)
                made = await view(PageRequest(request))
            except UnknownToken:
                asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(page_request.to("login", next=asked if request.method == "GET" else ""), 303)
            except AmoroError as error:
                made = failed(error)
            return self._gone(made) if isinstance(made, Redirect) else self._shown(request, made, since)

        return answer

    def _gone(self, made: Redirect) -> Response:
        path = made.path
        if made.notice:
            path += ("&" if "?" in path else "?") + f"notice={self._notices.add(made)}"
        return RedirectResponse(path, 303)

    async def _fragment(self, request: Request, view: View) -> Response:
        """The content of a page alone, for one that is open; 404 where it has to be loaded whole."""
        revisions = offered(request).revisions

        async def make() -> Fragment | None:
            shown = await view(PageRequest(request))
            if isinstance(shown, Redirect) or not shown.subjects:
                return None
            return Fragment(self._rendered(request, shown, 0, is_fragment=True).encode(), shown.subjects)

        try:
            principal = await principal_of(request)
            key = (request.url.path, request.url.query, principal.role.value, principal.pattern)
            told = request.headers.get("amoro-hint", "")  # the revision of the hint that the page follows
            hinted = int(told) if told.isascii() and told.isdigit() and len(told) < 20 else None
            content = await self._fragments.get(key, revisions, make, hinted)
        except AmoroError as error:
            if error.exit_status not in (3, 4):  # it may be there again in a moment
                return Response(status_code=503)
            content = None
        return HTMLResponse(content) if content is not None else Response(status_code=404)

    def shown(self, request: Request, made: Page) -> Response:
        """The page in its template, within the layout; it is not renewed while it is open."""
        return self._shown(request, made, 0)

    def _shown(self, request: Request, made: Page, since: int) -> Response:
        return HTMLResponse(self._rendered(request, made, since), made.status)

    def _rendered(self, request: Request, made: Page, since: int, *, is_fragment: bool = False) -> str:
        key, principal = request.query_params.get("notice", ""), getattr(request.state, "principal", None)
        role = principal.role if principal else Role.VIEWER
        return self._templates.get_template(made.template).render(
            title=made.title,
            path=request.url.path,
            entries=[entry for entry in ENTRIES if role.allows(entry.role)],
            principal=principal,
            may=partial(may, principal),
            notice=self._notices.take(key) if key else None,
            is_fragment=is_fragment,
            topics=",".join(f"{topic}:{one}" if one else topic for topic, one in made.subjects),
            since=since,
            **made.values,
        )


def may(principal: Principal | None, method: str, table: str = "") -> bool:
    """Whether a page offers an operation to its visitor, on this table if it acts on one; the operation decides."""
    if principal is None or not principal.role.allows(OPERATIONS[method].role):
        return False
    return not table or principal.may_act_on(parse_table(table))


def failed(error: AmoroError) -> Page:
    """The page that tells of an error."""
    status = STATUSES.get(error.exit_status, 500)
    values = {"error": error, "hint": error.hint or error.remedy, "status": status}
    return Page("error.html", "Not found" if status == 404 else "This did not work", values, status)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # else each page looks at the files of its templates
    )
    made.filters.update({name: getattr(template_filters, name) for name in _FILTERS})
    made.globals.update(
        to=page_request.to, to_table=page_request.to_table, with_query=page_request.with_query, static=static.url
    )
    return made


_FILTERS = ("ago", "badge_class", "lasting", "moment", "number", "size", "spoken", "whole")


def _visible(value: Any) -> Any:
    """What is written for a value: characters that can't be seen are escaped, HTML is escaped after it."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

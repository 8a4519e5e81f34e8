"""The site around the pages: templates, notices, and errors as pages."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from amoro_core.admin.operations import OPERATIONS
from amoro_core.admin.rights import require
from amoro_core.dashboard import static
from amoro_core.dashboard.asking import principal_of
from amoro_core.dashboard.offered import offered
from amoro_core.dashboard.pages import urls, wording
from amoro_core.dashboard.pages.fragments import Fragment, Fragments
from amoro_core.dashboard.pages.kept import Kept
from amoro_core.dashboard.pages.navigation import ENTRIES
from amoro_core.dashboard.pages.visits import Gone, Shown, View, Visit
from amoro_core.errors import AmoroError, UnknownToken
from amoro_core.model.principals import Principal
from amoro_core.model.tables import parse_table
from amoro_core.model.texts import printable
from amoro_core.model.tokens import Role

_HERE = Path(__file__).parent.parent
_MOST_NOTICES, _NOTICES_LAST = 1000, timedelta(minutes=10)
#: The HTTP status of an error by the exit status of a command that meets it.
STATUSES = {1: 500, 2: 400, 3: 404, 4: 403, 5: 409, 6: 422, 7: 409}


class Site:
    """Makes routes of views: their pages in templates, their errors as pages, their actions answered with 303."""

    def __init__(self) -> None:
        self._notices: Kept[Gone] = Kept(_MOST_NOTICES, _NOTICES_LAST)
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
                made = await view(Visit(request))
            except UnknownToken:
                asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(urls.to("login", next=asked if request.method == "GET" else ""), 303)
            except AmoroError as error:
                made = failed(error)
            return self._gone(made) if isinstance(made, Gone) else self._shown(request, made, since)

        return answer

    def _gone(self, made: Gone) -> Response:
        path = made.path
        if made.notice:
            path += ("&" if "?" in path else "?") + f"notice={self._notices.add(made)}"
        return RedirectResponse(path, 303)

    async def _fragment(self, request: Request, view: View) -> Response:
        """The content of a page alone, for one that is open; 404 where it has to be loaded whole."""
        revisions = offered(request).revisions

        async def make() -> Fragment | None:
            shown = await view(Visit(request))
            if isinstance(shown, Gone) or not shown.subjects:
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

    def shown(self, request: Request, made: Shown) -> Response:
        """The page in its template, within the layout; it is not renewed while it is open."""
        return self._shown(request, made, 0)

    def _shown(self, request: Request, made: Shown, since: int) -> Response:
        return HTMLResponse(self._rendered(request, made, since), made.status)

    def _rendered(self, request: Request, made: Shown, since: int, *, is_fragment: bool = False) -> str:
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


def failed(error: AmoroError) -> Shown:
    """The page that tells of an error."""
    status = STATUSES.get(error.exit_status, 500)
    values = {"error": error, "hint": error.hint or error.remedy, "status": status}
    return Shown("error.html", "Not found" if status == 404 else "This did not work", values, status)


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
    made.filters.update({name: getattr(wording, name) for name in _FILTERS})
    made.globals.update(to=urls.to, to_table=urls.to_table, with_query=urls.with_query, static=static.url)
    return made


_FILTERS = ("ago", "lasting", "look", "moment", "number", "size", "spoken", "whole")


def _visible(value: Any) -> Any:
    """What is written for a value: characters that can't be seen are escaped, HTML is escaped after it."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

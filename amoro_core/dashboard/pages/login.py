"""Logging in and out."""

from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from amoro_core.dashboard.doors import TooManyTries
from amoro_core.dashboard.offered import offered
from amoro_core.dashboard.pages import urls
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.visits import Shown
from amoro_core.model import metrics

_LONGEST_FORM = 16 * 1024  # bytes


def routes(site: Site) -> list[Route]:  # noqa: C901 - a page and its targets share what is offered
    """The pages of logging in, and the targets of their forms."""

    def show(request: Request, problem: str = "", status: int = 200, user: str = "", after: str = "") -> Response:
        onward, people = urls.within(after or request.query_params.get("next", "/")), offered(request).people
        values = {
            "problem": problem,
            "user": user,
            "next": onward,
            "provider": people.title if people else "",
            "leave": urls.to("login", "oidc", next=onward),
        }
        return site.shown(request, Shown("login.html", "Log in", values, status))

    async def ask(request: Request) -> Response:
        """The form for user and password."""
        return show(request)

    async def log_in(request: Request) -> Response:
        """Begin a session of the user."""
        sent, doors = await _form(request), offered(request).doors
        user, after = sent.get("user", "").strip(), urls.within(sent.get("next", "/"))
        try:
            session_id = await doors.log_in(request, user, sent.get("password", ""))
        except TooManyTries as error:
            return _later(show(request, str(error), 429, user, after), error)
        if session_id is None:
            offered(request).meters.count(metrics.LOGIN_FAILURES)
            return show(request, "The user or the password is wrong.", 401, user, after)
        return doors.let_in(request, RedirectResponse(after, 303), session_id)

    async def ask_link(request: Request) -> Response:
        """One button: a preview of the link must not use it up."""
        values = {"code": request.query_params.get("code", ""), "problem": ""}
        return site.shown(request, Shown("login_link.html", "Log in", values))

    async def follow_link(request: Request) -> Response:
        """Begin a session of the link's account."""
        sent, doors = await _form(request), offered(request).doors
        values = {"code": "", "problem": "This link was used already, or is older than ten minutes."}
        try:
            session_id = await doors.follow_link(request, sent.get("code", ""))
        except TooManyTries as error:
            values["problem"] = str(error)
            return _later(site.shown(request, Shown("login_link.html", "Log in", values, 429)), error)
        if session_id is None:
            offered(request).meters.count(metrics.LOGIN_FAILURES)
            return site.shown(request, Shown("login_link.html", "Log in", values, 401))
        return doors.let_in(request, RedirectResponse("/", 303), session_id)

    async def log_out(request: Request) -> Response:
        """End the session."""
        doors = offered(request).doors
        await doors.log_out(request)
        return doors.let_out(request, RedirectResponse("/login", 303))

    return [
        Route("/login", ask, methods=["GET"]),
        Route("/login", log_in, methods=["POST"]),
        Route("/login/link", ask_link, methods=["GET"]),
        Route("/login/link", follow_link, methods=["POST"]),
        Route("/logout", log_out, methods=["POST"]),
    ]


def _later(response: Response, error: TooManyTries) -> Response:
    response.headers["Retry-After"] = str(error.retry_after_s)
    return response


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form from anybody: no more of it is read than a login takes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            return {}
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=10))

"""Logging in by an OpenID provider."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from amoro_core.dashboard.doors import TooManyTries
from amoro_core.dashboard.offered import offered
from amoro_core.dashboard.pages import urls
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.visits import Shown
from amoro_core.dashboard.people import ATTEMPT_LASTS_S, CALLBACK, PeopleDoor
from amoro_core.errors import AmoroError
from amoro_core.events import get_logger
from amoro_core.model import metrics

log = get_logger("amoro.people")

_COOKIE = "amoro-login"


def routes(site: Site) -> list[Route]:  # noqa: C901 - a page and its targets share what is offered
    """Where a browser leaves for the provider, and where it comes back to; 404 without a provider."""

    def told(request: Request, error: AmoroError | TooManyTries, status: int) -> Response:
        values = {"problem": f"{error}", "hint": error.hint if isinstance(error, AmoroError) else ""}
        made = site.shown(request, Shown("login_refused.html", "Log in", values, status))
        if isinstance(error, TooManyTries):
            made.headers["Retry-After"] = str(error.retry_after_s)
        return made

    async def refused(request: Request, error: AmoroError, name: str = "") -> Response:
        log.warning("login.refused", account=name, code=error.code, why=error.message)
        offered(request).meters.count(metrics.LOGIN_FAILURES)
        await offered(request).doors.refuse(request, name, error)
        return told(request, error, 403 if error.exit_status == 4 else 502)

    async def leave(request: Request) -> Response:
        """To the provider. A link, as browsers let no form lead to another site; nothing here is changed by it."""
        doors, people = offered(request).doors, offered(request).people
        if people is None:
            return _unknown()
        try:
            doors.limit(request)
            url, attempt = await people.begin(request, urls.within(request.query_params.get("next", "/")))
        except TooManyTries as error:
            return told(request, error, 429)
        except AmoroError as error:
            return await refused(request, error)
        answer = RedirectResponse(url, 303)
        name, is_secure = doors.cookie(request, _COOKIE)
        answer.set_cookie(
            name, attempt.browser, max_age=ATTEMPT_LASTS_S, path="/", secure=is_secure, httponly=True, samesite="lax"
        )
        return answer

    async def come_back(request: Request) -> Response:
        """From the provider: state, cookie and code have been given for this alone, and are used up."""
        doors, people = offered(request).doors, offered(request).people
        if people is None:
            return _unknown()
        name, is_secure = doors.cookie(request, _COOKIE)
        try:
            doors.limit(request)
            answer = await enter(request, people, request.cookies.get(name, ""))
        except TooManyTries as error:
            return told(request, error, 429)
        answer.delete_cookie(name, path="/", secure=is_secure, httponly=True, samesite="lax")
        return answer

    async def enter(request: Request, people: PeopleDoor, browser: str) -> Response:
        who = ""
        try:
            attempt = people.take(request.query_params.get("state", ""), browser)
            claims = await people.claims(attempt, request.query_params)
            who = people.name_of(claims)
            session_id = await offered(request).doors.admit(request, people.person(claims))
        except AmoroError as error:
            return await refused(request, error, who)
        return offered(request).doors.let_in(request, RedirectResponse(attempt.after, 303), session_id)

    return [Route("/login/oidc", leave, methods=["GET"]), Route(CALLBACK, come_back, methods=["GET"])]


def _unknown() -> Response:
    return PlainTextResponse("This coordinator has no OpenID provider: oidc-issuer in amoro.yaml.\n", 404)

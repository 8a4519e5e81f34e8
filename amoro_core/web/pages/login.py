"""The login page, and logins by an OpenID provider."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from amoro_core.errors import AmoroError, InvalidArgument
from amoro_core.logger import get_logger
from amoro_core.model import metrics
from amoro_core.web.app_context import context_of
from amoro_core.web.login import ATTEMPT_LASTS_S, CALLBACK, OidcLogin, TooManyTries
from amoro_core.web.pages import framework
from amoro_core.web.pages.framework import Page, Site

_LONGEST_FORM = 16 * 1024  # bytes


def routes(site: Site) -> list[Route]:  # noqa: C901 - a page and its targets share the context
    """The pages of logging in, and the targets of their forms."""

    def show(request: Request, problem: str = "", status: int = 200, user: str = "", after: str = "") -> Response:
        onward, oidc = framework.within(after or request.query_params.get("next", "/")), context_of(request).oidc
        values = {
            "problem": problem,
            "user": user,
            "next": onward,
            "provider": oidc.title if oidc else "",
            "leave": framework.to("login", "oidc", next=onward),
        }
        return site.render(request, Page("login.html", "Log in", values, status))

    async def ask(request: Request) -> Response:
        """The form for user and password."""
        return show(request)

    async def log_in(request: Request) -> Response:
        """Begin a session of the user."""
        sent, logins = await _form(request), context_of(request).logins
        user, after = sent.get("user", "").strip(), framework.within(sent.get("next", "/"))
        try:
            session_id = await logins.log_in(request, user, sent.get("password", ""))
        except TooManyTries as error:
            return _later(show(request, str(error), 429, user, after), error)
        if session_id is None:
            context_of(request).meters.count(metrics.LOGIN_FAILURES)
            return show(request, "The user or the password is wrong.", 401, user, after)
        return logins.set_cookie(request, RedirectResponse(after, 303), session_id)

    async def ask_link(request: Request) -> Response:
        """One button: a preview of the link must not use it up."""
        values = {"code": request.query_params.get("code", ""), "problem": ""}
        return site.render(request, Page("login_link.html", "Log in", values))

    async def follow_link(request: Request) -> Response:
        """Begin a session of the link's account."""
        sent, logins = await _form(request), context_of(request).logins
        values = {"code": "", "problem": "This link was used already, or is older than ten minutes."}
        try:
            session_id = await logins.follow_link(request, sent.get("code", ""))
        except TooManyTries as error:
            values["problem"] = str(error)
            return _later(site.render(request, Page("login_link.html", "Log in", values, 429)), error)
        if session_id is None:
            context_of(request).meters.count(metrics.LOGIN_FAILURES)
            return site.render(request, Page("login_link.html", "Log in", values, 401))
        return logins.set_cookie(request, RedirectResponse("/", 303), session_id)

    async def log_out(request: Request) -> Response:
        """End the session."""
        logins = context_of(request).logins
        await logins.log_out(request)
        return logins.clear_cookie(request, RedirectResponse("/login", 303))

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
    """The fields of an unauthenticated form; none of one that is too long."""
    try:
        return await framework.read_form(request, _LONGEST_FORM)
    except InvalidArgument:
        return {}


log = get_logger("amoro.people")

_COOKIE = "amoro-login"


def oidc_routes(site: Site) -> list[Route]:  # noqa: C901 - a page and its targets share the context
    """The redirect to the provider and its callback; 404 without a provider."""

    def too_many(request: Request, error: TooManyTries) -> Response:
        values = {"problem": str(error), "hint": ""}
        return _later(site.render(request, Page("login_refused.html", "Log in", values, 429)), error)

    async def refused(request: Request, error: AmoroError, name: str = "") -> Response:
        log.warning("login.refused", account=name, code=error.code, why=error.message)
        context_of(request).meters.count(metrics.LOGIN_FAILURES)
        await context_of(request).logins.refuse(request, name, error)
        values, status = {"problem": str(error), "hint": error.hint}, 403 if error.exit_status == 4 else 502
        return site.render(request, Page("login_refused.html", "Log in", values, status))

    async def leave(request: Request) -> Response:
        """To the provider. A link, as browsers let no form lead to another site; nothing here is changed by it."""
        logins, oidc = context_of(request).logins, context_of(request).oidc
        if oidc is None:
            return _unknown()
        try:
            logins.limit(request)
            url, attempt = await oidc.begin(request, framework.within(request.query_params.get("next", "/")))
        except TooManyTries as error:
            return too_many(request, error)
        except AmoroError as error:
            return await refused(request, error)
        return logins.set_cookie(request, RedirectResponse(url, 303), attempt.browser, _COOKIE, ATTEMPT_LASTS_S)

    async def come_back(request: Request) -> Response:
        """From the provider: state, cookie and code have been given for this alone, and are used up."""
        logins, oidc = context_of(request).logins, context_of(request).oidc
        if oidc is None:
            return _unknown()
        try:
            logins.limit(request)
            answer = await enter(request, oidc, request.cookies.get(logins.cookie(request, _COOKIE)[0], ""))
        except TooManyTries as error:
            return too_many(request, error)
        return logins.clear_cookie(request, answer, _COOKIE)

    async def enter(request: Request, oidc: OidcLogin, browser: str) -> Response:
        who = ""
        try:
            attempt = oidc.take(request.query_params.get("state", ""), browser)
            claims = await oidc.claims(attempt, request.query_params)
            who = oidc.name_of(claims)
            session_id = await context_of(request).logins.admit(request, oidc.person(claims))
        except AmoroError as error:
            return await refused(request, error, who)
        return context_of(request).logins.set_cookie(request, RedirectResponse(attempt.after, 303), session_id)

    return [Route("/login/oidc", leave, methods=["GET"]), Route(CALLBACK, come_back, methods=["GET"])]


def _unknown() -> Response:
    return PlainTextResponse("This coordinator has no OpenID provider: oidc-issuer in amoro.yaml.\n", 404)

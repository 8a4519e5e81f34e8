"""Logins by password, link or OpenID provider, and the session cookie."""

import asyncio
import hashlib
import hmac
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from amoro_core.errors import AmoroError, NotAllowed, UnknownToken, WorkFailed
from amoro_core.model.history_events import Audited
from amoro_core.model.principals import LONGEST_SESSION, Channel, Principal, ProviderTerms, Role, Throttle
from amoro_core.services.accounts import SessionService, UserService
from amoro_core.services.history import AuditService
from amoro_core.web.middleware import LOOPBACK_NAMES, bracketed, host_of

if TYPE_CHECKING:
    from amoro_core.web.oidc_client import OpenIdProvider

T = TypeVar("T")

#: Password checks at once, each of 64 MiB, and how many more may wait for their turn.
CHECKS_AT_ONCE, WAITING = 2, 8
_MINUTE = timedelta(minutes=1)
SESSION = "amoro"  # the kind of cookie
_LONGEST_S = int(LONGEST_SESSION.total_seconds())


def address_of(request: Request) -> str:
    """The client's address, as reported by a trusted proxy if there is one; "" if unknown."""
    return request.client.host if request.client else ""


class TooManyTries(Exception):
    """Too many attempts; the credentials were not checked."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"Too many tries to log in: wait for {retry_after_s} s, then try again.")
        self.retry_after_s = retry_after_s


class LoginService:
    """Logs people in and out. Blocking work runs in the pool."""

    def __init__(
        self, users: UserService, sessions: SessionService, auditing: AuditService, pool: Executor, state: str
    ) -> None:
        """`state` tells this state directory from others: cookies ignore ports, so two on a host need two names."""
        self._users = users
        self._sessions = sessions
        self._auditing = auditing
        self._pool = pool
        self._state = hashlib.sha256(state.encode()).hexdigest()[:8]
        self._turns = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._pending = 0
        self._by_user, self._by_address = Throttle(5, _MINUTE), Throttle(20, _MINUTE)

    async def check(self, name: str, password: str, address: str) -> Principal | None:
        """The user if the password is right, else None. Raises TooManyTries."""
        wait = max(self._by_address.take(address), self._by_user.take(name))
        if self._pending >= CHECKS_AT_ONCE + WAITING:
            wait = max(wait, 1.0)
        if wait:
            raise TooManyTries(math.ceil(wait))
        self._pending += 1
        try:
            async with self._turns:
                return await self._run(lambda: self._users.check(name, password))
        finally:
            self._pending -= 1

    async def log_in(self, request: Request, name: str, password: str) -> str | None:
        """The id of a new session, or None if user or password is wrong; both are in the audit. Raises TooManyTries."""
        result = await self.check(name, password, address_of(request))
        if result is None:
            await self._note_wrong(name, address_of(request))
            return None
        return await self._begin(request, result)

    async def follow_link(self, request: Request, code: str) -> str | None:
        """The id of a new session of the link's account; the link is used up. None for an invalid link.

        Raises TooManyTries.
        """
        self.limit(request)
        result = await self._run(lambda: self._sessions.redeem_link(code))
        return None if result is None else await self._begin(request, result)

    async def admit(self, request: Request, person: Principal) -> str:
        """The id of a new session of a user of the OpenID provider; it is recorded in the audit."""
        return await self._begin(request, person, self._sessions.begin_of_person)

    async def refuse(self, request: Request, name: str, error: AmoroError) -> None:
        """Note in the audit that a login by the OpenID provider failed; `name` is "" if it is not proven."""
        caller = Principal(name, Role.VIEWER, way=Channel.PAGE, address=address_of(request), is_user=True)
        await self._run(lambda: self._auditing.note(Audited(caller, "LogIn", name), error))

    def limit(self, request: Request) -> None:
        """Count a try of the request's address. Raises TooManyTries."""
        if wait := self._by_address.take(address_of(request)):
            raise TooManyTries(math.ceil(wait))

    def cookie(self, request: Request, kind: str) -> tuple[str, bool]:
        """The name of a cookie of this coordinator, and whether it is sent over TLS only."""
        is_secure = request.url.scheme == "https"
        return f"{'__Host-' if is_secure else ''}{kind}-{self._state}", is_secure

    async def log_out(self, request: Request) -> None:
        """End the request's session, if it has one; the audit has it."""
        if session_id := self._session_id(request):
            address = address_of(request)
            await self._run(lambda: self._end(session_id, address))

    def _end(self, session_id: str, address: str) -> None:
        if who := self._sessions.find(session_id):
            call = Audited(replace(who, way=Channel.PAGE, address=address), "LogOut", who.name)
            self._auditing.note(call, None)
        self._sessions.end(session_id)

    async def visitor(self, request: Request) -> Principal | None:
        """The account of the session cookie; None without a valid session."""
        session_id = self._session_id(request)
        return await self._run(lambda: self._sessions.find(session_id)) if session_id else None

    def set_cookie(
        self, request: Request, response: Response, value: str, kind: str = SESSION, lasts_s: int = _LONGEST_S
    ) -> Response:
        """The response that sets the cookie."""
        name, is_secure = self.cookie(request, kind)
        response.set_cookie(name, value, lasts_s, path="/", secure=is_secure, httponly=True, samesite="lax")
        return response

    def clear_cookie(self, request: Request, response: Response, kind: str = SESSION) -> Response:
        """The response that takes the cookie away."""
        name, is_secure = self.cookie(request, kind)
        response.delete_cookie(name, path="/", secure=is_secure, httponly=True, samesite="lax")
        return response

    async def _note_wrong(self, name: str, address: str) -> None:
        # An unknown name may be a password in the wrong field: it is not recorded.
        principal = await self._run(lambda: self._users.find(name)) or Principal("", Role.VIEWER, is_user=True)
        wrong = UnknownToken("the user or the password is wrong")
        call = Audited(replace(principal, way=Channel.PAGE, address=address), "LogIn", principal.name)
        await self._run(lambda: self._auditing.note(call, wrong))

    async def _begin(
        self, request: Request, account: Principal, begin_session: Callable[[Principal], str] | None = None
    ) -> str:
        """Begin a session, which ends the one before; the audit has it."""
        principal, before = replace(account, way=Channel.PAGE, address=address_of(request)), self._session_id(request)

        def begin() -> str:
            with self._auditing.audited(Audited(principal, "LogIn", principal.name)):
                result = (begin_session or self._sessions.begin)(principal)
            if before:
                self._sessions.end(before)
            return result

        return await self._run(begin)

    def _session_id(self, request: Request) -> str:
        return request.cookies.get(self.cookie(request, SESSION)[0], "")

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


CALLBACK = "/login/oidc/callback"
#: For how long a person may take at the provider.
ATTEMPT_LASTS_S = 600
_MOST_ATTEMPTS = 1000
#: Concurrent requests to the provider, and how long a browser waits for one.
AT_ONCE, LONGEST_S = 4, 30


@dataclass(frozen=True, slots=True)
class Attempt:
    """A login in progress; its random values are used once."""

    state: str
    nonce: str
    verifier: str = field(repr=False)
    browser: str = field(repr=False)  # the value of the browser's cookie
    redirect_uri: str
    after: str  # the page to go to
    ends_at: float  # seconds of the clock
    provider: Mapping[str, Any] = field(default_factory=dict, repr=False)  # its discovery document


class OwnAddress:
    """The address by which browsers reach this coordinator: a name of the settings, never of the request alone."""

    def __init__(self, names: Sequence[str], port: int, *, is_encrypted: bool, has_proxies: bool) -> None:
        """`names`: of `http-hosts` and `http-host`, with a port if a proxy has another; `port`: the server's own."""
        self._names = {host_of(bracketed(name)): name for name in reversed(names)}
        self._port = port
        self._is_encrypted = is_encrypted
        self._has_proxies = has_proxies

    def of(self, request: Request) -> str:
        """The address without a path. Raises NotAllowed for a `Host` that is none of ours."""
        text = request.headers.get("host", "")
        host = host_of(text)
        # The request's scheme differs from the server's only if a trusted proxy sets it.
        scheme = "https" if self._is_encrypted else request.url.scheme
        if host in LOOPBACK_NAMES:  # tunnels and containers may have another port, still on the browser's own machine
            return f"{scheme}://{_on_port(host, _port_of(text))}"
        if host not in self._names:
            raise NotAllowed(f"host {host!r} is not allowed", hint="See http-hosts in amoro.yaml.")
        named = _port_of(bracketed(self._names[host]))
        return f"{scheme}://{_on_port(host, named or (0 if self._has_proxies else self._port))}"


class OidcLogin:
    """Sends browsers to the provider and identifies those that return."""

    def __init__(
        self,
        provider: "OpenIdProvider",
        terms: ProviderTerms,
        address: OwnAddress,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`clock` gives seconds."""
        self.title = urlsplit(terms.issuer).hostname or terms.issuer
        self._provider = provider
        self._terms = terms
        self._address = address
        self._clock = clock
        self._attempts: dict[str, Attempt] = {}  # by the hash of their states
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="oidc")
        self._busy = 0

    async def begin(self, request: Request, after: str) -> tuple[str, Attempt]:
        """Where the browser goes, and the attempt that it is to remember. Raises NotAllowed, WorkFailed."""
        redirect_uri = self._address.of(request) + CALLBACK
        state, nonce, verifier, browser = (secrets.token_urlsafe(48) for _ in range(4))
        ends_at = self._clock() + ATTEMPT_LASTS_S
        attempt = Attempt(state, nonce, verifier, browser, redirect_uri, after, ends_at)
        url, result = await self._run(lambda: self._provider.address(attempt))
        now = self._clock()
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if attempt.ends_at > now}
        while len(self._attempts) >= _MOST_ATTEMPTS:
            del self._attempts[next(iter(self._attempts))]
        self._attempts[_hash(state)] = replace(attempt, provider=result)
        return url, attempt

    def take(self, state: str, browser: str) -> Attempt:
        """The attempt of that state, which is used up. Raises NotAllowed unless this browser has begun it just now."""
        attempt = self._attempts.pop(_hash(state), None)
        is_ours = attempt is not None and hmac.compare_digest(attempt.browser.encode(), browser.encode())
        if attempt is None or not is_ours or attempt.ends_at <= self._clock():
            raise NotAllowed(
                "this login was not begun in this browser, was used already, or is older than ten minutes",
                hint="Log in again.",
            )
        return attempt

    async def claims(self, attempt: Attempt, text: Mapping[str, str]) -> Mapping[str, object]:
        """The claims of a browser that returned with these parameters. Raises NotAllowed, WorkFailed."""
        if text.get("iss", self._terms.issuer) != self._terms.issuer:
            raise NotAllowed("another provider has answered", hint="Log in again.")
        if "error" in text or not text.get("code"):
            why = " ".join(filter(None, (text.get("error", "no code"), text.get("error_description", ""))))
            raise NotAllowed(f"{self._terms.issuer} refused the login: {why[:300]}", hint="Log in again, or ask there.")
        return await self._run(lambda: self._provider.claims(attempt, text["code"]))

    def person(self, claims: Mapping[str, object]) -> Principal:
        """The person with these claims. Raises NotAllowed for one without a name or role here."""
        return self._terms.person(claims)

    def name_of(self, claims: Mapping[str, object]) -> str:
        """The person's name here; "" for one that can't be a name."""
        try:
            return self._terms.name_of(claims)
        except NotAllowed:
            return ""

    def close(self) -> None:
        """Begin no more requests to the provider."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        """Run blocking work in threads of its own, so that a hanging provider blocks nothing else."""
        if self._busy >= AT_ONCE:
            raise WorkFailed(
                f"{AT_ONCE} logins wait for the OpenID provider {self._terms.issuer}", hint="Try again in a moment."
            )
        self._busy += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(self._ended)
        try:
            return await asyncio.wait_for(asyncio.shield(future), LONGEST_S)
        except TimeoutError:
            raise WorkFailed(
                f"the OpenID provider {self._terms.issuer} did not answer within {LONGEST_S} s", hint="Try again."
            ) from None

    def _ended(self, future: "asyncio.Future[Any]") -> None:
        self._busy -= 1
        if not future.cancelled():
            future.exception()  # its browser may be gone


def _port_of(text: str) -> int:
    """The port after a host; 0 without one. Raises NotAllowed for an invalid port."""
    try:
        return urlsplit(f"//{text}").port or 0
    except ValueError as error:
        raise NotAllowed(f"{text!r} is no host and port", hint="See http-hosts in amoro.yaml.") from error


def _on_port(host: str, port: int) -> str:
    """Host and port as an address writes them; port 0 is left out."""
    return f"{bracketed(host)}:{port}" if port else bracketed(host)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()

"""Logins by an OpenID provider: each attempt has a state, nonce and verifier, bound to one browser."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request

from amoro_core.errors import NotAllowed, WorkFailed
from amoro_core.model.principals import Principal, ProviderTerms
from amoro_core.web.middleware import LOOPBACK_NAMES, host_of

T = TypeVar("T")

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


class Provider(Protocol):
    """An OpenID provider; its methods block, and raise WorkFailed."""

    def address(self, attempt: Attempt) -> tuple[str, Mapping[str, Any]]:
        """Where a browser goes to log in, and the discovery document."""

    def claims(self, attempt: Attempt, code: str) -> Mapping[str, object]:
        """The claims of a valid ID token for the code. Raises NotAllowed."""


class OwnAddress:
    """The address by which browsers reach this coordinator: a name of the settings, never of the request alone."""

    def __init__(self, names: Sequence[str], port: int, *, is_encrypted: bool, has_proxies: bool) -> None:
        """`names`: of `http-hosts` and `http-host`, with a port if a proxy has another; `port`: the server's own."""
        self._names = {host_of(_bracketed(name)): name for name in reversed(names)}
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
        named = _port_of(_bracketed(self._names[host]))
        return f"{scheme}://{_on_port(host, named or (0 if self._has_proxies else self._port))}"


class OidcLogin:
    """Sends browsers to the provider and identifies those that return."""

    def __init__(
        self, provider: Provider, terms: ProviderTerms, address: OwnAddress, clock: Callable[[], float] = monotonic
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
        self._attempts = {key: one for key, one in self._attempts.items() if one.ends_at > now}
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


def _bracketed(name: str) -> str:
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name


def _port_of(text: str) -> int:
    """The port after a host; 0 without one. Raises NotAllowed for an invalid port."""
    try:
        return urlsplit(f"//{text}").port or 0
    except ValueError as error:
        raise NotAllowed(f"{text!r} is no host and port", hint="See http-hosts in amoro.yaml.") from error


def _on_port(host: str, port: int) -> str:
    """Host and port as an address writes them; port 0 is left out."""
    return f"{_bracketed(host)}:{port}" if port else _bracketed(host)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()

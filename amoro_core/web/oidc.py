"""Logins by an OpenID provider, with Authlib: each attempt has a state, nonce and verifier, bound to one browser."""

import asyncio
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from authlib.oidc.discovery import get_well_known_url
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry
from requests import RequestException, Response
from starlette.requests import Request

from amoro_core.errors import InvalidSettings, NotAllowed, WorkFailed
from amoro_core.model.accounts import ProviderTerms, is_safe_url
from amoro_core.model.principals import Principal
from amoro_core.model.text_sanitizing import MASK, Secret, briefly
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


#: Of each request to the provider, to connect and between two pieces of its answer.
_LIMITS_S = (5, 10)
#: How far the provider's clock may be from ours.
_LEEWAY_S = 60
#: Signatures with the provider's private key: with ours, or none at all, anybody could have made the token.
_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
_KEY_TYPES = frozenset({"RSA", "EC", "OKP"})
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_SECRET_WAYS = ("client_secret_basic", "client_secret_post")


class OpenIdProvider:
    """The provider's endpoints, by Authlib's OAuth2 session and ID token validation. Its methods block."""

    def __init__(self, terms: ProviderTerms, secret: Secret) -> None:
        """An empty secret is that of a public client."""
        self._terms = terms
        self._secret = secret

    def address(self, attempt: Attempt) -> tuple[str, Mapping[str, Any]]:
        """The authorization URL and the discovery document. Raises WorkFailed."""
        return self._with_our_errors(lambda: self._address(attempt))

    def claims(self, attempt: Attempt, code: str) -> Mapping[str, object]:
        """The claims of the ID token for the code. Raises NotAllowed for an invalid token, WorkFailed."""
        return self._with_our_errors(lambda: self._claims(attempt, code))

    def _address(self, attempt: Attempt) -> tuple[str, Mapping[str, Any]]:
        with self._session(attempt) as session:
            value = _document(session.get(_well_known(self._terms.issuer), **_PLAIN), "discovery document")
            self._require_own(value)
            url, _ = session.create_authorization_url(
                value["authorization_endpoint"],
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.verifier,
            )
            return str(url), value

    def _claims(self, attempt: Attempt, code: str) -> Mapping[str, object]:
        with self._session(attempt) as session:
            answer = session.fetch_token(
                attempt.provider["token_endpoint"],
                grant_type="authorization_code",
                code=code,
                redirect_uri=attempt.redirect_uri,
                code_verifier=attempt.verifier,
                allow_redirects=False,
            )
            keys = _document(session.get(attempt.provider["jwks_uri"], **_PLAIN), "keys")
        return self._valid(answer, keys, attempt)

    def _valid(self, answer: Mapping[str, Any], keys: Mapping[str, Any], attempt: Attempt) -> Mapping[str, object]:
        """The claims of the ID token, which is for us, for this login, and signed by the provider."""
        text = answer.get("id_token")
        if not isinstance(text, str):
            raise WorkFailed(
                f"the provider {self._terms.issuer} sent no ID token", hint="Does it know the scope openid?"
            )
        offered = attempt.provider.get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = [one for one in offered if one in _ALGORITHMS]
        public = [key for key in keys["keys"] if key.get("kty") in _KEY_TYPES and key.get("use", "sig") == "sig"]
        try:
            known = KeySet.import_key_set({"keys": public})
            token = jwt.decode(text, known, registry=JWSRegistry(algorithms=algorithms, strict_check_header=False))
            claims = CodeIDToken(
                token.claims,
                token.header,
                {
                    "iss": {"essential": True, "value": self._terms.issuer},
                    "aud": {"essential": True, "value": self._terms.client_id},
                    "nonce": {"essential": True, "value": attempt.nonce},
                },
                {
                    "nonce": attempt.nonce,
                    "client_id": self._terms.client_id,
                    "access_token": answer.get("access_token"),
                },
            )
            claims.validate(leeway=_LEEWAY_S)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise NotAllowed(
                f"the ID token of {self._terms.issuer} is not valid: {briefly(str(error))}",
                hint="Log in again. If that does not help: are the clocks of both right, and oidc-client-id?",
            ) from error
        return dict(claims)

    def _session(self, attempt: Attempt) -> Any:
        ways = attempt.provider.get("token_endpoint_auth_methods_supported") or _SECRET_WAYS[:1]
        way = next((one for one in _SECRET_WAYS if one in ways), _SECRET_WAYS[0]) if self._secret else "none"
        return OAuth2Session(
            self._terms.client_id,
            self._secret.reveal() or None,
            token_endpoint_auth_method=way,
            scope=" ".join(self._terms.scopes),
            redirect_uri=attempt.redirect_uri,
            code_challenge_method="S256",
            default_timeout=_LIMITS_S,
        )

    def _require_own(self, result: Mapping[str, Any]) -> None:
        if result.get("issuer") != self._terms.issuer:
            raise WorkFailed(
                f"the provider at {self._terms.issuer} calls itself {briefly(repr(result.get('issuer')))}",
                hint="Write oidc-issuer as it does, with or without / at its end.",
            )
        for key in _ENDPOINTS:
            if not isinstance(result.get(key), str) or not is_safe_url(result[key], beside=self._terms.issuer):
                raise WorkFailed(
                    f"the provider {self._terms.issuer} has {briefly(repr(result.get(key)))} as {key}",
                    hint="It has to be an https address.",
                )

    def _with_our_errors(self, ask: Callable[[], T]) -> T:
        """The answer; errors are those of the provider, without our secret."""
        try:
            return ask()
        except (RequestException, AuthlibBaseError, ValueError, KeyError, TypeError) as error:
            text = str(error)
            if self._secret:
                text = text.replace(self._secret.reveal(), MASK)
            raise WorkFailed(
                f"the OpenID provider {self._terms.issuer} returned an error: {briefly(text)}",
                hint="Is it up, and are oidc-issuer, oidc-client-id and oidc-client-secret right? Try again then.",
            ) from None


#: A redirect might lead anywhere; a token of ours is never sent along.
_PLAIN: Mapping[str, Any] = {"withhold_token": True, "allow_redirects": False}


def _well_known(issuer: str) -> str:
    return str(get_well_known_url(issuer, external=True))


def _document(answer: Response, what: str) -> Mapping[str, Any]:
    if answer.status_code != 200:
        raise ValueError(f"its {what} are answered with HTTP {answer.status_code}")
    result = answer.json()
    if not isinstance(result, dict):
        raise ValueError(f"its {what} are no JSON object")
    return result


def secret_of(reference: str) -> Secret:
    """The secret that `env:NAME` or `file:PATH` names; an empty one of "". Raises InvalidSettings."""
    kind, _, place = reference.partition(":")
    if kind == "env":
        if not os.environ.get(place):
            raise InvalidSettings(
                f"oidc-client-secret refers to the environment variable {place}, which is not set",
                hint="Set it where the coordinator is started.",
            )
        return Secret(os.environ[place])
    if not reference:
        return Secret("")
    path = Path("/" + place.lstrip("/"))
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidSettings(f"oidc-client-secret refers to {path}, which can't be read: {why}") from error
    if not text:
        raise InvalidSettings(f"oidc-client-secret refers to {path}, which is empty")
    return Secret(text)

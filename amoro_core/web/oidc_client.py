"""The client of an OpenID provider, with Authlib, which is an extra: imported only where a provider is configured."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from authlib.oidc.discovery import get_well_known_url
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry
from requests import RequestException, Response

from amoro_core.errors import NotAllowed, WorkFailed
from amoro_core.model.principals import ProviderTerms, is_safe_url
from amoro_core.model.text_sanitizing import MASK, Secret, briefly
from amoro_core.web.login import Attempt

T = TypeVar("T")

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
            address = get_well_known_url(self._terms.issuer, external=True)
            value = _document(session.get(address, **_PLAIN), "discovery document")
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
        algorithms = [name for name in offered if name in _ALGORITHMS]
        public = [key for key in keys["keys"] if key.get("kty") in _KEY_TYPES and key.get("use", "sig") == "sig"]
        try:
            key_set = KeySet.import_key_set({"keys": public})
            token = jwt.decode(text, key_set, registry=JWSRegistry(algorithms=algorithms, strict_check_header=False))
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
        way = next((item for item in _SECRET_WAYS if item in ways), _SECRET_WAYS[0]) if self._secret else "none"
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
            if not isinstance(result.get(key), str) or not is_safe_url(result[key], issuer=self._terms.issuer):
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


def _document(answer: Response, noun: str) -> Mapping[str, Any]:
    if answer.status_code != 200:
        raise ValueError(f"its {noun} are answered with HTTP {answer.status_code}")
    result = answer.json()
    if not isinstance(result, dict):
        raise ValueError(f"its {noun} are no JSON object")
    return result

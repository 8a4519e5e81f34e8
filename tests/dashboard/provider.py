"""An OpenID provider on loopback, which tests make lie, and a browser that logs in there."""

from __future__ import annotations

import base64
import json
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import requests

from amoro_core.bootstrap.settings import Settings
from tests.dashboard.served import Answer, Served

if TYPE_CHECKING:
    import flask
    from joserfc.jwk import RSAKey

CANARY = "canary-of-the-client-secret"
RULES = ("admins=admin", "data-team=operator shop.**", "cn=all,dc=example=viewer")
#: Makes another ID token from the claims of the right one and the provider's key.
Forge = Callable[[dict[str, Any], "RSAKey"], str]


@dataclass
class Mock:
    """The provider, and what it was asked."""

    issuer: str
    forge: Forge | None = None
    discovery: dict[str, Any] = field(default_factory=dict)  # in place of its own words
    answers: threading.Event = field(default_factory=threading.Event)  # until then it hangs
    asked: list[tuple[str, dict[str, str], str]] = field(default_factory=list)  # path, form, Authorization

    def has(self, sub: str, **claims: object) -> None:
        """A person with these claims."""
        requests.put(f"{self.issuer}/users/{sub}", json=claims, timeout=60).raise_for_status()

    def log_in(self, url: str, sub: str = "ann", **form: str) -> str:
        """The path with its query to which the provider sends the browser back."""
        answer = requests.post(url, data=form or {"sub": sub}, allow_redirects=False, timeout=60)
        back = urlsplit(answer.headers["location"])
        return f"{back.path}?{back.query}"

    def token_requests(self) -> list[tuple[dict[str, str], str]]:
        """Forms and authorizations of the requests for tokens."""
        return [(form, proof) for path, form, proof in self.asked if path == "/oauth2/token"]


@contextmanager
def providing() -> Iterator[Mock]:
    """A provider with people of any name during the block."""
    import authlib.deprecate  # first: it wants its warnings to be shown always
    import flask
    from joserfc.jwk import RSAKey
    from werkzeug.serving import make_server

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports what its own library has deprecated
        import oidc_provider_mock

    assert authlib.deprecate
    app = oidc_provider_mock.app()
    server = make_server("localhost", 0, app, threaded=True)
    mock = Mock(f"http://localhost:{server.server_port}")
    mock.answers.set()

    @app.before_request
    def note() -> None:
        sent = flask.request
        mock.answers.wait(60)
        mock.asked.append((sent.path, sent.form.to_dict(), sent.headers.get("Authorization", "")))

    @app.after_request
    def lie(response: flask.Response) -> flask.Response:
        path = flask.request.path
        if path == "/.well-known/openid-configuration":
            response.set_data(json.dumps({**json.loads(response.get_data()), **mock.discovery}))
        if path == "/oauth2/token" and mock.forge is not None:
            answer = json.loads(response.get_data())
            kept = flask.g.oidc_provider_mock_storage.jwk
            payload = answer["id_token"].split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            answer["id_token"] = mock.forge(claims, RSAKey.import_key(kept.as_dict(is_private=True)))
            response.set_data(json.dumps(answer))
        return response

    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield mock
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


_ADDRESSES = count(1)


@dataclass
class Browser:
    """One browser: its cookie of the login that it has begun, and its address, as a trusted proxy tells it."""

    served: Served
    cookie: str = ""
    address: str = field(default_factory=lambda: f"10.0.{next(_ADDRESSES)}.1")

    def leave(self, after: str = "/groups") -> str:
        """Where it is sent to log in."""
        headers = {"X-Forwarded-For": self.address}
        answer = self.served.ask(f"/login/oidc?next={after}", token="", headers=headers)
        assert answer.status == 303, answer.body
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer.headers["location"]

    def come_back(self, path: str) -> Answer:
        """What it is answered when it is sent back."""
        cookie = {"Cookie": self.cookie} if self.cookie else {}
        return self.served.ask(path, token="", headers={**cookie, "X-Forwarded-For": self.address})

    def log_in(self, mock: Mock, sub: str = "ann") -> Answer:
        """The whole way."""
        return self.come_back(mock.log_in(self.leave(), sub))


def query_of(url: str) -> dict[str, str]:
    """The parameters of an address, each once."""
    return {key: value for key, (value,) in parse_qs(urlsplit(url).query).items()}


def login_settings(**values: Any) -> Settings:
    """Settings of logins by a provider, with these values."""
    given = {"oidc_issuer": "https://there.example", "oidc_client_id": "amoro", "oidc_roles": RULES, **values}
    return replace(Settings(), **given)

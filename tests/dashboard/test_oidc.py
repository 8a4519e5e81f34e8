"""Logging in by an OpenID provider: settings, what is let in, and what is not."""

import asyncio
import base64
import hashlib
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, cast

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.requests import Request

from amoro_core.bootstrap import coordinator_app
from amoro_core.bootstrap.settings import Settings, load_settings
from amoro_core.errors import InvalidArgument, InvalidSettings, NotAllowed, WorkFailed
from amoro_core.model.history_events import AuditFilter
from amoro_core.model.paging import Window
from amoro_core.model.principals import Principal, Role
from amoro_core.web.login import Attempt, OidcLogin, OwnAddress
from tests.dashboard.conftest import Loop
from tests.dashboard.provider import CANARY, RULES, Browser, Forge, Mock, login_settings, providing, query_of
from tests.dashboard.served import Answer, Served, serving

#: The provider is a mock that asks its library in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")


@pytest.fixture(scope="module")
def mock() -> Iterator[Mock]:
    with providing() as made:
        made.has("ann", groups=["others", "data-team"])
        made.has("bob", groups=["strangers", "<b>guests</b>"])
        yield made


@pytest.fixture(autouse=True)
def honest(mock: Mock) -> Iterator[None]:
    yield
    mock.forge, mock.discovery = None, {}
    mock.asked.clear()


def settings_for(mock: Mock, directory: Path) -> Settings:
    secret = directory / "client.secret"
    secret.write_text(CANARY + "\n")
    hosts = {"trusted_proxies": ("127.0.0.1",), "http_hosts": ("amoro.example", "other.example:8443")}
    return login_settings(oidc_issuer=mock.issuer, oidc_client_secret=f"file:{secret}", **hosts)


@pytest.fixture(scope="module")
def served(mock: Mock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("oidc")
    with serving(directory / "home", settings_for(mock, directory)) as made:
        yield made


def audited(served: Served) -> list[tuple[str, str, str, str, str]]:
    """Logins, the newest first."""
    page = served.coordinator.services.auditing.list_events(AuditFilter(operation="LogIn"), Window(999))
    calls = [(item.call.principal, item) for item in page.items]
    return [(who.name, who.role.value, who.pattern, item.outcome, item.code) for who, item in calls]


def session_of(answer: Answer) -> str:
    """The cookie of the session that begins; "" when none does."""
    cookies = SimpleCookie(answer.headers.get("set-cookie", "").replace(", amoro-", "; amoro-"))
    return next((f"{name}={kept.value}" for name, kept in cookies.items() if len(name) == len("amoro-12345678")), "")


def refused(served: Served, answer: Answer, says: str, name: str = "") -> None:
    """It is told, no session has begun, and the audit has it."""
    assert (answer.status, session_of(answer)) == (403, "")
    assert says in answer.body
    assert audited(served)[0][0] == name
    assert audited(served)[0][3:] == ("refused", "AMORO-4001")


def test_a_person_logs_in_with_the_role_of_a_claim(served: Served, mock: Mock) -> None:
    assert 'href="/login/oidc?next=%2Fgroups">Log in with localhost</a>' in served.ask("/login?next=/groups").body
    browser = Browser(served)
    sent = browser.leave()
    asked = query_of(sent)
    assert sent.startswith(f"{mock.issuer}/oauth2/authorize?")
    assert asked["redirect_uri"] == f"http://127.0.0.1:{served.port}/login/oidc/callback"
    assert (asked["response_type"], asked["client_id"], asked["scope"]) == ("code", "amoro", "openid profile email")
    entered = browser.come_back(mock.log_in(sent))
    assert (entered.status, entered.headers["location"]) == (303, "/groups")
    ((form, proof),) = mock.token_requests()
    challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
    assert (asked["code_challenge_method"], asked["code_challenge"]) == ("S256", challenge)
    assert base64.b64decode(proof.removeprefix("Basic ")).decode() == f"amoro:{CANARY}"
    assert audited(served)[0] == ("oidc:ann", "operator", "shop.**", "done", "")
    cookie = session_of(entered)
    assert cookie
    shown = served.ask("/groups", token="", headers={"Cookie": cookie})
    assert (shown.status, "oidc:ann, operator" in shown.body) == (200, True)
    assert served.ask("/settings", token="", headers={"Cookie": cookie}).status == 403
    assert served.ask("/api/v1/groups", token="", headers={"Cookie": cookie}).status == 401


def test_the_cookie_of_a_login_is_for_this_alone(served: Served, mock: Mock) -> None:
    answer = served.ask("/login/oidc", token="")
    (kept,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert kept.key.startswith("amoro-login-")
    assert (kept["httponly"], kept["samesite"], kept["path"], kept["max-age"]) == (True, "lax", "/", "600")
    asked = query_of(answer.headers["location"])
    assert kept.value not in (asked["state"], asked["nonce"])
    assert len({*asked.values()}) == len(asked)


def test_a_state_is_of_one_browser_and_used_once(served: Served, mock: Mock) -> None:
    elsewhere = Browser(served)
    assert elsewhere.come_back(mock.log_in(elsewhere.leave("//evil.example"))).headers["location"] == "/"
    mock.asked.clear()
    says = "was not begun in this browser"
    browser, other = Browser(served), Browser(served)
    back = mock.log_in(browser.leave())
    refused(served, browser.come_back(back.replace("state=", "state=x")), says)
    other.leave()
    refused(served, other.come_back(back), says)
    refused(served, browser.come_back(back), says), "it was used up by the other browser"
    refused(served, Browser(served).come_back(mock.log_in(browser.leave())), says)
    assert mock.token_requests() == [], "the provider is not asked for these"
    back = mock.log_in(browser.leave())
    assert session_of(browser.come_back(back))
    refused(served, browser.come_back(back), says)


def test_a_code_is_of_one_login(served: Served, mock: Mock) -> None:
    """A code that another login has used, or that was given for the login of somebody else."""
    browser = Browser(served)
    first = mock.log_in(browser.leave())
    assert session_of(browser.come_back(first))
    second = browser.leave()
    spent = browser.come_back(f"/login/oidc/callback?code={query_of(first)['code']}&state={query_of(second)['state']}")
    assert (spent.status, session_of(spent)) == (502, "")
    assert "returned an error: invalid_grant" in spent.body
    assert audited(served)[0][3] == "failed"
    stolen = query_of(mock.log_in(Browser(served).leave()))["code"]
    third = browser.leave()
    answer = browser.come_back(f"/login/oidc/callback?code={stolen}&state={query_of(third)['state']}")
    refused(served, answer, "is not valid: invalid_claim")


def changed(**values: object) -> Forge:
    """The right token with other claims; None: without."""

    def forge(claims: dict[str, Any], key: RSAKey) -> str:
        kept = {name: value for name, value in {**claims, **values}.items() if value is not None}
        return jwt.encode({"alg": "RS256"}, kept, key)

    return forge


def by_another_key(claims: dict[str, Any], key: RSAKey) -> str:
    return jwt.encode({"alg": "RS256"}, claims, RSAKey.generate_key(2048))


def unsigned(claims: dict[str, Any], key: RSAKey) -> str:
    header, payload, _ = jwt.encode({"alg": "RS256"}, claims, key).split(".")
    header = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    return f"{header}.{payload}."


def by_the_client_secret(claims: dict[str, Any], key: RSAKey) -> str:
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(CANARY), algorithms=["HS256"])


def by_another_algorithm(claims: dict[str, Any], key: RSAKey) -> str:
    return jwt.encode({"alg": "RS512"}, claims, key, algorithms=["RS512"])


FORGED: Mapping[str, Forge] = {
    "another nonce": changed(nonce="another"),
    "no nonce": changed(nonce=None),
    "expired": changed(exp=1_000_000_000),
    "no end": changed(exp=None),
    "from the future": changed(iat=99_999_999_999, exp=99_999_999_999),
    "not yet": changed(nbf=99_999_999_999),
    "another audience": changed(aud="another"),
    "several audiences without our party": changed(aud=["amoro", "another"], azp="another"),
    "another audience by our party": changed(aud="another", azp="amoro"),
    "no audience": changed(aud=None),
    "another issuer": changed(iss="https://another.example"),
    "no person": changed(sub=None),
    "another key": by_another_key,
    "unsigned": unsigned,
    "our own secret as key": by_the_client_secret,
    "an algorithm that is not the provider's": by_another_algorithm,
    "no token": lambda claims, key: "a.b.c",
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_token_that_is_not_right_lets_nobody_in(served: Served, mock: Mock, forge: Forge) -> None:
    mock.discovery = {"id_token_signing_alg_values_supported": ["RS256", "HS256", "none"]}
    mock.forge = forge
    refused(served, Browser(served).log_in(mock), "is not valid")
    mock.forge = changed()  # the same token made anew is right: the forged one was refused for what is wrong with it
    assert session_of(Browser(served).log_in(mock))


def test_who_has_no_role_is_told_with_the_value(served: Served, mock: Mock) -> None:
    answer = Browser(served).log_in(mock, "bob")
    refused(served, answer, "oidc:bob has no role here: the claim groups is &#39;strangers&#39;", "oidc:bob")
    assert "<b>guests" not in answer.body
    refused(served, Browser(served).log_in(mock, "cid"), "the claim groups is missing or empty", "oidc:cid")


def test_who_declines_at_the_provider_is_told(served: Served, mock: Mock) -> None:
    browser = Browser(served)
    state = query_of(browser.leave())["state"]
    answer = browser.come_back(f"/login/oidc/callback?error=access_denied&error_description=<i>no&code=c&state={state}")
    refused(served, answer, "refused the login: access_denied &lt;i&gt;no")
    state = query_of(browser.leave())["state"]
    mixed = browser.come_back(f"/login/oidc/callback?code=c&iss=https://another.example&state={state}")
    refused(served, mixed, "another provider has answered")
    assert mock.token_requests() == []


def test_a_provider_that_is_another_or_unsafe_is_not_followed(served: Served, mock: Mock) -> None:
    for key, lie, says in (
        ("issuer", "https://another.example", "calls itself"),
        ("token_endpoint", "http://tokens.example/t", "as token_endpoint"),
        ("authorization_endpoint", "javascript:alert(1)", "as authorization_endpoint"),
        ("jwks_uri", None, "as jwks_uri"),
    ):
        mock.discovery = {key: lie}
        answer = served.ask("/login/oidc", token="")
        assert (answer.status, "location" in answer.headers, says in answer.body) == (502, False, True), key


def test_a_person_has_the_role_while_the_map_is_the_same(mock: Mock, tmp_path: Path) -> None:
    settings = settings_for(mock, tmp_path)
    others = (settings, replace(settings, oidc_roles=(*RULES, "more=viewer")), settings, Settings())
    with serving(tmp_path / "home", settings) as served:
        cookie = session_of(Browser(served).log_in(mock))
    seen = []
    for other in others:
        with serving(tmp_path / "home", other) as served:
            seen.append(served.ask("/groups", token="", headers={"Cookie": cookie}).status)
            if other == Settings():
                assert "/login/oidc" not in served.ask("/login", token="").body
                assert served.ask("/login/oidc", token="").status == 404
                assert served.ask("/login/oidc/callback?code=c&state=s", token="").status == 404
    assert seen == [200, 303, 200, 303]


def test_the_client_secret_is_nowhere_to_be_seen(mock: Mock, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A provider that sends it back, too, is not quoted."""
    with serving(tmp_path / "home", settings_for(mock, tmp_path)) as served:
        bodies = [served.ask("/login", token="").body, Browser(served).log_in(mock).body]
        mock.discovery = {"issuer": mock.issuer, "token_endpoint": f"http://localhost:1/{CANARY}"}
        failed = Browser(served).log_in(mock)
        assert (failed.status, "returned an error" in failed.body, "***" in failed.body) == (502, True, True)
        bodies += [failed.body, *(served.ask(path).body for path in ("/settings", "/system/audit", "/audit"))]
        bodies += [served.ask(path).body for path in ("/api/v1/settings", "/api/v1/audit")]
        assert "oidc-client-secret" in "".join(bodies), "settings are among them"
        assert "oidc:ann" in "".join(bodies), "the audit is among them"
    told = capfd.readouterr()
    assert CANARY not in "".join((*bodies, told.out, told.err))
    found = [file for file in (tmp_path / "home").rglob("*") if file.is_file() and CANARY.encode() in file.read_bytes()]
    assert found == []


def test_a_provider_that_is_down_is_named(tmp_path: Path, mock: Mock) -> None:
    gone = "http://localhost:1"  # nobody listens on a port of the system's own
    with serving(tmp_path / "home", replace(settings_for(mock, tmp_path), oidc_issuer=gone)) as served:
        answers = [served.ask("/login/oidc", token="") for _ in range(21)]  # all from one address
    assert (answers[0].status, answers[0].headers.get("set-cookie")) == (502, None)
    assert f"the OpenID provider {gone} returned an error" in answers[0].body
    assert (answers[20].status, int(answers[20].headers["retry-after"]) > 0) == (429, True)


def test_no_user_of_ours_has_a_name_of_the_providers(served: Served) -> None:
    users = served.coordinator.services.users
    with pytest.raises(InvalidArgument, match="can't be the name of a user"):
        users.add("oidc:ann", Role.ADMIN, "", "correct horse battery")
    users.add("ann", Role.ADMIN, "", "correct horse battery")


def test_without_the_extra_the_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "amoro_core.web.oidc_client", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "authlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "authlib", None)
    says = r"oidc-issuer https://there\.example needs the package authlib"
    with pytest.raises(InvalidSettings, match=says) as refusal:
        coordinator_app.listening(login_settings(http_port=1630)).__enter__()
    assert "pip install 'amoro[oidc]'" in str(refusal.value.hint)


# Where people reach us


def test_people_are_sent_back_to_an_address_of_the_settings(served: Served, mock: Mock) -> None:
    for host, address in (
        ("localhost:8000", "http://localhost:8000"),
        ("[::1]:1630", "http://[::1]:1630"),
        ("AMORO.example:9999", "https://amoro.example"),
        ("other.example", "https://other.example:8443"),
    ):
        scheme = address.partition(":")[0]
        headers = {"Host": host, "X-Forwarded-For": Browser(served).address, "X-Forwarded-Proto": scheme}
        answer = served.ask("/login/oidc", token="", headers=headers)
        assert query_of(answer.headers["location"])["redirect_uri"] == f"{address}/login/oidc/callback"


def test_without_a_proxy_the_port_is_the_servers_own_and_no_other_name_is_ours(mock: Mock, tmp_path: Path) -> None:
    with serving(tmp_path / "home", replace(settings_for(mock, tmp_path), trusted_proxies=())) as served:
        sent = served.ask("/login/oidc", token="", headers={"Host": "amoro.example:9999"}).headers["location"]
        assert query_of(sent)["redirect_uri"] == f"http://amoro.example:{served.port}/login/oidc/callback"
        for host in ("evil.example", "localhost:x", ""):
            assert "location" not in served.ask("/login/oidc", token="", headers={"Host": host}).headers


# A provider that does not answer, and logins that nobody ends


def test_a_provider_that_hangs_stops_nothing_else(served: Served, mock: Mock) -> None:
    mock.answers.clear()
    try:
        with ThreadPoolExecutor(5) as pool:
            ask = partial(served.ask, "/login/oidc", token="")
            waiting = [pool.submit(ask, headers={"X-Forwarded-For": Browser(served).address}) for _ in range(5)]
            refused = next(as_completed(waiting)).result()
            assert served.ask("/livez").status == 200
            mock.answers.set()
            statuses = sorted(one.result().status for one in waiting)
    finally:
        mock.answers.set()
    assert (refused.status, "4 logins wait for the OpenID provider" in refused.body) == (502, True)
    assert statuses == [303, 303, 303, 303, 502]


class Slow:
    """A provider that answers when it may."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def address(self, attempt: Attempt) -> tuple[str, Mapping[str, Any]]:
        self.go_on.wait(60)
        return "https://there.example", {}

    def claims(self, attempt: Attempt, code: str) -> Mapping[str, object]:
        return {}


def request_to(host: bytes) -> Request:
    scope = {"type": "http", "scheme": "http", "path": "/", "query_string": b"", "headers": [(b"host", host)]}
    return Request(scope)


REQUEST = request_to(b"localhost:1630")
NEAR = OwnAddress(("127.0.0.1",), 1630, is_encrypted=False, has_proxies=False)


def test_a_provider_that_never_answers_is_waited_for_half_a_minute() -> None:
    slow = Slow()
    door = OidcLogin(slow, login_settings().provider_terms(), NEAR)

    async def leave() -> None:
        asked = asyncio.ensure_future(door.begin(REQUEST, "/"))
        await asyncio.sleep(0)
        cast("Loop", asyncio.get_running_loop()).ahead += 31
        await asked

    with pytest.raises(WorkFailed, match=r"did not answer within 30 s"), asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(leave())
    slow.go_on.set()
    door.close()


def test_an_attempt_ends_after_ten_minutes_and_they_are_not_without_end() -> None:
    now, quick = [0.0], Slow()
    quick.go_on.set()
    door = OidcLogin(quick, login_settings().provider_terms(), NEAR, lambda: now[0])
    begun = [asyncio.run(door.begin(REQUEST, "/"))[1] for _ in range(2)]
    now[0] = 599
    assert door.take(begun[0].state, begun[0].browser).state == begun[0].state
    now[0] = 600
    with pytest.raises(NotAllowed, match="older than ten minutes"):
        door.take(begun[1].state, begun[1].browser)
    many = [asyncio.run(door.begin(REQUEST, "/"))[1] for _ in range(1001)]
    door.close()
    with pytest.raises(NotAllowed):
        door.take(many[0].state, many[0].browser)
    assert door.take(many[1].state, many[1].browser).state == many[1].state
    assert many[1].verifier not in repr(many[1])
    for host in (b"evil.example", b"localhost:x"):
        with pytest.raises(NotAllowed):
            NEAR.of(request_to(host))


@pytest.mark.parametrize(
    ("claims", "person"),
    [
        ({"sub": "a", "groups": ["data-team", "admins"]}, ("oidc:a", Role.ADMIN, "")),
        ({"sub": "a", "groups": "data-team"}, ("oidc:a", Role.OPERATOR, "shop.**")),
        ({"sub": "a", "groups": [1, None, "cn=all,dc=example"]}, ("oidc:a", Role.VIEWER, "")),
        ({"sub": "a", "groups": ["data", "Admins", "admins "]}, "no role here"),
        ({"sub": "a", "groups": {"admins": 1}}, "no role here"),
        ({"sub": "a b", "groups": "admins"}, "can't be a name"),
        ({"sub": 7, "groups": "admins"}, "can't be a name"),
        ({"groups": "admins"}, "can't be a name"),
    ],
)
def test_the_first_rule_that_a_value_fits_gives_the_role(claims: dict[str, object], person: Any) -> None:
    if isinstance(person, str):
        with pytest.raises(NotAllowed, match=person):
            login_settings().provider_terms().person(claims)
    else:
        assert login_settings().provider_terms().person(claims) == Principal(*person, is_user=True)


def test_a_claim_may_be_within_another_and_an_address_is_verified() -> None:
    terms = login_settings(oidc_role_claim="realm_access.roles", oidc_name_claim="email").provider_terms()
    claims: dict[str, object] = {"email": "ann@example.com", "realm_access": {"roles": ["admins"]}}
    with pytest.raises(NotAllowed, match="has not verified"):
        terms.person(claims)
    assert terms.person({**claims, "email_verified": True}).name == "oidc:ann@example.com"
    assert terms.fingerprint != login_settings().provider_terms().fingerprint


PROVIDER = {"oidc-issuer": "https://there.example", "oidc-client-id": "a"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"oidc-issuer": "http://there.example"}, "is not the https address of a provider"),
        ({"oidc-issuer": "https://there.example"}, "needs oidc-client-id too"),
        (PROVIDER, "needs oidc-roles too"),
        ({**PROVIDER, "oidc-roles": ["x=boss"]}, "'x=boss' maps no value"),
        *[
            ({**PROVIDER, "oidc-roles": [rule]}, "")
            for rule in ("admins", "admins=", "=admin", "admins=enrolment", "admins=admin shop.**", "a=operator x")
        ],
        ({"oidc-client-secret": CANARY}, "it is not shown here"),
        ({"oidc-client-secret": [CANARY]}, "oidc-client-secret has the malformed value"),
    ],
)
def test_malformed_settings_are_refused_without_the_secret(tmp_path: Path, values: dict[str, Any], says: str) -> None:
    (tmp_path / "amoro.yaml").write_text(json.dumps(values))
    with pytest.raises(InvalidSettings) as refusal:
        load_settings(tmp_path, None, {})
    assert says in refusal.value.message
    assert CANARY not in f"{refusal.value} {refusal.value.hint}"


def test_a_secret_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    told = {"env:NOT_SET": "NOT_SET, which is not set", "file:/not/there": "/not/there, which can't be read"}
    for reference, says in told.items():
        with pytest.raises(InvalidSettings, match=says):
            coordinator_app.provider_of(login_settings(oidc_client_secret=reference))

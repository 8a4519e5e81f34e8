"""What settings say of an OpenID provider: who has which role, and where people reach us."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amoro_core import web
from amoro_core.dashboard.people import OwnAddress
from amoro_core.errors import InvalidArgument, InvalidSettings, NotAllowed
from amoro_core.model.principals import Principal
from amoro_core.model.provider import parse_rule
from amoro_core.model.tokens import Role
from amoro_core.settings import Settings
from amoro_core.settings_sources import load_settings
from tests.dashboard.provider import CANARY, NEAR, RULES, request_to, terms_of


@pytest.mark.parametrize(
    ("host", "scheme", "address"),
    [
        ("localhost:8000", "http", "http://localhost:8000"),
        ("[::1]:1630", "http", "http://[::1]:1630"),
        ("amoro.example", "http", "https://amoro.example:1630"),
        ("AMORO.example:9999", "http", "https://amoro.example:1630"),
        ("other.example:1", "http", "https://other.example:8443"),
    ],
)
def test_our_address_is_of_the_settings(host: str, scheme: str, address: str) -> None:
    encrypted = address.startswith("https")
    made = OwnAddress(
        ("amoro.example", "other.example:8443", "0.0.0.0"), 1630, is_encrypted=encrypted, has_proxies=False
    )
    assert made.of(request_to(host, scheme)) == address


def test_our_address_behind_a_proxy_has_the_ports_of_the_proxy() -> None:
    made = OwnAddress(("amoro.example", "other.example:8443"), 1630, is_encrypted=False, has_proxies=True)
    assert made.of(request_to("amoro.example:9999", "https")) == "https://amoro.example"
    assert made.of(request_to("other.example", "https")) == "https://other.example:8443"


@pytest.mark.parametrize("host", ["evil.example", "localhost:x", ""])
def test_an_address_that_is_not_ours_is_none(host: str) -> None:
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
            terms_of().person(claims)
    else:
        assert terms_of().person(claims) == Principal(*person, is_user=True)


def test_a_claim_may_be_within_another_and_an_address_is_verified() -> None:
    terms = terms_of(oidc_role_claim="realm_access.roles", oidc_name_claim="email")
    claims: dict[str, object] = {"email": "ann@example.com", "realm_access": {"roles": ["admins"]}}
    with pytest.raises(NotAllowed, match="has not verified"):
        terms.person(claims)
    assert terms.person({**claims, "email_verified": True}).name == "oidc:ann@example.com"
    assert terms.fingerprint != terms_of().fingerprint


@pytest.mark.parametrize(
    "text", ["admins", "admins=", "=admin", "admins=enrolment", "admins=admin shop.**", "a=operator x"]
)
def test_a_rule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_rule(text)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"oidc-issuer": "http://there.example"}, "is not the https address of a provider"),
        ({"oidc-issuer": "https://there.example"}, "needs oidc-client-id too"),
        ({"oidc-issuer": "https://there.example", "oidc-client-id": "a"}, "needs oidc-roles too"),
        (
            {"oidc-issuer": "https://t.example", "oidc-client-id": "a", "oidc-roles": ["x=boss"]},
            "'x=boss' maps no value",
        ),
        ({"oidc-client-secret": CANARY}, "it is not shown here"),
        ({"oidc-client-secret": [CANARY]}, "oidc-client-secret has the malformed value"),
    ],
)
def test_settings_that_are_not_whole_are_refused_without_the_secret(
    tmp_path: Path, values: dict[str, object], says: str
) -> None:
    (tmp_path / "amoro.yaml").write_text(json.dumps(values))
    with pytest.raises(InvalidSettings) as refusal:
        load_settings(tmp_path, None, {})
    assert says in refusal.value.message
    assert CANARY not in f"{refusal.value} {refusal.value.hint}"


@pytest.mark.parametrize(
    ("reference", "says"),
    [("env:NOT_SET", "NOT_SET, which is not set"), ("file:/not/there", "/not/there, which can't be read")],
)
def test_a_secret_that_is_not_there_is_named(reference: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(
        Settings(),
        oidc_issuer="https://there.example",
        oidc_client_id="amoro",
        oidc_roles=RULES,
        oidc_client_secret=reference,
    )
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(InvalidSettings, match=says):
        web.provider_of(settings)

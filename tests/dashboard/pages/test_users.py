"""Users and tokens."""

import re

import pytest

from amoro_core.dashboard.pages import users
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_processes import words

NEW = {"name": "ada", "role": "operator", "pattern": "lake.sales.*", "password": "a long enough password"}
OWN = {"Sec-Fetch-Site": "same-origin"}


def test_users_are_added_listed_and_removed(site: Site) -> None:
    client = site("typical")
    assert "There is no user." in client.get("/users").text
    assert 'type="password"' in client.get("/users/add").text
    added = client.post("/users/add", data=NEW)
    assert added.status_code == 303
    page = words(client.get(added.headers["location"]).text)
    assert "ada can log in as operator." in page
    assert "ada operator lake.sales.*" in page
    assert NEW["password"] not in client.get("/audit").text
    assert "amoro user remove ada" in client.get("/users/ada/remove").text
    removed = client.post("/users/ada/remove")
    assert "ada is removed." in client.get(removed.headers["location"]).text


def test_a_short_password_is_refused(site: Site) -> None:
    answer = site("typical").post("/users/add", data={**NEW, "password": "short"})
    assert answer.status_code == 400
    assert "12" in words(answer.text)


def test_a_user_gets_another_role_pattern_and_password(site: Site) -> None:
    client = site("typical")
    client.post("/users/add", data=NEW)
    form = client.get("/users/ada/update").text
    assert "ada has the role operator, and acts on lake.sales.*" in words(form)
    assert '<option value="operator" selected>' in form
    assert 'value="lake.sales.*"' in form
    assert "amoro user update ada --role ROLE --on PATTERN" in form
    wider = client.post("/users/ada/update", data={"role": "operator", "pattern": "lake.**"})
    page = words(client.get(wider.headers["location"]).text)
    assert "ada is operator from now on, for lake.**." in page
    assert "ada operator lake.**" in page
    all_tables = client.post("/users/ada/update", data={"role": "operator", "pattern": ""})
    assert "ada operator all tables" in words(client.get(all_tables.headers["location"]).text)
    client.post("/users/ada/update", data={"role": "operator", "pattern": "lake.**"})
    as_it_was = client.post("/users/ada/update", data={"role": "viewer", "pattern": "lake.**", "before": "lake.**"})
    assert "ada viewer all tables" in words(client.get(as_it_was.headers["location"]).text)
    refused = client.post("/users/ada/update", data={"role": "viewer", "pattern": "lake.sales.*", "before": ""})
    assert (refused.status_code, "a pattern limits what an operator acts on" in refused.text) == (400, True)

    assert "amoro user password ada" in client.get("/users/ada/password").text
    assert client.post("/users/ada/password", data={"password": "short"}).status_code == 400
    blank = " another password "
    changed = client.post("/users/ada/password", data={"password": blank})
    assert "ada has a new password." in words(client.get(changed.headers["location"]).text)
    del client.headers["Authorization"]
    assert client.post("/login", data={"user": "ada", "password": blank.strip()}, headers=OWN).status_code == 401
    assert client.post("/login", data={"user": "ada", "password": blank}, headers=OWN).status_code == 303


def test_a_user_that_is_not_there_is_not_changed(site: Site) -> None:
    client = site("typical")
    for below, sent in (("update", {"role": "admin"}), ("password", {"password": "a long enough one"}), ("remove", {})):
        for answer in (client.get(f"/users/nobody/{below}"), client.post(f"/users/nobody/{below}", data=sent)):
            assert answer.status_code == 404


def test_users_beyond_a_page_are_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "_PAGE", 1)
    client = site("typical")
    for name in ("ada", "ben", "eve"):
        client.post("/users/add", data={**NEW, "name": name})
    assert client.get("/users/eve/update").status_code == 200


def test_a_token_is_shown_once_and_works_until_it_is_revoked(site: Site) -> None:
    client = site("typical")
    assert "amoro token create NAME --role ROLE --on PATTERN --expires 90d" in client.get("/tokens/create").text
    data = {"name": "nightly", "role": "operator", "pattern": "lake.**", "expires": "90d"}
    made = client.post("/tokens/create", data=data)
    (token,) = re.findall(r'value="(amo_[^"]+)"', made.text)
    assert made.headers["cache-control"] == "no-store"
    assert client.post("/tokens/create", data=data).status_code == 409
    listed = client.get("/users").text
    assert "nightly operator lake.**" in words(listed)
    assert token not in listed + client.get("/audit").text + client.get("/events").text
    assert client.get("/tables", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert "amoro token revoke nightly" in client.get("/tokens/nightly/revoke").text
    revoked = client.post("/tokens/nightly/revoke")
    assert "The token nightly is revoked." in client.get(revoked.headers["location"]).text
    assert client.get("/tables", headers={"Authorization": f"Bearer {token}"}).headers["location"].startswith("/login")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"role": ""}, "a token needs a role"),
        ({"expires": "soon"}, "is not a duration"),
        ({"expires": "0.0001s"}, "is over at once"),
        ({"pattern": "lake"}, "matches no table"),
        ({"name": "a b"}, "can&#39;t be the name of a token"),
    ],
)
def test_a_token_that_is_wrong_is_not_made(site: Site, wrong: dict[str, str], told: str) -> None:
    client = site("typical")
    data = {"name": "nightly", "role": "operator", "pattern": "lake.**", "expires": "90d", **wrong}
    answer = client.post("/tokens/create", data=data)
    assert (answer.status_code, told in answer.text) == (400, True)
    assert "There is no token" in client.get("/users").text


FORMS = {
    "/users/add": NEW,
    "/users/ada/update": {"role": "admin"},
    "/users/ada/password": {"password": "another long password"},
    "/users/ada/remove": {},
    "/tokens/create": {"name": "mine", "role": "admin"},
    "/tokens/nightly/revoke": {},
}


@pytest.mark.parametrize("path", FORMS)
def test_administrators_alone_change_who_may_log_in_and_refusals_are_in_the_audit(site: Site, path: str) -> None:
    client = site("typical")
    client.post("/users/add", data=NEW)
    made = client.post("/tokens/create", data={"name": "op", "role": "operator"})
    (token,) = re.findall(r'value="(amo_[^"]+)"', made.text)
    refused = client.post(path, data=FORMS[path], headers={"Authorization": f"Bearer {token}"})
    assert refused.status_code == 403
    page = words(client.get("/users").text)
    assert "ada operator lake.sales.*" in page
    assert "mine" not in page
    (call,) = client.get("/api/v1/audit?actor=op").json()["items"]
    assert (call["way"], call["outcome"], call["code"]) == ("page", "refused", "AMORO-4001")


def test_another_site_can_not_send_these_forms(site: Site) -> None:
    client = site("typical")
    client.post("/users/add", data={**NEW, "role": "admin", "pattern": ""})
    del client.headers["Authorization"]
    client.post("/login", data={"user": "ada", "password": NEW["password"]}, headers=OWN)
    for path, sent in FORMS.items():
        assert client.post(path, data=sent, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert "ada admin all tables" in words(client.get("/users").text)


def test_a_token_that_is_not_known_is_not_revoked(site: Site) -> None:
    client = site("typical")
    assert "amoro token revoke nightly" in client.get("/tokens/nightly/revoke").text
    assert client.post("/tokens/nightly/revoke").status_code == 404


@pytest.mark.parametrize("path", ["/users/add", "/tokens/create", "/tokens/nightly/revoke", "/system/backup"])
def test_forms_are_shown_to_who_is_known_alone(site: Site, path: str) -> None:
    client = site("typical")
    assert "admin, admin" in words(client.get(path).text)
    del client.headers["Authorization"]
    assert client.get(path).status_code == 303

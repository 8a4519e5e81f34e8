"""Users and tokens."""

from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_processes import words

NEW = {"name": "ada", "role": "operator", "pattern": "lake.sales.*", "password": "a long enough password"}


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


def test_a_token_that_is_not_known_is_not_revoked(site: Site) -> None:
    client = site("typical")
    assert "amoro token revoke nightly" in client.get("/tokens/nightly/revoke").text
    assert client.post("/tokens/nightly/revoke").status_code == 404

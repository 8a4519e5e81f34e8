"""A canary: a secret that is given in every way there is stands on no page and in no answer of REST or MCP."""

import re
from urllib.parse import quote, urlencode

import pytest

from amoro_core.dashboard.pages import routes
from amoro_core.dashboard.rest.routes import PREFIX, ROUTES
from amoro_core.tools.known import READING
from tests.acceptance.tables import messy_table
from tests.dashboard.served import Served
from tests.engine import writer

CANARY = "kanarienvogel4711"
NAMES = (
    "token",
    "password",
    "client_secret",
    "s3.secret-access-key",
    "credential",
    "header.Authorization",
    "gcs.oauth2.token",
)
OWN = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def named(served: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is there to be asked for, after the secret was given wherever one is taken, rightly and wrongly."""
    directory = tmp_path_factory.mktemp("lake")
    catalog = writer.make_catalog(directory, "lake")
    table = f"lake.{'.'.join(messy_table(catalog).name()[-2:])}"
    secrets = dict.fromkeys(NAMES, CANARY) | {"auth": f'{{"type": "basic", "basic": {{"password": "{CANARY}"}}}}'}
    properties = {**catalog.properties, **secrets, "type": "sql"}
    calls: list[tuple[str, str, object, int]] = [
        ("POST", "/catalogs", {"name": "lake", "properties": properties}, 201),
        ("POST", "/catalogs", {"name": "lake", "properties": properties}, 409),
        ("PATCH", "/catalogs/lake", {"properties": {"s3.access-key-id": CANARY}}, 200),
        ("POST", "/catalogs", {"name": "down", "properties": {"uri": f"http://me:{CANARY}@127.0.0.1:9"}}, 500),
        ("POST", "/groups", {"name": "far", "properties": {"spark-conf.spark.hadoop.fs.s3a.secret.key": CANARY}}, 201),
        ("POST", "/users", {"name": "ann", "role": "viewer", "password": CANARY}, 201),
        ("POST", "/users", {"name": "ann", "role": "viewer", "password": CANARY}, 409),
        ("POST", "/users/ann/password", {"password": f"{CANARY}-"}, 200),
    ]
    for method, path, body, status in calls:
        answer = served.ask(f"{PREFIX}{path}", method, body=body, headers={"If-Match": "*"})
        assert answer.status == status, (path, answer.body)
        assert CANARY not in answer.body
    for fields in ({"user": "ann", "password": CANARY}, {"user": CANARY, "password": "in the wrong field"}):
        assert served.ask("/login", "POST", token="", body=urlencode(fields).encode(), headers=OWN).status == 401
    entered = served.ask("/login", "POST", token="", body=f"user=ann&password={CANARY}-".encode(), headers=OWN)
    assert (entered.status, CANARY in entered.headers["set-cookie"]) == (303, False)
    begun = served.ask(f"{PREFIX}/tables/{table}/optimize", "POST", body={}).document
    return {
        "table": table,
        "process": begun["process_id"],
        "process_id": begun["process_id"],
        "catalog": "lake",
        "group": "far",
        "name": "far",
        "user": "ann",
        "id": "nobody",
        "optimizer_id": "nobody",
    }


def _filled(path: str, named: dict[str, str], otherwise: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: quote(named.get(found[1], otherwise)), path)


def _holds(served: Served, text: str) -> bool:
    """Whether it has the canary or the coordinator's own token."""
    return CANARY in text or served.admin in text


def test_no_page_shows_a_secret(served: Served, named: dict[str, str]) -> None:
    paths = [_filled(route.path, named, "nobody") for route in routes() if "GET" in route.methods]
    answers = {path: served.ask(path) for path in paths}
    assert [path for path, answer in answers.items() if _holds(served, answer.body + str(answer.headers))] == []
    assert sum(answer.status == 200 for answer in answers.values()) > 35
    assert "AddUser" in answers["/audit"].body
    assert "s3.secret-access-key" in answers["/catalogs"].body


def test_no_answer_of_rest_has_a_secret(served: Served, named: dict[str, str]) -> None:
    looks = [route for route in ROUTES if route.method == "GET"]
    names = [{**named, "name": name} for name in ("far", "lake", "ann")]
    paths = {f"{PREFIX}{_filled(route.path, one, 'nobody')}" for route in looks for one in names}
    answers = {path: served.ask(path) for path in (*sorted(paths), "/metrics", f"{PREFIX}/openapi.json")}
    assert [path for path, answer in answers.items() if _holds(served, answer.body + str(answer.headers))] == []
    assert '"s3.secret-access-key":"***"' in answers[f"{PREFIX}/catalogs/lake"].body


def test_no_tool_tells_a_secret(served: Served, named: dict[str, str]) -> None:
    given = {**named, "type": "full"}
    for tool in READING:
        params = {"name": tool.name, "arguments": {name: given[name] for name in tool.required}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = served.ask("/mcp", "POST", body=body, headers={"Accept": "application/json, text/event-stream"})
        assert (answer.status, answer.document["result"]["isError"]) == (200, False), tool.name
        assert not _holds(served, answer.body), tool.name

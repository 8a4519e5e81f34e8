"""Secrets stand on no page and in no answer of REST or MCP; assistants; what strangers try is in the audit."""

import asyncio
import json
import re
from pathlib import Path
from urllib.parse import quote, urlencode

import grpc
import pytest

from amoro_core.bootstrap.settings import Settings
from amoro_core.mcp.tools import READING, WRITING
from amoro_core.model.history_events import AuditFilter
from amoro_core.model.paging import Window
from amoro_core.model.principals import Channel, Role
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.operations import ROUTES
from amoro_core.web.pages import routes
from amoro_core.web.rest.requests import PREFIX
from tests.acceptance.tables import messy_table, name_of
from tests.dashboard.conftest import OWN
from tests.dashboard.fuzzing import furnish
from tests.dashboard.served import Served, serving
from tests.engine import writer

CANARY = "kanarienvogel4711"
NAMES = ("token", "password", "client_secret", "s3.secret-access-key", "credential", "header.Authorization")
FORM = {**OWN, "Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def named(served: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is there to be asked for, after the secret was given wherever one is taken, rightly and wrongly."""
    directory = tmp_path_factory.mktemp("lake")
    catalog = writer.make_catalog(directory, "lake")
    table = name_of(messy_table(catalog), "lake")
    basic = json.dumps({"type": "basic", "basic": {"password": CANARY}})
    secrets = dict.fromkeys((*NAMES, "gcs.oauth2.token"), CANARY) | {"auth": basic}
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
        assert served.ask("/login", "POST", token="", body=urlencode(fields).encode(), headers=FORM).status == 401
    entered = served.ask("/login", "POST", token="", body=f"user=ann&password={CANARY}-".encode(), headers=FORM)
    assert (entered.status, CANARY in entered.headers["set-cookie"]) == (303, False)
    process = served.ask(f"{PREFIX}/tables/{table}/optimize", "POST", body={}).document["process_id"]
    there = {"table": table, "process": process, "process_id": process, "catalog": "lake", "user": "ann"}
    return {**there, "group": "far", "name": "far", "id": "nobody", "optimizer_id": "nobody"}


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


def test_the_official_client_calls_the_tools_that_only_read(served: Served) -> None:
    _, token = served.coordinator.tokens.create("assistant", Role.VIEWER)
    names, status = use(served, token, "status")
    assert (names, json.loads(status)["role"]) == ([tool.name for tool in READING], "leader")
    assert use(served, served.admin)[0] == names, "without the setting nobody writes"
    assert "set_enabled" in use(served, served.admin, "set_enabled", table="a.b.c", enabled=True, dry_run=False)[1]


def use(served: Served, token: str, tool: str = "", **arguments: object) -> tuple[list[str], str]:
    """The tools that a token is offered, and the text that one of them answers."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def talk() -> tuple[list[str], str]:
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(f"http://127.0.0.1:{served.port}/mcp", http_client=http)) as client,
        ):
            names = [one.name for one in (await client.list_tools()).tools]
            answer = (await client.call_tool(tool, arguments)).content[0].text if tool else ""
            return names, answer

    return asyncio.run(talk())


def test_where_the_settings_say_so_operators_may_write_on_their_tables(tmp_path: Path) -> None:
    with serving(tmp_path / "home", Settings(mcp_writes=True)) as served:
        name, tokens = furnish(served, tmp_path), served.coordinator.tokens
        viewer = tokens.create("sees", Role.VIEWER)[1]
        elsewhere = tokens.create("elsewhere", Role.OPERATOR, "lake.other.*")[1]
        operator = tokens.create("acts", Role.OPERATOR, "lake.db.*")[1]
        asked = {"table": name, "enabled": True}
        assert use(served, viewer, "set_enabled", **asked, dry_run=False)[0] == [one.name for one in READING]
        names, refusal = use(served, elsewhere, "set_enabled", **asked, dry_run=False)
        assert names == [one.name for one in (*READING, *WRITING)]
        assert "acts on lake.other.* alone" in refusal
        assert json.loads(use(served, operator, "set_enabled", **asked, dry_run=False)[1])["done"]["enabled"] is True
        tried = json.loads(use(served, operator, "set_enabled", table=name, enabled=False)[1])
        assert (tried["dry_run"], tried["would"]["enabled"]) == (True, True)
        assert served.coordinator.tables.list_tables()[0].enabled is True
        page = served.coordinator.services.auditing.list_events(AuditFilter(operation="SetTableEnabled"), Window(9))
        assert [(one.call.principal.name, one.call.principal.way, one.outcome.value) for one in page.items] == [
            ("acts", Channel.MCP, "done"),
            ("elsewhere", Channel.MCP, "refused"),
        ]


def test_strangers_are_in_the_audit(served: Served) -> None:
    report = "/iceberg/v1/lake/namespaces/db/tables/t/metrics"
    for token in ("", "amo_garbage"):
        assert served.ask(f"{PREFIX}/groups/night", "DELETE", token=token).status == 401
        assert served.ask(f"{PREFIX}/groups", token=token).status == 401
    assert served.ask(report, "POST", token="amo_garbage", body={}).status == 401
    told = ("refused", "AMORO-4002")
    with grpc.insecure_channel(served.coordinator.address) as channel:
        stub = AdminServiceStub(channel)
        for metadata in ((), (("authorization", "Bearer amo_garbage"),)):
            for call, request in (
                (stub.RemoveGroup, pb.RemoveGroupRequest()),
                (stub.ListGroups, pb.ListGroupsRequest()),
            ):
                with pytest.raises(grpc.RpcError):
                    call(request, metadata=metadata)
    page = served.coordinator.services.auditing.list_events(AuditFilter(), Window(99))
    assert [
        (one.call.operation, one.call.principal.name, one.call.principal.way.value, one.outcome.value, one.code)
        for one in reversed(page.items)
        if not one.call.principal.name and one.call.operation != "LogIn"
    ] == [
        *[("RemoveGroup", "", "rest", *told)] * 2,
        ("LearnScans", "", "rest", *told),
        *[("RemoveGroup", "", "grpc", *told)] * 2,
    ]
    assert {one.call.principal.address for one in page.items} == {"127.0.0.1"}
    assert served.ask("/audit").status == 200

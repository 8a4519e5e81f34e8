"""The access matrix: every operation, page, form and tool, as every caller, over gRPC, REST, pages and MCP.

What is expected is written down in `tests/admin/operations.py`; which operations a page asks for is seen when an
administrator asks for it. Wrong usage is tried in each interface, too.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.testclient import TestClient

from amoro_core.bootstrap.coordinator_app import Coordinator, running
from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import NotAllowed, UnknownToken
from amoro_core.mcp.server import make_server
from amoro_core.mcp.tools import READING, Tool, tools
from amoro_core.model.principals import Role
from amoro_core.model.tables import parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.operations import ROUTES, Route
from amoro_core.web import pages
from amoro_core.web.rest.requests import EVENTS, PREFIX
from tests.acceptance.tables import config_of, messy_table, name_of
from tests.admin.operations import MAY, OPERATIONS, STRANGERS, WRONG, Wrong, let_in
from tests.dashboard.conftest import OWN, Asked, client_over
from tests.dashboard.served import without_catalogs
from tests.engine import writer
from tests.engine.builders import SCHEMA

METHODS = pb.DESCRIPTOR.services_by_name["AdminService"].methods_by_name
PAGES = [route for route in pages.routes() if "/login" not in route.path and route.path != "/logout"]
#: What anybody may ask for, or what has a test of its own for who may.
BESIDE = {
    *("/livez", "/readyz", "/metrics", "/mcp"),
    *("/login", "/login/link", "/logout", "/login/oidc", "/login/oidc/callback"),
    "/iceberg/v1/{catalog}/namespaces/{namespace}/tables/{table}/metrics",
}
#: Forms that look at what the catalog or the object store alone knows, which a page that is read never does.
LOOKING = {
    *("/catalogs/{catalog}/check", "/tables/{table}/snapshots", "/tables/{table}/plan", "/tables/{table}/schema"),
    *("/sql/{statement_id}/cancel", "/system/check", "/tables/{table}/verify", "/tables/{table}/maintenance"),
}
#: Pages that say what a form will do without asking for anything.
ASKING_NOTHING = {
    *("/optimizers/{optimizer}/drain", "/optimizers/{optimizer}/release", "/instances/{instance}/kill"),
    *("/trash/hurry", "/system/backup", "/users/add", "/tokens/create", "/tokens/{token}/revoke"),
    *("/catalogs/add", "/create-group", "/rest", "/sql/{kept}/rows.csv"),
}
#: What a page asks on top for those who may, and leaves out for others.
ON_TOP = {"GET /system": ["GetState"]}
#: What is there to be changed.
CHANGED = {"UpdateCatalog": "lake", "UpdateGroup": "default"}


@dataclass(frozen=True, slots=True)
class Site:
    """A coordinator, tokens and cookies of the callers, what requests name, and which operations the web side asks."""

    coordinator: Coordinator
    stub: AdminServiceStub
    client: TestClient
    asked: Asked
    tokens: Mapping[str, str]
    cookies: Mapping[str, str]
    missing: dict[str, Any]  # in requests that shall change nothing
    held: dict[str, str]  # in paths and forms of pages

    def rest(self, method: str, path: str, caller: str = "admin", body: Any = None, **headers: str) -> httpx.Response:
        """The answer of REST to the caller's token."""
        token = self.tokens[caller]
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        return self.client.request(method, f"{PREFIX}{path}", content=content, headers=headers)

    def page(self, path: str, caller: str = "admin", form: Mapping[str, str] | None = None) -> httpx.Response:
        """The answer to the caller with the cookie of a session; with a form, to that form."""
        headers = {"Cookie": self.cookies[caller]} if self.cookies[caller] else {}
        if form is None:
            return self.client.get(path, headers=headers)
        return self.client.post(path, data=dict(form), headers={**headers, **OWN})

    def renew(self, kind: str, body: object) -> str:
        """A blocker or a lease in place of the one before, which may be released; its id."""
        table = self.held["table"]
        for one in self.rest("GET", f"/tables/{table}/{kind}s").json()["items"]:
            self.rest("DELETE", f"/{kind}s/{one[f'{kind}_id']}")
        made: str = self.rest("POST", f"/tables/{table}/{kind}s", body=body).json()[f"{kind}_id"]
        return made

    def prepare(self, operation: str) -> None:
        """Make what the operation needs."""
        if operation.endswith("Blocker"):
            self.missing["blocker_id"] = self.renew("blocker", {"hold": "1h"})
        if operation.endswith("Lease"):
            self.missing["lease_id"] = self.renew("lease", {"snapshot_id": int(self.held["snapshot"])})

    def prepare_page(self, path: str) -> None:
        """Make what the form needs: a plan that is kept, or a blocker in place of the one that was released."""
        if path.endswith("/plan/run"):
            made = self.page(f"/tables/{self.held['table']}/plan", "admin", {"type": "full"})
            self.held["kept"] = re.findall(r"kept=([^&]+)", made.headers["location"])[0]
        if "{blocker}" in path:
            self.held["blocker"] = self.renew("blocker", {"hold": "1h"})

    def over_grpc(self, operation: str, caller: str, fields: Mapping[str, Any]) -> tuple[grpc.StatusCode, str]:
        """The status of the call, and what it says."""
        kind = METHODS[operation].input_type
        message = GetMessageClass(kind)(**{name: one for name, one in fields.items() if name in kind.fields_by_name})
        token = self.tokens[caller]
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            getattr(self.stub, operation)(message, metadata=metadata, timeout=120)
        except grpc.RpcError as error:
            return error.code(), error.details() or ""
        return grpc.StatusCode.OK, ""

    def over_rest(self, route: Route, caller: str) -> int:
        named = self.missing
        if route.method == "PATCH":
            named = {**named, "table": self.held["table"], "name": CHANGED.get(route.operation)}
        path = "/".join(quote(str(named[one[1:-1]])) if one.startswith("{") else one for one in route.segments)
        body: Any = {name: named[name] for name in route.required} if route.has_body else None
        if route.operation == EVENTS:
            body = []  # its shape is read before the caller's role
        query = "&".join(f"{name}=1" for name in route.required) if not route.has_body else ""
        headers = {"If-Match": "*"} if route.method == "PATCH" else {}
        return self.rest(route.method, f"/{path}?{query}".rstrip("?"), caller, body, **headers).status_code


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("lake")
    catalog = writer.make_catalog(directory, "lake")
    writer.make_table(catalog, "db.t", SCHEMA)
    table, held = name_of(messy_table(catalog), "lake"), name_of(messy_table(catalog), "lake")
    with (
        without_catalogs(directory),
        ThreadPoolExecutor(4) as pool,
        running(directory / "home", Settings(port=0), watch=False) as coordinator,
        grpc.insecure_channel(coordinator.address) as channel,
    ):
        coordinator.catalogs.add(config_of(catalog))
        client, asked = client_over(coordinator.services, pool, "")
        tokens, stub = _tokens(coordinator), AdminServiceStub(channel)
        cookies = _cookies(coordinator, client, tokens)
        made = Site(coordinator, stub, client, asked, tokens, cookies, {}, {})
        process = {"process": made.rest("POST", f"/tables/{table}/optimize", body={}).json()["process_id"]}
        known = coordinator.tables
        known.ensure(parse_table("lake.db.t"))
        known.refresh(known.ensure(parse_table(held)).table_id)
        wrong = {"action": "no-action", "name": "no name", "password": "too short", "path": "relative"}
        both = {**wrong, "catalog": "lake", "statement": "SELECT 1", "statement_id": "nothing"}
        made.missing.update({**both, "table": f"{held}_that_is_not_there", "process_id": process["process"]})
        made.missing.update({"optimizer_id": "nobody-here", "id": "nobody-here", "plan_id": "not kept"})
        made.missing.update({"namespace": "lake.db", "to": "lake.db.none"})  # of a catalog of others
        made.missing.update({"kind": "no role", "confirm": "no", "text": "not a list", "columns": ["id long"]})
        made.missing.update({"format_version": 3, "enabled": True, "instances": 1, "scans": []})
        nobody = dict.fromkeys(("optimizer", "instance", "user", "token"), "nobody-here")
        made.held.update({**both, **nobody, **process, "table": held, "confirm": held, "kept": "nothing"})
        made.held.update({"group": "default", "instances": "1", "minutes": "5", "reason": "a test", "role": "viewer"})
        made.held["snapshot"] = str(made.rest("GET", f"/tables/{held}").json()["snapshot_id"])
        yield made


def _tokens(coordinator: Coordinator) -> dict[str, str]:
    """A token of each caller."""
    tokens = coordinator.tokens
    made = {
        "nobody": "",
        "garbage": "amo_garbage",
        "expired": tokens.create("expired", Role.ADMIN, "", timedelta(milliseconds=1))[1],
        "revoked": tokens.create("revoked", Role.ADMIN)[1],
        "enrolment": tokens.create("a-enrolment", Role.ENROLMENT)[1],
        "viewer": tokens.create("a-viewer", Role.VIEWER)[1],
        "operator elsewhere": tokens.create("a-operator", Role.OPERATOR, "lake.other.*")[1],
        "operator": tokens.create("b-operator", Role.OPERATOR, "lake.db.*")[1],
        "admin": coordinator.admin_token.reveal(),
    }
    tokens.revoke("revoked")
    return made


def _cookies(coordinator: Coordinator, client: TestClient, tokens: Mapping[str, str]) -> dict[str, str]:
    """A session of each caller: of one that has expired, one whose token was revoked, and of each role."""
    sessions, known = coordinator.services.sessions, coordinator.tokens
    name = client.post("/logout", headers=OWN).headers["set-cookie"].partition("=")[0]
    made = {"nobody": "", "garbage": f"{name}=garbage"}
    made["expired"] = f"{name}={sessions.begin(known.admit(tokens['admin']))}"
    week = {"week": timedelta(days=8) // timedelta(milliseconds=1)}
    with sqlite3.connect(coordinator.home / "amoro.db", timeout=60) as db:
        db.execute(
            "UPDATE http_session SET created_at_ms = created_at_ms - :week, seen_at_ms = seen_at_ms - :week", week
        )
    db.close()
    for caller in MAY:
        made[caller] = f"{name}={sessions.begin(known.admit(tokens[caller]))}"
    _, token = known.create("revoked-later", Role.ADMIN)
    made["revoked"] = f"{name}={sessions.begin(known.admit(token))}"
    known.revoke("revoked-later")
    return made


@pytest.mark.parametrize("operation", OPERATIONS)
def test_over_grpc_who_may_is_let_in_and_nobody_else(site: Site, operation: str) -> None:
    site.prepare(operation)
    found = {caller: site.over_grpc(operation, caller, site.missing) for caller in (*STRANGERS, *MAY)}
    unknown = {caller for caller, (status, _) in found.items() if status is grpc.StatusCode.UNAUTHENTICATED}
    denied = {caller for caller, (status, _) in found.items() if status is grpc.StatusCode.PERMISSION_DENIED}
    assert (unknown, denied) == ({*STRANGERS}, {*MAY} - let_in(operation))
    assert "; " + operation in found["enrolment"][1], "it names what is needed"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name or route.operation)
def test_over_rest_who_may_is_let_in_and_nobody_else(site: Site, route: Route) -> None:
    site.prepare(route.operation)
    found = {caller: site.over_rest(route, caller) for caller in (*STRANGERS, *MAY)}
    assert {caller for caller, status in found.items() if status == 401} == {*STRANGERS}
    assert {caller for caller, status in found.items() if status == 403} == {*MAY} - let_in(route.operation)
    assert route.method != "GET" or not OPERATIONS[route.operation].is_audited, "who gets changes nothing"


def test_every_operation_and_every_route_is_tried(site: Site) -> None:
    assert {route.operation for route in ROUTES} == set(OPERATIONS)
    every = {getattr(route, "path", "/api/") for route in site.client.app.routes}  # type: ignore[attr-defined]
    others = {path for path in every if path.startswith(("/api/", "/static"))}
    assert every - others == {route.path for route in PAGES} | BESIDE


@pytest.mark.parametrize("route", PAGES, ids=lambda route: f"{min(route.methods)} {route.path}")
def test_on_pages_who_may_is_let_in_and_nobody_else(site: Site, route: Any) -> None:
    def path() -> str:
        return re.sub(r"\{(\w+)\}", lambda found: site.held[found[1]], route.path)

    site.prepare_page(route.path)
    form: dict[str, str] | None = None
    if "POST" in route.methods:
        said = html.unescape(site.page(path(), "admin", {"no_field": "x"}).text)
        known = re.search(r"Known: ([\w, ]+)\.", said)
        names = known[1].split(", ") if known and known[1] != "none" else []
        form = {name: site.held.get(name, "") for name in names}
    del site.asked.methods[:]
    site.page(path(), "admin", form)
    needed = [*site.asked.methods]
    if form is not None:
        assert any(OPERATIONS[one].is_audited for one in needed) == (route.path not in LOOKING), needed
    assert bool(needed) == (form is not None or route.path not in ASKING_NOTHING)

    found: dict[str, httpx.Response] = {}
    for caller in (*STRANGERS, *MAY):
        if form is not None and caller in MAY:
            site.prepare_page(route.path)
            form |= {name: site.held[name] for name in form if name == "kept"}
        found[caller] = site.page(path(), caller, form)
    assert max(answer.status_code for answer in found.values()) < 500
    sent_away = {who for who, answer in found.items() if answer.headers.get("location", "").startswith("/login")}
    assert sent_away == {*STRANGERS}
    assert {found[caller].status_code for caller in STRANGERS} == {303}
    asked = [one for one in needed if one not in ON_TOP.get(f"{min(route.methods)} {route.path}", ())]
    assert {caller for caller in MAY if found[caller].status_code != 403} == let_in(*asked), needed


def test_a_bearer_token_on_pages_is_let_in_like_a_session(site: Site) -> None:
    sent = {caller: {"Authorization": f"Bearer {token}"} if token else {} for caller, token in site.tokens.items()}
    found = {caller: site.client.get("/users", headers=headers).status_code for caller, headers in sent.items()}
    assert {caller for caller, status in found.items() if status == 303} == {*STRANGERS}
    assert {caller for caller, status in found.items() if status == 200} == let_in("ListUsers")


def _arguments(tool: Tool, site: Site) -> dict[str, Any]:
    """Arguments with which the tool asks for its own operation."""
    named = {"table": site.held["table"], "process_id": site.held["process"], "enabled": True, "type": "full"}
    given = {name: named[name] for name in tool.required}
    return {**given, "dry_run": False} if tool.writes else given


@pytest.mark.parametrize("tool", READING, ids=lambda tool: tool.name)
def test_over_http_who_may_calls_a_tool_and_nobody_else(site: Site, tool: Tool) -> None:
    params = {"name": tool.name, "arguments": _arguments(tool, site)}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    del site.asked.methods[:]
    found = {}
    for caller, token in site.tokens.items():
        headers = {"Accept": "application/json, text/event-stream", **OWN}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        found[caller] = site.client.post("/mcp", json=body, headers=headers)
    answered = {who: answer for who, answer in found.items() if answer.status_code == 200}
    assert {who for who, answer in answered.items() if not answer.json()["result"]["isError"]} == let_in(tool.method)
    assert site.asked.methods == [tool.method] * len(let_in(tool.method))
    assert {who for who, answer in found.items() if answer.status_code == 401} == {*STRANGERS}
    assert {who for who, answer in found.items() if answer.status_code == 403} == {"enrolment"}


@pytest.mark.parametrize("tool", tools(allow_writes=True), ids=lambda tool: tool.name)
def test_over_grpc_who_may_calls_a_tool_and_nobody_else(site: Site, tool: Tool) -> None:
    from mcp import Client

    found: dict[str, str] = {}
    for caller, token in site.tokens.items():

        async def ask(method: str, request: Message, _: Any, token: str = token) -> Message:
            metadata = (("authorization", f"Bearer {token}"),) if token else ()
            try:
                return await asyncio.to_thread(getattr(site.stub, method), request, metadata=metadata, timeout=60)
            except grpc.RpcError as error:
                unknown = error.code() is grpc.StatusCode.UNAUTHENTICATED
                refused = error.code() is grpc.StatusCode.PERMISSION_DENIED
                kind = UnknownToken if unknown else NotAllowed if refused else NotImplementedError
                raise kind(error.details() or "") from error

        async def use() -> str:
            async with Client(make_server(ask, "1", allow_writes=True)) as client:
                result = await client.call_tool(tool.name, _arguments(tool, site))
                return result.content[0].text if result.is_error else "done"

        found[caller] = asyncio.run(use())
    assert {caller for caller, said in found.items() if UnknownToken.code in said} == {*STRANGERS}
    assert {caller for caller, said in found.items() if NotAllowed.code in said} == {*MAY} - let_in(tool.method)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.operation} {wrong.words}"[:40])
def test_wrong_usage_is_refused_with_what_is_wrong_in_every_interface(site: Site, wrong: Wrong) -> None:
    if wrong.rest:
        method, path, body = wrong.rest
        headers = {"If-Match": "*"} if method == "PATCH" else {}
        answer = site.rest(method, path, "admin", body, **headers)
        problem = answer.json()
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), problem
        assert wrong.words in f"{problem['detail']} {problem.get('value')} {problem['hint']}"
        assert (problem["status"], bool(problem["hint"])) == (400, True)
    if wrong.page:
        path, form = wrong.page
        answer = site.page(path, "admin", form)
        assert (answer.status_code, wrong.words in html.unescape(answer.text)) == (400, True), answer.text
    if wrong.request:
        status, said = site.over_grpc(wrong.operation, "admin", wrong.request)
        assert (status, wrong.words in said) == (grpc.StatusCode.INVALID_ARGUMENT, True), said

"""The access matrix of pages, forms and the tools of assistants: as every caller, made from routes and tools.

Which operations a page asks is seen when an administrator asks for it; who may ask those is written down beside the
matrix of gRPC and REST.
"""

import asyncio
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import grpc
import pytest
from google.protobuf.message import Message
from mcp import Client

from amoro_core.admin.calling import Operations
from amoro_core.admin.operations import OPERATIONS
from amoro_core.dashboard import assistants, live, pages, probes, scan_reports
from amoro_core.errors import NotAllowed, UnknownToken
from amoro_core.meters import Meters
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.tokens import Role
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.tools.known import READING, Tool, tools
from amoro_core.tools.serving import make_server
from tests.acceptance.tables import messy_table
from tests.dashboard.served import Answer, Served
from tests.dashboard.test_access import MAY, RIGHTS, STRANGERS, tokens_of
from tests.engine import writer

PAGES = [route for route in pages.routes() if "/login" not in route.path and route.path != "/logout"]
#: What anybody may ask for, or what has a test of its own for who may.
BESIDE = {
    *("/livez", "/readyz", "/metrics", "/events/stream", "/mcp", scan_reports.PATH),
    *("/login", "/login/link", "/logout", "/login/oidc", "/login/oidc/callback"),
}
#: Forms that look at what the catalog or the object store alone knows, which a page that is read never does.
LOOKING = {
    *("/catalogs/{catalog}/check", "/tables/{table}/snapshots", "/tables/{table}/plan", "/maintenance/look"),
    *("/system/check", "/tables/{table}/verify"),
}
#: Pages that say what a form will do without asking for anything.
ASKING_NOTHING = {
    *("/optimizers/{optimizer}/drain", "/optimizers/{optimizer}/release", "/instances/{instance}/kill"),
    *("/trash/hurry", "/system/backup", "/users/add", "/tokens/create", "/tokens/{token}/revoke"),
}
#: What a page asks on top for those who may, and leaves out for others.
ON_TOP = {"GET /system": ["GetState"]}
OWN = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Site:
    """A coordinator, the cookie and the token of each caller, what requests name, and which operations were asked."""

    served: Served
    cookies: Mapping[str, str]
    tokens: Mapping[str, str]
    named: dict[str, str]
    asked: list[str]

    def visit(self, route: Any, caller: str, form: Mapping[str, str] | None = None) -> Answer:
        """The answer to the caller with the cookie of a session."""
        path = re.sub(r"\{(\w+)\}", lambda found: self.named[found[1]], route.path)
        cookie = {"Cookie": self.cookies[caller]} if self.cookies[caller] else {}
        if "GET" in route.methods:
            return self.served.ask(path, token="", headers=cookie)
        return self.served.ask(path, "POST", token="", headers={**cookie, **OWN}, body=urlencode(form or {}).encode())

    def fields(self, route: Any) -> dict[str, str]:
        """The fields of the form, which it names when it is sent another, with values; {} where it reads none."""
        said = self.visit(route, "admin", {"no_field": "x"}).body
        known = re.search(r"Known: ([\w, ]+)\.", html.unescape(said))
        names = known[1].split(", ") if known and known[1] != "none" else []
        return {name: self.named.get(name, "") for name in names}

    def prepare(self, path: str) -> None:
        """Make what the form needs: a plan that is kept, or a blocker in place of the one that was released."""
        table = f"/tables/{self.named['table']}"
        if path.endswith("/plan/run"):
            made = self.served.ask(f"{table}/plan", "POST", body=b"type=full", headers=OWN)
            self.named["kept"] = re.findall(r"kept=([^&]+)", made.headers["location"])[0]
        if "{blocker}" in path:
            for held in self.served.ask(f"/api/v1{table}/blockers").document["items"]:
                self.served.ask(f"/api/v1/blockers/{held['blocker_id']}", "DELETE")
            made = self.served.ask(f"/api/v1{table}/blockers", "POST", body={"hold": "1h"})
            self.named["blocker"] = made.document["blocker_id"]

    def needed(self, route: Any, form: Mapping[str, str] | None) -> list[str]:
        """The operations that an administrator's visit asks for."""
        del self.asked[:]
        self.visit(route, "admin", form)
        return [*self.asked]


@pytest.fixture(scope="module")
def site(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("lake")
    catalog = writer.make_catalog(directory, "lake")
    table, held = (f"lake.{'.'.join(messy_table(catalog).name()[-2:])}" for _ in range(2))
    served.coordinator.catalogs.add(CatalogConfig("lake", tuple({**catalog.properties, "type": "sql"}.items())))
    begun = served.ask(f"/api/v1/tables/{table}/optimize", "POST", body={}).document
    known = served.coordinator.tables
    known.refresh(known.ensure(TableIdentifier("lake", tuple(held.split(".")[1:-1]), held.rpartition(".")[2])).table_id)
    named = {
        "table": held,
        "process": begun["process_id"],
        "catalog": "lake",
        "group": "default",
        "instances": "1",
        "optimizer": "nobody-here",
        "instance": "nobody-here",
        "user": "nobody-here",
        "token": "nobody-here",
        "action": "no-action",
        "name": "no name",
        "password": "too short",
        "path": "relative",
        "confirm": held,
        "minutes": "5",
        "reason": "a test",
        "role": "viewer",
    }
    tokens, call = tokens_of(served), Operations.call
    asked: list[str] = []

    async def noted(self: Operations, method: str, *arguments: Any) -> Any:
        asked.append(method)
        return await call(self, method, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operations, "call", noted)
        yield Site(served, cookies_of(served, tokens), tokens, named, asked)


def cookies_of(served: Served, tokens: Mapping[str, str]) -> dict[str, str]:
    """A session of each caller: of one that has expired, one whose token was revoked, and of each role."""
    services = served.coordinator.services
    sessions, tokens_service = services.sessions, services.tokens
    name = served.ask("/logout", "POST", headers=OWN).headers["set-cookie"].partition("=")[0]
    made = {"nobody": "", "garbage": f"{name}=garbage"}
    for caller in MAY:
        made[caller] = f"{name}={sessions.begin(tokens_service.admit(tokens[caller]))}"
    clock = sessions._clock
    sessions._clock = lambda: clock() - timedelta(days=8)
    made["expired"] = f"{name}={sessions.begin(tokens_service.admit(tokens['admin']))}"
    sessions._clock = clock
    _, token = tokens_service.create("revoked-later", Role.ADMIN)
    made["revoked"] = f"{name}={sessions.begin(tokens_service.admit(token))}"
    tokens_service.revoke("revoked-later")
    return made


def let_in(methods: list[str]) -> set[str]:
    """Who may ask for all of these; who may look at anything, if it is none."""
    return {caller for caller, kinds in MAY.items() if {RIGHTS[one] for one in methods or ["GetStatus"]} <= kinds}


def test_every_route_is_a_page_or_is_named_beside_them() -> None:
    every = [*probes.routes(), *live.routes(1, Meters()), *assistants.routes(), *scan_reports.routes(), *pages.routes()]
    assert {route.path for route in every} == {route.path for route in PAGES} | BESIDE


@pytest.mark.parametrize("route", PAGES, ids=lambda route: f"{min(route.methods)} {route.path}")
def test_on_pages_who_may_is_let_in_and_nobody_else(site: Site, route: Any) -> None:
    site.prepare(route.path)
    is_form = "POST" in route.methods
    form = site.fields(route) if is_form else None
    needed = site.needed(route, form)
    if is_form:
        acts = any(OPERATIONS[one].changes or OPERATIONS[one].is_dry_run for one in needed)
        assert acts == (route.path not in LOOKING), needed
    assert bool(needed) == (is_form or route.path not in ASKING_NOTHING)

    found: dict[str, Answer] = {}
    for caller in (*STRANGERS, *MAY):
        if is_form and caller in MAY:
            site.prepare(route.path)
            form = {**(form or {}), **{name: site.named[name] for name in form or () if name == "kept"}}
        found[caller] = site.visit(route, caller, form)
    assert max(answer.status for answer in found.values()) < 500
    sent_away = {caller for caller, answer in found.items() if answer.headers.get("location", "").startswith("/login")}
    assert sent_away == {*STRANGERS}
    assert all(found[caller].status == 303 for caller in STRANGERS)
    asked = [one for one in needed if one not in ON_TOP.get(f"{min(route.methods)} {route.path}", ())]
    assert {caller for caller in MAY if found[caller].status != 403} == let_in(asked), needed


def _call(tool: Tool, site: Site) -> dict[str, Any]:
    """Arguments with which the tool asks for its own operation."""
    named = {"table": site.named["table"], "process_id": site.named["process"], "enabled": True, "type": "full"}
    given = {name: named[name] for name in tool.required}
    return {**given, "dry_run": False} if tool.writes else given


@pytest.mark.parametrize("tool", READING, ids=lambda tool: tool.name)
def test_over_http_who_may_calls_a_tool_and_nobody_else(site: Site, tool: Tool) -> None:
    params = {"name": tool.name, "arguments": _call(tool, site)}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accept = {"Accept": "application/json, text/event-stream", "Sec-Fetch-Site": "same-origin"}
    del site.asked[:]
    found = {
        caller: site.served.ask("/mcp", "POST", token=token, body=body, headers=accept)
        for caller, token in site.tokens.items()
    }
    answered = {
        one for one, answer in found.items() if answer.status == 200 and not answer.document["result"]["isError"]
    }
    assert answered == let_in([tool.method])
    assert site.asked == [tool.method] * len(answered)
    assert {one for one, answer in found.items() if answer.status == 401} == {*STRANGERS}
    assert {one for one, answer in found.items() if answer.status == 403} == {"enrolment"}


@pytest.mark.parametrize("tool", tools(allow_writes=True), ids=lambda tool: tool.name)
def test_over_grpc_who_may_calls_a_tool_and_nobody_else(site: Site, tool: Tool) -> None:
    arguments = _call(tool, site)
    found: dict[str, str] = {}
    with grpc.insecure_channel(site.served.coordinator.address) as channel:
        for caller, token in site.tokens.items():

            async def ask(method: str, request: Message, _: Any, token: str = token) -> Message:
                metadata = (("authorization", f"Bearer {token}"),) if token else ()
                call = getattr(AdminServiceStub(channel), method)
                try:
                    return await asyncio.to_thread(call, request, metadata=metadata, timeout=60)
                except grpc.RpcError as error:
                    unknown = error.code() is grpc.StatusCode.UNAUTHENTICATED
                    refused = error.code() is grpc.StatusCode.PERMISSION_DENIED
                    kind = UnknownToken if unknown else NotAllowed if refused else NotImplementedError
                    raise kind(error.details() or "") from error

            async def use() -> str:
                async with Client(make_server(ask, "1", allow_writes=True)) as client:
                    result = await client.call_tool(tool.name, arguments)
                    return result.content[0].text if result.is_error else "done"

            found[caller] = asyncio.run(use())
    strangers = {caller for caller, said in found.items() if UnknownToken.code in said}
    denied = {caller for caller, said in found.items() if NotAllowed.code in said}
    assert strangers == {*STRANGERS}
    assert denied == {*MAY} - let_in([tool.method])


def test_a_bearer_token_on_pages_is_let_in_like_a_session(site: Site) -> None:
    found = {caller: site.served.ask("/users", token=token) for caller, token in site.tokens.items()}
    assert {caller for caller, answer in found.items() if answer.status == 303} == {*STRANGERS}
    assert {caller for caller, answer in found.items() if answer.status == 200} == let_in(["ListUsers"])
    assert json.dumps(sorted(found)) == json.dumps(sorted((*STRANGERS, *MAY)))

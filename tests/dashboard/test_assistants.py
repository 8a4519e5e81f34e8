"""Assistants over HTTP: who may ask, that they get the tools that only read, and when those that write."""

import asyncio
import json
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from amoro_core.model.audit import AuditFilter
from amoro_core.model.paging import Window
from amoro_core.model.principals import Way
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tokens import Role
from amoro_core.settings import Settings
from amoro_core.tools.known import READING, WRITING
from tests.acceptance.tables import messy_table
from tests.dashboard.served import Served, serving
from tests.engine import writer

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(("token", "status"), [("", 403), ("amo_wrong", 401)])  # the first by the guard of origins
def test_without_a_token_nothing_is_told(served: Served, token: str, status: int) -> None:
    answer = served.ask("/mcp", "POST", token=token, body=LIST, headers=ACCEPT)
    assert answer.status == status
    assert "tools" not in answer.body


def test_a_token_of_optimizers_is_for_no_assistant(served: Served) -> None:
    enrolment = served.coordinator.enrolment_token.reveal()
    assert served.ask("/mcp", "POST", token=enrolment, body=LIST, headers=ACCEPT).status == 403


def test_another_host_is_refused(served: Served) -> None:
    assert served.ask("/mcp", "POST", body=LIST, headers={**ACCEPT, "Host": "evil.example"}).status == 421


def test_the_official_client_calls_the_tools_that_only_read(served: Served) -> None:
    _, token = served.coordinator.tokens.create("assistant", Role.VIEWER)

    async def talk() -> tuple[list[str], dict[str, object], bool]:
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(f"http://127.0.0.1:{served.port}/mcp", http_client=http)) as client,
        ):
            names = [tool.name for tool in (await client.list_tools()).tools]
            status = await client.call_tool("status", {})
            refused = await client.call_tool("set_enabled", {"table": "a.b.c", "enabled": True, "dry_run": False})
            return names, json.loads(status.content[0].text), refused.is_error

    names, status, is_refused = asyncio.run(talk())
    assert names == [tool.name for tool in READING]
    assert status["role"] == "leader"
    assert is_refused


def use(served: Served, token: str, tool: str = "", **arguments: object) -> tuple[list[str], str]:
    """The tools that a token is offered, and the text that one of them answers."""

    async def talk() -> tuple[list[str], str]:
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(f"http://127.0.0.1:{served.port}/mcp", http_client=http)) as client,
        ):
            names = [one.name for one in (await client.list_tools()).tools]
            answer = (await client.call_tool(tool, arguments)).content[0].text if tool else ""
            return names, answer

    return asyncio.run(talk())


def test_where_the_settings_say_so_operators_may_write_on_their_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with serving(tmp_path / "home", Settings(mcp_writes=True)) as served:
        catalog = writer.make_catalog(tmp_path, "lake")
        name = "lake." + ".".join(messy_table(catalog).name()[-2:])
        served.coordinator.catalogs.add(CatalogConfig("lake", tuple({**catalog.properties, "type": "sql"}.items())))
        tokens = served.coordinator.tokens
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
        page, _ = served.coordinator.services.auditing.list_events(AuditFilter(operation="SetTableEnabled"), Window(9))
        assert [(one.call.principal.name, one.call.principal.way, one.outcome.value) for one in page.items] == [
            ("acts", Way.MCP, "done"),
            ("elsewhere", Way.MCP, "refused"),
        ]


def test_without_the_setting_nobody_writes(served: Served) -> None:
    assert use(served, served.admin)[0] == [one.name for one in READING]

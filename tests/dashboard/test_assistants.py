"""Assistants over HTTP: who may ask, and that they get the tools that only read."""

import asyncio
import json

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from amoro_core.model.tokens import Role
from amoro_core.tools.known import READING
from tests.dashboard.served import Served

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

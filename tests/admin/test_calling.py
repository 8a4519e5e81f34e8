"""Calls of operations without any transport: their deadlines, and what becomes of work that nobody waits for."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from amoro_core.admin import calling
from amoro_core.admin.apart import AT_ONCE
from amoro_core.admin.calling import Operations
from amoro_core.admin.operations import OPERATIONS
from amoro_core.admin.services import Call
from amoro_core.errors import (
    CatalogNotFound,
    CatalogUnavailable,
    Conflict,
    GroupNotFound,
    NotAllowed,
    UnknownToken,
    WaitTimeout,
)
from amoro_core.model.principals import Principal, Way
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.wiring import Services
from tests.admin.conftest import ADMIN_TOKEN

Replace = Callable[..., None]
ADMIN = Principal("admin", Role.ADMIN)


@pytest.fixture
def operations(services: Services) -> Iterator[Operations]:
    with ThreadPoolExecutor(1) as pool:
        yield services.operations(pool)


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Changes rules of one operation."""

    def made(method: str, **rules: Any) -> None:
        monkeypatch.setattr(calling, "OPERATIONS", {**OPERATIONS, method: replace(OPERATIONS[method], **rules)})

    return made


def call(operations: Operations, method: str, request: object, token: str = ADMIN_TOKEN, user: str = "") -> Any:
    async def ask() -> Any:
        principal = await operations.admit(token, Way.GRPC, "10.0.0.7", user)
        return await operations.call(method, request, principal)

    return asyncio.run(ask())


def test_operations_answer_without_a_server(operations: Operations, services: Services) -> None:
    made = call(operations, "CreateGroup", pb.CreateGroupRequest(name="night"))
    assert (made.name, made.scheduling_policy, made.container) == ("night", "quota", "external")
    listed = call(operations, "ListGroups", pb.ListGroupsRequest())
    assert ([group.name for group in listed.groups], listed.total) == (["default", "night"], 2)
    assert call(operations, "GetStatus", pb.GetStatusRequest()).address == "nowhere"
    with pytest.raises(GroupNotFound, match="day"):
        call(operations, "GetGroup", pb.GetGroupRequest(name="day"))


def test_a_caller_is_admitted_by_the_role_of_the_table(operations: Operations, services: Services) -> None:
    _, viewer = services.tokens.create("ann", Role.VIEWER)
    assert call(operations, "ListGroups", pb.ListGroupsRequest(), viewer).total == 1
    with pytest.raises(NotAllowed, match="the token ann has the role viewer; CreateGroup needs the role admin"):
        call(operations, "CreateGroup", pb.CreateGroupRequest(name="night"), viewer)
    with pytest.raises(UnknownToken):
        call(operations, "ListGroups", pb.ListGroupsRequest(), "amo_nobody")


def test_an_operation_is_told_who_calls(operations: Operations, change: Replace) -> None:
    callers: list[str] = []
    change("GetStatus", work=lambda services, request, called: callers.append(called.caller))
    call(operations, "GetStatus", pb.GetStatusRequest())
    call(operations, "GetStatus", pb.GetStatusRequest(), user="ann")
    assert callers == ["the token admin", "user ann with the token admin"]


@pytest.mark.parametrize(
    ("method", "hint"),
    [("GetStatus", ""), ("CreateGroup", "What was begun goes on: look at it before you ask again.")],
)
def test_who_asks_is_answered_at_the_deadline_and_the_work_is_told(
    operations: Operations, change: Replace, method: str, hint: str
) -> None:
    was_told = threading.Event()

    def lasting(services: object, request: object, called: Call) -> None:
        while not called.is_given_up():
            threading.Event().wait(0.001)
        was_told.set()

    change(method, work=lasting, deadline=timedelta(seconds=1))
    with pytest.raises(WaitTimeout, match=rf"^{method} did not end within 1 s$") as late:
        call(operations, method, getattr(pb, f"{method}Request")())
    assert late.value.hint == hint
    assert was_told.wait(10)


def test_work_that_had_not_begun_at_the_deadline_never_begins(operations: Operations, change: Replace) -> None:
    go_on, begun = threading.Event(), threading.Event()
    operations._pool.submit(go_on.wait)
    change("GetStatus", work=lambda *_: begun.set(), deadline=timedelta(milliseconds=50))
    with pytest.raises(WaitTimeout):
        asyncio.run(operations.call("GetStatus", pb.GetStatusRequest(), ADMIN))
    go_on.set()
    operations._pool.shutdown()
    assert not begun.is_set()


def test_work_apart_leaves_the_pool_free_and_is_bounded(operations: Operations, change: Replace) -> None:
    """The pool of these operations has one thread, which all the hanging work would take."""
    freed = threading.Event()

    def hang(services: Services, request: pb.CheckCatalogRequest, call: Call) -> pb.CatalogCheck:
        freed.wait(60)
        return pb.CatalogCheck(name=request.name, ok=True)

    change("CheckCatalog", work=hang)

    async def ask() -> tuple[list[pb.CatalogCheck], list[object]]:
        checks = [
            asyncio.ensure_future(operations.call("CheckCatalog", pb.CheckCatalogRequest(name=str(number)), ADMIN))
            for number in range(AT_ONCE)
        ]
        await asyncio.sleep(0)
        told = [await operations.call("ListGroups", pb.ListGroupsRequest(), ADMIN)]
        with pytest.raises(Conflict, match="4 such requests wait"):
            await operations.call("CheckCatalog", pb.CheckCatalogRequest(name="fifth"), ADMIN)
        freed.set()
        return await asyncio.gather(*checks), told

    checks, told = asyncio.run(ask())
    assert ([one.name for one in checks], len(told)) == (["0", "1", "2", "3"], 1)
    assert call(operations, "CheckCatalog", pb.CheckCatalogRequest(name="after")).ok, "places are given back"


def test_each_kind_of_work_apart_has_threads_of_its_own(operations: Operations, change: Replace) -> None:
    freed = threading.Event()
    change("VerifyTable", work=lambda *_: freed.wait(60) and pb.Verification())

    async def ask() -> None:
        asked = pb.VerifyTableRequest(table="lake.db.t")
        lasting = [asyncio.ensure_future(operations.call("VerifyTable", asked, ADMIN)) for _ in range(AT_ONCE)]
        await asyncio.sleep(0)
        with pytest.raises(Conflict):
            await operations.call("VerifyTable", asked, ADMIN)
        with pytest.raises(CatalogNotFound):  # it was looked for
            await operations.call("CheckCatalog", pb.CheckCatalogRequest(name="lake"), ADMIN)
        freed.set()
        await asyncio.gather(*lasting)

    asyncio.run(ask())


def test_a_catalog_that_hangs_is_told_at_the_deadline(operations: Operations, change: Replace) -> None:
    freed = threading.Event()
    change("CheckCatalog", work=lambda *_: freed.wait(60), deadline=timedelta(milliseconds=20))
    found = call(operations, "CheckCatalog", pb.CheckCatalogRequest(name="lake"))
    assert (found.name, found.ok, found.code) == ("lake", False, CatalogUnavailable.code)
    assert found.message == "catalog lake has not answered within 10 s"
    freed.set()


def test_a_timeout_of_the_work_itself_is_not_taken_for_the_deadline(operations: Operations, change: Replace) -> None:
    def failing(*_: object) -> None:
        raise TimeoutError("the catalog's")

    change("GetStatus", work=failing)
    with pytest.raises(TimeoutError, match="the catalog's"):
        call(operations, "GetStatus", pb.GetStatusRequest())


def test_who_waits_is_answered_when_there_is_news(operations: Operations, services: Services, change: Replace) -> None:
    said = ["", "", "the catalog"]
    looks: list[str] = []

    def look(*_: object) -> pb.Process:
        services.changes.fire()
        looks.append(said[len(looks)])
        return pb.Process(status="committing", waiting=looks[-1])

    async def wait() -> Any:
        services.changes.bind(asyncio.get_running_loop())
        return await operations.call("GetProcess", pb.GetProcessRequest(wait_ms=20_000), ADMIN)

    change("GetProcess", work=look)
    assert asyncio.run(wait()).waiting == "the catalog"
    assert looks == said

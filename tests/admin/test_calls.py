"""Calls of operations without any transport: who is let in, deadlines, and work that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
from google.protobuf.message_factory import GetMessageClass

from amoro_core.bootstrap.composition import Services
from amoro_core.errors import CatalogNotFound, Conflict, InvalidArgument, NotAllowed, WaitTimeout
from amoro_core.model.principals import Principal, Role, checked_pattern
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.catalogs import CatalogChange
from amoro_core.store import catalogs
from tests.admin.conftest import Clock
from tests.admin.operations import OPERATIONS, Row
from tests.admin.rig import ADMIN, Rig

METHODS = pb.DESCRIPTOR.services_by_name["AdminService"].methods_by_name


class Hanging:
    """Services of which these (all without any) hang until they are freed, over real ones."""

    def __init__(self, services: Services | None = None, *names: str) -> None:
        self.begun, self.freed = threading.Event(), threading.Event()
        self._services, self._names = services, names

    def __getattr__(self, name: str) -> Any:
        if self._services is not None and name not in self._names:
            return getattr(self._services, name)
        self.begun.set()
        self.freed.wait(60)
        raise LookupError(name)


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until it is put ahead."""

    ahead = 0.0

    def time(self) -> float:
        return self.ahead

    async def put_ahead(self, seconds: float) -> None:
        """Let so much time pass for everything on the loop, and what is due then happen."""
        self.ahead += seconds
        for _ in range(8):
            await asyncio.sleep(0)


def run(work: Callable[[Loop], Awaitable[Any]]) -> Any:
    """What the work gives on a loop of its own."""

    async def on_loop() -> Any:
        return await work(cast("Loop", asyncio.get_running_loop()))

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(on_loop())


@pytest.fixture
def hanging(rig: Rig) -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.freed.set()


@pytest.mark.parametrize(("name", "row"), OPERATIONS.items(), ids=list(OPERATIONS))
def test_an_operation_that_hangs_is_answered_at_its_deadline_and_not_before(
    rig: Rig, hanging: Hanging, name: str, row: Row
) -> None:
    operations = type(rig.services.operations(rig.pool))(cast("Any", hanging), rig.services.changes, rig.pool)

    async def ask(loop: Loop) -> Any:
        asked = asyncio.ensure_future(operations.call(name, GetMessageClass(METHODS[name].input_type)(), ADMIN))
        await asyncio.to_thread(hanging.begun.wait, 60)
        await loop.put_ahead(row.deadline.total_seconds() - 0.5)
        assert not asked.done()
        await loop.put_ahead(0.5)
        return await asked

    if name == "CheckCatalog":
        found = run(ask)
        assert (found.ok, found.code, found.message) == (False, "AMORO-1010", "catalog has not answered within 10 s")
        return
    with pytest.raises(WaitTimeout, match=rf"^{name} did not end within {row.deadline.total_seconds():g} s$") as late:
        run(ask)
    changes = row.is_audited and not name.startswith(("Preview", "RunStatement"))
    assert late.value.hint == ("What was begun goes on: look at it before you ask again." if changes else "")


def test_work_that_had_not_begun_at_the_deadline_never_begins(rig: Rig) -> None:
    free, begun = threading.Event(), threading.Event()

    def address() -> str:
        begun.set()
        return "nowhere"

    rig.address, operations = address, rig.services.operations(rig.pool)
    rig.pool.submit(free.wait, 60)

    async def ask(loop: Loop) -> None:
        asked = asyncio.ensure_future(operations.call("GetStatus", pb.GetStatusRequest(), ADMIN))
        await loop.put_ahead(0)
        await loop.put_ahead(31)
        with pytest.raises(WaitTimeout):
            await asked

    run(ask)
    free.set()
    rig.pool.submit(lambda: None).result(60)
    assert not begun.is_set()


def test_a_timeout_of_the_work_itself_is_not_taken_for_the_deadline(rig: Rig) -> None:
    def address() -> str:
        raise TimeoutError("the catalog's")

    rig.address = address
    with pytest.raises(TimeoutError, match="the catalog's"):
        rig.call("GetStatus", pb.GetStatusRequest())


def test_work_apart_leaves_the_pool_free_and_each_kind_is_bounded_by_itself(rig: Rig) -> None:
    """The pool of these operations has one thread, which all the hanging work would take."""
    add_catalog(rig, "shop")
    services = Hanging(rig.services, "verifying")
    operations = type(rig.services.operations(rig.pool))(cast("Any", services), rig.services.changes, rig.pool)

    async def ask() -> None:
        verify = pb.VerifyTableRequest(table="shop.db.t")
        lasting = [asyncio.ensure_future(operations.call("VerifyTable", verify, ADMIN)) for _ in range(4)]
        await asyncio.sleep(0)
        assert (await operations.call("ListGroups", pb.ListGroupsRequest(), ADMIN)).total == 1
        with pytest.raises(Conflict, match="4 such requests wait"):
            await operations.call("VerifyTable", verify, ADMIN)
        with pytest.raises(CatalogNotFound):  # it was looked for
            await operations.call("CheckCatalog", pb.CheckCatalogRequest(name="lake"), ADMIN)
        services.freed.set()
        ended = await asyncio.gather(*lasting, return_exceptions=True)
        assert [type(one) for one in ended] == [LookupError] * 4
        with pytest.raises(LookupError):  # places are given back
            await operations.call("VerifyTable", verify, ADMIN)

    asyncio.run(ask())


def add_catalog(rig: Rig, name: str) -> None:
    rig.store.write(lambda db: catalogs.add(db, CatalogConfig(name, (("type", "in-memory"),))))


# Patterns of operators: they limit actions on tables, never sight.


@pytest.mark.parametrize(
    ("pattern", "within", "beyond"),
    [
        ("", "shop.db.orders", ""),
        ("shop.db.*", "shop.db.orders", "shop.db.deep.orders"),
        ("shop.db.*", "shop.db.orders", "shop.other.orders"),
        ("shop.**", "shop.db.deep.orders", "shopping.db.orders"),
        ("shop.*.orders", "shop.db.orders", "shop.db.orders2"),
        ("**.orders", "shop.a.b.orders", "shop.a.b.c"),
        ("shop.db.orders", "shop.db.orders", "shop.db.order"),
        ("shop.`a.b`.*", "shop.`a.b`.t", "shop.a.b.t"),
    ],
)
def test_an_operator_acts_on_the_tables_of_the_pattern(pattern: str, within: str, beyond: str) -> None:
    assert checked_pattern(pattern, Role.OPERATOR) == pattern
    operator = Principal("op", Role.OPERATOR, pattern)
    assert operator.may_act_on(parse_table(within))
    assert not beyond or not operator.may_act_on(parse_table(beyond))
    assert Principal("boss", Role.ADMIN, pattern).may_act_on(parse_table(beyond or within))


def test_a_pattern_is_an_operators_and_can_match_a_table() -> None:
    for role in (Role.VIEWER, Role.ADMIN, Role.ENROLMENT):
        with pytest.raises(InvalidArgument, match=f"a pattern limits what an operator acts on; the role {role} has no"):
            checked_pattern("shop.**", role)
    for text in ("*", "shop.*", "shop", "shop.db"):
        with pytest.raises(InvalidArgument, match="matches no table"):
            checked_pattern(text, Role.OPERATOR)
    with pytest.raises(InvalidArgument, match="is not a pattern for tables"):
        checked_pattern("shop.[.x", Role.OPERATOR)


def test_what_is_refused_names_the_role_that_would_do(rig: Rig) -> None:
    for name in ("shop", "lake"):
        add_catalog(rig, name)
    operator = Principal("op", Role.OPERATOR, "shop.other.*")
    with pytest.raises(NotAllowed) as refused:
        rig.call("SetTableEnabled", pb.SetTableEnabledRequest(table="shop.db.t", enabled=True), operator)
    assert refused.value.message == (
        "the token op acts on shop.other.* alone; SetTableEnabled on shop.db.t needs the role operator for that table, "
        "or admin"
    )
    with pytest.raises(NotAllowed, match="the token op has the role operator; CreateGroup needs the role admin") as low:
        rig.create_group("night", operator)
    assert low.value.hint.endswith("amoro token create NAME --role admin")
    with pytest.raises(CatalogNotFound):  # it was looked for: sight is not limited
        rig.call("ListProcesses", pb.ListProcessesRequest(table="nowhere.db.t"), operator)


def test_a_token_ends_by_itself_after_what_was_asked_at_most_ten_years(rig: Rig) -> None:
    tokens = rig.services.tokens
    made, token = tokens.create("a", Role.OPERATOR, "shop.**", timedelta(days=90))
    assert (made.pattern, made.expires_at) == ("shop.**", made.created_at + timedelta(days=90))
    assert tokens.admit(token) == Principal("a", Role.OPERATOR, "shop.**")
    for lasts in (timedelta(0), timedelta(seconds=-1), timedelta(days=3651)):
        with pytest.raises(InvalidArgument, match="is not possible"):
            tokens.create("b", Role.VIEWER, "", lasts)


def test_a_key_whose_request_was_cut_off_does_nothing_for_a_day(rig: Rig, clock: Clock) -> None:
    repeats = rig.services.repeating
    assert repeats.begin("cut", "request") is None
    with pytest.raises(Conflict, match="has not ended, or the coordinator was stopped amid it"):
        repeats.begin("cut", "request")
    clock.ahead = timedelta(hours=25)
    assert repeats.begin("cut", "request") is None


def test_a_confirmation_names_the_table(rig: Rig) -> None:
    rig.store.write(lambda db: catalogs.add(db, CatalogConfig("cat", ())))
    requests = {"HurryTrash": pb.HurryTrashRequest, "ConfirmMaintenance": pb.MaintainTableRequest}
    for method, request in requests.items():
        for wrong in ("", "db.t", "cat.db.T"):
            with pytest.raises(InvalidArgument, match=f"--confirm names '{wrong}', and the table is cat.db.t"):
                rig.call(method, request(table="cat.db.t", confirm=wrong))


def test_secrets_of_a_catalogs_files_are_masked(rig: Rig) -> None:
    files = {"s3.yaml": "s3.secret-access-key: hidden\ns3.region: eu\n"}
    rig.store.write(lambda db: catalogs.add(db, CatalogConfig("cat", (("type", "in-memory"),))))
    rig.services.catalogs.update("cat", CatalogChange(site_files=files))
    message = rig.call("GetCatalog", pb.GetCatalogRequest(name="cat"))
    assert message.properties["s3.secret-access-key"] == "***"
    assert dict(message.site_files[0].properties) == {"s3.secret-access-key": "***", "s3.region": "eu"}

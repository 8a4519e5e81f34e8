"""Calls of operations without any transport: who is let in, deadlines, and work that nobody waits for any more."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, cast

import pytest
from google.protobuf.message_factory import GetMessageClass

from amoro_core import errors
from amoro_core.bootstrap.composition import Services
from amoro_core.errors import AmoroError, CatalogNotFound, Conflict, InvalidArgument, NotAllowed, UnknownToken
from amoro_core.model.history_events import KEEP_AUDIT, STRANGERS_A_MINUTE, STRANGERS_AN_HOUR, Audited, UnknownCallerLog
from amoro_core.model.principals import Channel, Principal, Role, anonymous, checked_pattern
from amoro_core.model.tables import parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2
from amoro_core.services.catalogs import CatalogChange
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
def test_an_operation_that_hangs_is_answered_at_its_deadline(rig: Rig, hanging: Hanging, name: str, row: Row) -> None:
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
    with pytest.raises(
        errors.WaitTimeout, match=rf"^{name} did not end within {row.deadline.total_seconds():g} s$"
    ) as late:
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
        with pytest.raises(errors.WaitTimeout):
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
    rig.add_catalog("shop")
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
        rig.add_catalog(name)
    operator = Principal("op", Role.OPERATOR, "shop.other.*")
    with pytest.raises(NotAllowed) as refused:
        rig.call("SetTableEnabled", pb.SetTableEnabledRequest(table="shop.db.t", enabled=True), operator)
    needed = "SetTableEnabled on shop.db.t needs the role operator for that table, or admin"
    assert refused.value.message == f"the token op acts on shop.other.* alone; {needed}"
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
    rig.add_catalog("cat")
    requests = {"HurryTrash": pb.HurryTrashRequest, "ConfirmMaintenance": pb.MaintainTableRequest}
    for (method, request), wrong in product(requests.items(), ("", "db.t", "cat.db.T")):
        with pytest.raises(InvalidArgument, match=f"--confirm names '{wrong}', and the table is cat.db.t"):
            rig.call(method, request(table="cat.db.t", confirm=wrong))


def test_secrets_of_a_catalogs_files_are_masked(rig: Rig) -> None:
    files = {"s3.yaml": "s3.secret-access-key: hidden\ns3.region: eu\n"}
    rig.add_catalog("cat")
    rig.services.catalogs.update("cat", CatalogChange(site_files=files))
    message = rig.call("GetCatalog", pb.GetCatalogRequest(name="cat"))
    assert message.properties["s3.secret-access-key"] == "***"
    assert dict(message.site_files[0].properties) == {"s3.secret-access-key": "***", "s3.region": "eu"}


# The audit: a row for each call that changes something, before it begins; without a row no call


NOW = datetime(2026, 1, 2, tzinfo=UTC)
CANARY = "c4n4ry-5ecr3t"
UNKNOWN = UnknownToken("the token is not known")
FULL = "CREATE TRIGGER full BEFORE {} ON audit_event BEGIN SELECT RAISE(ABORT, 'no space left'); END"


def test_who_has_changed_what_is_told_with_the_way_and_the_outcome(rig: Rig) -> None:
    rig.call("CreateGroup", pb.CreateGroupRequest(name="night", properties={"a": "b"}))
    with pytest.raises(errors.AlreadyExists):
        rig.create_group("night")
    with pytest.raises(NotAllowed):
        rig.create_group("day", Principal("eve", Role.VIEWER))
    with pytest.raises(AmoroError):
        rig.call("PreviewUndo", pb.UndoRequest(process_id="0123456"))
    rig.call("ListGroups", pb.ListGroupsRequest())
    tried, refused, failed, done = rig.audit()
    assert done.happened_ms > 0
    who = {"actor": "admin", "actor_kind": "token", "said": "ann", "role": "admin", "address": "10.0.0.7"}
    what = {"way": "rest", "operation": "CreateGroup", "object": "night", "outcome": "done"}
    told = {"happened_ms": done.happened_ms, "parameters": {"name": "night", "properties.a": "b"}}
    assert done == audit_pb2.AuditEvent(event_id=1, **who, **what, **told)
    assert (failed.outcome, failed.code) == ("failed", errors.AlreadyExists.code)
    assert (refused.actor, refused.object, refused.outcome, refused.code) == ("eve", "day", "refused", NotAllowed.code)
    assert (tried.operation, tried.object, tried.dry_run, tried.outcome) == ("PreviewUndo", "0123456", True, "failed")


def test_calls_are_asked_for_by_who_what_and_when(rig: Rig) -> None:
    for name in ("a", "b", "c"):
        rig.create_group(name)
    assert [one.object for one in rig.audit(operation="CreateGroup", object="b")] == ["b"]
    assert rig.audit(actor="nobody") == rig.audit(outcome="refused") == rig.audit(since_ms=4102444800000) == []
    first = rig.call("ListAudit", audit_pb2.ListAuditRequest(limit=2))
    assert ([one.object for one in first.events], first.total, first.total_is_exact) == (["c", "b"], 3, True)
    assert [one.object for one in rig.audit(limit=2, after=first.next)] == ["a"]
    with pytest.raises(AmoroError, match="'x' is not a place in the audit"):
        rig.audit(after="x")


def test_a_call_that_cannot_be_written_down_is_not_made(rig: Rig) -> None:
    rig.execute(FULL.format("INSERT"))
    with pytest.raises(errors.StoreFailed, match="no space left"):
        rig.create_group("night")
    assert rig.call("ListGroups", pb.ListGroupsRequest()).total == 1
    # Who is nobody's friend is refused all the same.
    operations = rig.services.operations(rig.pool)
    asyncio.run(operations.refuse("RemoveGroup", anonymous(Channel.REST, ""), UNKNOWN))
    rig.execute("DROP TRIGGER full")
    rig.execute(FULL.format("UPDATE"))
    rig.create_group("night")  # it was made: the answer is what became of it
    assert [one.outcome for one in rig.audit()] == ["begun"]


@pytest.mark.parametrize("change", ["actor = 'eve'", "object = ''", "parameters_json = '{}'", "at_ms = 5"])
def test_what_was_written_down_stays(rig: Rig, change: str) -> None:
    rig.create_group("night")
    for one in (change, "outcome = 'failed', code = 'AMORO-1'"):
        with pytest.raises(errors.StoreFailed, match="append only"):
            rig.execute(f"UPDATE audit_event SET {one}")
    call = Audited(Principal("ann", Role.ADMIN), "X", "y", {"a": "b"})
    with rig.services.auditing.audited(call), pytest.raises(errors.StoreFailed, match="append only"):
        rig.execute(f"UPDATE audit_event SET {change} WHERE outcome = 'begun'")


def test_calls_are_forgotten_after_400_days(rig: Rig, clock: Clock) -> None:
    for age in (KEEP_AUDIT + timedelta(minutes=1), KEEP_AUDIT - timedelta(minutes=1)):
        clock.ahead = -age
        rig.create_group(f"of-{age.days}")
    clock.ahead = timedelta(0)
    assert rig.services.auditing.trim() == 1
    assert [one.object for one in rig.audit()] == ["of-399"]


def test_strangers_get_a_few_rows_in_a_minute_and_in_an_hour_and_the_others_are_counted() -> None:
    def told(seconds: float) -> str | None:
        row = strangers.row(nobody, NOW + timedelta(seconds=seconds))
        return None if row is None else row.parameters.get("refused_before", "0")

    strangers, nobody = UnknownCallerLog(), Audited(anonymous(Channel.REST, "10.0.0.9"), "RemoveGroup", "")
    assert [told(0) for _ in range(STRANGERS_A_MINUTE)] == ["0"] * STRANGERS_A_MINUTE
    assert [told(1), told(59.999)] == [None, None]
    assert strangers.flush() == replace(nobody, parameters={"refused_before": "1"})
    assert strangers.flush() is None
    assert told(60) == "0"
    assert [told(60) for _ in range(STRANGERS_A_MINUTE)] == ["0"] * (STRANGERS_A_MINUTE - 1) + [None]
    assert told(120) == "1", "the next row tells of those before it"
    given = 2 * STRANGERS_A_MINUTE + 1
    for minute in range(2, 60):
        given += sum(told(60 * minute) is not None for _ in range(STRANGERS_A_MINUTE))
    assert given == STRANGERS_AN_HOUR
    assert told(3599.999) is None
    assert told(3600) is not None


def test_refused_calls_of_strangers_are_written_down_if_they_would_change_something(rig: Rig) -> None:
    operations = rig.services.operations(rig.pool)

    def refuse(*methods: str) -> None:
        for method in methods:
            asyncio.run(operations.refuse(method, anonymous(Channel.REST, "10.0.0.9"), UNKNOWN))

    refuse("ListGroups", "PreviewUndo", "RemoveGroup")
    assert [row.operation for row in rig.audit()] == ["RemoveGroup", "PreviewUndo"]
    shown = {(row.actor, row.way, row.address, row.outcome, row.code) for row in rig.audit()}
    assert shown == {("", "rest", "10.0.0.9", "refused", UnknownToken.code)}
    refuse(*["RemoveGroup"] * 100)
    assert len(rig.audit()) == STRANGERS_A_MINUTE
    rig.services.auditing.trim()
    assert rig.audit()[0].parameters == {"refused_before": str(102 - STRANGERS_A_MINUTE - 1)}


def test_secrets_are_in_no_parameter(rig: Rig) -> None:
    request = pb.AddCatalogRequest(
        name="c",
        properties={"type": "rest", "s3.secret-access-key": CANARY, "uri": f"http://u:{CANARY}@127.0.0.1:1/x"},
        allowed_locations=[f"s3://u:{CANARY}@b/"],
        site_files={"core-site.xml": f"<x>{CANARY}</x>"},
    )
    with pytest.raises(AmoroError):
        rig.call("AddCatalog", request)
    (told,) = rig.audit()
    assert dict(told.parameters) == {
        "name": "c",
        "properties.type": "rest",
        "properties.s3.secret-access-key": "***",
        "properties.uri": "http://u:***@127.0.0.1:1/x",
        "allowed_locations": "s3://u:***@b/",
        "site_files.core-site.xml": "20 bytes",
    }
    assert CANARY not in json.dumps([str(one) for one in rig.audit()])


def test_parameters_are_few_and_short(rig: Rig) -> None:
    many = pb.CreateGroupRequest(name="n" * 1000, properties={f"p{n}": "v" for n in range(99)})
    listed = pb.MaintainTableRequest(table="t\x1b[31m", snapshot_ids=range(30))
    for method, request in (("CreateGroup", many), ("MaintainTable", listed)):
        with pytest.raises(AmoroError):
            rig.call(method, request)
    maintained, created = (one.parameters for one in rig.audit())
    assert (len(created), created["…"], len(created["name"])) == (41, "60 more", 300)
    assert maintained["table"] == "t\\x1b[31m"
    assert maintained["snapshot_ids"].endswith("18, 19, and 10 more")


def test_the_audit_has_every_call_that_changes_something_and_every_try(rig: Rig) -> None:
    """Whatever it is: the caller does it, not the operation."""
    assert sorted(OPERATIONS) == sorted(METHODS)
    for method in OPERATIONS:
        with pytest.raises(NotAllowed):
            rig.call(method, GetMessageClass(METHODS[method].input_type)(), Principal("eve", Role.ENROLMENT))
    told = {one.operation for one in rig.audit(outcome="refused", limit=1000)}
    assert told == {name for name, one in OPERATIONS.items() if one.is_audited}

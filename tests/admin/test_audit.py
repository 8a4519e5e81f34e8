"""The audit: a row for each call that changes something, before it begins; without a row no call."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.message_factory import GetMessageClass

from amoro_core.errors import AlreadyExists, AmoroError, NotAllowed, StoreFailed, UnknownToken
from amoro_core.model.history_events import KEEP_AUDIT, STRANGERS_A_MINUTE, STRANGERS_AN_HOUR, Audited, UnknownCallerLog
from amoro_core.model.principals import Channel, Principal, Role, anonymous
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2
from tests.admin.conftest import Clock
from tests.admin.operations import OPERATIONS
from tests.admin.rig import Rig

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CANARY = "c4n4ry-5ecr3t"
UNKNOWN = UnknownToken("the token is not known")
FULL = "CREATE TRIGGER full BEFORE {} ON audit_event BEGIN SELECT RAISE(ABORT, 'no space left'); END"


def test_who_has_changed_what_is_told_with_the_way_and_the_outcome(rig: Rig) -> None:
    rig.call("CreateGroup", pb.CreateGroupRequest(name="night", properties={"a": "b"}))
    with pytest.raises(AlreadyExists):
        rig.create_group("night")
    with pytest.raises(NotAllowed):
        rig.create_group("day", Principal("eve", Role.VIEWER))
    with pytest.raises(AmoroError):
        rig.call("PreviewUndo", pb.UndoRequest(process_id="0123456"))
    rig.call("ListGroups", pb.ListGroupsRequest())
    tried, refused, failed, done = rig.audit()
    assert done.happened_ms > 0
    done.happened_ms = 0
    assert done == audit_pb2.AuditEvent(
        event_id=1,
        actor="admin",
        actor_kind="token",
        said="ann",
        role="admin",
        address="10.0.0.7",
        way="rest",
        operation="CreateGroup",
        object="night",
        parameters={"name": "night", "properties.a": "b"},
        outcome="done",
    )
    assert (failed.outcome, failed.code) == ("failed", AlreadyExists.code)
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
    with pytest.raises(StoreFailed, match="no space left"):
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
        with pytest.raises(StoreFailed, match="append only"):
            rig.execute(f"UPDATE audit_event SET {one}")
    call = Audited(Principal("ann", Role.ADMIN), "X", "y", {"a": "b"})
    with rig.services.auditing.audited(call), pytest.raises(StoreFailed, match="append only"):
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
    shown = [(row.actor, row.operation, row.way, row.address, row.outcome, row.code) for row in rig.audit()]
    assert shown == [
        ("", "RemoveGroup", "rest", "10.0.0.9", "refused", UnknownToken.code),
        ("", "PreviewUndo", "rest", "10.0.0.9", "refused", UnknownToken.code),
    ]
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
    methods = pb.DESCRIPTOR.services_by_name["AdminService"].methods_by_name
    assert sorted(OPERATIONS) == sorted(methods)
    for method in OPERATIONS:
        with pytest.raises(NotAllowed):
            rig.call(method, GetMessageClass(methods[method].input_type)(), Principal("eve", Role.ENROLMENT))
    told = {one.operation for one in rig.audit(outcome="refused", limit=1000)}
    assert told == {name for name, one in OPERATIONS.items() if one.is_audited}

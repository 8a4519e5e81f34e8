"""The audit: a row for each call that changes something, before it begins; without a row no call."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amoro_core.admin.calling import Operations
from amoro_core.admin.noting import parameters
from amoro_core.admin.operations import OPERATIONS
from amoro_core.errors import AlreadyExists, AmoroError, NotAllowed, StoreFailed, UnknownToken
from amoro_core.model.audit import (
    KEEP_AUDIT,
    STRANGERS_A_MINUTE,
    STRANGERS_AN_HOUR,
    Audited,
    AuditOutcome,
    Strangers,
)
from amoro_core.model.principals import Principal, Way, stranger
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2
from amoro_core.store import audit
from amoro_core.wiring import Services

ADMIN = Principal("admin", Role.ADMIN, way=Way.REST, address="10.0.0.7", said="ann")
NOW = datetime(2026, 1, 2, tzinfo=UTC)
CANARY = "c4n4ry-5ecr3t"


@pytest.fixture
def operations(services: Services) -> Iterator[Operations]:
    with ThreadPoolExecutor(1) as pool:
        yield services.operations(pool)


def call(operations: Operations, method: str, request: Any, by: Principal = ADMIN) -> Any:
    return asyncio.run(operations.call(method, request, by))


def rows(operations: Operations, **wanted: Any) -> list[audit_pb2.AuditEvent]:
    return list(call(operations, "ListAudit", audit_pb2.ListAuditRequest(**wanted)).events)


def test_who_has_changed_what_is_told_with_the_way_and_the_outcome(operations: Operations) -> None:
    call(operations, "CreateGroup", pb.CreateGroupRequest(name="night", properties={"a": "b"}))
    with pytest.raises(AlreadyExists):
        call(operations, "CreateGroup", pb.CreateGroupRequest(name="night"))
    with pytest.raises(NotAllowed):
        call(operations, "CreateGroup", pb.CreateGroupRequest(name="day"), Principal("eve", Role.VIEWER))
    call(operations, "ListGroups", pb.ListGroupsRequest())
    refused, failed, done = rows(operations)
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


def test_calls_are_asked_for_by_who_what_and_when(operations: Operations) -> None:
    for name in ("a", "b", "c"):
        call(operations, "CreateGroup", pb.CreateGroupRequest(name=name))
    assert [one.object for one in rows(operations, operation="CreateGroup", object="b")] == ["b"]
    assert rows(operations, actor="nobody") == rows(operations, outcome="refused") == []
    assert rows(operations, since_ms=4102444800000) == []
    first = call(operations, "ListAudit", audit_pb2.ListAuditRequest(limit=2))
    assert ([one.object for one in first.events], first.total, first.total_is_exact) == (["c", "b"], 3, True)
    assert [one.object for one in rows(operations, limit=2, after=first.next)] == ["a"]
    with pytest.raises(AmoroError, match="'x' is not a place in the audit"):
        rows(operations, after="x")


def test_a_dry_run_is_told_as_one(operations: Operations) -> None:
    with pytest.raises(AmoroError):
        call(operations, "PreviewUndo", pb.UndoRequest(process_id="0123456"))
    (told,) = rows(operations)
    assert (told.operation, told.object, told.dry_run, told.outcome) == ("PreviewUndo", "0123456", True, "failed")


def test_a_call_that_cannot_be_written_down_is_not_made(
    operations: Operations, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFailed("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(audit, "add", full)
        with pytest.raises(StoreFailed, match="no space left"):
            call(operations, "CreateGroup", pb.CreateGroupRequest(name="night"))
        assert call(operations, "ListGroups", pb.ListGroupsRequest()).total == 1
    monkeypatch.setattr(audit, "end", full)
    call(operations, "CreateGroup", pb.CreateGroupRequest(name="night"))  # it was made: the answer is what became of it
    assert [one.outcome for one in rows(operations)] == ["begun"]


@pytest.mark.parametrize("change", ["actor = 'eve'", "object = ''", "parameters_json = '{}'", "at_ms = 5"])
def test_what_was_written_down_stays(operations: Operations, services: Services, change: str) -> None:
    call(operations, "CreateGroup", pb.CreateGroupRequest(name="night"))
    store = services.auditing._store
    with pytest.raises(StoreFailed, match="append only"):
        store.write(lambda db: db.execute(f"UPDATE audit_event SET {change}"))
    with pytest.raises(StoreFailed, match="append only"):
        store.write(lambda db: audit.end(db, 1, AuditOutcome.FAILED, "AMORO-1"))
    begun = store.write(lambda db: audit.add(db, Audited(ADMIN, "X", "y", {"a": "b"}), services.program.started))
    with pytest.raises(StoreFailed, match="append only"):
        store.write(lambda db: db.execute(f"UPDATE audit_event SET {change} WHERE event_id = {begun}"))


def test_calls_are_forgotten_after_400_days(operations: Operations, services: Services) -> None:
    store, now = services.auditing._store, services.auditing._clock()
    for age in (KEEP_AUDIT + timedelta(minutes=1), KEEP_AUDIT - timedelta(minutes=1)):
        when = now - age
        store.write(lambda db, when=when: audit.add(db, Audited(ADMIN, "X", str(when.year)), when))
    assert services.auditing.trim() == 1
    assert len(rows(operations)) == 1


def test_strangers_get_a_few_rows_in_a_minute_and_in_an_hour_and_the_others_are_counted() -> None:
    def told(seconds: float) -> str | None:
        row = strangers.row(nobody, NOW + timedelta(seconds=seconds))
        return None if row is None else row.parameters.get("refused_before", "0")

    strangers, nobody = Strangers(), Audited(stranger(Way.REST, "10.0.0.9"), "RemoveGroup", "")
    assert [told(0) for _ in range(STRANGERS_A_MINUTE)] == ["0"] * STRANGERS_A_MINUTE
    assert [told(1), told(59.999)] == [None, None]
    assert told(60) == "2", "the next row tells of those before it"
    assert [told(60) for _ in range(STRANGERS_A_MINUTE)] == ["0"] * (STRANGERS_A_MINUTE - 1) + [None]
    given = 2 * STRANGERS_A_MINUTE
    for minute in range(2, 60):
        given += sum(told(60 * minute) is not None for _ in range(STRANGERS_A_MINUTE))
    assert given == STRANGERS_AN_HOUR
    assert told(3599.999) is None
    assert told(3600) is not None


def test_strangers_that_were_only_counted_have_a_row_at_last() -> None:
    strangers, nobody = Strangers(), Audited(stranger(Way.GRPC, ""), "RemoveGroup", "")
    for _ in range(STRANGERS_A_MINUTE):
        strangers.row(nobody, NOW)
    assert strangers.left() is None
    for _ in range(3):
        assert strangers.row(nobody, NOW) is None
    assert strangers.left() == replace(nobody, parameters={"refused_before": "2"})
    assert strangers.left() is None


def test_refused_calls_of_strangers_are_written_down_if_they_would_change_something(
    operations: Operations, services: Services
) -> None:
    unknown = UnknownToken("the token is not known")

    def refuse(method: str) -> None:
        asyncio.run(operations.refuse(method, stranger(Way.REST, "10.0.0.9"), unknown))

    for method in ("ListGroups", "PreviewUndo", "RemoveGroup"):
        refuse(method)
    shown = [(row.actor, row.operation, row.way, row.address, row.outcome, row.code) for row in rows(operations)]
    assert shown == [
        ("", "RemoveGroup", "rest", "10.0.0.9", "refused", UnknownToken.code),
        ("", "PreviewUndo", "rest", "10.0.0.9", "refused", UnknownToken.code),
    ]
    for _ in range(100):
        refuse("RemoveGroup")
    assert len(rows(operations)) == STRANGERS_A_MINUTE
    services.auditing.trim()
    assert rows(operations)[0].parameters == {"refused_before": str(102 - STRANGERS_A_MINUTE - 1)}


def test_a_store_that_fails_refuses_strangers_all_the_same(
    operations: Operations, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise StoreFailed("the disk is full")

    monkeypatch.setattr(services.auditing._store, "write", fail)
    asyncio.run(operations.refuse("RemoveGroup", stranger(Way.REST, ""), UnknownToken("the token is not known")))


def test_secrets_are_in_no_parameter(operations: Operations) -> None:
    with pytest.raises(AmoroError):
        call(
            operations,
            "AddCatalog",
            pb.AddCatalogRequest(
                name="c",
                properties={"type": "rest", "s3.secret-access-key": CANARY, "uri": f"http://u:{CANARY}@127.0.0.1:1/x"},
                allowed_locations=[f"s3://u:{CANARY}@b/"],
                site_files={"core-site.xml": f"<x>{CANARY}</x>"},
            ),
        )
    (told,) = rows(operations)
    assert dict(told.parameters) == {
        "name": "c",
        "properties.type": "rest",
        "properties.s3.secret-access-key": "***",
        "properties.uri": "http://u:***@127.0.0.1:1/x",
        "allowed_locations": "s3://u:***@b/",
        "site_files.core-site.xml": "20 bytes",
    }
    assert CANARY not in json.dumps([str(one) for one in rows(operations)])


def test_parameters_are_few_and_short() -> None:
    many = parameters(pb.CreateGroupRequest(name="n" * 1000, properties={f"p{n}": "v" for n in range(99)}))
    assert (len(many), many["…"], len(many["name"])) == (41, "60 more", 300)
    told = parameters(pb.MaintainTableRequest(table="t\x1b[31m", snapshot_ids=range(30)))
    assert told["table"] == "t\\x1b[31m"
    assert told["snapshot_ids"].endswith("18, 19, and 10 more")


def test_each_operation_that_changes_something_is_written_down(
    operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: the caller does it, not the operation."""
    from google.protobuf.message_factory import GetMessageClass

    methods = pb.DESCRIPTOR.services_by_name["AdminService"].methods_by_name
    eve = Principal("eve", Role.ENROLMENT)
    for method in OPERATIONS:
        with pytest.raises(NotAllowed):
            call(operations, method, GetMessageClass(methods[method].input_type)(), eve)
    told = {one.operation for one in rows(operations, outcome="refused", limit=1000)}
    assert told == {name for name, one in OPERATIONS.items() if one.changes or one.is_dry_run}

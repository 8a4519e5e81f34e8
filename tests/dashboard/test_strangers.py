"""Refused calls without a known token are in the audit, by whichever way they came, if they would change something."""

from contextlib import suppress

import grpc

from amoro_core.dashboard.rest.routes import PREFIX
from amoro_core.model.audit import AuditFilter
from amoro_core.model.paging import Window
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from tests.dashboard.served import Served


def test_strangers_are_in_the_audit(served: Served) -> None:
    report = "/iceberg/v1/lake/namespaces/db/tables/t/metrics"
    for token in ("", "amo_garbage"):
        assert served.ask(f"{PREFIX}/groups/night", "DELETE", token=token).status == 401
        assert served.ask(f"{PREFIX}/groups", token=token).status == 401
    assert served.ask(report, "POST", token="amo_garbage", body={}).status == 401
    with grpc.insecure_channel(served.coordinator.address) as channel:
        stub = AdminServiceStub(channel)
        for metadata in ((), (("authorization", "Bearer amo_garbage"),)):
            for call, request in (
                (stub.RemoveGroup, pb.RemoveGroupRequest(name="night")),
                (stub.ListGroups, pb.ListGroupsRequest()),
            ):
                with suppress(grpc.RpcError):
                    call(request, metadata=metadata)
                    raise AssertionError("it was let in")
    page, _ = served.coordinator.services.auditing.list_events(AuditFilter(), Window(99))
    assert [
        (one.call.operation, one.call.principal.name, one.call.principal.way.value, one.outcome.value, one.code)
        for one in reversed(page.items)
    ] == [
        ("RemoveGroup", "", "rest", "refused", "AMORO-4002"),
        ("RemoveGroup", "", "rest", "refused", "AMORO-4002"),
        ("LearnScans", "", "rest", "refused", "AMORO-4002"),
        ("RemoveGroup", "", "grpc", "refused", "AMORO-4002"),
        ("RemoveGroup", "", "grpc", "refused", "AMORO-4002"),
    ]
    assert {one.call.principal.address for one in page.items} == {"127.0.0.1"}
    assert served.ask("/audit").status == 200

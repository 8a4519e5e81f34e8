import json

from amoro_core.protocol import audit_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

ONE = pb.AuditEvent(
    event_id=7,
    happened_ms=NOON,
    actor="airflow",
    actor_kind="token",
    said="ann",
    role="operator",
    pattern="shop.**",
    address="10.0.0.7",
    way="grpc",
    operation="OptimizeTable",
    object="shop.db.t",
    parameters={"table": "shop.db.t"},
    outcome="refused",
    code="AMORO-4001",
)


def test_the_audit_is_listed(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListAudit", pb.ListAuditResponse(events=[ONE], total=1, total_is_exact=True))
    told = cli("audit", "list", "--actor", "airflow", "--outcome", "refused", "--object", "shop.db.t")
    assert (told.status, told.err) == (0, "")
    _, row = (line.split("  ") for line in told.out.splitlines())
    assert [cell.strip() for cell in row if cell] == [
        "7",
        "2026-09-21 14:13:20Z",
        "airflow (ann)",
        "operator",
        "grpc",
        "10.0.0.7",
        "OptimizeTable",
        "shop.db.t",
        "refused [AMORO-4001]",
    ]
    assert admin.asked("ListAudit") == [
        pb.ListAuditRequest(actor="airflow", outcome="refused", object="shop.db.t", limit=20)
    ]
    admin.script("ListAudit", pb.ListAuditResponse())
    assert cli("audit", "list").out == "Nothing was changed.\n"


def test_the_audit_is_a_line_of_json_for_each_call(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListAudit", pb.ListAuditResponse(events=[ONE, ONE], total=2, total_is_exact=True))
    first, second = cli("audit", "list", "-o", "jsonl").out.splitlines()
    assert first == second
    one = json.loads(first)
    assert one == {
        "schema": "amoro.audited/v1",
        "event_id": 7,
        "happened_at": "2026-09-21T14:13:20.123Z",
        "actor": "airflow",
        "actor_kind": "token",
        "said": "ann",
        "role": "operator",
        "pattern": "shop.**",
        "address": "10.0.0.7",
        "way": "grpc",
        "operation": "OptimizeTable",
        "object": "shop.db.t",
        "parameters": {"table": "shop.db.t"},
        "dry_run": False,
        "outcome": "refused",
        "code": "AMORO-4001",
    }
    del one["schema"]
    assert json.loads(cli("audit", "list", "-o", "json").out)["audit"] == [one, one]

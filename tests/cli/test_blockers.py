import json

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import NOON, table

BLOCKER = pb.Blocker(
    blocker_id="01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2",
    table="sales.db.orders",
    operations=["batch-write", "optimize"],
    reason="nightly",
    created_ms=NOON,
    expires_ms=NOON + 60_000,
)
DETAIL = """\
blocker  01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2
table    sales.db.orders
blocks   batch-write, optimize
expires  2026-09-21 14:14:20Z
reason   nightly
It expires by itself. To keep it, renew it in time: amoro table renew 01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2
"""


def test_a_table_is_blocked_for_what_is_named(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("BlockTable", BLOCKER)
    result = cli(
        *("table", "block", "sales.db.orders", "--for", "90s", "--reason", "nightly"),
        *("--operation", "optimize", "--operation", "batch-write"),
    )
    assert (result.status, result.out, result.err) == (0, DETAIL, "")
    assert admin.asked("BlockTable") == [
        pb.BlockTableRequest(
            table="sales.db.orders", operations=["optimize", "batch-write"], hold_ms=90_000, reason="nightly"
        )
    ]


def test_a_blocker_is_renewed_and_released_by_its_id(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("RenewBlocker", BLOCKER)
    admin.script("ReleaseBlocker", BLOCKER)
    assert cli("table", "renew", "01a1ff").out == DETAIL
    assert cli("table", "unblock", "01a1ff").out == (
        "Blocker 01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2 is released; sales.db.orders is free.\n"
    )
    assert admin.asked("RenewBlocker") == [pb.RenewBlockerRequest(blocker_id="01a1ff")]
    assert admin.asked("ReleaseBlocker") == [pb.ReleaseBlockerRequest(blocker_id="01a1ff")]


def test_blockers_are_listed_of_one_table_or_all(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListBlockers", pb.ListBlockersResponse(blockers=[BLOCKER]), pb.ListBlockersResponse())
    assert json.loads(cli("table", "blockers", "-o", "json").out) == {
        "schema": "amoro.blockers/v1",
        "blockers": [
            {
                "blocker_id": "01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2",
                "table": "sales.db.orders",
                "operations": ["batch-write", "optimize"],
                "reason": "nightly",
                "created_at": "2026-09-21T14:13:20.123Z",
                "expires_at": "2026-09-21T14:14:20.123Z",
            }
        ],
        "total": 0,
        "next": None,
    }
    assert cli("table", "blockers", "sales.db.orders").out == "Nothing is blocked.\n"
    assert admin.asked("ListBlockers") == [pb.ListBlockersRequest(), pb.ListBlockersRequest(table="sales.db.orders")]


def test_a_blocked_table_shows_it(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetTable", table(blockers=[BLOCKER]))
    assert (
        "blocked         batch-write, optimize until 2026-09-21 14:14:20Z: nightly\n"
        in cli("table", "show", "a.b.c").out
    )


def test_optimizing_a_blocked_table_ends_at_once_with_5_and_the_reason(cli: Cli, admin: FakeAdmin) -> None:
    said = "sales.db.orders is blocked for optimize until 2026-09-21 14:14:20 UTC by 01a1ffb2"
    admin.script("OptimizeTable", Failure(said, "AMORO-5008", 5, "Try again later."))
    result = cli("optimize", "sales.db.orders", "--wait")
    assert (result.status, result.out) == (5, "")
    assert "AMORO-5008" in result.err
    assert said in result.err
    assert len(admin.asked("OptimizeTable")) == 1

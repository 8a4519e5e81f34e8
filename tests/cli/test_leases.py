"""amoro lease: what is asked of the coordinator, and what is told of its answer."""

from __future__ import annotations

import json

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

LEASE = "01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2"
TAG = f"lease-{LEASE}"
TAGGED = pb.Lease(
    lease_id=LEASE, table="sales.db.orders", snapshot_id=7, holder="audit", created_ms=NOON, expires_ms=NOON, tag=TAG
)


def test_it_is_taken_as_a_tag_where_that_is_asked_for(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("TakeLease", TAGGED)
    result = cli("lease", "take", "sales.db.orders", "--snapshot", "7", "--as-tag", "--for", "1h")
    request = pb.TakeLeaseRequest(table="sales.db.orders", snapshot_id=7, hold_ms=3_600_000, as_tag=True)
    assert admin.asked("TakeLease") == [request]
    assert f"tag       {TAG}" in result.out


def test_without_it_nothing_is_said_of_a_tag(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("TakeLease", pb.Lease(lease_id=LEASE, table="sales.db.orders", snapshot_id=7))
    assert "tag" not in cli("lease", "take", "sales.db.orders", "--since", "7").out
    assert admin.asked("TakeLease") == [pb.TakeLeaseRequest(table="sales.db.orders", snapshot_id=7, since=True)]


def test_the_list_names_tags(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListLeases", pb.ListLeasesResponse(leases=[TAGGED]))
    (told,) = json.loads(cli("lease", "list", "-o", "json").out)["leases"]
    assert told["tag"] == TAG


def test_a_lease_needs_one_of_both(cli: Cli) -> None:
    for arguments in ((), ("--snapshot", "7", "--since", "7")):
        result = cli("lease", "take", "sales.db.orders", *arguments)
        assert (result.status, result.out) == (2, "")
        assert "a lease needs either --snapshot or --since" in result.err

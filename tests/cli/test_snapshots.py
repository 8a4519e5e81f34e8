"""amoro table compare and retention: what is asked of the coordinator, and what is told of its answers."""

from __future__ import annotations

import json
import re

from amoro_core.protocol import snapshots_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

COMPARISON = pb.SnapshotComparison(
    table="sales.db.orders",
    before=pb.ComparedSnapshot(
        snapshot_id=7,
        committed_ms=NOON,
        operation="append",
        totals=pb.SnapshotTotals(
            data_files=1200, delete_files=0, records=10, position_deletes=-1, equality_deletes=-1, bytes=4096
        ),
    ),
    after=pb.ComparedSnapshot(
        snapshot_id=8,
        committed_ms=NOON,
        operation="replace",
        totals=pb.SnapshotTotals(
            data_files=12, delete_files=3, records=10, position_deletes=4, equality_deletes=-1, bytes=2048
        ),
    ),
    is_ancestor=True,
    commits=3,
    own_commits=1,
)
RETENTION = pb.Retention(
    table="sales.db.orders",
    snapshots=[
        pb.SnapshotFate(snapshot_id=8, committed_ms=NOON, ground="branch", reason="branch main"),
        pb.SnapshotFate(snapshot_id=7, committed_ms=NOON, goes=True, reason="older than is to be kept"),
    ],
    refs=[
        pb.RefFate(name="main", snapshot_id=8, branch=True),
        pb.RefFate(name="old", snapshot_id=7, goes=True, reason="tag old is older than 5d"),
    ],
    going=1,
    staying="1 stays (1 branch)",
)


def test_differences_are_told_with_their_sign_and_unknown_totals_as_such(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CompareSnapshots", COMPARISON)
    lines = cli("table", "compare", "sales.db.orders", "7", "8").out.splitlines()
    assert admin.asked("CompareSnapshots") == [pb.CompareSnapshotsRequest(table="sales.db.orders", before=7, after=8)]
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines[1:-1]]
    told = {row[0]: row[-2:] for row in cells}
    assert told["data files"] == ["12", "-1,188"]
    assert told["delete files"] == ["3", "+3"]
    assert told["rows"] == ["10", "0"]
    assert told["position deletes"] == ["4", "-"]
    assert lines[-1] == "3 commits from one to the other, 1 of them Amoro's"


def test_snapshots_of_different_lines_are_told_apart(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CompareSnapshots", pb.SnapshotComparison(before=COMPARISON.before, after=COMPARISON.after))
    said = cli("table", "compare", "sales.db.orders", "7", "8").out.splitlines()[-1]
    assert said == "The first did not lead to the second."


def test_what_goes_and_what_stays_is_told_with_the_reason(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetRetention", RETENTION)
    lines = cli("table", "retention", "sales.db.orders").out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["8", "7"]
    assert lines[1].endswith("stays  branch main")
    assert lines[2].endswith("goes   older than is to be kept")
    assert lines[3] == "tag old goes: tag old is older than 5d"
    assert lines[4] == "1 snapshot would go with the next expiry; 1 stays (1 branch)"
    assert cli("table", "retention", "sales.db.orders", "-o", "name").out == "7\n"


def test_programs_get_both(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetRetention", RETENTION)
    admin.script("CompareSnapshots", COMPARISON)
    retention = json.loads(cli("table", "retention", "sales.db.orders", "-o", "json").out)
    assert (retention["schema"], retention["going"]) == ("amoro.retention/v1", 1)
    compared = json.loads(cli("table", "compare", "sales.db.orders", "7", "8", "-o", "json").out)
    assert compared["after"]["totals"]["data_files"] == 12

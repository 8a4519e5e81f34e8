"""amoro table sizes: what is asked of the coordinator, and what is told of its answer."""

from __future__ import annotations

import json

from amoro_core.protocol import journal_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

DIGEST = pb.TableDigest(
    table="sales.db.orders",
    snapshot_id=77,
    read_ms=NOON,
    target_bytes=128 * 1024**2,
    sizes=[
        pb.SizeBin(from_bytes=0),
        pb.SizeBin(from_bytes=1024, data_files=1200, data_bytes=2_000_000, equality_delete_files=3),
    ],
    partitions=[
        pb.PartitionDigest(path=f"day={day}", health=day, due="minor", reason="12 fragments", data_files=9)
        for day in (1, 2)
    ],
    partitions_total=40,
)


def test_only_sizes_that_files_have_are_shown_and_some_partitions(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetTableDigest", DIGEST)
    lines = cli("table", "sizes", "sales.db.orders", "--partitions", "1").out.splitlines()
    assert admin.asked("GetTableDigest") == [pb.GetTableDigestRequest(table="sales.db.orders")]
    assert [line.split() for line in lines if line.startswith("target")] == [["target", "128", "MB"]]
    (line,) = [line for line in lines if "1,200" in line]
    assert line.split()[-1] == "3"
    assert [line.split()[0] for line in lines if line.startswith("day=")] == ["day=1"]
    assert lines[-1] == "and 39 more partitions"


def test_programs_get_every_bin_and_partition(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetTableDigest", DIGEST)
    told = json.loads(cli("table", "sizes", "sales.db.orders", "-o", "json").out)
    assert (told["schema"], len(told["sizes"]), len(told["partitions"])) == ("amoro.digest/v1", 2, 2)
    assert cli("table", "sizes", "sales.db.orders", "-o", "name").out == "day=1\nday=2\n"


def test_before_the_first_look_nothing_is_known(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetTableDigest", pb.TableDigest(table="sales.db.orders"))
    said = cli("table", "sizes", "sales.db.orders").out
    assert said == "The files of sales.db.orders were not read yet: it is evaluated at its next refresh.\n"


def test_a_table_without_files_has_none(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetTableDigest", pb.TableDigest(table="sales.db.orders", read_ms=NOON, sizes=[pb.SizeBin()]))
    assert cli("table", "sizes", "sales.db.orders").out.splitlines()[-1] == "No files."

import json

import grpc

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import PROCESS

SUM = "00112233445566778899aabbccddeeff"
OTHER = "ffeeddccbbaa99887766554433221100"


def compared(partition: str, before: int, after: int, checksum: str = SUM) -> pb.ComparedPartition:
    return pb.ComparedPartition(
        partition=partition, files_before=7, files_after=1, rows_before=before, rows_after=after,
        checksum_before=SUM, checksum_after=checksum, equal=before == after and checksum == SUM,
    )  # fmt: skip


def verification(*partitions: pb.ComparedPartition, problems: tuple[str, ...] = ()) -> pb.Verification:
    equal = all(partition.equal for partition in partitions)
    comparison = pb.Comparison(
        before=11, after=12, process_ids=[PROCESS], files_in_both=3, equal=equal, partitions=partitions,
        rows_before=sum(one.rows_before for one in partitions), rows_after=sum(one.rows_after for one in partitions),
    )  # fmt: skip
    return pb.Verification(
        table="sales.db.orders", snapshot_id=13, sound=equal and not problems, comparisons=[comparison], files=34,
        problems=problems,
    )  # fmt: skip


def test_a_proof_shows_counts_and_checksums_of_both_sides(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("VerifyTable", verification(compared("dt=1", 1059, 1059)))
    result = cli("verify", "sales.db.orders")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        f"snapshot 11 → 12 by {PROCESS}\n"
        "  PARTITION  FILES  ROWS BEFORE  ROWS AFTER  CHECKSUM BEFORE                   CHECKSUM AFTER\n"
        f"  dt=1       7 → 1        1,059       1,059  {SUM}  {SUM}  =\n"
        "  3 more data files are in both, with the same deletes\n"
        "files  all 34 of snapshot 13 exist with their sizes, 0 dangling deletes\n"
        "rows   1,059 = 1,059 ✓ none was lost, added or changed\n"
    )
    assert admin.asked("VerifyTable") == [pb.VerifyTableRequest(table="sales.db.orders")]


def test_a_difference_comes_first_and_ends_with_1(cli: Cli, admin: FakeAdmin) -> None:
    found = verification(
        compared("dt=1", 9, 9), compared("dt=2", 10, 9), compared("dt=3", 4, 4, OTHER), problems=("f.parquet is gone",)
    )
    admin.script("VerifyTable", found)
    result = cli("verify", "sales.db.orders", "--before", "11", "--after", "12")
    assert result.status == 1
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["dt=2", "dt=3", "dt=1"]
    assert lines[2].endswith("≠")
    assert lines[-2:] == ["✗ f.parquet is gone", "rows   23 before, 22 after ✗ they differ"]
    assert result.err.startswith("Error: sales.db.orders did not pass the verification [AMORO-1011]\nHint: ")
    assert admin.asked("VerifyTable") == [pb.VerifyTableRequest(table="sales.db.orders", before=11, after=12)]


def test_many_equal_partitions_are_counted_and_programs_get_them_all(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("VerifyTable", verification(*(compared(f"dt={number}", 1, 1) for number in range(25))))
    assert "  and 5 equal partitions: see -o json\n" in cli("verify", "sales.db.orders").out
    body = json.loads(cli("verify", "sales.db.orders", "-o", "json").out)
    assert (body["schema"], body["sound"], len(body["comparisons"][0]["partitions"])) == (
        "amoro.verification/v1",
        True,
        25,
    )


def test_what_is_not_compared_is_said(cli: Cli, admin: FakeAdmin) -> None:
    nothing = pb.Verification(
        table="sales.db.orders", snapshot_id=13, sound=True, files=1, other_snapshots=[7, 8],
        note="the parent of snapshot 12 is 11, which has expired",
    )  # fmt: skip
    admin.script("VerifyTable", nothing)
    result = cli("verify", "sales.db.orders", "--after", "12")
    assert (result.status, result.out) == (
        0,
        "Nothing to compare: the parent of snapshot 12 is 11, which has expired.\n"
        "Not compared, since others changed rows there: 2 snapshots 7, 8\n"
        "files  all 1 of snapshot 13 exist with their sizes, 0 dangling deletes\n",
    )
    assert cli("verify", "sales.db.orders", "--before", "none").status == 2


def test_reading_that_does_not_end_in_time_is_given_up(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("VerifyTable", Failure("late", status=grpc.StatusCode.DEADLINE_EXCEEDED))
    result = cli("verify", "sales.db.orders", "--timeout", "2m")
    assert (result.status, result.out, result.err) == (
        124,
        "",
        "Error: Reading both sides of sales.db.orders did not end within 120 s, and was given up [AMORO-8001]\n"
        "Hint: Nothing was changed. Give it more time with --timeout.\n",
    )


def test_a_comparison_says_that_readers_in_java_passed_over_deletes(cli: Cli, admin: FakeAdmin) -> None:
    found = verification(compared("dt=1", 9, 9))
    found.comparisons[0].disputed_deletes = 3
    admin.script("VerifyTable", found)
    assert (
        "  3 equality deletes apply by the specification, but Iceberg's Java readers, such as Spark, pass over them"
        " by the bounds of keys (as of UUIDs): they show fewer rows after the rewrite"
    ) in cli("verify", "sales.db.orders").out.splitlines()
    admin.script("VerifyTable", found)
    body = json.loads(cli("verify", "sales.db.orders", "-o", "json").out)
    assert body["comparisons"][0]["disputed_deletes"] == 3

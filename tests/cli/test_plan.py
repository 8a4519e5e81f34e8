import json

import pytest

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import nothing, plan

TITLE = (
    "sales.db.orders  main@5120000000000000881  health 61/100  1 of 3 partitions to be rewritten  3 tasks\n"
    "  minor: 12 small files in dt=2026-09-20\n"
)
PLAN_TEXT = (
    TITLE + "  WHY                    FILES      DELETES    SIZE  → FILES  PARTITION\n"
    "  minor  12 small files     48  9 eq, 3 pos  310 MB        4  dt=2026-09-20\n"
    "  skipped 2 partitions: below triggers\n"
    "Not optimized by itself: observed only: it was never enabled\n"
    "Nothing was changed. Run: amoro optimize sales.db.orders\n"
)


def test_a_plan_shows_what_would_be_rewritten_and_why(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("PlanTable", plan())
    result = cli("plan", "db.orders")
    assert (result.status, result.out, result.err) == (0, PLAN_TEXT, "")
    assert admin.asked("PlanTable") == [pb.PlanTableRequest(table="db.orders")]


def test_an_explained_plan_lists_every_partition_with_its_reason(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("PlanTable", plan(enabled=True))
    assert cli("plan", "sales.db.orders", "--explain", "--type", "minor").out == (
        TITLE + "  WHY                      FILES      DELETES    SIZE  → FILES  PARTITION\n"
        "  minor  12 small files       48  9 eq, 3 pos  310 MB        4  dt=2026-09-20\n"
        "  skipped  below triggers      6            0  780 MB        -  dt=2026-09-19 (spec 1)\n"
        "  skipped  below triggers      0            0     0 B        -  dt=2026-09-18 (spec 1)\n"
        "Nothing was changed. Run: amoro optimize sales.db.orders --type minor\n"
    )


@pytest.mark.parametrize("options", [(), ("--explain",)])
def test_a_plan_says_that_readers_in_java_pass_over_a_delete(
    cli: Cli, admin: FakeAdmin, options: tuple[str, ...]
) -> None:
    admin.script("PlanTable", plan(disputed_deletes=1))
    line = (
        "  1 equality delete applies by the specification, but Iceberg's Java readers, such as Spark, pass over it"
        " by the bounds of keys (as of UUIDs): they will show fewer rows after the rewrite"
    )
    assert cli("plan", "sales.db.orders", *options).out.splitlines().count(line) == 1
    admin.script("PlanTable", plan(disputed_deletes=1))
    assert json.loads(cli("plan", "sales.db.orders", "-o", "json").out)["disputed_deletes"] == 1


def test_an_explained_plan_says_what_is_copied_and_what_is_coarse(cli: Cli, admin: FakeAdmin) -> None:
    files = pb.FileSummary(data_files=54, coarse_files=2, coarse_bytes=220 * 2**20)
    admin.script("PlanTable", *[plan(copying="every row is encoded anew: no file is Parquet", files=files)] * 3)
    lines = "  copying: every row is encoded anew: no file is Parquet\n  coarse: 2 files of target size, 220 MB\n"
    assert lines in cli("plan", "sales.db.orders", "--explain").out
    assert "copying" not in cli("plan", "sales.db.orders").out
    body = json.loads(cli("plan", "sales.db.orders", "-o", "json").out)
    assert body["copying"] == "every row is encoded anew: no file is Parquet"


def test_many_reasons_to_skip_are_cut_down_to_the_most_frequent(cli: Cli, admin: FakeAdmin) -> None:
    skipped = [pb.PlannedPartition(partition=f"p={n}", reason=f"reason {n // 2}") for n in range(9)]
    admin.script("PlanTable", nothing(partitions=skipped))
    assert cli("plan", "sales.db.orders").out == (
        "sales.db.orders  main@5120000000000000881  health 98/100  0 of 9 partitions to be rewritten\n"
        "  skipped 2 partitions: reason 0\n"
        "  skipped 2 partitions: reason 1\n"
        "  skipped 2 partitions: reason 2\n"
        "  and 3 partitions for other reasons: see --explain\n"
        "Nothing to do for sales.db.orders: below all triggers; next minor by interval\n"
        "Next by the clock: 2026-09-21 14:13:20Z\n"
    )


def test_a_plan_as_json_has_every_partition_whatever_is_explained(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("PlanTable", plan())
    body = json.loads(cli("plan", "sales.db.orders", "-o", "json").out)
    assert [body[key] for key in ("schema", "table", "type", "tasks", "next_at")] == [
        "amoro.plan/v1",
        "sales.db.orders",
        "minor",
        3,
        None,
    ]
    assert body["partitions"][1] == {
        "partition": "dt=2026-09-19",
        "spec_id": 1,
        "type": None,
        "reason": "below triggers",
        "data_files": 6,
        "equality_delete_files": 0,
        "position_delete_files": 0,
        "input_bytes": 0,
        "expected_files": 0,
        "tasks": 0,
        "columns": [],
        "deletion_vectors": 0,
        "files_to_fold": 0,
        "delete_files_to_fold": 0,
        "bytes_to_fold": 0,
        "data_bytes": 817889280,
        "coarse_files": 0,
        "coarse_bytes": 0,
    }
    assert len(body["partitions"]) == 3


def test_deletion_vectors_are_told_apart_from_position_delete_files(cli: Cli, admin: FakeAdmin) -> None:
    made = plan()
    made.partitions[0].equality_delete_files = 1
    made.partitions[0].position_delete_files = 5
    made.partitions[0].deletion_vectors = 3
    admin.script("PlanTable", made)
    assert "  1 eq, 2 pos, 3 vec  " in cli("plan", "sales.db.orders", "--explain").out


@pytest.mark.parametrize("options", [(), ("--explain",)])
def test_position_delete_files_that_are_to_become_vectors_are_told_with_their_bytes(
    cli: Cli, admin: FakeAdmin, options: tuple[str, ...]
) -> None:
    made = plan()
    for partition, files in zip(made.partitions[:2], (3, 1), strict=True):
        partition.position_delete_files = partition.delete_files_to_fold = files
        partition.files_to_fold = 10 * files
        partition.bytes_to_fold = 700 * files
    admin.script("PlanTable", made)
    told = cli("plan", "sales.db.orders", *options).out
    assert "  to fold into deletion vectors: 4 position delete files of 2.7 kB, for 40 data files\n" in told
    assert "  9 eq, 3 pos (2.1 kB to fold)  " in told
    assert ("  1 pos (700 B to fold)  " in told) == bool(options)


def test_the_name_of_a_plan_is_its_table_if_there_is_work(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("PlanTable", plan(), nothing())
    assert [cli("plan", "db.orders", "-o", "name").out for _ in range(2)] == ["sales.db.orders\n", ""]


def test_a_dry_run_is_the_plan_of_that_type_and_optimizes_nothing(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("PlanTable", plan())
    result = cli("optimize", "sales.db.orders", "--dry-run", "--type", "full", "--force")
    assert (result.status, result.err) == (0, "")
    assert result.out.endswith("Run: amoro optimize sales.db.orders --type full --force\n")
    assert admin.requests == [("PlanTable", pb.PlanTableRequest(table="sales.db.orders", type="full", force=True))]


def test_a_condition_limits_plan_and_optimize_to_partitions_and_stands_in_the_command(
    cli: Cli, admin: FakeAdmin
) -> None:
    admin.script("PlanTable", plan(enabled=True))
    where = "dt >= '2026-09-20'"
    result = cli("plan", "sales.db.orders", "--where", where)
    assert result.out.splitlines()[-1] == (
        "Nothing was changed. Run: amoro optimize sales.db.orders --where 'dt >= '\"'\"'2026-09-20'\"'\"''"
    )
    cli("optimize", "sales.db.orders", "--dry-run", "--where", where)
    assert admin.requests == [("PlanTable", pb.PlanTableRequest(table="sales.db.orders", where=where))] * 2

"""amoro plan, optimize, verify and undo: what is asked of the coordinator, and what is told of its answers."""

from __future__ import annotations

import io
import json
import shlex
from typing import Any

import grpc
import pytest

from amoro_cli.progress import PlainProgress
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import PROCESS, nothing, plan, process, receipt, table

PLANNED = f"{PROCESS}  planned minor optimizing of sales.db.orders, 3 tasks: 12 small files in dt=2026-09-20\n"
WAITING = "waiting to commit: access to s3://b/m.avro was denied, next try at 2026-09-21 14:13:20 UTC"
RECEIPT = (
    f"{PROCESS}  committed snapshot 5120000000000000902 in 14.2 s\n"
    "  files    54 → 10, 310 MB → 298 MB\n"
    "  deletes  14 → 0\n"
    "  rows     9,812,004 = 9,812,004 ✓\n"
    f"  undo     amoro undo {PROCESS}\n"
)


@pytest.fixture(autouse=True)
def _planned(admin: FakeAdmin) -> None:
    admin.script("OptimizeTable", pb.OptimizeTableResponse(process_id=PROCESS, plan=plan()))


def test_without_waiting_the_id_of_the_process_is_printed(cli: Cli, admin: FakeAdmin) -> None:
    result = cli("optimize", "db.orders", "--type", "Minor")
    assert (result.status, result.out) == (0, PLANNED)
    assert result.err == f"Follow it with: amoro process show {PROCESS}\n"
    assert admin.requests == [("OptimizeTable", pb.OptimizeTableRequest(table="db.orders", type="minor"))]
    assert cli("optimize", "db.orders", "-o", "name").out == f"{PROCESS}\n"


def test_waiting_shows_the_way_on_stderr_and_the_receipt_on_stdout(cli: Cli, admin: FakeAdmin) -> None:
    figures = {"input_bytes": 200 * 2**20, "input_bytes_done": 150 * 2**20, "busy_optimizers": 1}
    admin.script("GetProcess", process("running", tasks_done=1, **figures), process("committing"), process())
    result = cli("optimize", "sales.db.orders", "--wait")
    assert (result.status, result.out) == (0, RECEIPT)
    lines = result.err.splitlines(keepends=True)
    assert lines[0] == PLANNED
    assert [line.rpartition(", ")[0] for line in lines[1:]] == [
        f"{PROCESS}  running, 1/3 tasks, 150 MB of 200 MB, 1 optimizer",
        f"{PROCESS}  committing, 3/3 tasks",
    ]


PARTLY = {"failure_code": "AMORO-5001", "failure": "2 of 3 groups conflict", "exit_status": 5, "receipt": receipt()}
MISSING = {"failure_code": "AMORO-1002", "failure": "x.parquet is missing", "exit_status": 1}
LATE = f"Process {PROCESS} did not end in time: it is"
UNKNOWN = f"It is not known whether the commit of {PROCESS} was applied:"
SEE = f"\nHint: See: amoro process show {PROCESS}\n"


@pytest.mark.parametrize(
    ("status", "more", "exit_status", "message"),
    [
        ("failed", MISSING, 1, f"x.parquet is missing [AMORO-1002]{SEE}"),
        ("partial", PARTLY, 5, "2 of 3 groups conflict [AMORO-5001]\n"),
        ("running", {}, 124, f"{LATE} running, and goes on [AMORO-8001]{SEE}"),
        ("committing", {"waiting": WAITING}, 124, f"{LATE} committing, {WAITING}, and goes on"),
        ("commit_unknown", {"waiting": WAITING}, 7, f"{UNKNOWN} {WAITING} [AMORO-7001]"),
        ("commit_unknown", {"failure": "no answer"}, 7, f"{UNKNOWN} no answer [AMORO-7001]"),
    ],
)
def test_a_process_without_success_ends_the_command_with_its_own_status_and_code(
    cli: Cli, admin: FakeAdmin, status: str, more: dict[str, Any], exit_status: int, message: str
) -> None:
    admin.script("GetProcess", process(status, **more))
    result = cli("optimize", "sales.db.orders", "--wait", "--timeout", "1s")
    assert result.status == exit_status
    assert f"Error: {message}" in result.err
    part = f"{PROCESS}  committed a part of the plan as snapshot 5120000000000000902 in 14.2 s\n"
    assert result.out.startswith(part if status == "partial" else "")
    assert bool(result.out) == (status == "partial")


NOBODY = "group 'default' has no optimizer: start one with amoro optimizer run --group default"


def test_who_waits_for_the_end_is_told_once_that_nobody_works_on_it(cli: Cli, admin: FakeAdmin) -> None:
    waiting = process("running", no_optimizer=NOBODY)
    admin.script("OptimizeTable", pb.OptimizeTableResponse(process_id=PROCESS, plan=plan(), no_optimizer=NOBODY))
    admin.script("GetProcess", waiting, waiting, process("running"), waiting, process())
    result = cli("optimize", "sales.db.orders", "--wait")
    assert (result.status, result.out) == (0, RECEIPT)
    assert result.err.count(f"Waiting: {NOBODY}\n") == 2  # it left, and came back
    admin.script("GetProcess", waiting)
    result = cli("optimize", "sales.db.orders", "--wait", "--timeout", "1ms")
    assert (result.status, result.err.count(f"Waiting: {NOBODY}\n")) == (124, 1)
    assert result.err.endswith(f"Hint: It waits: {NOBODY}.\n")
    result = cli("optimize", "sales.db.orders")
    assert (result.status, result.err.startswith(f"Waiting: {NOBODY}\n")) == (0, True)


def test_a_busy_table_is_waited_for(cli: Cli, admin: FakeAdmin) -> None:
    busy = Failure("sales.db.orders is busy with 0199", "AMORO-5004", 5)
    admin.script("OptimizeTable", busy, busy, *admin.scripts["OptimizeTable"])
    admin.script("GetTable", table(process_id="01997a4c-other", no_optimizer="group 'default' has no optimizer"))
    admin.script("GetProcess", process("success"))
    result = cli("optimize", "sales.db.orders")
    assert (result.status, result.out) == (0, PLANNED)
    waited = "Waiting: sales.db.orders is busy with 0199\nWaiting: group 'default' has no optimizer\n"
    assert (result.err.startswith(waited), result.err.count("Waiting")) == (True, 2)
    waits = admin.asked("GetProcess")
    assert [request.process_id for request in waits] == ["01997a4c-other"] * 2
    assert waits[0].wait_ms == 20_000


def test_a_table_that_stays_busy_ends_the_command_with_five(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("OptimizeTable", Failure("the table is busy", "AMORO-5004", 5, "Wait."))
    admin.script("GetTable", table())
    result = cli("optimize", "sales.db.orders", "--timeout", "3s")
    assert (result.status, result.out) == (5, "")
    assert result.err == "Waiting: the table is busy\nError: the table is busy [AMORO-5004]\nHint: Wait.\n"


def test_a_coordinator_that_is_gone_for_a_moment_does_not_end_the_wait(cli: Cli, admin: FakeAdmin) -> None:
    gone = Failure("restarting", status=grpc.StatusCode.UNAVAILABLE)
    admin.script("GetProcess", gone, gone, process())
    result = cli("optimize", "sales.db.orders", "--wait")
    assert (result.status, result.out) == (0, RECEIPT)
    assert result.err.count("does not answer: restarting. Trying for another 30 s.") == 1


def test_plain_progress_has_a_line_every_ten_seconds_and_at_each_change_of_status() -> None:
    now, stream = 0.0, io.StringIO()
    progress = PlainProgress(stream, lambda: now)
    stages = [(0.5, "running"), (9.0, "running"), (10.5, "running"), (15.0, "committing"), (20.0, "committing")]
    for moment, status in stages:
        now = moment
        progress.show(process(status, tasks_done=1))
    assert stream.getvalue().splitlines() == [
        f"{PROCESS}  running, 1/3 tasks, 0.5 s",
        f"{PROCESS}  running, 1/3 tasks, 10.5 s",
        f"{PROCESS}  committing, 1/3 tasks, 15.0 s",
    ]


def test_what_a_commit_waits_for_is_said_once_for_each_try(cli: Cli, admin: FakeAdmin) -> None:
    later = WAITING.replace("14:13:20", "14:13:30")
    waiting = [process("committing", waiting=text) for text in (WAITING, WAITING, later)]
    admin.script("GetProcess", process("committing"), *waiting, process("committing"), process())
    result = cli("optimize", "sales.db.orders", "--wait")
    assert result.status == 0
    said = [line for line in result.err.splitlines() if "waiting to" in line]
    assert said == [f"{PROCESS}  {WAITING}", f"{PROCESS}  {later}"]


PLAN_TEXT = (
    "sales.db.orders  main@5120000000000000881  0 of 54 files small  1 of 3 partitions to be rewritten  3 tasks\n"
    "  minor: 12 small files in dt=2026-09-20\n"
    "  WHY                    FILES      DELETES    SIZE  → FILES  PARTITION\n"
    "  minor  12 small files     48  9 eq, 3 pos  310 MB        4  dt=2026-09-20\n"
    "  skipped 2 partitions: below triggers\n"
    "Not optimized automatically: observed only: it was never enabled\n"
    "Nothing was changed. Run: amoro optimize sales.db.orders\n"
)


def test_a_plan_shows_what_would_be_rewritten_and_why_and_the_most_frequent_reasons_to_skip(
    cli: Cli, admin: FakeAdmin
) -> None:
    admin.script("PlanTable", plan())
    result = cli("plan", "db.orders")
    assert (result.status, result.out, result.err) == (0, PLAN_TEXT, "")
    assert admin.asked("PlanTable") == [pb.PlanTableRequest(table="db.orders")]
    skipped = [pb.PlannedPartition(partition=f"p={n}", reason=f"reason {n // 2}") for n in range(9)]
    admin.script("PlanTable", nothing(partitions=skipped))
    assert cli("plan", "sales.db.orders").out == (
        "sales.db.orders  main@5120000000000000881  0 of 9 partitions to be rewritten\n"
        "  skipped 2 partitions: reason 0\n"
        "  skipped 2 partitions: reason 1\n"
        "  skipped 2 partitions: reason 2\n"
        "  and 3 partitions for other reasons: see --explain\n"
        "Nothing to do for sales.db.orders: below all triggers; next minor by interval\n"
        "Next scheduled: 2026-09-21 14:13:20Z\n"
    )


def test_a_dry_run_is_the_plan_of_that_type_and_optimizes_nothing(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("PlanTable", plan())
    result = cli("optimize", "sales.db.orders", "--dry-run", "--type", "full", "--force")
    assert (result.status, result.err) == (0, "")
    assert result.out.endswith("Run: amoro optimize sales.db.orders --type full --force\n")
    assert admin.requests == [("PlanTable", pb.PlanTableRequest(table="sales.db.orders", type="full", force=True))]


def test_a_condition_is_of_plan_and_optimize_and_stands_in_the_command(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("PlanTable", plan(enabled=True))
    where = "dt >= '2026-09-20'"
    result = cli("plan", "sales.db.orders", "--where", where)
    command = shlex.join(("amoro", "optimize", "sales.db.orders", "--where", where))
    assert result.out.splitlines()[-1] == f"Nothing was changed. Run: {command}"
    cli("optimize", "sales.db.orders", "--dry-run", "--where", where)
    assert admin.requests == [("PlanTable", pb.PlanTableRequest(table="sales.db.orders", where=where))] * 2


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


def test_a_difference_comes_first_and_ends_with_1(cli: Cli, admin: FakeAdmin) -> None:
    partitions = compared("dt=1", 9, 9), compared("dt=2", 10, 9), compared("dt=3", 4, 4, OTHER)
    admin.script("VerifyTable", verification(*partitions, problems=("f.parquet is gone",)))
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
    assert (body["schema"], body["sound"]) == ("amoro.verification/v1", True)
    assert len(body["comparisons"][0]["partitions"]) == 25


def test_reading_that_does_not_end_in_time_is_given_up(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("VerifyTable", Failure("late", status=grpc.StatusCode.DEADLINE_EXCEEDED))
    result = cli("verify", "sales.db.orders", "--timeout", "2m")
    assert (result.status, result.out) == (124, "")
    assert result.err == (
        "Error: Reading both sides of sales.db.orders did not end within 120 s, and was given up [AMORO-8001]\n"
        "Hint: Nothing was changed. Give it more time with --timeout.\n"
    )


NEWER = "01997b00-0000-7000-8000-000000000000"
DOCUMENT = {"process_id": PROCESS, "type": "minor", "operation": "replace", "data_files_restored": 54}


def answer(**changes: object) -> pb.MaintainTableResponse:
    reason, document = f"undoes process {PROCESS} (minor)", json.dumps(DOCUMENT)
    values = {"table": "sales.db.orders", "action": "undo", "is_due": True, "reason": reason, "document": document}
    return pb.MaintainTableResponse(**{**values, **changes})


def test_undoing_is_told_by_a_dry_run_and_followed_by_its_own_process(cli: Cli, admin: FakeAdmin) -> None:
    figures = f"  process_id {PROCESS}, type minor, operation replace, data_files_restored 54\n"
    admin.script("PreviewUndo", answer())
    result = cli("undo", PROCESS, "--dry-run")
    assert result.out == f"sales.db.orders  undo: would be done: undoes process {PROCESS} (minor)\n{figures}"
    assert admin.asked("PreviewUndo") == [pb.UndoRequest(process_id=PROCESS)]
    assert admin.asked("UndoProcess") == []
    admin.script("GetProcess", process())
    admin.script("UndoProcess", answer(process_id=NEWER))
    result = cli("undo", PROCESS)
    assert result.out == f"sales.db.orders  undo: planned as {NEWER}, undoes process {PROCESS} (minor)\n{figures}"
    assert result.err.splitlines() == [
        "Optimizing may do the same again. To prevent it: amoro table disable sales.db.orders",
        f"Follow it with: amoro process show {NEWER}",
    ]


# What a receipt, a plan and a comparison say on top

OF_JAVA = (
    "  {} by the specification, but Iceberg's Java readers, such as Spark, skip {} by the bounds of keys (such as "
    "UUIDs): they {} fewer rows after the rewrite"
)


def figures(**values: int) -> list[pb.Figure]:
    units = {"cpu_ms": "ms", "spill_bytes": "bytes", "files_copied": "files", "files_encoded": "files"}
    return [pb.Figure(name=name, value=value, unit=units.get(name, "")) for name, value in values.items()]


ENCRYPTED = pb.EncodedFiles(reason="its footer is encrypted", files=2)
OTHER_FILES = pb.EncodedFiles(reason="x", files=1)
CARRIED = "rows 9,812,004 = 9,812,004 ✓, 12 of them deleted by others meanwhile and carried over"
COPIED = ["files copied 9", "files encoded 3", "not copied 2 files: its footer is encrypted", "not copied 1 file: x"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"figures": figures(files_copied=9, files_encoded=3), "encoded": [ENCRYPTED, OTHER_FILES]}, COPIED),
        ({"disputed_deletes": 2}, [OF_JAVA.format("2 equality deletes apply", "them", "show").strip()]),
        ({"figures": figures(rows_carried_over=12, groups_rebased=2)}, [CARRIED, "groups rebased 2"]),
    ],
)
def test_a_receipt_says(cli: Cli, admin: FakeAdmin, more: dict[str, Any], says: list[str]) -> None:
    admin.script("GetProcess", process(receipt=receipt(**more)))
    lines = [" ".join(line.split()) for line in cli("process", "show", PROCESS, "-o", "wide").out.splitlines()]
    assert [line for line in says if line not in lines] == []
    assert not [line for line in lines if "spill" in line]
    document = json.loads(cli("process", "show", PROCESS, "-o", "json").out)["receipt"]
    assert len(document["encoded"]) == len(more.get("encoded", []))


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ({"equality_delete_files": 1, "position_delete_files": 5, "deletion_vectors": 3}, ["  1 eq, 2 pos, 3 vec  "]),
        (
            {"delete_files_to_fold": 3, "files_to_fold": 30, "bytes_to_fold": 2100},
            [
                "  to be converted to deletion vectors: 3 position delete files of 2.1 kB, for 30 data files\n",
                "  9 eq, 3 pos (2.1 kB to convert)  ",
            ],
        ),
    ],
)
def test_a_plan_says(cli: Cli, admin: FakeAdmin, first: dict[str, int], says: list[str]) -> None:
    made = plan()
    made.partitions[0].MergeFrom(pb.PlannedPartition(**first))
    admin.script("PlanTable", made)
    for shown in (cli("plan", "sales.db.orders").out, cli("plan", "sales.db.orders", "--explain").out):
        assert [one for one in says if one not in shown] == []


def test_a_receipt_has_five_lines_at_most_and_the_rest_in_wide(cli: Cli, admin: FakeAdmin) -> None:
    done = receipt(figures=figures(files_copied=9, spill_bytes=5), encoded=[ENCRYPTED])
    wide = {"  spill bytes   5 B", "  not copied    2 files: its footer is encrypted"}
    admin.script("GetProcess", process(receipt=done))
    shown = cli("optimize", "sales.db.orders", "--wait").out.splitlines()
    assert (len(shown), wide & {*shown}) == (5, set())
    assert wide <= {*cli("process", "show", PROCESS, "-o", "wide").out.splitlines()}

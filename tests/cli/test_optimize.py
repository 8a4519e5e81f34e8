import json

import grpc
import pytest

from amoro_cli.progress import PlainProgress
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import PROCESS, nothing, plan, process, receipt, table

PLANNED = f"{PROCESS}  planned minor optimizing of sales.db.orders, 3 tasks: 12 small files in dt=2026-09-20\n"
RECEIPT = (
    f"{PROCESS}  committed snapshot 5120000000000000902 in 14.2 s\n"
    "  files    54 → 10\n"
    "  deletes  14 → 0\n"
    "  bytes    310 MB → 298 MB\n"
    "  rows     9,812,004 = 9,812,004 ✓\n"
    f"  undo     amoro undo {PROCESS}\n"
)


@pytest.fixture
def _planned(admin: FakeAdmin) -> None:
    admin.script("OptimizeTable", pb.OptimizeTableResponse(process_id=PROCESS, plan=plan()))


@pytest.mark.usefixtures("_planned")
def test_without_waiting_the_id_of_the_process_is_printed(cli: Cli, admin: FakeAdmin) -> None:
    result = cli("optimize", "db.orders", "--type", "Minor")
    assert (result.status, result.out) == (0, PLANNED)
    assert result.err == f"Follow it with: amoro process show {PROCESS}\n"
    assert admin.requests == [("OptimizeTable", pb.OptimizeTableRequest(table="db.orders", type="minor"))]
    assert cli("optimize", "db.orders", "-o", "name").out == f"{PROCESS}\n"


def test_nothing_to_do_has_its_reason_and_when_the_next_comes(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("OptimizeTable", pb.OptimizeTableResponse(plan=nothing()))
    result = cli("optimize", "sales.db.orders", "--wait")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "Nothing to do for sales.db.orders: below all triggers; next minor by interval\n"
        "Next by the clock: 2026-09-21 14:13:20Z\n"
    )
    body = json.loads(cli("optimize", "sales.db.orders", "-o", "json").out)
    assert [body[key] for key in ("schema", "table", "outcome", "process_id", "process")] == [
        "amoro.optimize/v1",
        "sales.db.orders",
        "nothing_to_do",
        None,
        None,
    ]
    assert cli("optimize", "sales.db.orders", "-o", "name").out == ""


@pytest.mark.usefixtures("_planned")
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


@pytest.mark.usefixtures("_planned")
def test_a_receipt_as_json_is_exact(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetProcess", process())
    body = json.loads(cli("optimize", "sales.db.orders", "--wait", "-o", "json").out)
    assert [body[key] for key in ("schema", "outcome", "process_id")] == ["amoro.optimize/v1", "success", PROCESS]
    assert body["plan"]["type"] == "minor"
    assert body["process"] == {
        "process_id": PROCESS,
        "table": "sales.db.orders",
        "type": "minor",
        "status": "success",
        "trigger": "request",
        "reason": "12 small files",
        "snapshot_id": 5120000000000000881,
        "created_at": "2026-09-21T14:13:20.123Z",
        "finished_at": "2026-09-21T14:13:35.123Z",
        "failure_code": "",
        "failure": "",
        "tasks": [],
        "receipt": {
            "data_files_before": 54,
            "data_files_after": 10,
            "delete_files_before": 14,
            "delete_files_after": 0,
            "bytes_before": 325058560,
            "bytes_after": 312475648,
            "rows_before": 9812004,
            "rows_after": 9812004,
            "snapshot_id": 5120000000000000902,
            "base_snapshot_id": 5120000000000000881,
            "duration_ms": 14200,
            "revertible": True,
            "equality_delete_files_after": 0,
            "disputed_deletes": 0,
            "words": "",
            "figures": [],
            "equations": [],
            "encoded": [],
        },
        "tasks_total": 3,
        "tasks_done": 3,
        "exit_status": 0,
        "waiting": "",
        "retry_at": None,
        "no_optimizer": "",
        "where": "",
        "task_counts": None,
        "input_bytes": 0,
        "input_bytes_done": 0,
        "busy_optimizers": 0,
        "table_id": 0,
    }


@pytest.mark.usefixtures("_planned")
def test_a_process_that_is_limited_to_partitions_says_so(cli: Cli, admin: FakeAdmin) -> None:
    where = "dt >= '2026-09-20'"
    admin.script("GetProcess", process(where=where))
    assert (
        json.loads(cli("optimize", "a.b.c", "--where", where, "--wait", "-o", "json").out)["process"]["where"] == where
    )
    assert admin.asked("OptimizeTable") == [pb.OptimizeTableRequest(table="a.b.c", where=where)]
    assert f"where     {where}\n" in cli("process", "show", PROCESS).out


@pytest.mark.usefixtures("_planned")
def test_a_receipt_shows_the_figures_of_its_own_action(cli: Cli, admin: FakeAdmin) -> None:
    own = [
        ("depth_of_a_before", 56, ""),
        ("depth_of_a_after", 9, ""),
        ("cpu_ms", 1600, "ms"),
        ("spill_bytes", 0, "bytes"),
    ]
    figures = [pb.Figure(name=name, value=value, unit=unit) for name, value, unit in own]
    admin.script("GetProcess", process(receipt=receipt(figures=figures)))
    lines = [" ".join(line.split()) for line in cli("optimize", "sales.db.orders", "--wait").out.splitlines()]
    assert "depth of a 56 → 9" in lines
    assert "cpu 1.6 s" in lines
    assert not [line for line in lines if "spill" in line]


@pytest.mark.usefixtures("_planned")
def test_a_receipt_says_how_many_files_were_copied_and_why_others_were_encoded(cli: Cli, admin: FakeAdmin) -> None:
    figures = [
        pb.Figure(name=f"files_{how}", value=value, unit="files") for how, value in (("copied", 9), ("encoded", 3))
    ]
    encoded = [pb.EncodedFiles(reason="its footer is encrypted", files=2), pb.EncodedFiles(reason="other", files=1)]
    admin.script("GetProcess", *[process(receipt=receipt(figures=figures, encoded=encoded))] * 2)
    assert (
        "  files copied   9\n"
        "  files encoded  3\n"
        "  encoded since  its footer is encrypted (2 files)\n"
        "  encoded since  other (1 file)\n"
    ) in cli("optimize", "sales.db.orders", "--wait").out
    body = json.loads(cli("process", "show", PROCESS, "-o", "json").out)
    assert body["receipt"]["encoded"] == [
        {"reason": "its footer is encrypted", "files": 2},
        {"reason": "other", "files": 1},
    ]


@pytest.mark.usefixtures("_planned")
def test_a_receipt_says_that_readers_in_java_passed_over_deletes(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetProcess", process(receipt=receipt(disputed_deletes=2)))
    result = cli("optimize", "sales.db.orders", "--wait")
    assert result.out.splitlines()[-1] == (
        "  2 equality deletes apply by the specification, but Iceberg's Java readers, such as Spark, pass over them"
        " by the bounds of keys (as of UUIDs): they show fewer rows after the rewrite"
    )


@pytest.mark.usefixtures("_planned")
def test_an_undo_is_not_undone(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetProcess", process(type="undo-optimizing"))
    assert "undo  " not in cli("optimize", "sales.db.orders", "--wait").out


@pytest.mark.usefixtures("_planned")
def test_a_process_that_failed_ends_with_its_own_status_and_code(cli: Cli, admin: FakeAdmin) -> None:
    admin.script(
        "GetProcess",
        process("failed", failure_code="AMORO-1002", failure="data file s3://b/x.parquet is missing", exit_status=1),
    )
    result = cli("optimize", "sales.db.orders", "--wait")
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        f"{PLANNED}Error: data file s3://b/x.parquet is missing [AMORO-1002]\nHint: See: amoro process show {PROCESS}\n"
    )
    assert json.loads(cli("optimize", "a.b.c", "--wait", "-o", "json").out)["outcome"] == "failed"


@pytest.mark.usefixtures("_planned")
def test_a_part_that_was_committed_has_a_receipt_and_ends_with_five(cli: Cli, admin: FakeAdmin) -> None:
    failed = {"failure_code": "AMORO-5001", "failure": "2 of 3 groups conflict", "exit_status": 5}
    admin.script("GetProcess", process("partial", receipt=receipt(), **failed))
    result = cli("optimize", "sales.db.orders", "--wait")
    assert result.status == 5
    assert result.out.splitlines()[0] == (
        f"{PROCESS}  committed a part of the plan as snapshot 5120000000000000902 in 14.2 s"
    )
    assert "Error: 2 of 3 groups conflict [AMORO-5001]\n" in result.err


@pytest.mark.usefixtures("_planned")
@pytest.mark.parametrize(("status", "code"), [(5, "AMORO-5000"), (6, "AMORO-6001"), (7, "AMORO-7001")])
def test_the_exit_status_is_the_one_of_the_process(cli: Cli, admin: FakeAdmin, status: int, code: str) -> None:
    admin.script("GetProcess", process("closed", exit_status=status))
    result = cli("optimize", "sales.db.orders", "--wait")
    assert result.status == status
    assert f"Error: Process {PROCESS} ended as closed [{code}]\n" in result.err


@pytest.mark.usefixtures("_planned")
def test_a_process_that_does_not_end_in_time_goes_on_and_ends_the_command_with_124(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetProcess", process("running"))
    result = cli("optimize", "sales.db.orders", "--wait", "--timeout", "300ms")
    assert (result.status, result.out) == (124, "")
    assert result.err.endswith(
        f"Error: Process {PROCESS} did not end in time: it is running, and goes on [AMORO-8001]\n"
        f"Hint: See: amoro process show {PROCESS}\n"
    )


@pytest.mark.usefixtures("_planned")
def test_a_commit_that_is_still_unknown_at_the_end_of_the_wait_ends_with_seven(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetProcess", process("commit_unknown", failure="no answer from the catalog"))
    result = cli("optimize", "sales.db.orders", "--wait", "--timeout", "300ms")
    assert result.status == 7
    assert (
        f"Error: It is not known whether the commit of {PROCESS} was applied: no answer from the catalog [AMORO-7001]\n"
    ) in result.err


NOBODY = "group 'default' has no optimizer: start one with amoro optimizer run --group default"


@pytest.mark.usefixtures("_planned")
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
    planned = pb.OptimizeTableResponse(process_id=PROCESS, plan=plan())
    admin.script("OptimizeTable", busy, busy, planned)
    admin.script("GetTable", table(process_id="01997a4c-other", no_optimizer="group 'default' has no optimizer"))
    admin.script("GetProcess", process("success"))
    result = cli("optimize", "sales.db.orders")
    assert (result.status, result.out) == (0, PLANNED)
    assert result.err.splitlines()[:2] == [
        "Waiting: sales.db.orders is busy with 0199",
        "Waiting: group 'default' has no optimizer",
    ]
    assert result.err.count("Waiting") == 2
    waits = admin.asked("GetProcess")
    assert [request.process_id for request in waits] == ["01997a4c-other"] * 2
    assert waits[0].wait_ms == 20_000


def test_a_table_that_stays_busy_ends_the_command_with_five(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("OptimizeTable", Failure("the table is busy", "AMORO-5004", 5, "Wait."))
    admin.script("GetTable", table())
    result = cli("optimize", "sales.db.orders", "--timeout", "3s")
    assert (result.status, result.out) == (5, "")
    assert result.err == "Waiting: the table is busy\nError: the table is busy [AMORO-5004]\nHint: Wait.\n"


@pytest.mark.usefixtures("_planned")
def test_a_coordinator_that_is_gone_for_a_moment_does_not_end_the_wait(cli: Cli, admin: FakeAdmin) -> None:
    gone = Failure("restarting", status=grpc.StatusCode.UNAVAILABLE)
    admin.script("GetProcess", gone, gone, process())
    result = cli("optimize", "sales.db.orders", "--wait")
    assert (result.status, result.out) == (0, RECEIPT)
    assert result.err.count("does not answer: restarting. Trying for another 30 s.") == 1


class _Lines:
    def __init__(self) -> None:
        self.text: list[str] = []

    def write(self, text: str) -> None:
        self.text.append(text)

    def flush(self) -> None: ...


def test_plain_progress_has_a_line_every_ten_seconds_and_at_each_change_of_status() -> None:
    now = 0.0
    lines = _Lines()
    progress = PlainProgress(lines, lambda: now)
    for moment, status in (
        (0.5, "running"),
        (9.0, "running"),
        (10.5, "running"),
        (15.0, "committing"),
        (20.0, "committing"),
    ):
        now = moment
        progress.show(process(status, tasks_done=1))
    assert lines.text == [
        f"{PROCESS}  running, 1/3 tasks, 0.5 s\n",
        f"{PROCESS}  running, 1/3 tasks, 10.5 s\n",
        f"{PROCESS}  committing, 1/3 tasks, 15.0 s\n",
    ]


WAITING = "waiting to commit: access to s3://b/m.avro was denied, next try at 2026-09-21 14:13:20 UTC"


@pytest.mark.usefixtures("_planned")
def test_what_a_commit_waits_for_is_said_once_for_each_try(cli: Cli, admin: FakeAdmin) -> None:
    later = WAITING.replace("14:13:20", "14:13:30")
    waiting = [process("committing", waiting=text) for text in (WAITING, WAITING, later)]
    admin.script("GetProcess", process("committing"), *waiting, process("committing"), process())
    result = cli("optimize", "sales.db.orders", "--wait")
    assert result.status == 0
    said = [line for line in result.err.splitlines() if "waiting to" in line]
    assert said == [f"{PROCESS}  {WAITING}", f"{PROCESS}  {later}"]


@pytest.mark.usefixtures("_planned")
@pytest.mark.parametrize(
    ("status", "exit_status", "message"),
    [
        ("committing", 124, f"Process {PROCESS} did not end in time: it is committing, {WAITING}, and goes on"),
        ("commit_unknown", 7, f"It is not known whether the commit of {PROCESS} was applied: {WAITING}"),
    ],
)
def test_what_a_commit_still_waits_for_at_the_end_of_the_wait_is_in_the_error(
    cli: Cli, admin: FakeAdmin, status: str, exit_status: int, message: str
) -> None:
    admin.script("GetProcess", process(status, waiting=WAITING))
    result = cli("optimize", "sales.db.orders", "--wait", "--timeout", "1s")
    assert result.status == exit_status
    assert f"Error: {message}" in result.err

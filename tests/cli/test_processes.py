import json

import pytest

from amoro_core.documents.quantities import format_count
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import NOON, PROCESS, listed, process, task


def test_processes_are_listed_with_why_or_how_they_failed(cli: Cli, admin: FakeAdmin) -> None:
    failed = process("failed", failure_code="AMORO-1002", failure="a file\nis lost", finished_ms=NOON + 61_000)
    admin.script("ListProcesses", pb.ListProcessesResponse(processes=[process("running"), failed]))
    result = cli("process", "list", "--table", "sales.db.orders", "--status", "running", "--limit", "7")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "PROCESS                               TABLE            TYPE   STATUS   TASKS  CREATED                    TOOK"
        "  WHY\n"
        f"{PROCESS}  sales.db.orders  minor  running    3/3  2026-09-21 14:13:20Z          -  12 small files\n"
        f"{PROCESS}  sales.db.orders  minor  failed     3/3  2026-09-21 14:13:20Z  1 min 1 s  "
        "[AMORO-1002] a file is lost\n"
    )
    assert admin.asked("ListProcesses") == [pb.ListProcessesRequest(table="sales.db.orders", status="running", limit=7)]


def test_processes_as_json_and_names(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListProcesses", pb.ListProcessesResponse(processes=[process("running")]))
    body = json.loads(cli("process", "list", "-o", "json").out)
    assert body["schema"] == "amoro.processes/v1"
    assert body["processes"][0]["receipt"] is None
    assert body["processes"][0]["finished_at"] is None
    assert cli("process", "list", "-o", "name").out == f"{PROCESS}\n"
    assert admin.asked("ListProcesses")[0] == pb.ListProcessesRequest(limit=20)


def test_no_processes_are_said(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListProcesses", pb.ListProcessesResponse())
    assert cli("process", "list").out == "No processes.\n"


def test_a_process_is_shown_with_its_tasks(cli: Cli, admin: FakeAdmin) -> None:
    tasks = [task(), task(task_id=2, status="failed", finished_ms=NOON + 2000, failure="out of memory", rows_total=0)]
    owner = process("running", tasks_done=0)
    admin.script("GetProcess", owner)
    admin.script("ListTasks", listed(owner, *tasks))
    result = cli("process", "show", "01997a")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        f"process   {PROCESS}\n"
        "table     sales.db.orders\n"
        "type      minor\n"
        "status    running\n"
        "why       12 small files (request)\n"
        "snapshot  5120000000000000881\n"
        "created   2026-09-21 14:13:20Z\n"
        "tasks     0/3 done\n"
        "\n"
        "  TASK  STATUS  ATTEMPT  FILES    SIZE       ROWS   TOOK  OPTIMIZER  PARTITION      FAILURE\n"
        "     1  acked         1     18  100 MB  500/1,000      -  o-1/2      dt=2026-09-20  -\n"
        "     2  failed        1     18  100 MB          -  2.0 s  o-1/2      dt=2026-09-20  out of memory\n"
    )
    assert admin.asked("GetProcess") == [pb.GetProcessRequest(process_id="01997a")]


def test_a_finished_process_is_shown_with_its_receipt(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetProcess", process())
    out = cli("process", "show", PROCESS).out
    assert "finished  2026-09-21 14:13:35Z, after 15.0 s\n" in out
    assert f"\n\n{PROCESS}  committed snapshot 5120000000000000902 in 14.2 s\n  files    54 → 10\n" in out


def test_rows_that_others_deleted_meanwhile_are_told_with_the_equation_of_rows(cli: Cli, admin: FakeAdmin) -> None:
    shown = process()
    for name, value, unit in (("rows_carried_over", 12, "rows"), ("groups_rebased", 2, "groups")):
        shown.receipt.figures.add(name=name, value=value, unit=unit)
    admin.script("GetProcess", shown)
    out = cli("process", "show", PROCESS).out
    rows = format_count(shown.receipt.rows_before)
    assert f" {rows} = {rows} ✓, 12 of them deleted by others meanwhile and carried over\n" in out
    assert out.count("carried over") == 1
    assert "groups rebased  2\n" in out


def test_a_prefix_that_is_too_short_is_wrong_usage(cli: Cli, admin: FakeAdmin) -> None:
    result = cli("process", "show", "01997")
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        "Error: '01997' is too short for the id of a process [AMORO-2001]\n"
        "Hint: Give 6 characters or more. See: amoro process list\n"
    )
    assert admin.requests == []


def test_a_process_is_cancelled_and_shown(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CancelProcess", process("closed", failure="somebody cancelled it", finished_ms=NOON + 1000))
    result = cli("process", "cancel", "01997a")
    assert (result.status, result.err) == (0, "")
    assert "status    closed\n" in result.out
    assert "failure   somebody cancelled it\n" in result.out
    assert admin.asked("CancelProcess") == [pb.CancelProcessRequest(process_id="01997a")]


def test_what_can_not_be_cancelled_is_a_conflict_with_the_reason(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CancelProcess", Failure("process x commits already", "AMORO-5007", 5, "Wait for its end."))
    result = cli("process", "cancel", "01997a")
    assert (result.status, result.out) == (5, "")
    assert result.err == "Error: process x commits already [AMORO-5007]\nHint: Wait for its end.\n"


def test_tasks_of_a_process_are_listed_by_status(cli: Cli, admin: FakeAdmin) -> None:
    failed = task(task_id=2, status="failed", finished_ms=NOON + 2000, failure="out of memory", rows_total=0)
    admin.script("ListTasks", listed(process("running"), task(), failed))
    result = cli("task", "list", "01997a", "--status", "failed")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "TASK  STATUS  ATTEMPT  FILES    SIZE  ROWS   TOOK  OPTIMIZER  PARTITION      FAILURE\n"
        "   2  failed        1     18  100 MB     -  2.0 s  o-1/2      dt=2026-09-20  out of memory\n"
    )
    assert cli("task", "list", "01997a", "-o", "name").out == f"{PROCESS}-1\n{PROCESS}-2\n"
    assert cli("task", "list", "01997a", "--status", "planned").out == "No tasks.\n"


def test_a_task_is_shown_with_its_attempts_and_its_failure(cli: Cli, admin: FakeAdmin) -> None:
    failed = task(
        task_id=2, attempt=3, status="failed", scheduled_ms=NOON - 1000, finished_ms=NOON + 2000,
        failure="out of memory", failure_code="AMORO-1001", failed_runs=2, lost_attempts=1,
    )  # fmt: skip
    admin.script("ListTasks", listed(process("running"), task(), failed))
    result = cli("task", "show", "01997a-2")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        f"task        {PROCESS}-2\n"
        "table       sales.db.orders\n"
        "status      failed\n"
        "attempt     3, 2 failed, 1 lost\n"
        "partition   dt=2026-09-20\n"
        "input       18 files, 100 MB\n"
        "optimizer   o-1/2\n"
        "handed out  2026-09-21 14:13:19Z\n"
        "started     2026-09-21 14:13:20Z\n"
        "finished    2026-09-21 14:13:22Z, after 2.0 s\n"
        "rows        500/1,000\n"
        "failure     [AMORO-1001] out of memory\n"
    )
    body = json.loads(cli("task", "show", f"{PROCESS}-2", "-o", "json").out)
    assert (body["schema"], body["process_id"], body["task_id"]) == ("amoro.task/v1", PROCESS, 2)
    assert (body["scheduled_at"], body["finished_at"]) == ("2026-09-21T14:13:19.123Z", "2026-09-21T14:13:22.123Z")


def test_a_task_that_the_process_lacks_is_not_found(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTasks", listed(process("running"), task()))
    result = cli("task", "show", "01997a-7")
    assert (result.status, result.out) == (3, "")
    assert result.err == (
        f"Error: process {PROCESS} has no task 7 [AMORO-3004]\nHint: Its tasks are numbered from 1 to 3.\n"
    )


@pytest.mark.parametrize("text", ["01997a", "01997a-", "01997a-0", "01997a-x", "01997-1"])
def test_what_is_no_task_is_wrong_usage(cli: Cli, admin: FakeAdmin, text: str) -> None:
    result = cli("task", "show", text)
    assert (result.status, result.out) == (2, "")
    assert "[AMORO-2001]" in result.err
    assert admin.requests == []


def test_what_a_commit_waits_for_stands_in_the_list_and_in_the_process(cli: Cli, admin: FakeAdmin) -> None:
    waiting = "waiting to commit: no answer, next try at 2026-09-21 14:13:20 UTC"
    item = process("committing", waiting=waiting, retry_ms=1_790_000_000_000)
    admin.script("ListProcesses", pb.ListProcessesResponse(processes=[item]))
    admin.script("GetProcess", item)
    assert waiting in cli("process", "list").out
    assert f"commit    {waiting}\n" in cli("process", "show", PROCESS).out
    body = json.loads(cli("process", "show", PROCESS, "-o", "json").out)
    assert (body["waiting"], body["retry_at"]) == (waiting, "2026-09-21T14:13:20.000Z")

"""amoro undo: what is asked of the coordinator, and what is told of its answer."""

from __future__ import annotations

import json

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import PROCESS, process, receipt

NEWER = "01997b00-0000-7000-8000-000000000000"
DOCUMENT = {"process_id": PROCESS, "type": "minor", "operation": "replace", "data_files_restored": 54}


def answer(**changes: object) -> pb.MaintainTableResponse:
    told = {
        "table": "sales.db.orders",
        "action": "undo",
        "is_due": True,
        "reason": f"takes back process {PROCESS} (minor)",
        "document": json.dumps(DOCUMENT),
    }
    return pb.MaintainTableResponse(**{**told, **changes})


def test_a_dry_run_tells_what_would_change(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("PreviewUndo", answer())
    result = cli("undo", PROCESS, "--dry-run")
    assert result.out == (
        f"sales.db.orders  undo: would be done: takes back process {PROCESS} (minor)\n"
        f"  process_id {PROCESS}, type minor, operation replace, data_files_restored 54\n"
    )
    assert admin.asked("PreviewUndo") == [pb.UndoRequest(process_id=PROCESS)]
    assert admin.asked("UndoProcess") == []


def test_it_is_planned_and_followed_by_its_own_process(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetProcess", process())
    admin.script("UndoProcess", answer(process_id=NEWER))
    result = cli("undo", PROCESS)
    assert result.out == f"sales.db.orders  undo: planned as {NEWER}, takes back process {PROCESS} (minor)\n" + (
        f"  process_id {PROCESS}, type minor, operation replace, data_files_restored 54\n"
    )
    assert result.err.splitlines() == [
        "Optimizing may do the same again. To prevent it: amoro table disable sales.db.orders",
        f"Follow it with: amoro process show {NEWER}",
    ]


def test_waiting_ends_with_the_receipt(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("UndoProcess", answer(process_id=NEWER))
    admin.script("GetProcess", process(process_id=NEWER, type="undo-optimizing", receipt=receipt()))
    result = cli("undo", PROCESS, "--wait", "-o", "json")
    told = json.loads(result.out)
    assert (told["outcome"], told["process_id"], told["plan"]) == ("success", NEWER, DOCUMENT)


def test_what_can_t_be_undone_ends_with_6_and_the_reason(cli: Cli, admin: FakeAdmin) -> None:
    message = f"process {PROCESS} can't be undone: a.parquet is no longer live"
    admin.script("PreviewUndo", Failure(message, "AMORO-6004", 6))
    result = cli("undo", PROCESS, "--dry-run")
    assert (result.status, result.out) == (6, "")
    assert message in result.err
    assert "AMORO-6004" in result.err

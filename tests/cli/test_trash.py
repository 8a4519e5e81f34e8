"""amoro trash show: files by pages."""

import json

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin

PROCESS = "01a1ffb2-0000-7000-8000-000000000001"
TRASH = pb.Trash(process_id=PROCESS, table="cat.db.t", action="clean-orphan-files", files=3, bytes=30)


def file(name: str) -> pb.CondemnedFile:
    return pb.CondemnedFile(path=name, kind="data", size_bytes=10, reason="an orphan", status="waiting")


def test_a_part_of_the_files_says_where_the_rest_begins(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ShowTrash", pb.ShowTrashResponse(trash=TRASH, files=[file("b")], next="cursor-2", total=3))
    shown = cli("trash", "show", PROCESS, "--limit", "1", "--after", "cursor-1", "-o", "json")
    assert admin.asked("ShowTrash") == [pb.ShowTrashRequest(process_id=PROCESS, limit=1, after="cursor-1")]
    body = json.loads(shown.out)
    assert ([one["path"] for one in body["files"]], body["next"], body["total"]) == (["b"], "cursor-2", 3)
    assert "and more: see --limit" in cli("trash", "show", PROCESS, "--limit", "1", "--after", "cursor-1").out
    assert "and 2 more: see --limit" in cli("trash", "show", PROCESS, "--limit", "1").out

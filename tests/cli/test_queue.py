"""amoro group queue."""

import json

from amoro_core.protocol import queue_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin

ANSWER = pb.ListQueueResponse(
    pending=[
        pb.PendingTable(
            table="sales.db.orders", table_id=7, group="default", place=1, type="minor", since_ms=1789999999000,
            policy="quota", key="0.100, never", quota=0.5, limit=2, occupation=0.1, held_back="blocked",
        )
    ],
    waiting=[
        pb.WaitingProcess(
            process_id="01997a4c", table="sales.db.returns", group="default", place=1, type="minor", waiting_tasks=1200,
            running_tasks=3, limit=2, share=0.5, ahead_s=61.2, created_ms=1789999999000,
        )
    ],
    pending_total=3,
    waiting_total=1,
)  # fmt: skip


def test_what_waits_is_shown_in_two_lists(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", ANSWER)
    result = cli("group", "queue", "default", "--limit", "1")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "Tables that wait for a plan:\n"
        "GROUP    PLACE  TABLE            TYPE   SINCE                 POLICY  KEY           HELD BACK\n"
        "default      1  sales.db.orders  minor  2026-09-21 14:13:19Z  quota   0.100, never  blocked\n"
        "and 2 more\n"
        "\n"
        "Processes that wait for threads:\n"
        "GROUP    PLACE  PROCESS   TABLE             WAITING  RUNNING  SHARE  AHEAD\n"
        "default      1  01997a4c  sales.db.returns    1,200      3/2    50%   61 s\n"
    )
    assert [(request.group, request.limit) for request in admin.asked("ListQueue")] == [("default", 1)]


def test_an_empty_queue_is_said_in_words(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", pb.ListQueueResponse())
    assert cli("group", "queue").out == "Nothing waits for a plan.\n\nNothing waits for threads.\n"


def test_programs_get_every_field_and_the_names_of_what_waits(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", ANSWER)
    body = json.loads(cli("group", "queue", "-o", "json").out)
    assert (body["schema"], body["pending_total"], body["pending"][0]["since_at"]) == (
        "amoro.queue/v1",
        3,
        "2026-09-21T14:13:19.000Z",
    )
    assert body["waiting"][0]["share"] == 0.5
    assert cli("group", "queue", "-o", "name").out == "sales.db.orders\n01997a4c\n"

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
    next="cursor-2",
)  # fmt: skip


def test_what_waits_is_shown_in_two_lists(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", ANSWER)
    result = cli("group", "queue", "default", "--limit", "1")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "Tables that wait for a plan:\n"
        "GROUP    PLACE  TABLE            TYPE   SINCE                 POLICY  KEY           HELD BACK\n"
        "default      1  sales.db.orders  minor  2026-09-21 14:13:19Z  quota   0.100, never  blocked\n"
        "and 2 more: see --limit\n"
        "\n"
        "Processes that wait for threads:\n"
        "GROUP    PLACE  PROCESS   TABLE             WAITING  RUNNING  SHARE  AHEAD\n"
        "default      1  01997a4c  sales.db.returns    1,200      3/2    50%   61 s\n"
    )
    assert admin.asked("ListQueue") == [pb.ListQueueRequest(group="default", limit=1)]


def test_an_empty_queue_is_said_in_words(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", pb.ListQueueResponse())
    assert cli("group", "queue").out == "Nothing waits for a plan.\n\nNothing waits for threads.\n"


def test_programs_get_every_field_and_the_names_of_what_waits(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", ANSWER)
    body = json.loads(cli("group", "queue", "--limit", "1", "-o", "json").out)
    assert (body["schema"], body["pending_total"], body["pending"][0]["since_at"], body["next"]) == (
        "amoro.queue/v1",
        3,
        "2026-09-21T14:13:19.000Z",
        "cursor-2",
    )
    assert body["waiting"][0]["share"] == 0.5
    assert cli("group", "queue", "--limit", "1", "-o", "name").out == "sales.db.orders\n01997a4c\n"


def page(*table_ids: int, following: str = "", moved: bool = False) -> pb.ListQueueResponse:
    tables = [pb.PendingTable(table=f"c.d.t{one}", table_id=one, group="default") for one in table_ids]
    return pb.ListQueueResponse(pending=tables, pending_total=9, next=following, order_changed=moved)


def test_pages_are_asked_for_up_to_the_limit_and_a_table_on_two_is_listed_once(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", page(1, 2, following="b"), page(2, 3, following="c", moved=True), page(4, 5))
    result = cli("group", "queue", "--only", "pending")
    rows = [line.split()[2] for line in result.out.splitlines() if line.startswith("default")]
    assert rows == ["c.d.t1", "c.d.t2", "c.d.t3", "c.d.t4", "c.d.t5"]
    assert "The queue has moved since the page before" in result.out
    assert "threads" not in result.out
    wanted = [pb.ListQueueRequest(limit=1000, after=after, only="pending") for after in ("", "b", "c")]
    assert admin.asked("ListQueue") == wanted
    admin.script("ListQueue", page(1, 2, following="b"), page(3, following="c"))
    assert cli("group", "queue", "--limit", "3", "-o", "name").out == "c.d.t1\nc.d.t2\nc.d.t3\n"
    assert [one.limit for one in admin.asked("ListQueue")[3:]] == [3, 1]


def test_what_follows_a_cursor_is_listed_alone(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", page(7, following="b"))
    result = cli("group", "queue", "--after", "a", "--limit", "1")
    assert result.out.splitlines()[3:] == ["", "Nothing more waits for threads.", "", "and more: see --limit"]
    assert [one.after for one in admin.asked("ListQueue")] == ["a"]


def test_an_unknown_list_is_refused_with_those_there_are(cli: Cli) -> None:
    result = cli("group", "queue", "--only", "pendin")
    assert result.status == 2
    assert "pending" in result.err
    assert "waiting" in result.err

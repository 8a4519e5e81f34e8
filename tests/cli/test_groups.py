import json

import pytest

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

GROUP = pb.Group(
    name="nightly",
    scheduling_policy="quota",
    properties={"owner": "data"},
    container="external",
    optimizers=2,
    threads=8,
    tables=1200,
    running_tasks=5,
    uses=[
        pb.GroupUse(table="sales.db.orders", quota=0.5, limit=4, running_tasks=5, occupation=1.25, table_id=7),
        pb.GroupUse(table="sales.db.lines", quota=0, limit=0, occupation=-1),
    ],
)
DETAIL = (
    "group           nightly\n"
    "policy          quota\n"
    "container       external\n"
    "optimizers      2\n"
    "threads         8, 5 busy\n"
    "tables          1,200\n"
    "property owner  data\n"
    "\n"
    "  TABLE            QUOTA  LIMIT  BUSY      USED\n"
    "  sales.db.orders    0.5      4     5      125%\n"
    "  sales.db.lines       0      0     0  no limit\n"
)


def test_a_group_is_created(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CreateGroup", GROUP)
    result = cli("group", "create", "nightly", "--policy", "balanced", "--property", "owner=data")
    assert (result.status, result.out, result.err) == (0, DETAIL, "")
    assert admin.asked("CreateGroup") == [
        pb.CreateGroupRequest(
            name="nightly", scheduling_policy="balanced", properties={"owner": "data"}, container="external"
        )
    ]


def test_groups_are_listed(cli: Cli, admin: FakeAdmin) -> None:
    admin.script(
        "ListGroups",
        pb.ListGroupsResponse(groups=[pb.Group(name="default", scheduling_policy="quota", container="external")]),
    )
    result = cli("group", "list")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "GROUP    POLICY  CONTAINER  OPTIMIZERS  THREADS  BUSY  TABLES\n"
        "default  quota   external            0        0     0       0\n"
    )
    assert json.loads(cli("group", "list", "-o", "json").out) == {
        "schema": "amoro.groups/v1",
        "groups": [
            {
                "name": "default",
                "scheduling_policy": "quota",
                "properties": {},
                "optimizers": 0,
                "threads": 0,
                "tables": 0,
                "running_tasks": 0,
                "container": "external",
                "wanted_instances": 0,
                "failed_starts": 0,
                "start_failure": "",
                "retry_start_at": None,
                "gave_up_starting": False,
                "no_optimizer": "",
            }
        ],
        "total": 0,
        "next": None,
    }


def test_a_group_is_shown_with_what_its_tables_used(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetGroup", GROUP)
    assert cli("group", "show", "nightly").out == DETAIL
    body = json.loads(cli("group", "show", "nightly", "-o", "json").out)
    assert body["schema"] == "amoro.group/v1"
    assert body["uses"] == [
        {"table": "sales.db.orders", "quota": 0.5, "limit": 4, "running_tasks": 5, "occupation": 1.25, "table_id": 7},
        {"table": "sales.db.lines", "quota": 0.0, "limit": 0, "running_tasks": 0, "occupation": None, "table_id": 0},
    ]


def test_a_group_is_updated_by_what_is_named(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("UpdateGroup", GROUP)
    result = cli("group", "update", "nightly", "--property", "a=b", "--unset", "c")
    assert (result.status, result.out, result.err) == (0, DETAIL, "")
    assert admin.asked("UpdateGroup") == [
        pb.UpdateGroupRequest(name="nightly", properties={"a": "b"}, removed_properties=["c"])
    ]


@pytest.mark.parametrize("arguments", [("update", "nightly"), ("create", "x", "--property", "a")])
def test_wrong_usage_asks_nothing(cli: Cli, admin: FakeAdmin, arguments: tuple[str, ...]) -> None:
    result = cli("group", *arguments)
    assert (result.status, result.out) == (2, "")
    assert admin.requests == []


def test_the_coordinator_alone_knows_which_policies_there_are(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CreateGroup", pb.Group(name="nightly", scheduling_policy="by-size"))
    assert cli("group", "create", "nightly", "--policy", "by-size").status == 0
    assert admin.requests == [
        ("CreateGroup", pb.CreateGroupRequest(name="nightly", scheduling_policy="by-size", container="external"))
    ]


def test_a_group_is_removed(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("RemoveGroup", pb.RemoveGroupResponse(name="nightly"))
    assert cli("group", "remove", "nightly").out == "Group nightly is removed.\n"
    assert json.loads(cli("group", "remove", "nightly", "-o", "json").out) == {
        "schema": "amoro.removed/v1",
        "name": "nightly",
    }


def test_memory_of_a_group_is_a_property(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CreateGroup", GROUP)
    admin.script("UpdateGroup", GROUP)
    assert cli("group", "create", "nightly", "--memory", "1GB").status == 0
    assert admin.asked("CreateGroup")[0].properties == {"memory": "1024MB"}
    assert cli("group", "update", "nightly", "--memory", "512MB").status == 0
    assert admin.asked("UpdateGroup")[0].properties == {"memory": "512MB"}
    assert cli("group", "update", "nightly", "--memory", "1GB", "--property", "memory=1").status == 2


def test_a_group_is_scaled_and_its_instances_are_shown(cli: Cli, admin: FakeAdmin) -> None:
    instance = pb.Instance(
        resource_id="r1", container="local", state="running", started_ms=0, optimizer_id="o1", handle="12"
    )
    admin.script("ScaleGroup", pb.Group(name="x", scheduling_policy="quota", container="local", wanted_instances=2))
    result = cli("group", "scale", "x", "2")
    assert (result.status, result.err) == (0, "")
    assert "container   local\ninstances   0 of 2\n" in result.out
    assert admin.asked("ScaleGroup") == [pb.ScaleGroupRequest(name="x", instances=2)]
    admin.script(
        "GetGroup",
        pb.Group(
            name="x",
            container="local",
            wanted_instances=2,
            instances=[instance],
            failed_starts=5,
            start_failure="no memory",
            gave_up_starting=True,
        ),
    )
    shown = cli("group", "show", "x").out.splitlines()
    assert "failed starts  5 in a row, given up; scale it to try again: no memory" in shown
    assert [line.split() for line in shown[-2:]] == [
        ["INSTANCE", "CONTAINER", "STATE", "STARTED", "OPTIMIZER"],
        ["r1", "local", "running", "never", "o1"],
    ]
    assert cli("group", "scale", "x", "-1").status == 2


def test_a_group_gets_another_container(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("UpdateGroup", GROUP)
    assert cli("group", "update", "nightly", "--container", "local").status == 0
    assert admin.asked("UpdateGroup") == [pb.UpdateGroupRequest(name="nightly", container="local")]


STATUS = pb.InstanceStatus(
    resource_id="r-1",
    group="nightly",
    container="local",
    state="stopping",
    started_ms=NOON,
    since_ms=NOON,
    optimizer_id="o-1",
    handle="12",
    liveness="ended",
    detail="its process has ended with status 1",
)


@pytest.mark.parametrize(("verb", "method"), [("status", "GetInstance"), ("kill", "KillInstance")])
def test_how_an_instance_stands_is_shown(cli: Cli, admin: FakeAdmin, verb: str, method: str) -> None:
    admin.script(method, STATUS)
    result = cli("optimizer", verb, "r-1234")
    assert (result.status, result.err) == (0, "")
    assert result.out.splitlines() == [
        "instance            r-1",
        "group               nightly",
        "container           local",
        "state               stopping since 2026-09-21 14:13:20Z",
        "started             2026-09-21 14:13:20Z",
        "optimizer           o-1",
        "handle              12",
        "its container says  ended: its process has ended with status 1",
    ]
    assert [request.id for request in admin.asked(method)] == ["r-1234"]
    body = json.loads(cli("optimizer", verb, "r-1234", "-o", "json").out)
    assert (body["schema"], body["liveness"], body["optimizer_id"]) == ("amoro.instance/v1", "ended", "o-1")


def test_the_log_of_an_instance_is_shown_and_steers_no_terminal(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetInstanceLogs", pb.InstanceLogs(resource_id="r-1", lines=["one", "two \x1b[2J"]))
    result = cli("optimizer", "logs", "r-1234")
    assert (result.status, result.out, result.err) == (0, "one\ntwo \\x1b[2J\n", "")
    assert cli("optimizer", "logs", "r-1234", "--lines", "7").status == 0
    assert [(request.id, request.lines) for request in admin.asked("GetInstanceLogs")] == [
        ("r-1234", 100),
        ("r-1234", 7),
    ]
    assert json.loads(cli("optimizer", "logs", "r-1234", "-o", "json").out) == {
        "schema": "amoro.logs/v1",
        "resource_id": "r-1",
        "lines": ["one", "two \x1b[2J"],
    }
    assert cli("optimizer", "logs", "r-1234", "--lines", "0").status == 2
    admin.script("GetInstanceLogs", pb.InstanceLogs(resource_id="r-1"))
    assert cli("optimizer", "logs", "r-1234").out.startswith("No output yet")

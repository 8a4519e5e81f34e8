"""Several tables and patterns: each has its outcome, and one exit status stands for all."""

import json
from typing import Any

import pytest

from amoro_cli.outcomes import WORST_FIRST, worst
from amoro_core import errors
from amoro_core.errors import AmoroError
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import PROCESS, nothing, plan, process, table

REFUSED = Failure("a.b.off is switched off", "AMORO-6001", 6, "Switch it on.")
GONE = Failure("table a.b.gone does not exist", "AMORO-3002", 3, "See: amoro table list")
TABLES = ("a.b.one", "a.b.idle", "a.b.off", "a.b.gone")


def selecting(admin: FakeAdmin, *tables: str, **more: Any) -> None:
    admin.script("SelectTables", pb.SelectTablesResponse(tables=tables, **more))


def optimized(request: pb.OptimizeTableRequest) -> Any:
    match request.table:
        case "a.b.idle":
            return pb.OptimizeTableResponse(plan=nothing(table=request.table))
        case "a.b.off":
            return REFUSED
        case "a.b.gone":
            return GONE
    return pb.OptimizeTableResponse(process_id=f"{PROCESS[:-1]}{request.table[-1]}", plan=plan(table=request.table))


def planned(request: pb.PlanTableRequest) -> Any:
    match request.table:
        case "a.b.off":
            return REFUSED
        case "a.b.idle":
            return nothing(table=request.table)
        case "a.b.large":
            return plan(table=request.table, enabled=False, type="major", reason="many files")
        case "a.b.small":
            part = pb.PlannedPartition(type="minor", data_files=3, input_bytes=2**30, expected_files=2)
            return plan(table=request.table, enabled=False, partitions=[part], reason="few files")
    part = pb.PlannedPartition(type="minor", data_files=2, input_bytes=2**20, expected_files=1)
    return plan(table=request.table, enabled=True, partitions=[part], reason="two files")


def test_several_tables_are_optimized_and_each_has_its_line_and_the_worst_ends_the_command(
    cli: Cli, admin: FakeAdmin
) -> None:
    selecting(admin, *TABLES)
    admin.script("OptimizeTable", optimized)
    admin.script("GetProcess", process(table="a.b.one"))
    result = cli("optimize", "a.b.*", "a.b.gone", "--wait")
    assert admin.asked("SelectTables") == [pb.SelectTablesRequest(names=["a.b.*", "a.b.gone"])]
    assert result.status == 3
    assert result.out == (
        "TABLE     OUTCOME        FILES    DELETES  ROWS           TOOK  WHY\n"
        "a.b.one   success        54 → 10  14 → 0   9,812,004 ✓  14.2 s  12 small files in dt=2026-09-20\n"
        "a.b.idle  nothing to do  -        -        -                 -  below all triggers; next minor by interval\n"
        "a.b.off   refused        -        -        -                 -  [AMORO-6001] a.b.off is switched off\n"
        "a.b.gone  not found      -        -        -                 -  [AMORO-3002] table a.b.gone does not exist\n"
        "4 tables: 1 success, 1 nothing to do, 1 refused, 1 not found\n"
    )
    assert result.err.endswith(
        "Error: 2 of 4 tables did not succeed; the worst is a.b.gone: table a.b.gone does not exist "
        "[AMORO-3002]\nHint: See: amoro table list\n"
    )


def test_several_tables_as_json_have_their_outcomes_and_the_status_that_stands_for_all(
    cli: Cli, admin: FakeAdmin
) -> None:
    selecting(admin, *TABLES)
    admin.script("OptimizeTable", optimized)
    result = cli("optimize", *TABLES, "-o", "json")
    body = json.loads(result.out)
    assert (result.status, body["schema"], body["exit_status"]) == (3, "amoro.optimized/v1", 3)
    assert [
        (item["table"], item["outcome"], item["exit_status"], item["code"], bool(item["process_id"]))
        for item in body["tables"]
    ] == [
        ("a.b.one", "planned", 0, "", True),
        ("a.b.idle", "nothing_to_do", 0, "", False),
        ("a.b.off", "refused", 6, "AMORO-6001", False),
        ("a.b.gone", "not_found", 3, "AMORO-3002", False),
    ]
    assert (body["tables"][2]["hint"], body["tables"][2]["plan"]) == ("Switch it on.", None)
    assert cli("optimize", *TABLES, "-o", "name").out == f"{PROCESS[:-1]}e\n"


def test_a_coordinator_has_all_tables_before_the_first_is_waited_for_and_busy_ones_come_last(
    cli: Cli, admin: FakeAdmin
) -> None:
    selecting(admin, "a.b.one", "a.b.two")
    busy = Failure("a.b.one is busy", "AMORO-5004", 5)
    answers = {"a.b.one": [busy], "a.b.two": []}

    def answer(request: pb.OptimizeTableRequest) -> Any:
        return answers[request.table].pop() if answers[request.table] else optimized(request)

    admin.script("OptimizeTable", answer)
    admin.script("GetProcess", process())
    assert cli("optimize", "a.b.*", "--wait").status == 0
    assert [(name, getattr(request, "table", "")) for name, request in admin.requests] == [
        ("SelectTables", ""),
        ("OptimizeTable", "a.b.one"),
        ("OptimizeTable", "a.b.two"),
        ("OptimizeTable", "a.b.one"),
        ("GetProcess", ""),
        ("ListTasks", ""),
        ("GetProcess", ""),
        ("ListTasks", ""),
    ]


def test_what_has_not_been_begun_in_time_says_so(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin, "a.b.one", "a.b.idle")
    admin.script("OptimizeTable", optimized)
    result = cli("optimize", "a.b.*", "--timeout", "1ms", "-o", "json")
    assert result.status == 124
    assert [(item["outcome"], item["message"]) for item in json.loads(result.out)["tables"]] == [
        ("not_ended", "a.b.one was not started in time"),
        ("not_ended", "a.b.idle was not started in time"),
    ]


def test_one_name_is_told_as_ever_and_a_pattern_for_one_table_as_several(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin, "a.b.idle")
    admin.script("OptimizeTable", optimized)
    for names, schema in ((["a.b.idle"], "amoro.optimize/v1"), (["a.b.id*"], "amoro.optimized/v1")):
        assert json.loads(cli("optimize", *names, "-o", "json").out)["schema"] == schema
    assert len(admin.asked("SelectTables")) == 1


def test_a_name_in_backticks_is_no_pattern(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetTable", table())
    assert cli("table", "show", "a.b.`st*r`").status == 0
    assert admin.requests == [("GetTable", pb.GetTableRequest(table="a.b.`st*r`"))]


def test_a_pattern_that_matches_nothing_is_told_by_the_coordinator_and_nothing_is_done(
    cli: Cli, admin: FakeAdmin
) -> None:
    admin.script("SelectTables", Failure("no table matches 'a.x*'", "AMORO-3002", 3))
    result = cli("optimize", "a.b.c", "a.x*")
    assert (result.status, result.out) == (3, "")
    assert result.err.startswith("Error: no table matches 'a.x*' [AMORO-3002]\n")
    assert [name for name, _ in admin.requests] == ["SelectTables"]


@pytest.mark.parametrize("wrong", ["a b*", "a.`b*"])
def test_a_malformed_pattern_is_wrong_usage(cli: Cli, admin: FakeAdmin, wrong: str) -> None:
    for words in (("plan",), ("optimize",), ("table", "show"), ("table", "enable")):
        result = cli(*words, wrong)
        assert (result.status, result.out) == (2, "")
        assert f"{wrong!r} is not" in result.err
    assert admin.requests == []


def test_a_plan_without_a_table_ranks_those_of_all_catalogs_by_gain_for_cost(cli: Cli, admin: FakeAdmin) -> None:
    selecting(
        admin,
        *("a.b.idle", "a.b.large", "a.b.off", "a.b.small", "a.b.self"),
        unlisted=[pb.UnlistedCatalog(catalog="down", code="AMORO-1010", exit_status=1, message="no answer")],
    )
    admin.script("PlanTable", planned)
    result = cli("plan")
    assert admin.asked("SelectTables") == [pb.SelectTablesRequest()]
    assert result.status == 1
    assert result.out == (
        "TABLE      WHAT     AUTOMATIC  FILES SAVED   READS  WHY\n"
        "a.b.self   minor    yes                  1  1.0 MB  two files\n"
        "a.b.large  major    no                  56  310 MB  many files\n"
        "a.b.small  minor    no                   1  1.0 GB  few files\n"
        "a.b.idle   nothing  yes                  -       -  below all triggers; next minor by interval\n"
        "a.b.off    refused  -                    -       -  [AMORO-6001] a.b.off is switched off\n"
        "down       failed   -                    -       -  [AMORO-1010] no answer\n"
        "6 tables: 3 planned, 1 nothing to do, 1 refused, 1 failed. Nothing was changed.\n"
    )
    body = json.loads(cli("plan", "-o", "json").out)
    assert [(item["table"], item["gain_files"], item["cost_bytes"]) for item in body["tables"]][:2] == [
        ("a.b.self", 1, 2**20 + 2 * 4 * 2**20),
        ("a.b.large", 56, 310 * 2**20 + 60 * 4 * 2**20),
    ]
    assert cli("plan", "-o", "name").out == "a.b.self\na.b.large\na.b.small\n"


def test_no_tables_at_all_are_no_error(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin)
    result = cli("plan")
    assert (result.status, result.out, result.err) == (0, "No catalog has any tables.\n", "")


def test_a_condition_and_a_type_are_for_every_table_and_explain_shows_each(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin, "a.b.small", "a.b.idle")
    admin.script("PlanTable", planned)
    out = cli("plan", "a.*", "--type", "full", "--where", "dt = 1", "--explain").out
    assert {(one.type, one.where) for one in admin.asked("PlanTable")} == {("full", "dt = 1")}
    assert "\na.b.small  main@" in out
    assert "Nothing to do for a.b.idle" in out


def test_tables_are_shown_enabled_and_disabled_together(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin, "a.b.one", "a.b.gone")
    admin.script("GetTable", lambda request: GONE if request.table == "a.b.gone" else table(table=request.table))
    admin.script("SetTableEnabled", lambda request: table(table=request.table, enabled=request.enabled))
    shown = cli("table", "show", "a.*")
    assert (shown.status, shown.out.splitlines()[0]) == (3, "table           a.b.one")
    assert shown.out.splitlines()[-3:] == [
        "TABLE     OUTCOME    WHY",
        "a.b.gone  not found  [AMORO-3002] table a.b.gone does not exist",
        "2 tables: 1 pending, 1 not found",
    ]
    done = cli("table", "disable", "a.*", "-o", "json")
    assert done.status == 0
    assert [(item["table"], item["result"]["enabled"]) for item in json.loads(done.out)["tables"]] == [
        ("a.b.one", False),
        ("a.b.gone", False),
    ]
    assert cli("table", "enable", "a.*").out.splitlines()[1].startswith("a.b.one   pending  yes")


def test_the_exit_status_of_several_tables_is_the_worst_by_an_order_that_knows_every_status() -> None:
    known = {
        kind.exit_status for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmoroError)
    }
    assert set(WORST_FIRST) == known | {0}
    assert worst([]) == 0
    for rank, status in enumerate(WORST_FIRST):
        assert worst(WORST_FIRST[rank:]) == status
    assert worst([0, 1, 99]) == 99

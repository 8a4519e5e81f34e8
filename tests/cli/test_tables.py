"""Tables: lists with their order and columns, one of them, several of them, and upgrading."""

import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2
from tests.cli.conftest import Cli, Terminal
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import NOON, PROCESS, listed, nothing, plan, process, table, task


def test_tables_are_listed_as_json_with_exact_numbers_and_iso_times(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", pb.ListTablesResponse(tables=[table()], total_is_exact=True))
    result = cli("table", "list", "--catalog", "sales", "--status", "PENDING", "-o", "json")
    assert (result.status, result.err) == (0, "")
    body = json.loads(result.out)
    (one,) = body["tables"]
    assert (body["schema"], body["total"], body["next"]) == ("amoro.tables/v1", 0, None)
    assert (one["snapshot_id"], one["status_since"]) == (5120000000000000881, "2026-09-21T14:13:20.123Z")
    assert (one["last_optimized_at"], one["process_id"], one["files"]["data_bytes"]) == (None, None, 325058560)
    asked = pb.ListTablesRequest(catalog="sales", status="pending", sort="saving", order="desc")
    assert admin.asked("ListTables") == [asked]


def _pages(names: list[str], size: int, *, is_exact: bool = True) -> Callable[[pb.ListTablesRequest], Any]:
    """Answers with so many tables each."""

    def answer(request: pb.ListTablesRequest) -> pb.ListTablesResponse:
        start = names.index(request.after) + 1 if request.after else 0
        shown = names[start : start + min(request.limit or size, size)]
        rest = shown[-1] if shown and shown[-1] != names[-1] else ""
        total = len(names) if is_exact else 3
        tables = [table(table=name) for name in shown]
        return pb.ListTablesResponse(tables=tables, next=rest, total=total, total_is_exact=is_exact)

    return answer


def test_a_list_is_asked_for_page_by_page_until_its_limit(cli: Cli, admin: FakeAdmin) -> None:
    names = [f"a.b.t{number}" for number in range(7)]
    admin.script("ListTables", _pages(names, 3))
    assert cli("table", "list", "-o", "name").out.split() == names
    pages = [(request.limit, request.after) for request in admin.asked("ListTables")]
    assert pages == [(0, ""), (0, "a.b.t2"), (0, "a.b.t5")]
    admin.requests.clear()
    body = json.loads(cli("table", "list", "--limit", "4", "--after", "a.b.t0", "-o", "json").out)
    assert ([item["table"] for item in body["tables"]], body["total"], body["next"]) == (names[1:5], 7, "a.b.t4")
    assert [(request.limit, request.after) for request in admin.asked("ListTables")] == [(4, "a.b.t0"), (1, "a.b.t3")]
    assert cli("table", "list", "--limit", "5").out.endswith("\nand 2 more: see --limit\n")
    assert cli("table", "list", "--limit", "2", "--after", "a.b.t0").out.endswith("\nand more: see --limit\n")
    assert "more" not in cli("table", "list", "--limit", "2", "--after", "a.b.t4").out
    names = [f"a.b.t{number}" for number in range(9)]
    admin.script("ListTables", _pages(names, 2, is_exact=False))
    assert cli("table", "list", "--limit", "2").out.endswith("\nand more than 1 more: see --limit\n")
    assert cli("table", "list", "--limit", "4").out.endswith("\nand more: see --limit\n")
    assert "more" not in cli("table", "list").out
    assert json.loads(cli("table", "list", "-o", "json").out)["total"] == 9


def test_jsonl_has_a_line_for_each_item_of_a_list_and_one_for_anything_else(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", _pages(["a.b.c", "a.b.d"], 1))
    lines = cli("table", "list", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["table"] for line in lines] == ["a.b.c", "a.b.d"]
    admin.script("GetTable", table())
    assert json.loads(cli("table", "show", "sales.db.orders", "-o", "jsonl").out)["schema"] == "amoro.table/v1"


def test_a_failure_between_pages_ends_the_command_and_nothing_is_listed(cli: Cli, admin: FakeAdmin) -> None:
    first = pb.ListTablesResponse(tables=[table()], next="x", total=2, total_is_exact=True)
    admin.script("ListTables", first, Failure("the store is gone", "AMORO-5001", 1))
    result = cli("table", "list", "-o", "name")
    assert (result.status, result.out) == (1, "")
    assert "the store is gone" in result.err


def test_a_failing_table_says_by_what_since_when_and_when_it_is_tried_again(cli: Cli, admin: FakeAdmin) -> None:
    failing = table(
        state="failing", status="idle", status_reason="12 small files; after a failure", failures=1,
        failure_code="AMORO-1002", failing_since_ms=NOON, retry_at_ms=NOON + 60_000, failure="minor: [AMORO-1002] gone",
    )  # fmt: skip
    admin.script("GetTable", failing)
    assert {
        "state           failing with AMORO-1002 since 2026-09-21 14:13:20Z: 12 small files; after a failure",
        "last failure    minor: [AMORO-1002] gone",
        "next try        2026-09-21 14:14:20Z",
    } <= {*cli("table", "show", "db.orders").out.splitlines()}
    admin.script("ListTables", pb.ListTablesResponse(tables=[failing]))
    shown = cli("table", "list", "--columns", "state,failure,status").out
    assert shown == "STATE    FAILURE     STATUS\nfailing  AMORO-1002  idle\n"
    # Of one that could not be evaluated no figures are told.
    refused = {"state": "refused", "status": "refused", "status_reason": "format: no", "health_score": -1}
    admin.script("GetTable", pb.Table(table="sales.db.orders", **refused))
    first_words = [line.split()[0] for line in cli("table", "show", "db.orders").out.splitlines()]
    assert first_words[:5] == ["table", "state", "optimized", "group", "last"]
    assert first_words[5:] == ["evaluated", "format", "location", "uuid", "registered"]


def test_enabling_and_disabling_answer_with_the_table(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("SetTableEnabled", table())
    shown = cli("table", "enable", "sales.db.orders").out
    assert shown.startswith("table           sales.db.orders\nstate           due")
    body = json.loads(cli("table", "disable", "sales.db.orders", "-o", "json").out)
    assert (body["schema"], body["table"]) == ("amoro.table/v1", "sales.db.orders")
    asked = [(request.table, request.enabled) for request in admin.asked("SetTableEnabled")]
    assert asked == [("sales.db.orders", True), ("sales.db.orders", False)]


@pytest.fixture
def _tables(admin: FakeAdmin) -> None:
    tables = [
        table(table=f"a.b.{name}", files=pb.FileSummary(data_files=files, data_bytes=files), health_score=health)
        for name, files, health in (("nine", 9, 50), ("ten", 10, 90), ("new", 0, -1), ("more", 1000, 50))
    ]
    admin.script("ListTables", pb.ListTablesResponse(tables=tables))


AS_THEY_STAND = ["nine", "ten", "new", "more"]


@pytest.mark.usefixtures("_tables")
@pytest.mark.parametrize(
    ("sort_by", "asked", "names"),
    [
        # By one column they are sorted where they are kept.
        ("table", ("name", "asc"), AS_THEY_STAND),
        ("-Small", ("small-files", "desc"), AS_THEY_STAND),
        # By several, or by one that is no key of the coordinator, here: by their number, and equal ones as they stand.
        ("optimized", ("", ""), AS_THEY_STAND),
        ("-files,status", ("", ""), ["more", "ten", "nine", "new"]),
        ("-health,table", ("", ""), ["ten", "more", "nine", "new"]),
    ],
)
def test_a_list_is_sorted_by_what_its_columns_mean(
    cli: Cli, admin: FakeAdmin, sort_by: str, asked: tuple[str, str], names: list[str]
) -> None:
    assert cli("table", "list", "--sort-by", sort_by, "-o", "name").out.split() == [f"a.b.{name}" for name in names]
    assert [(request.sort, request.order) for request in admin.asked("ListTables")] == [asked]
    body = json.loads(cli("table", "list", "--sort-by", sort_by, "-o", "json").out)
    assert [one["table"] for one in body["tables"]] == [f"a.b.{name}" for name in names]


@pytest.mark.usefixtures("_tables")
def test_a_list_has_the_columns_that_are_wanted_in_that_order(cli: Cli) -> None:
    assert cli("table", "list", "--columns", "health,table,last-optimized", "--sort-by", "-files,table").out == (
        "HEALTH  TABLE     LAST OPTIMIZED\n"
        "    50  a.b.more  never\n"
        "    90  a.b.ten   never\n"
        "    50  a.b.nine  never\n"
        "     -  a.b.new   never\n"
    )
    for name in ("LAST OPTIMIZED", "last_optimized"):
        assert cli("table", "list", "--columns", name).out.startswith("LAST OPTIMIZED\nnever\n")
    wrong = cli("table", "list", "--columns", "last-optimised").err
    assert "Did you mean last-optimized? The columns are table, " in wrong
    assert "'' is not a column" in cli("table", "list", "--sort-by", "health,").err
    whole = json.loads(cli("table", "list", "--columns", "table", "-o", "json").out)
    assert whole["tables"][0]["health_score"] == 50


LISTS: list[tuple[str, str, Any]] = [
    ("table list", "ListTables", pb.ListTablesResponse(tables=[table()])),
    ("table files a.b.c", "ListTableFiles", pb.ListTableFilesResponse(files=[pb.TableFile(path="x")])),
    ("table snapshots a.b.c", "ListSnapshots", pb.ListSnapshotsResponse(snapshots=[pb.Snapshot(snapshot_id=4)])),
    ("process list", "ListProcesses", pb.ListProcessesResponse(processes=[process()])),
    (f"task list {PROCESS}", "ListTasks", listed(process(), task())),
    ("group list", "ListGroups", pb.ListGroupsResponse(groups=[pb.Group(name="g")])),
]


@pytest.mark.parametrize(("command", "method", "answer"), LISTS, ids=[one for one, *_ in LISTS])
def test_every_list_can_be_sorted_by_every_column_and_has_them_all_by_itself(
    cli: Cli, admin: FakeAdmin, command: str, method: str, answer: Any
) -> None:
    admin.script(method, answer)
    words = command.split()
    for option in ("--sort-by", "--columns"):
        refused = cli(*words, option, "nonsense")
        assert (refused.status, refused.out, admin.requests) == (2, "", [])
    known = re.search(r"'nonsense' is not a column\. The columns are ([^.]*)\.", refused.err)
    assert known is not None
    names = known[1].split(", ")
    whole = cli(*words)
    assert whole.status == 0
    title = whole.out.splitlines()[0]
    shown = ",".join(name for name in names if name.upper().replace("-", " ") in title)
    assert cli(*words, "--columns", shown, "--sort-by", f"-{','.join(names)}").out == whole.out
    last = cli(*words, "--columns", names[-1]).out.splitlines()[0]
    assert last.casefold().replace(" ", "-") == names[-1]
    told = " ".join(cli(*words[:2], "--help").out.split()).replace("- ", "-")
    assert f"in that order: {known[1]}" in told


REFUSED = Failure("a.b.off is switched off", "AMORO-6001", 6, "Switch it on.")
GONE = Failure("table a.b.gone does not exist", "AMORO-3002", 3, "See: amoro table list")


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
            saved = {"saved_files": 56, "saved_bytes": 310 * 2**20}
            return plan(table=request.table, enabled=False, type="major", reason="many files", **saved)
        case "a.b.small":
            part = pb.PlannedPartition(type="minor", data_files=3, input_bytes=2**30, expected_files=2)
            saved = {"saved_files": 1, "saved_bytes": 2**30}
            return plan(table=request.table, enabled=False, partitions=[part], reason="few files", **saved)
    part, saved = pb.PlannedPartition(type="minor", data_files=2), {"saved_files": 1, "saved_bytes": 2**20}
    return plan(table=request.table, enabled=True, partitions=[part], reason="two files", **saved)


def test_of_several_tables_each_has_its_line_and_the_worst_ends_the_command(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin, "a.b.one", "a.b.idle", "a.b.off", "a.b.gone")
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


def test_all_tables_are_begun_before_the_first_is_waited_for_and_busy_ones_last(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin, "a.b.one", "a.b.two")
    busy = Failure("a.b.one is busy", "AMORO-5004", 5)
    answers = {"a.b.one": [busy], "a.b.two": []}

    def answer(request: pb.OptimizeTableRequest) -> Any:
        return answers[request.table].pop() if answers[request.table] else optimized(request)

    admin.script("OptimizeTable", answer)
    admin.script("GetProcess", process())
    assert cli("optimize", "a.b.*", "--wait").status == 0
    assert [request.table for request in admin.asked("OptimizeTable")] == ["a.b.one", "a.b.two", "a.b.one"]
    assert [name for name, _ in admin.requests[4:]] == ["GetProcess", "ListTasks"] * 2


def test_one_name_is_told_as_ever_a_pattern_as_several_and_what_was_not_begun_so(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin, "a.b.idle")
    admin.script("OptimizeTable", optimized)
    for names, schema in ((["a.b.idle"], "amoro.optimize/v1"), (["a.b.id*"], "amoro.optimized/v1")):
        assert json.loads(cli("optimize", *names, "-o", "json").out)["schema"] == schema
    assert len(admin.asked("SelectTables")) == 1
    selecting(admin, "a.b.one", "a.b.idle")
    admin.script("OptimizeTable", optimized)
    result = cli("optimize", "a.b.*", "--timeout", "1ms", "-o", "json")
    assert result.status == 124
    outcomes = [(item["outcome"], item["message"]) for item in json.loads(result.out)["tables"]]
    assert outcomes == [("not_ended", f"{name} was not started in time") for name in ("a.b.one", "a.b.idle")]


def test_of_a_pattern_that_matches_nothing_the_coordinator_tells_and_nothing_is_done(
    cli: Cli, admin: FakeAdmin
) -> None:
    admin.script("SelectTables", Failure("no table matches 'a.x*'", "AMORO-3002", 3))
    result = cli("optimize", "a.b.c", "a.x*")
    assert (result.status, result.out) == (3, "")
    assert result.err.startswith("Error: no table matches 'a.x*' [AMORO-3002]\n")
    assert [name for name, _ in admin.requests] == ["SelectTables"]


def test_a_plan_without_a_table_ranks_those_of_all_catalogs_by_files_saved(cli: Cli, admin: FakeAdmin) -> None:
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
        "a.b.large  major    no                  56  310 MB  many files\n"
        "a.b.self   minor    yes                  1  1.0 MB  two files\n"
        "a.b.small  minor    no                   1  1.0 GB  few files\n"
        "a.b.idle   nothing  yes                  -       -  below all triggers; next minor by interval\n"
        "a.b.off    refused  -                    -       -  [AMORO-6001] a.b.off is switched off\n"
        "down       failed   -                    -       -  [AMORO-1010] no answer\n"
        "6 tables: 3 planned, 1 nothing to do, 1 refused, 1 failed. Nothing was changed.\n"
    )
    body = json.loads(cli("plan", "-o", "json").out)
    assert [(item["table"], item["gain_files"], item["cost_bytes"]) for item in body["tables"]][:2] == [
        ("a.b.large", 56, 310 * 2**20 + 60 * 4 * 2**20),
        ("a.b.self", 1, 2**20 + 2 * 4 * 2**20),
    ]
    assert cli("plan", "-o", "name").out == "a.b.large\na.b.self\na.b.small\n"


def test_a_condition_and_a_type_are_for_every_table_and_explain_shows_each(cli: Cli, admin: FakeAdmin) -> None:
    selecting(admin, "a.b.small", "a.b.idle")
    admin.script("PlanTable", planned)
    out = cli("plan", "a.*", "--type", "full", "--where", "dt = 1", "--explain").out
    assert {(one.type, one.where) for one in admin.asked("PlanTable")} == {("full", "dt = 1")}
    assert "\na.b.small  main@" in out
    assert "Nothing to do for a.b.idle" in out


def test_the_exit_status_of_several_tables_is_the_worst_of_all(cli: Cli, admin: FakeAdmin) -> None:
    """Each beside the one that is next to it."""
    worst_first = (1, 4, 2, 3, 6, 7, 5, 124)
    selecting(admin, "a.b.one", "a.b.two")
    statuses: dict[str, int] = {}
    admin.script("GetTable", lambda request: Failure("no", "AMORO-9999", statuses[request.table]))
    for worse, better in itertools.pairwise(worst_first):
        statuses |= {"a.b.one": better, "a.b.two": worse}
        assert cli("table", "show", "a.b.*").status == worse


NAME = "sales.db.orders"
COMMAND = ("table", "upgrade", NAME, "--format-version", "3")


@pytest.fixture(autouse=True)
def _answered(admin: FakeAdmin) -> None:
    def answer(request: snapshots_pb2.UpgradeTableRequest) -> snapshots_pb2.TableUpgrade:
        told = snapshots_pb2.TableUpgrade(table=request.table, before=2, after=3, is_done=not request.dry_run)
        told.notes.append("It can't be undone.")
        return told

    admin.script("UpgradeTable", answer)


def dry_runs(admin: FakeAdmin) -> Sequence[bool]:
    asked = admin.asked("UpgradeTable")
    assert {(one.table, one.format_version) for one in asked} <= {(NAME, 3)}
    return [one.dry_run for one in asked]


def test_with_yes_an_upgrade_does_not_ask_and_without_a_terminal_it_wants_yes(cli: Cli, admin: FakeAdmin) -> None:
    tried = cli(*COMMAND, "--dry-run")
    assert (tried.status, tried.err) == (0, "")
    assert tried.out == f"{NAME}: would be upgraded from format 2 to 3\n  It can't be undone.\n"
    refused = cli(*COMMAND)
    assert (refused.status, refused.out, dry_runs(admin)) == (2, "", [True, True])
    assert "there is no terminal to ask" in refused.err
    done = cli(*COMMAND, "--yes", "-o", "json")
    assert (done.status, done.err, dry_runs(admin)) == (0, "", [True, True, True, False])
    body = json.loads(done.out)
    assert (body["schema"], body["is_done"], body["before"], body["after"]) == ("amoro.upgrade/v1", True, 2, 3)


def test_it_asks_and_does_what_is_answered(cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, status in (("y", 0), ("Yes", 0), ("n", 2), ("", 2)):
        admin.requests.clear()
        monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
        done = cli(*COMMAND)
        assert (done.status, dry_runs(admin)) == (status, [True, False] if status == 0 else [True])
        assert "It can't be undone." in done.err
        assert f"Upgrade {NAME} from format 2 to 3? [y/N]\n" in done.err

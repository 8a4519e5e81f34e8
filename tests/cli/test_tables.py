import json
from collections.abc import Callable

import pytest

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import Failure, FakeAdmin
from tests.cli.messages import table

TABLE_JSON = {
    "table": "sales.db.orders",
    "table_uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
    "format_version": 2,
    "location": "file:///w/db/orders",
    "group": "default",
    "status": "pending",
    "status_reason": "minor: 12 small files",
    "status_since": "2026-09-21T14:13:20.123Z",
    "enabled": True,
    "enabled_origin": "amoro table enable",
    "snapshot_id": 5120000000000000881,
    "files": {
        "data_files": 1054,
        "data_bytes": 325058560,
        "fragment_files": 48,
        "undersized_files": 6,
        "equality_delete_files": 9,
        "position_delete_files": 3,
        "delete_bytes": 2048,
        "dangling_delete_files": 1,
        "records": 9812104,
        "coarse_files": 2,
        "coarse_bytes": 230686720,
    },
    "last_optimized_at": None,
    "retry_at": None,
    "process_id": None,
    "evaluated_at": "2026-09-21T14:13:20.123Z",
    "health_score": 61,
    "health_parts": {"small_files": 21, "equality_deletes": 30, "position_deletes": 10},
    "blockers": [],
    "no_optimizer": "",
    "failure": "",
    "format": "iceberg",
    "table_id": 0,
    "next_due_at": None,
    "late_deletes": "",
}
TABLE_TEXT = """\
table           sales.db.orders
status          pending since 2026-09-21 14:13:20Z: minor: 12 small files
optimized       yes: amoro table enable
health          61/100
health parts    small files 21/40, equality deletes 30/40, position deletes 10/20
snapshot        5120000000000000881
files           1,054, 310 MB
small           48 of 1,054 data files are fragments, 6 undersized
coarse          2 files of target size, 220 MB
deletes         9 equality, 3 position, 2.0 kB, 1 dangling
records         9,812,104, deletes not subtracted
group           default
last optimized  never
evaluated       2026-09-21 14:13:20Z
format          Iceberg, version 2
location        file:///w/db/orders
uuid            9c12d441-03fe-4693-9a96-a0705ddf69c1
"""
EMPTY = {"schema": "amoro.tables/v1", "tables": [], "total": 0, "next": None}


def test_tables_are_listed_in_aligned_columns_and_unknown_figures_are_dashes(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", pb.ListTablesResponse(tables=[table(), table(table="a.b.客", health_score=-1)]))
    result = cli("table", "list")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "TABLE            STATUS   OPTIMIZED  HEALTH  FILES    SIZE  SMALL  DELETES  LAST OPTIMIZED\n"
        "sales.db.orders  pending  yes            61  1,054  310 MB     54       12  never\n"
        "a.b.客           pending  yes             -      -       -      -        -  never\n"
    )


def test_tables_are_listed_as_json_with_exact_numbers_and_iso_times(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", pb.ListTablesResponse(tables=[table()], total_is_exact=True))
    result = cli("table", "list", "--catalog", "sales", "--status", "PENDING", "-o", "json")
    assert (result.status, result.err) == (0, "")
    assert json.loads(result.out) == {**EMPTY, "tables": [TABLE_JSON]}
    assert list(json.loads(result.out)["tables"][0]) == list(TABLE_JSON)
    assert admin.asked("ListTables") == [pb.ListTablesRequest(catalog="sales", status="pending")]


def test_names_only_are_one_on_a_line(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", pb.ListTablesResponse(tables=[table(), table(table="a.b.c")]))
    assert cli("table", "list", "-o", "name").out == "sales.db.orders\na.b.c\n"


def test_no_tables_are_said_with_the_way_to_some(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", pb.ListTablesResponse())
    assert cli("table", "list").out == (
        "No tables are known. `amoro up` finds those of all catalogs, and `amoro plan` looks at them once; "
        "`amoro catalog list` shows the catalogs, `amoro catalog add` adds one.\n"
    )
    assert cli("table", "list", "--status", "refused").out == "None of the known tables matches.\n"
    assert cli("table", "list", "-o", "name").out == ""
    assert json.loads(cli("table", "list", "-o", "json").out) == EMPTY


def test_a_list_is_asked_for_page_by_page_until_its_limit(cli: Cli, admin: FakeAdmin) -> None:
    names = [f"a.b.t{number}" for number in range(7)]

    def answer(request: pb.ListTablesRequest) -> pb.ListTablesResponse:
        following = [name for name in names if name > request.after]
        shown = following[: min(request.limit or 3, 3)]
        rest = shown[-1] if len(shown) < len(following) else ""
        return pb.ListTablesResponse(
            tables=[table(table=name) for name in shown], next=rest, total=7, total_is_exact=True
        )

    admin.script("ListTables", answer)
    assert cli("table", "list", "-o", "name").out.split() == names
    assert [(request.limit, request.after) for request in admin.asked("ListTables")] == [
        (0, ""), (0, "a.b.t2"), (0, "a.b.t5"),
    ]  # fmt: skip
    admin.requests.clear()
    body = json.loads(cli("table", "list", "--limit", "4", "--after", "a.b.t0", "-o", "json").out)
    assert ([item["table"] for item in body["tables"]], body["total"], body["next"]) == (names[1:5], 7, "a.b.t4")
    assert [(request.limit, request.after) for request in admin.asked("ListTables")] == [(4, "a.b.t0"), (1, "a.b.t3")]
    assert cli("table", "list", "--limit", "5").out.endswith("\nand 2 more: see --limit\n")
    assert cli("table", "list", "--limit", "2", "--after", "a.b.t0").out.endswith("\nand more: see --limit\n")
    assert "more" not in cli("table", "list", "--limit", "2", "--after", "a.b.t4").out


def _pages(
    names: list[str], size: int, *, is_exact: bool = True
) -> Callable[[pb.ListTablesRequest], pb.ListTablesResponse]:
    """Answers with so many tables each."""

    def answer(request: pb.ListTablesRequest) -> pb.ListTablesResponse:
        start = names.index(request.after) + 1 if request.after else 0
        shown = names[start : start + min(request.limit or size, size)]
        rest = shown[-1] if shown and shown[-1] != names[-1] else ""
        total = len(names) if is_exact else 3
        tables = [table(table=name) for name in shown]
        return pb.ListTablesResponse(tables=tables, next=rest, total=total, total_is_exact=is_exact)

    return answer


@pytest.mark.parametrize("form", ["json", "jsonl", "yaml", "name", "table", "wide"])
def test_pages_of_a_list_are_printed_as_one_page_would_be(cli: Cli, admin: FakeAdmin, form: str) -> None:
    names = ["a.b.long_name", *(f"a.b.t{number}" for number in range(6))]
    admin.script("ListTables", _pages(names, 100))
    whole = cli("table", "list", "-o", form)
    admin.script("ListTables", _pages(names, 2))
    admin.requests.clear()
    assert cli("table", "list", "-o", form) == whole
    assert len(admin.asked("ListTables")) == 4
    assert [name for name in names if name not in whole.out] == []


def test_jsonl_has_a_line_for_each_item_of_a_list_and_one_for_anything_else(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", _pages(["a.b.c", "a.b.d"], 1))
    lines = cli("table", "list", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["table"] for line in lines] == ["a.b.c", "a.b.d"]
    admin.script("GetTable", table())
    assert json.loads(cli("table", "show", "sales.db.orders", "-o", "jsonl").out)["schema"] == "amoro.table/v1"


def test_columns_grow_with_later_pages_of_a_piped_list(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", _pages(["a.b.c", "a.b.very_long_name", "a.b.e"], 1))
    assert cli("table", "list", "--columns", "table,health").out == (
        "TABLE  HEALTH\na.b.c      61\na.b.very_long_name      61\na.b.e                   61\n"
    )


def test_a_total_that_was_not_counted_to_its_end_says_so(cli: Cli, admin: FakeAdmin) -> None:
    names = [f"a.b.t{number}" for number in range(9)]
    admin.script("ListTables", _pages(names, 2, is_exact=False))
    assert cli("table", "list", "--limit", "2").out.endswith("\nand more than 1 more: see --limit\n")
    assert cli("table", "list", "--limit", "4").out.endswith("\nand more: see --limit\n")
    assert "more" not in cli("table", "list").out
    assert json.loads(cli("table", "list", "-o", "json").out)["total"] == 9


def test_filters_are_sent_to_the_coordinator(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTables", pb.ListTablesResponse(total_is_exact=True))
    result = cli(
        "table", "list", "--namespace", "db", "--text", "Ord", "--not-optimized", "--refusal", "format",
        "--health-below", "40", "--group", "g",
    )  # fmt: skip
    assert result.out == "None of the known tables matches.\n"
    (request,) = admin.asked("ListTables")
    assert request == pb.ListTablesRequest(
        namespace="db", text="Ord", enabled=False, refusal="format", health_below=40, group="g"
    )


def test_a_failure_between_pages_ends_the_command_with_what_was_listed_until_then(cli: Cli, admin: FakeAdmin) -> None:
    first = pb.ListTablesResponse(tables=[table()], next="x", total=2, total_is_exact=True)
    admin.script("ListTables", first, Failure("the store is gone", "AMORO-5001", 1))
    result = cli("table", "list", "-o", "name")
    assert (result.status, result.out) == (1, "sales.db.orders\n")
    assert "the store is gone" in result.err


def test_a_table_is_shown_with_its_health_and_who_decides(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetTable", table())
    result = cli("table", "show", "db.orders")
    assert (result.status, result.out, result.err) == (0, TABLE_TEXT, "")
    assert admin.asked("GetTable") == [pb.GetTableRequest(table="db.orders")]


def test_of_a_table_that_could_not_be_evaluated_no_figures_are_told(cli: Cli, admin: FakeAdmin) -> None:
    unseen = pb.Table(table="sales.db.orders", status="refused", status_reason="format: no", health_score=-1)
    admin.script("GetTable", unseen)
    assert cli("table", "show", "db.orders").out == (
        "table           sales.db.orders\n"
        "status          refused: format: no\n"
        "optimized       no\n"
        "health          not evaluated yet\n"
        "group\n"
        "last optimized  never\n"
        "evaluated       never\n"
        "format          not known\n"
        "location        -\n"
        "uuid            -\n"
    )


def test_the_format_of_a_table_is_told_by_its_name(cli: Cli, admin: FakeAdmin) -> None:
    told = []
    for format in ("journal", ""):  # coordinators of before tell none: their tables are Iceberg's
        admin.script("GetTable", table(format=format, format_version=1))
        told += [line for line in cli("table", "show", "db.orders").out.splitlines() if line.startswith("format")]
    assert told == ["format          Journal, version 1", "format          Iceberg, version 1"]


def test_a_property_that_is_not_known_is_said_with_what_may_have_been_meant(cli: Cli, admin: FakeAdmin) -> None:
    rows = [
        ("enabled", "false", "default"),
        ("quota", "0.5", "table"),
        ("enabld", "true", "unknown"),
        ("x", "", "unknown"),
    ]
    listed = [pb.Setting(key=f"self-optimizing.{key}", value=value, origin=origin) for key, value, origin in rows]
    admin.script("GetTableProperties", pb.GetTablePropertiesResponse(table="a.b.c", properties=listed))
    assert cli("table", "properties", "a.b.c").out.splitlines()[3:7] == [
        "self-optimizing.enabld   true   unknown",
        "self-optimizing.x        -      unknown",
        "self-optimizing.enabld is not known here: did you mean self-optimizing.enabled?",
        "self-optimizing.x is not known here.",
    ]


def test_enabling_and_disabling_answer_with_the_table(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("SetTableEnabled", table())
    assert cli("table", "enable", "sales.db.orders").out == TABLE_TEXT
    assert json.loads(cli("table", "disable", "sales.db.orders", "-o", "json").out) == {
        "schema": "amoro.table/v1",
        **TABLE_JSON,
    }
    assert admin.asked("SetTableEnabled") == [
        pb.SetTableEnabledRequest(table="sales.db.orders", enabled=True),
        pb.SetTableEnabledRequest(table="sales.db.orders", enabled=False),
    ]


def test_control_characters_in_what_the_coordinator_says_do_not_reach_the_terminal(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetTable", table(status_reason="\x1b[2Jgone\r"))
    assert "pending since 2026-09-21 14:13:20Z: \\x1b[2Jgone\\r\n" in cli("table", "show", "a.b.c").out


def test_how_the_last_process_failed_stands_in_the_table(cli: Cli, admin: FakeAdmin) -> None:
    failure = "minor 01997a4c: [AMORO-1006] access to s3://b/m.avro was denied; tried 3 times"
    admin.script("GetTable", table(failure=failure))
    assert f"last failure    {failure}\n" in cli("table", "show", "sales.db.orders").out


def test_rows_that_came_back_stand_in_the_table(cli: Cli, admin: FakeAdmin) -> None:
    told = "snapshot 7 of spark deletes rows of /a.parquet, which snapshot 6 had replaced before"
    admin.script("GetTable", table(late_deletes=told))
    assert f"late deletes    {told}\n" in cli("table", "show", "sales.db.orders").out

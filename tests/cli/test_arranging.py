"""Lists: sorted by columns, and with the columns that are wanted."""

import json
from typing import Any

import pytest

from amoro_cli.listing import Arrangement, Column, Listing
from amoro_cli.views.blockers import BLOCKERS
from amoro_cli.views.groups import GROUPS
from amoro_cli.views.processes import PROCESSES
from amoro_cli.views.services import CATALOGS, OPTIMIZERS
from amoro_cli.views.tables import FILES, SNAPSHOTS, TABLES
from amoro_cli.views.tasks import TASKS
from amoro_cli.views.tokens import TOKENS
from amoro_core.errors import InvalidArgument
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON, PROCESS, listed, process, table, task


def summary(files: int) -> pb.FileSummary:
    return pb.FileSummary(data_files=files, data_bytes=files)


@pytest.fixture
def _tables(admin: FakeAdmin) -> None:
    tables = [
        table(table="a.b.nine", files=summary(9), health_score=50),
        table(table="a.b.ten", files=summary(10), health_score=90),
        table(table="a.b.new", files=summary(0), health_score=-1),
        table(table="a.b.more", files=summary(1000), health_score=50),
    ]
    admin.script("ListTables", pb.ListTablesResponse(tables=tables))


@pytest.mark.usefixtures("_tables")
@pytest.mark.parametrize(
    ("sort_by", "names"),
    [
        ("files,status", ["new", "nine", "ten", "more"]),  # by their number, not by its digits
        ("-files,status", ["more", "ten", "nine", "new"]),
        ("health,status", ["new", "nine", "more", "ten"]),  # equal ones as they stand
        ("-health,table", ["ten", "more", "nine", "new"]),
        ("-Health, -TABLE", ["ten", "nine", "more", "new"]),
    ],
)
def test_a_list_is_sorted_by_what_its_columns_mean(cli: Cli, sort_by: str, names: list[str]) -> None:
    listed = [f"a.b.{name}" for name in names]
    assert cli("table", "list", "-o", "name").out.split() == ["a.b.nine", "a.b.ten", "a.b.new", "a.b.more"]
    assert cli("table", "list", "--sort-by", sort_by, "-o", "name").out.split() == listed
    body = json.loads(cli("table", "list", "--sort-by", sort_by, "-o", "json").out)
    assert [one["table"] for one in body["tables"]] == listed


@pytest.mark.parametrize(
    ("sort_by", "asked"),
    [
        ("table", ("name", "asc")),
        ("-Small", ("small-files", "desc")),
        ("LAST OPTIMIZED", ("last-optimized", "asc")),
        ("-health", ("health", "desc")),
        ("optimized", ("", "")),  # no key of the coordinator: sorted here
        ("health,table", ("", "")),
    ],
)
@pytest.mark.usefixtures("_tables")
def test_tables_are_sorted_by_one_column_where_they_are_kept(
    cli: Cli, admin: FakeAdmin, sort_by: str, asked: tuple[str, str]
) -> None:
    assert cli("table", "list", "--sort-by", sort_by, "-o", "name").status == 0
    assert [(request.sort, request.order) for request in admin.asked("ListTables")] == [asked]


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
    whole = json.loads(cli("table", "list", "--columns", "table", "-o", "json").out)
    assert whole["tables"][0]["health_score"] == 50


LISTS: list[tuple[tuple[str, ...], Listing[Any], str, Any]] = [
    (("table", "list"), TABLES, "ListTables", pb.ListTablesResponse(tables=[table()])),
    (("table", "files", "a.b.c"), FILES, "ListTableFiles", pb.ListTableFilesResponse(files=[pb.TableFile(path="x")])),
    (
        ("table", "snapshots", "a.b.c"),
        SNAPSHOTS,
        "ListSnapshots",
        pb.ListSnapshotsResponse(snapshots=[pb.Snapshot(snapshot_id=4)]),
    ),
    (("table", "blockers"), BLOCKERS, "ListBlockers", pb.ListBlockersResponse(blockers=[pb.Blocker(blocker_id="b")])),
    (("process", "list"), PROCESSES, "ListProcesses", pb.ListProcessesResponse(processes=[process()])),
    (("task", "list", PROCESS), TASKS, "ListTasks", listed(process(), task())),
    (("group", "list"), GROUPS, "ListGroups", pb.ListGroupsResponse(groups=[pb.Group(name="g")])),
    (("optimizer", "list"), OPTIMIZERS, "ListOptimizers", pb.ListOptimizersResponse(optimizers=[pb.Optimizer()])),
    (("catalog", "list"), CATALOGS, "ListCatalogs", pb.ListCatalogsResponse(catalogs=[pb.Catalog(name="c")])),
    (("token", "list"), TOKENS, "ListTokens", pb.ListTokensResponse(tokens=[pb.Token(name="t", created_ms=NOON)])),
]


@pytest.mark.parametrize(("words", "listing", "method", "answer"), LISTS, ids=lambda value: str(value)[:30])
def test_every_list_can_be_sorted_by_every_column_and_has_them_all_by_itself(
    cli: Cli, admin: FakeAdmin, words: tuple[str, ...], listing: Listing[Any], method: str, answer: Any
) -> None:
    admin.script(method, answer)
    whole = cli(*words)
    assert whole.status == 0
    every = ",".join(listing.names)
    assert cli(*words, "--columns", every, "--sort-by", f"-{every}").out == whole.out
    assert cli(*words, "--columns", listing.names[-1]).out.splitlines()[0] == listing.columns[-1].title
    assert f"in that order: {', '.join(listing.names)}" in " ".join(cli(*words[:2], "--help").out.split()).replace(
        "- ", "-"
    )


@pytest.mark.parametrize(("words", "listing", "method", "answer"), LISTS, ids=lambda value: str(value)[:30])
def test_an_unknown_column_is_wrong_usage_that_lists_the_known_ones_before_anybody_is_asked(
    cli: Cli, admin: FakeAdmin, words: tuple[str, ...], listing: Listing[Any], method: str, answer: Any
) -> None:
    known = ", ".join(listing.names)
    for option in ("--sort-by", "--columns"):
        result = cli(*words, option, f"{listing.names[0]},nonsense")
        assert (result.status, result.out, admin.requests) == (2, "", [])
        assert f"'nonsense' is not a column. The columns are {known}." in result.err


def test_a_near_name_is_suggested() -> None:
    listing: Listing[int] = Listing((Column("LAST SEEN", str), Column("BUSY", str, lambda one: -one)))
    with pytest.raises(InvalidArgument) as refused:
        listing.check(Arrangement(columns="last-sen"))
    assert refused.value.hint == "Did you mean last-seen? The columns are last-seen, busy."
    with pytest.raises(InvalidArgument, match="'' is not a column"):
        listing.check(Arrangement(sort_by="busy,"))
    assert listing.arranged([2, 1, 3], Arrangement("busy")) == [3, 2, 1]

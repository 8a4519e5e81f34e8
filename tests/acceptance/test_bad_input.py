"""Bad input: the exit status, what is said, and that nothing has changed.

Commands run in this process, as `amoro` runs them, against a real coordinator.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, Outcome, Process, address_of, amoro
from tests.acceptance.tables import assert_nothing_is_left, assert_optimized_once, look, name_of, small_table
from tests.engine import oracle, writer
from tests.engine.parquet_rows import local_path
from tests.tiers import sample

NO_RETRIES = {"self-optimizing.execute.num-retries": "0"}

#: Arguments with `{table}`, `{directory}`, `{home}` and `{address}` filled in, the exit status, and what is said. What
#: services refuse has tests with them; here is one of each kind, and what only a running coordinator can say.
WRONG: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "table that is not known": (
        "optimize {table}x --wait", 3, ("{table}x does not exist [AMORO-3002]", "Hint: Did you mean {table}?")
    ),
    "catalog that exists": (
        "catalog add other type=sql uri=sqlite:///{directory}/other/catalog.db", 5,
        ("'other' exists already", "AMORO-5002"),
    ),
    "catalog that nobody serves": (
        "catalog add x type=rest uri=http://127.0.0.1:9", 1, ("127.0.0.1", "[AMORO-1010]")
    ),
    "property of a group that is misspelt": (
        "group create g --property min-instnces=2", 2, ("'min-instnces' is not known", "Did you mean min-instances?")
    ),
    "backup over a file": ("state backup {directory}/catalog.db", 5, ("{directory}/catalog.db", "[AMORO-5002]")),
    "backup into nowhere": ("state backup {directory}/no/copy.db", 1, ("{directory}/no/copy.db", "[AMORO-1007]")),
    "unknown key in the settings": (
        "up --home {directory}/x --config {directory}/settings.yaml", 2,
        ("{directory}/settings.yaml has the unknown key 'heartbeat-intervall'", "Did you mean heartbeat-interval?"),
    ),
    "wrong enrolment token": (
        "optimizer run --address {address} --token-file {home}/admin.token", 4,
        ("the enrolment token is wrong", "[AMORO-4001]", "Hint: Give the enrolment token"),
    ),
    "unknown group of an optimizer": (
        "optimizer run --address {address} --group nope -hb 500", 3,
        ("optimizer group 'nope' does not exist", "[AMORO-3005]", "Known groups: default."),
    ),
    "heartbeats that come too late": (
        "optimizer run --address {address}", 2,
        ("heartbeat interval 10 s is not below the coordinator's timeout of 6 s", "[AMORO-2002]"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def coordinator(shared: Installation) -> Process:
    started = shared.up()
    other = shared.directory / "other"
    writer.make_catalog(other).close()
    shared.ask("catalog", "add", "other", "type=sql", f"uri=sqlite:///{other / 'catalog.db'}")
    (shared.directory / "settings.yaml").write_text("heartbeat-intervall: 5s\n")
    return started


@pytest.fixture(scope="module")
def table(shared: Installation, coordinator: Process) -> Table:
    made = small_table(shared.catalog)
    shared.ask("table", "show", name_of(made))
    return made


@pytest.fixture
def facts(shared: Installation, table: Table) -> Callable[[], Any]:
    """Everything that a command could change: what is kept, the table, and which files there are."""
    kept = ("catalog_metadata", "resource_group", "access_token", "table_process", "task_runtime", "optimizer")

    def look() -> Any:
        with closing(sqlite3.connect(f"file:{shared.home / 'amoro.db'}?mode=ro", uri=True)) as db:
            rows = {name: db.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in kept}
            rows["table"] = db.execute("SELECT table_id, enabled_override, status FROM table_runtime").fetchall()
        files = sorted(str(path) for path in shared.directory.rglob("*") if path.name not in _LIVE)
        return rows, table.refresh().metadata_location, files

    return look


#: Files of SQLite, which come and go while it is read.
_LIVE = ("amoro.db-wal", "amoro.db-shm", "catalog.db-journal", "x", "amoro.lock")


@pytest.mark.parametrize("wrong", sample(list(WRONG), every=4))
def test_a_wrong_command_names_the_value_and_changes_nothing(
    shared: Installation, coordinator: Process, table: Table, facts: Callable[[], Any], wrong: str
) -> None:
    arguments, status, says = WRONG[wrong]
    values = {
        "table": name_of(table),
        "directory": str(shared.directory),
        "home": str(shared.home),
        "address": address_of(coordinator),
    }
    before = facts()
    ended = shared.run(*(part.format(**values) for part in arguments.split()))
    assert (ended.status, ended.stdout) == (status, "")
    assert [text for text in says if text.format(**values) not in ended.stderr] == []
    assert "Traceback" not in ended.stderr
    assert facts() == before


def test_a_port_that_is_taken_is_told_without_a_line_of_grpcs_own_log(
    shared: Installation, coordinator: Process
) -> None:
    port = address_of(coordinator).rpartition(":")[2]
    ended = shared.run_apart("up", "--home", str(shared.directory / "c"), "--port", port)
    assert (ended.status, ended.stdout) == (2, "")
    assert re.search(r"^[IWEF]\d{4} ", ended.stderr, re.MULTILINE) is None
    for text in (f"127.0.0.1:{port} can't be listened on", "[AMORO-2003]", "Hint: Stop what listens there"):
        assert text in " ".join(ended.said)


@dataclass(frozen=True, slots=True)
class Broken:
    """A table that can't be optimized while `trouble` lasts, whose value is `{value}` in what is said."""

    trouble: Callable[[Table], Iterator[str]]
    status: int
    says: tuple[str, ...]
    leaves: str = "idle"  # the table's status


def with_property(key: str, value: str) -> Callable[[Table], Iterator[str]]:
    """The trouble that a table's property makes."""

    def trouble(table: Table) -> Iterator[str]:
        with table.transaction() as change:
            change.set_properties({key: value})
        yield value
        with table.transaction() as change:
            change.remove_properties(key)

    return trouble


def missing_data_file(table: Table) -> Iterator[str]:
    path = Path(local_path(oracle.live_files(table)[1].path))
    path.rename(path.with_suffix(".away"))
    yield str(path)
    path.with_suffix(".away").rename(path)


BROKEN = {
    "missing data file": Broken(
        missing_data_file,
        1,
        ("{value} does not exist (", "restore it", "[AMORO-1002]", "Hint: See: amoro process show"),
    ),
    "malformed property": Broken(
        with_property("self-optimizing.target-size", "abc"),
        6,
        ("property self-optimizing.target-size has the malformed value '{value}'", "Hint: Fix it"),
        "refused",
    ),
    "unknown group": Broken(
        with_property("self-optimizing.group", "nope"),
        3,
        ("group '{value}' of table", "[AMORO-3005]", "Hint: Set the table's property", ": default."),
    ),
}


@pytest.mark.parametrize("kind", sample(list(BROKEN), every=4))
def test_a_table_that_cannot_be_optimized_stays_as_it_is_and_is_optimized_once_it_is_mended(
    site: Installation, kind: str
) -> None:
    broken = BROKEN[kind]
    table = small_table(site.catalog, NO_RETRIES)
    with contextmanager(broken.trouble)(table) as value:
        head = table.refresh().metadata.current_snapshot_id
        outcome = site.run("optimize", name_of(table), "--type", "full", "--wait")
        assert (outcome.status, outcome.stdout) == (broken.status, "")
        for text in broken.says:
            assert text.format(value=value) in " ".join(outcome.said)
        assert table.refresh().metadata.current_snapshot_id == head
        shown = site.ask("table", "show", name_of(table))
        assert (shown["status"], shown["process_id"]) == (broken.leaves, None)

    before = look(table)
    done = site.run("optimize", name_of(table), "--type", "full", "--wait")
    assert done.status == 0, done.stderr
    assert_optimized_once(table, before)
    assert_nothing_is_left(table)
    assert site.ask("table", "show", name_of(table))["status"] == "idle"


#: A file below the state directory, or itself, with its content (None: a directory), and what is said then.
UNUSABLE: tuple[tuple[str, bytes | None, str], ...] = (
    ("", b"", "the state directory {home} can't be used: it is not a directory [AMORO-2002]"),
    ("..", b"", "the state directory {home} can't be used: Not a directory [AMORO-2002]"),
    ("admin.token", None, "token file {home}/admin.token can't be read: Is a directory [AMORO-4001]"),
    ("enrolment.token", b"\n", "token file {home}/enrolment.token can't be used: it is empty [AMORO-2002]"),
    (
        "admin.token", bytes(range(128, 256)) * 24,
        "token file {home}/admin.token can't be used: it holds something other than one token [AMORO-2002]",
    ),
    (
        "coordinator.json", None,
        "the state directory {home} can't be used: coordinator.json: Is a directory [AMORO-2002]",
    ),
    ("amoro.yaml", None, "settings file {home}/amoro.yaml can't be read: Is a directory [AMORO-2002]"),
    ("amoro.yaml", b"\xff\xfe", "settings file {home}/amoro.yaml can't be read: it is not UTF-8 [AMORO-2002]"),
    (
        "amoro.yaml", b"port: 1\ngroups: [a\n",
        "settings file {home}/amoro.yaml can't be read: line 3, column 1: expected ',' or ']', but got '<stream end>' "
        "[AMORO-2002]",
    ),
)  # fmt: skip


def put(home: Path, name: str, content: bytes | None) -> None:
    """Write what makes the state directory unusable."""
    if name == "..":
        home.parent.rmdir()
    path = home.parent if name == ".." else home / name
    path.parent.mkdir(exist_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "home"


def run_on(home: Path, *arguments: str) -> Outcome:
    """Run the command on the state directory, without any other configuration."""
    environment = {"HOME": str(home.parents[1]), "PATH": os.environ["PATH"]}
    return amoro((*arguments, "--home", str(home)), environment, Path("/"))


@pytest.mark.parametrize(("name", "content", "says"), UNUSABLE)
def test_a_state_directory_that_cannot_be_used_is_told_as_that(
    home: Path, name: str, content: bytes | None, says: str
) -> None:
    put(home, name, content)
    before = sorted(home.rglob("*"))
    ended = run_on(home, "optimize", "cat.db.t")
    error, hint = [line for line in ended.stderr.splitlines() if not line.startswith("No coordinator runs")]
    assert (error, hint[:6]) == (f"Error: {says.format(home=home)}", "Hint: ")
    assert ended.status == (4 if "AMORO-4" in says else 2)
    own = {"amoro.lock", "admin.token", "enrolment.token", "amoro.db", "amoro.db-shm", "amoro.db-wal"}
    assert [path for path in sorted(home.rglob("*")) if path.name not in own and path not in before] == []


@pytest.mark.parametrize("name", ["x" * 300, "\udcff"])
def test_a_state_directory_that_no_file_system_or_text_holds_is_wrong_usage(home: Path, name: str) -> None:
    ended = run_on(home.with_name(name), "table", "list")
    assert (ended.status, "[AMORO-200" in ended.stderr) == (2, True)


@pytest.mark.parametrize("command", [("optimize", "cat.db.t"), ("up", "--port", "0")])
def test_a_state_directory_without_rights_is_told_as_that(home: Path, command: tuple[str, ...]) -> None:
    run_on(home, "doctor")  # loads what could not be loaded without rights
    home.parent.chmod(0o000)
    root = os.geteuid() == 0
    if root:  # who may do everything
        os.seteuid(65534)
    try:
        ended = run_on(home, *command)
    finally:
        if root:
            os.seteuid(0)
        home.parent.chmod(0o700)
    assert (ended.status, "can't be read: Permission denied [AMORO-2002]\nHint: " in ended.stderr) == (2, True)

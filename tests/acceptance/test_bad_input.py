"""Bad input: the exit status, what is said, and that nothing has changed.

Commands run in this process, as `amoro` runs them, against a real coordinator.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, Outcome, Process, address_of, amoro
from tests.acceptance.tables import assert_nothing_is_left, assert_optimized_once, look, name_of, small_table
from tests.engine import oracle, writer, writer3
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.tiers import sample

_NUMBERS = itertools.count(1)
NO_RETRIES = {"self-optimizing.execute.num-retries": "0"}

# --- What is asked for ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wrong:
    """`amoro` with these arguments; `{table}`, `{directory}`, `{address}` and `{home}` are filled in."""

    arguments: str
    status: int
    says: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


#: By what is wrong.
WRONG = {
    "table that is not known": Wrong(
        "optimize {table}x --wait", 3, ("{table}x does not exist [AMORO-3002]", "Hint: Did you mean {table}?")
    ),
    "catalog of a table": Wrong(
        "table show ohter.db.t", 3, ("'ohter' is not known [AMORO-3001]", "Did you mean other?")
    ),
    "catalog that exists": Wrong(
        "catalog add other type=sql uri=sqlite:///{directory}/other/catalog.db",
        5,
        ("'other' exists already", "AMORO-5002"),
    ),
    "catalog of an unknown kind": Wrong("catalog add x type=lake uri=http://127.0.0.1:9", 2, ("lake", "[AMORO-2004]")),
    "catalog that nobody serves": Wrong(
        "catalog add x type=rest uri=http://127.0.0.1:9", 1, ("127.0.0.1", "[AMORO-1010]")
    ),
    "catalog of foreign code": Wrong(
        "catalog add x py-catalog-impl=os.path", 2, ("py-catalog-impl is not allowed", "[AMORO-2004]")
    ),
    "catalog from an unset variable": Wrong(
        "catalog add x type=rest uri=env:NOT_SET_AT_ALL", 1, ("NOT_SET_AT_ALL", "[AMORO-1010]", "Hint: ")
    ),
    "default of a catalog that is misspelt": Wrong(
        "catalog update other table.self-optimizing.enabld=true",
        2,
        ("table.self-optimizing.enabld is not known", "Did you mean table.self-optimizing.enabled?"),
    ),
    "catalog of pyiceberg's": Wrong("catalog update cat warehouse=/w", 2, ("'cat'", "pyiceberg's own", "[AMORO-2001]")),
    "process to be cancelled": Wrong("process cancel 0123456789", 3, ("0123456789", "[AMORO-3003]")),
    "force without full": Wrong("optimize {table} --force", 2, ("force needs the type full", "--type full")),
    "optimizer to be drained": Wrong("optimizer drain 0123456789", 3, ("0123456789", "[AMORO-3006]")),
    "property of a group that is misspelt": Wrong(
        "group create g --property min-instnces=2", 2, ("'min-instnces' is not known", "Did you mean min-instances?")
    ),
    "group that exists": Wrong("group create default", 5, ("'default'", "[AMORO-5002]")),
    "policy": Wrong("group create g --policy lottery", 2, ("'lottery'", "quota, balanced")),
    "token to be revoked": Wrong("token revoke nope", 3, ("'nope'", "[AMORO-3007]")),
    "table with a long name": Wrong(f"table show cat.db.{'t' * 30000}", 3, ("(cut: 30,", "[AMORO-3002]")),
    "nobody at the address": Wrong("table list --address 127.0.0.1:9", 1, ("127.0.0.1:9", "[AMORO-1008]", "amoro up")),
    "token": Wrong("table list", 4, ("the admin token is wrong [AMORO-4002]",), (("AMORO_TOKEN", "amo_no"),)),
    "backup over a file": Wrong("state backup {directory}/catalog.db", 5, ("{directory}/catalog.db", "[AMORO-5002]")),
    "backup into nowhere": Wrong("state backup {directory}/no/copy.db", 1, ("{directory}/no/copy.db", "[AMORO-1007]")),
    "settings that are not there": Wrong(
        "up --home {directory}/x --config {directory}/none.yaml",
        2,
        ("{directory}/none.yaml does not exist", "AMORO-2002"),
    ),
    "setting in the environment": Wrong(
        "up --home {directory}/x", 2, ("AMORO_PORT", "'http'", "[AMORO-2002]"), (("AMORO_PORT", "http"),)
    ),
    "ports that are one": Wrong(
        "up --home {directory}/x --port 7001",
        2,
        ("http-port 7001 (environment AMORO_HTTP_PORT) is the same as port 7001 (flag --port)", "[AMORO-2002]"),
        (("AMORO_HTTP_PORT", "7001"),),
    ),
    "address that is no UTF-8": Wrong(
        "table list", 2, ("'\\udcff:1261' is not an address", "[AMORO-2001]"), (("AMORO_ADDRESS", "\udcff:1261"),)
    ),
    "second coordinator": Wrong("up", 5, ("another coordinator works on", "{address}", "[AMORO-5003]")),
    "unknown key in the settings": Wrong(
        "up --home {directory}/x --config {directory}/settings.yaml",
        2,
        ("{directory}/settings.yaml has the unknown key 'heartbeat-intervall'", "Did you mean heartbeat-interval?"),
    ),
    "wrong enrolment token": Wrong(
        "optimizer run --address {address} --token-file {home}/admin.token",
        4,
        ("the enrolment token is wrong", "[AMORO-4001]", "Hint: Give the enrolment token"),
    ),
    "enrolment token file": Wrong(
        "optimizer run --address {address} --token-file {directory}/no",
        2,
        ("{directory}/no can't be used: it does not exist", "[AMORO-2001]"),
    ),
    "unknown group of an optimizer": Wrong(
        "optimizer run --address {address} --group nope -hb 500",
        3,
        ("optimizer group 'nope' does not exist", "[AMORO-3005]", "Known groups: default."),
    ),
    "heartbeats that come too late": Wrong(
        "optimizer run --address {address}",
        2,
        (
            "heartbeat interval 10 s is not below the coordinator's timeout of 6 s",
            "[AMORO-2002]",
            "--heartbeat-interval",
        ),
    ),
    "upgrade to format 1": Wrong(
        "table upgrade {table} --format-version 1 --yes",
        2,
        ("tables can't be upgraded to format version 1", "Hint: Say --format-version 3."),
    ),
}


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
    command = WRONG[wrong]
    known = {
        "table": name_of(table),
        "directory": str(shared.directory),
        "home": str(shared.home),
        "address": address_of(coordinator),
    }
    before = facts()
    ended = shared.run(
        *(part.format(**known) for part in command.arguments.split()), environment=dict(command.environment)
    )
    assert (ended.status, ended.stdout) == (command.status, "")
    for text in command.says:
        assert text.format(**known) in ended.stderr
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


# --- What is wrong with the table -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Broken:
    """A table that can't be optimized while `trouble` lasts, whose value is `{value}` in what is said."""

    trouble: Callable[[Installation, Table], Iterator[str]]
    status: int
    says: tuple[str, ...]
    leaves: str = "idle"  # the table's status
    make: Callable[[Catalog], Table] = lambda catalog: small_table(catalog, NO_RETRIES)


def malformed_property(installation: Installation, table: Table) -> Iterator[str]:
    yield from _with_property(table, "self-optimizing.target-size", "abc")


def unknown_group(installation: Installation, table: Table) -> Iterator[str]:
    yield from _with_property(table, "self-optimizing.group", "nope")


def switched_off(installation: Installation, table: Table) -> Iterator[str]:
    with table.transaction() as change:  # once it is enabled again, the clock has no work for it
        change.set_properties({"self-optimizing.minor.trigger.interval": "-1"})
    installation.ask("table", "disable", name_of(table))
    yield name_of(table)
    installation.ask("table", "enable", name_of(table))


def missing_data_file(installation: Installation, table: Table) -> Iterator[str]:
    path = Path(local_path(oracle.live_files(table)[1].path))
    path.rename(path.with_suffix(".away"))
    yield str(path)
    path.with_suffix(".away").rename(path)


def full_disk(installation: Installation, table: Table) -> Iterator[str]:
    place = installation.directory / "warehouse" / "full"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        for value in _with_property(table, "write.data.path", place.as_uri()):
            yield value
            assert [path for path in place.rglob("*") if path.is_file()] == []
    finally:
        subprocess.run(["umount", str(place)], check=True)


def large_table(catalog: Catalog) -> Table:
    """Three files of incompressible text, too large for the full disk."""
    noise = random.Random(1)
    table = writer.make_table(catalog, "db.large", SCHEMA, properties=NO_RETRIES)
    for number in range(3):
        writer.append(table, [row(number, value=noise.randbytes(50_000).hex())])
    return table


def table_with_vectors(catalog: Catalog) -> Table:
    """Three small files, each with a deletion vector in the one Puffin file."""
    table = writer.make_table(catalog, f"db.vectors{next(_NUMBERS)}", SCHEMA, format_version=3, properties=NO_RETRIES)
    for first in (0, 10, 20):
        writer.append(table, [row(first + number) for number in range(10)])
    writer3.delete_rows(table, lambda record: record["id"] % 10 == 3)
    return table.refresh()


def vectors_of(table: Table) -> list[oracle.LiveFile]:
    return [one for one in oracle.live_files(table) if one.is_vector]


def damaged_vector(installation: Installation, table: Table) -> Iterator[str]:
    vector = vectors_of(table)[1]
    path = Path(local_path(vector.path))
    content = path.read_bytes()
    path.write_bytes(content[: vector.offset + 9] + b"?" + content[vector.offset + 10 :])
    yield f"{vector.path} at {vector.offset}"
    path.write_bytes(content)


BROKEN = {
    "damaged vector": Broken(
        damaged_vector,
        1,
        ("the deletion vector at {value} has another checksum than its content",),
        make=table_with_vectors,
    ),
    "malformed property": Broken(
        malformed_property,
        6,
        ("property self-optimizing.target-size has the malformed value '{value}'", "Hint: Fix it"),
        "refused",
    ),
    "unknown group": Broken(
        unknown_group, 3, ("group '{value}' of table", "[AMORO-3005]", "Hint: Set the table's property", ": default.")
    ),
    "switched off": Broken(
        switched_off, 6, ("optimizing {value} is switched off by amoro table disable", "amoro table enable {value}")
    ),
    "missing data file": Broken(
        missing_data_file,
        1,
        ("{value} does not exist (", "restore it", "[AMORO-1002]", "Hint: See: amoro process show"),
    ),
    "full disk": Broken(
        full_disk, 1, ("no space left for {value}/", "free some space", "[AMORO-1003]"), make=large_table
    ),
}


@pytest.mark.parametrize("kind", sample(list(BROKEN), every=4))
def test_a_table_that_cannot_be_optimized_stays_as_it_is_and_is_optimized_once_it_is_mended(
    site: Installation, kind: str
) -> None:
    broken = BROKEN[kind]
    table = broken.make(site.catalog)
    with contextmanager(broken.trouble)(site, table) as value:
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


def _with_property(table: Table, key: str, value: str) -> Iterator[str]:
    with table.transaction() as change:
        change.set_properties({key: value})
    yield value
    with table.transaction() as change:
        change.remove_properties(key)


# --- What is wrong with the state directory ---------------------------------------------------------------------------


def _is_file(home: Path) -> str:
    home.write_text("")
    return f"the state directory {home} can't be used: it is not a directory [AMORO-2002]"


def _below_file(home: Path) -> str:
    home.parent.rmdir()
    home.parent.write_text("")
    return f"the state directory {home} can't be used: Not a directory [AMORO-2002]"


def _token_is_directory(home: Path) -> str:
    (home / "admin.token").mkdir(parents=True)
    return f"token file {home / 'admin.token'} can't be read: Is a directory [AMORO-4001]"


def _token_is_empty(home: Path) -> str:
    home.mkdir()
    (home / "enrolment.token").write_text("\n")
    return f"token file {home / 'enrolment.token'} can't be used: it is empty [AMORO-2002]"


def _token_is_another_file(home: Path) -> str:
    home.mkdir()
    (home / "admin.token").write_bytes(os.urandom(3000))
    return f"token file {home / 'admin.token'} can't be used: it holds something other than one token [AMORO-2002]"


def _record_is_directory(home: Path) -> str:
    (home / "coordinator.json").mkdir(parents=True)
    return f"the state directory {home} can't be used: coordinator.json: Is a directory [AMORO-2002]"


def _settings_are_directory(home: Path) -> str:
    (home / "amoro.yaml").mkdir(parents=True)
    return f"settings file {home / 'amoro.yaml'} can't be read: Is a directory [AMORO-2002]"


def _settings_are_no_utf_8(home: Path) -> str:
    home.mkdir()
    (home / "amoro.yaml").write_bytes(b"\xff\xfe")
    return f"settings file {home / 'amoro.yaml'} can't be read: it is not UTF-8 [AMORO-2002]"


def _settings_are_no_yaml(home: Path) -> str:
    home.mkdir()
    (home / "amoro.yaml").write_text("port: 1\ngroups: [a\n")
    return (
        f"settings file {home / 'amoro.yaml'} can't be read: line 3, column 1: "
        "expected ',' or ']', but got '<stream end>' [AMORO-2002]"
    )


UNUSABLE = (
    _is_file,
    _below_file,
    _token_is_directory,
    _token_is_empty,
    _token_is_another_file,
    _record_is_directory,
    _settings_are_directory,
    _settings_are_no_utf_8,
    _settings_are_no_yaml,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "home"


def said_by(home: Path, *arguments: str) -> Outcome:
    """What the command says of the state directory, of somebody who has no other configuration."""
    environment = {"HOME": str(home.parents[1]), "PATH": os.environ["PATH"]}
    return amoro((*arguments, "--home", str(home)), environment, Path("/"))


@pytest.mark.parametrize("breaks", UNUSABLE, ids=lambda breaks: breaks.__name__.strip("_"))
def test_a_state_directory_that_cannot_be_used_is_told_as_that(home: Path, breaks: Callable[[Path], str]) -> None:
    said = breaks(home)
    before = sorted(home.rglob("*"))
    ended = said_by(home, "optimize", "cat.db.t")
    told = [line for line in ended.stderr.splitlines() if not line.startswith("No coordinator runs")]
    assert told[0] == f"Error: {said}"
    assert (ended.status, told[1][:6], len(told)) == (4 if "AMORO-4" in said else 2, "Hint: ", 2)
    made = {"amoro.lock", "admin.token", "enrolment.token", "amoro.db", "amoro.db-shm", "amoro.db-wal"}
    assert [path for path in sorted(home.rglob("*")) if path.name not in made and path not in before] == []


@pytest.mark.parametrize("name", ["x" * 300, "\udcff"])
def test_a_state_directory_that_no_file_system_or_text_holds_is_wrong_usage(home: Path, name: str) -> None:
    ended = said_by(home.with_name(name), "table", "list")
    assert (ended.status, "[AMORO-200" in ended.stderr) == (2, True)


@pytest.mark.parametrize("command", [("optimize", "cat.db.t"), ("up", "--port", "0")])
def test_a_state_directory_without_rights_is_told_as_that(home: Path, command: tuple[str, ...]) -> None:
    said_by(home, "doctor")  # loads what could not be loaded without rights
    home.parent.chmod(0o000)
    root = os.geteuid() == 0
    if root:  # who may do everything
        os.seteuid(65534)
    try:
        ended = said_by(home, *command)
    finally:
        if root:
            os.seteuid(0)
        home.parent.chmod(0o700)
    assert (ended.status, "can't be read: Permission denied [AMORO-2002]\nHint: " in ended.stderr) == (2, True)


@pytest.mark.parametrize("breaks", [_is_file, _below_file, _settings_are_directory])
def test_doctor_names_a_state_directory_that_cannot_be_used(home: Path, breaks: Callable[[Path], str]) -> None:
    breaks(home)
    ended = said_by(home, "doctor", "-o", "name")
    assert ended.status == 1
    assert set(ended.stdout.split("\n")) & {"state directory", "settings"}

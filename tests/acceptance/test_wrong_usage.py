"""Commands that can't be carried out: each ends with the right status and names the value, and nothing changes.

They run in this process, as `amoro` runs them, against a real coordinator; `test_bad_input` has those about broken
tables and about processes that can't start.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from pyiceberg.table import Table

from amoro_cli.main import run
from amoro_core.command import LazyLauncher
from tests.acceptance import test_bad_input
from tests.acceptance.processes import Installation, Process, address_of
from tests.acceptance.tables import small_table
from tests.engine import writer

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@dataclass(frozen=True, slots=True)
class Wrong:
    """`amoro` with these arguments; `{table}`, `{directory}` and `{address}` are filled in."""

    arguments: str
    status: int
    says: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


#: By what is wrong.
WRONG = {
    # The words of a command
    "command": Wrong("optimise {table}", 2, ("'optimise'", "Did you mean 'optimize'", "[AMORO-2001]")),
    "command of a noun": Wrong("table lst", 2, ("'lst'", "Did you mean 'list'?", "[AMORO-2001]")),
    "option": Wrong("plan {table} --expain", 2, ("--expain", "--explain", "[AMORO-2001]")),
    "missing table": Wrong("optimize", 2, ("Missing argument 'TABLE'", "[AMORO-2001]")),
    "argument too many": Wrong("table show {table} more", 2, ("more", "[AMORO-2001]")),
    "output format": Wrong("table list -o xml", 2, ("'xml'", "'table', 'json', 'jsonl', 'yaml', 'name'")),
    # Names of tables and catalogs
    "name without namespace": Wrong("optimize orders", 2, ("'orders' is not the name of a table", "backticks")),
    "name that ends with a dot": Wrong("plan cat.db.", 2, ("'cat.db.'", "TABLE")),
    "backtick that is not closed": Wrong("plan cat.`db.t", 2, ("cat.`db.t", "TABLE")),
    "table that is not known": Wrong(
        "optimize {table}x --wait", 3, ("{table}x does not exist [AMORO-3002]", "Hint: Did you mean {table}?")
    ),
    "table to be planned": Wrong("plan cat.nope.t", 3, ("cat.nope.t does not exist [AMORO-3002]",)),
    "table to be verified": Wrong("verify cat.db.nope", 3, ("cat.db.nope does not exist [AMORO-3002]",)),
    "table to be enabled": Wrong("table enable cat.db.nope", 3, ("cat.db.nope", "[AMORO-3002]")),
    "table to be disabled": Wrong("table disable cat.db.nope", 3, ("cat.db.nope", "[AMORO-3002]")),
    "table with health": Wrong("table health cat.db.nope", 3, ("cat.db.nope", "[AMORO-3002]")),
    "table with files": Wrong("table files cat.db.nope", 3, ("cat.db.nope", "[AMORO-3002]")),
    "catalog of a table": Wrong(
        "table show ohter.db.t", 3, ("'ohter' is not known [AMORO-3001]", "Did you mean other?")
    ),
    "catalog of a list": Wrong(
        "table list --catalog nope", 3, ("'nope'", "[AMORO-3001]", "Known catalogs: cat, other.")
    ),
    "catalog to be shown": Wrong("catalog show nope", 3, ("'nope'", "[AMORO-3001]")),
    "catalog to be removed": Wrong("catalog remove nope", 3, ("'nope'", "[AMORO-3001]")),
    # Catalogs
    "catalog that exists": Wrong(
        "catalog add other type=sql uri=sqlite:///{directory}/other/catalog.db",
        5,
        ("'other' exists already", "AMORO-5002"),
    ),
    "catalog with a dot": Wrong(
        "catalog add a.b type=sql uri=sqlite:////x.db", 2, ("'a.b'", "[AMORO-2001]", "letters")
    ),
    "catalog of an unknown kind": Wrong("catalog add x type=lake uri=http://127.0.0.1:9", 2, ("lake", "[AMORO-2004]")),
    "catalog without kind": Wrong("catalog add x warehouse=/w", 2, ("catalog x", "[AMORO-2004]", "type=sql")),
    "catalog without uri": Wrong(
        "catalog add x type=rest", 2, ("catalog x: uri is missing", "[AMORO-2004]", "uri=https://")
    ),
    "catalog that nobody serves": Wrong(
        "catalog add x type=rest uri=http://127.0.0.1:9", 1, ("127.0.0.1", "[AMORO-1010]")
    ),
    "catalog of foreign code": Wrong(
        "catalog add x py-catalog-impl=os.path", 2, ("py-catalog-impl is not allowed", "[AMORO-2004]")
    ),
    "catalog from an unset variable": Wrong(
        "catalog add x type=rest uri=env:NOT_SET_AT_ALL", 1, ("NOT_SET_AT_ALL", "[AMORO-1010]", "Hint: ")
    ),
    "kind that is misspelt": Wrong(
        "catalog add x type=sqll uri=sqlite:////x.db", 2, ("sqll", "Did you mean type=sql?", "[AMORO-2004]")
    ),
    "default of a catalog that is misspelt": Wrong(
        "catalog update other table.self-optimizing.enabld=true",
        2,
        ("table.self-optimizing.enabld is not known", "Did you mean table.self-optimizing.enabled?"),
    ),
    "default of a catalog that is malformed": Wrong(
        "catalog update other table.self-optimizing.enabled=maybe",
        2,
        ("table.self-optimizing.enabled has the malformed value 'maybe'",),
    ),
    "property without value": Wrong("catalog add x type", 2, ("'type' is not a property", "key=value")),
    "property without key": Wrong("catalog add x =sql", 2, ("has no key", "[AMORO-2001]")),
    "property that comes twice": Wrong("catalog add x uri=a uri=b", 2, ("'uri' is given twice",)),
    "catalog of pyiceberg's": Wrong("catalog update cat warehouse=/w", 2, ("'cat'", "pyiceberg's own", "[AMORO-2001]")),
    "removal of pyiceberg's": Wrong("catalog remove cat", 2, ("'cat'", "can't be removed here", "[AMORO-2001]")),
    "no change of a catalog": Wrong("catalog update other", 2, ("Nothing to change", "--unset")),
    "removal of an unknown property": Wrong("catalog update other --unset nope", 2, ("no property 'nope'",)),
    "property given and unset": Wrong("catalog update other uri=x --unset uri", 2, ("'uri' is both given and unset",)),
    "location that is not allowed": Wrong(
        "catalog update other --forbid-location /n", 2, ("no allowed location '/n'",)
    ),
    # Processes and tasks
    "status of tables": Wrong("table list --status asleep", 2, ("asleep", "'idle'")),
    "status of processes": Wrong("process list --status done", 2, ("'done'", "'success'")),
    "table of processes": Wrong("process list --table cat.db.nope", 3, ("cat.db.nope", "[AMORO-3002]")),
    "short process": Wrong("process show 0197", 2, ("'0197' is too short", "[AMORO-2001]")),
    "process to be cancelled": Wrong("process cancel 0123456789", 3, ("0123456789", "[AMORO-3003]")),
    "limit below one": Wrong("process list --limit 0", 2, ("--limit", "'0'")),
    "limit that is no number": Wrong("table files {table} --limit many", 2, ("--limit", "'many'")),
    "task without number": Wrong("task show 01234567", 2, ("'01234567' is not a task", "PROCESS-N")),
    "task number zero": Wrong("task show 01234567-0", 2, ("'01234567-0' is not a task",)),
    "tasks of no process": Wrong("task list 0123456789", 3, ("0123456789", "[AMORO-3003]")),
    "snapshot": Wrong("verify {table} --before 17", 3, ("snapshot 17", "[AMORO-3008]")),
    "snapshot that is no number": Wrong("verify {table} --after head", 2, ("--after", "'head'")),
    # Optimizing
    "type": Wrong("plan {table} --type huge", 2, ("'huge'", "'minor', 'major', 'full'")),
    "force without full": Wrong("optimize {table} --force", 2, ("force needs the type full", "--type full")),
    "force of a plan": Wrong("plan {table} --type minor --force", 2, ("force needs the type full",)),
    "timeout": Wrong("optimize {table} --timeout soon", 2, ("--timeout", "'soon'", "10m")),
    "negative timeout": Wrong("optimize {table} --timeout=-5s", 2, ("--timeout", "-5s")),
    # Optimizers, groups, tokens
    "optimizer to be drained": Wrong("optimizer drain 0123456789", 3, ("0123456789", "[AMORO-3006]")),
    "optimizer to be released": Wrong("optimizer release 0123456789", 3, ("0123456789", "[AMORO-3006]")),
    "memory": Wrong("optimizer run --memory lots", 2, ("--memory", "'lots'")),
    "memory without unit": Wrong("up --memory 512", 2, ("--memory", "'512' is less than 1MB")),
    "too many threads": Wrong("optimizer run --threads 1001", 2, ("--threads", "'1001'")),
    "threads": Wrong("optimizer run --threads 0", 2, ("--threads", "'0'")),
    "heartbeat": Wrong("optimizer run -hb often", 2, ("often",)),
    "backend": Wrong("optimizer run --backend flink", 2, ("'flink'", "'spark'")),
    "master without Spark": Wrong("optimizer run --master local[2]", 2, ("--master", "--backend spark")),
    "address of an optimizer": Wrong("optimizer run --address nowhere", 2, ("'nowhere' is not an address",)),
    "enrolment token file": Wrong(
        "optimizer run --address {address} --token-file {directory}/no",
        2,
        ("{directory}/no can't be used: it does not exist", "[AMORO-2001]"),
    ),
    "property of a group that is misspelt": Wrong(
        "group create g --property min-instnces=2", 2, ("'min-instnces' is not known", "Did you mean min-instances?")
    ),
    "group to be shown": Wrong("group show nope", 3, ("'nope'", "[AMORO-3005]")),
    "group to be removed": Wrong("group remove nope", 3, ("'nope'", "[AMORO-3005]")),
    "group that exists": Wrong("group create default", 5, ("'default'", "[AMORO-5002]")),
    "policy": Wrong("group create g --policy lottery", 2, ("'lottery'", "quota, balanced")),
    "no change of a group": Wrong("group update default", 2, ("Nothing to change", "--policy")),
    "token to be revoked": Wrong("token revoke nope", 3, ("'nope'", "[AMORO-3007]")),
    "group with a long name": Wrong(f"group create {'g' * 256}", 2, ("can't be the name of a group", "255 characters")),
    "token with a long name": Wrong(f"token create {'t' * 256}", 2, ("can't be the name of a token", "255 characters")),
    "catalog with a long name": Wrong(
        f"catalog add {'c' * 256} type=sql uri=sqlite:////x.db", 2, ("can't be the name of a catalog", "255 characters")
    ),
    "table with a long name": Wrong(f"table show cat.db.{'t' * 30000}", 3, ("(cut: 30,", "[AMORO-3002]")),
    "kind of a token": Wrong("token create t --kind root", 2, ("'root'", "'admin', 'enrolment'")),
    # Where to talk, and the state
    "address": Wrong("table list --address here", 2, ("'here' is not an address", "host:port")),
    "port of an address": Wrong("table list --address 127.0.0.1:99999", 2, ("'127.0.0.1:99999' is not an address",)),
    "nobody at the address": Wrong("table list --address 127.0.0.1:9", 1, ("127.0.0.1:9", "[AMORO-1008]", "amoro up")),
    "token file": Wrong("table list --token-file {directory}/none", 2, ("{directory}/none", "[AMORO-2001]")),
    "token": Wrong("table list", 4, ("the admin token is wrong [AMORO-4002]",), (("AMORO_TOKEN", "amo_no"),)),
    "backup over a file": Wrong("state backup {directory}/catalog.db", 5, ("{directory}/catalog.db", "[AMORO-5002]")),
    "backup into nowhere": Wrong("state backup {directory}/no/copy.db", 1, ("{directory}/no/copy.db", "[AMORO-1007]")),
    # Starting
    "port of a coordinator": Wrong("up --port 70000", 2, ("--port", "'70000'")),
    "host beyond loopback": Wrong(
        "up --home {directory}/x --host 0.0.0.0", 2, ("host 0.0.0.0 is beyond loopback", "[AMORO-2002]", "Hint: ")
    ),
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
        ("metrics-port 7001 (environment AMORO_METRICS_PORT) is the same as port 7001 (flag --port)", "[AMORO-2002]"),
        (("AMORO_METRICS_PORT", "7001"),),
    ),
    "port of thousands of digits": Wrong(
        "up --home {directory}/x",
        2,
        ("environment variable AMORO_PORT: port has the malformed value", "[AMORO-2002]"),
        (("AMORO_PORT", "9" * 5000),),
    ),
    "threads of thousands of digits": Wrong(
        f"group create g --property threads={'9' * 5000}", 2, ("threads has the malformed value", "[AMORO-2001]")
    ),
    "address that is no UTF-8": Wrong(
        "table list", 2, ("'\\udcff:1261' is not an address", "[AMORO-2001]"), (("AMORO_ADDRESS", "\udcff:1261"),)
    ),
    "heart that is too slow": Wrong(
        "up --home {directory}/x",
        2,
        ("heartbeat-interval 90s (environment AMORO_HEARTBEAT_INTERVAL) is not below", "[AMORO-2002]"),
        (("AMORO_HEARTBEAT_INTERVAL", "90s"),),
    ),
    "second coordinator": Wrong("up", 5, ("another coordinator works on", "{address}", "[AMORO-5003]")),
    "seconds of the demo": Wrong("demo --seconds 0", 2, ("--seconds", "'0'")),
}


@pytest.fixture(scope="module")
def coordinator(shared: Installation) -> Process:
    started = shared.up()
    other = shared.directory / "other"
    writer.make_catalog(other).close()
    shared.ask("catalog", "add", "other", "type=sql", f"uri=sqlite:///{other / 'catalog.db'}")
    return started


@pytest.fixture(scope="module")
def table(shared: Installation, coordinator: Process) -> Table:
    made = small_table(shared.catalog)
    shared.ask("table", "show", ".".join(("cat", *made.name())))
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


def test_there_are_sixty_bad_inputs_or_more() -> None:
    assert len(WRONG) + len(test_bad_input.WRONG) + len(test_bad_input.BROKEN) + len(test_bad_input.UNFIT) >= 60
    assert len({(wrong.arguments, wrong.environment) for wrong in WRONG.values()}) == len(WRONG)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_command_names_the_value_and_changes_nothing(
    shared: Installation,
    coordinator: Process,
    table: Table,
    facts: Callable[[], Any],
    wrong: Wrong,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    known = {
        "table": ".".join(("cat", *table.name())),
        "directory": str(shared.directory),
        "address": address_of(coordinator),
    }
    for name in ("AMORO_ADDRESS", "AMORO_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**shared.environment, **dict(wrong.environment)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(shared.directory)
    before = facts()
    status = run(LazyLauncher(), [part.format(**known) for part in wrong.arguments.split()])
    said = capfd.readouterr()
    assert (status, said.out) == (wrong.status, "")
    for text in wrong.says:
        assert text.format(**known) in said.err
    assert "Traceback" not in said.err
    assert facts() == before

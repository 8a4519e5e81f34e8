import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer

from amoro_cli.main import build
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeLauncher

COMMANDS = [
    ("up",),
    ("demo",),
    ("doctor",),
    ("status",),
    ("mcp",),
    ("plan",),
    ("optimize",),
    ("verify",),
    ("undo",),
    ("login",),
    ("table", "list"),
    ("table", "show"),
    ("table", "enable"),
    ("table", "disable"),
    ("table", "changed"),
    ("table", "properties"),
    ("table", "health"),
    ("table", "sizes"),
    ("table", "files"),
    ("table", "snapshots"),
    ("table", "block"),
    ("table", "renew"),
    ("table", "unblock"),
    ("table", "blockers"),
    ("table", "upgrade"),
    ("table", "maintain"),
    ("table", "actions"),
    ("table", "compare"),
    ("table", "retention"),
    ("process", "list"),
    ("process", "show"),
    ("process", "start"),
    ("process", "cancel"),
    ("cluster", "show"),
    ("cluster", "suggest"),
    ("cluster", "learn"),
    ("task", "list"),
    ("task", "show"),
    ("task", "attempts"),
    ("event", "list"),
    ("series", "show"),
    ("trash", "list"),
    ("trash", "show"),
    ("trash", "restore"),
    ("trash", "empty"),
    ("lease", "take"),
    ("lease", "renew"),
    ("lease", "release"),
    ("lease", "list"),
    ("optimizer", "run"),
    ("optimizer", "list"),
    ("optimizer", "drain"),
    ("optimizer", "release"),
    ("optimizer", "status"),
    ("optimizer", "logs"),
    ("optimizer", "kill"),
    ("optimizer", "package"),
    ("group", "create"),
    ("group", "list"),
    ("group", "show"),
    ("group", "queue"),
    ("group", "update"),
    ("group", "scale"),
    ("group", "remove"),
    ("catalog", "add"),
    ("catalog", "list"),
    ("catalog", "show"),
    ("catalog", "update"),
    ("catalog", "remove"),
    ("config", "show"),
    ("token", "create"),
    ("token", "list"),
    ("token", "revoke"),
    ("user", "add"),
    ("user", "list"),
    ("user", "update"),
    ("user", "password"),
    ("user", "remove"),
    ("audit", "list"),
    ("monitoring", "export"),
    ("state", "show"),
    ("state", "backup"),
    ("state", "check"),
]


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path
        return
    for name, child in children.items():
        yield from _leaves(child, (*path, name))


def test_the_tree_has_exactly_these_commands() -> None:
    assert list(_leaves(typer.main.get_command(build(FakeLauncher())))) == COMMANDS


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_that_is_named_first_is_made_alone(path: tuple[str, ...]) -> None:
    for rest in ((), ("cat.db.t", "-o", "json"), ("--help",)):
        assert list(_leaves(typer.main.get_command(build(FakeLauncher(), (*path, *rest))))) == [path]


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        ((), ()),
        (("--help", "--debug"), ()),
        (("--home", "table", "table", "list"), ()),
        (("optimise", "cat.db.t"), ()),
        (("list",), ()),  # of groups
        (("table",), ("table",)),
        (("table", "--help"), ("table",)),
        (("table", "lst"), ("table",)),
        (("table", "plan"), ("table",)),  # of no group
    ],
)
def test_all_commands_that_may_be_meant_are_made(arguments: tuple[str, ...], begun: tuple[str, ...]) -> None:
    meant = [path for path in COMMANDS if path[: len(begun)] == begun]
    assert list(_leaves(typer.main.get_command(build(FakeLauncher(), arguments)))) == meant


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_of_the_program_names_groups_without_making_their_commands(bare_cli: Cli, option: str) -> None:
    few = typer.main.get_command(build(FakeLauncher(), (option,)))
    assert list(_leaves(few)) == [path for path in COMMANDS if len(path) == 1]
    whole = bare_cli(option, "--debug").out
    assert all(f"\n  {name} " in whole for name, *_ in COMMANDS)
    assert bare_cli(option).out == whole


GROUPS = [
    (name,)
    for name in (
        "table",
        "process",
        "task",
        "event",
        "series",
        "trash",
        "lease",
        "optimizer",
        "group",
        "catalog",
        "config",
        "token",
        "state",
    )
]


@pytest.mark.parametrize("path", [(), *GROUPS, *COMMANDS])
def test_every_help_has_an_example_of_its_own(bare_cli: Cli, path: tuple[str, ...]) -> None:
    result = bare_cli(*path, "--help")
    assert (result.status, result.err) == (0, "")
    assert f"\n  Example:\n    {' '.join(('amoro', *path))}" in result.out


CONNECTION = ("--home", "--config", "--address", "--token-file", "--ca-file", "--certificate-file", "--key-file")
LOCAL = (("up",), ("doctor",))


@pytest.mark.parametrize("path", [(), *COMMANDS])
def test_options_about_the_connection_stand_apart_at_the_end_of_a_help(bare_cli: Cli, path: tuple[str, ...]) -> None:
    own, _, connection = bare_cli(*path, "-h").out.partition("\n\nConnection options:\n")
    listed = {line.split()[0] for line in connection.splitlines() if line.startswith("  -")}
    without = path in (("demo",), ("optimizer", "package"), ("monitoring", "export"))
    assert listed == ({"--home", "--config"} if path in LOCAL else set() if without else set(CONNECTION)) or (
        path == ("optimizer", "run") and listed == {*CONNECTION, "-a,"} - {"--address"}
    )
    assert not [line for line in own.splitlines() if line.strip().startswith(CONNECTION)]


def test_the_version_is_printed(bare_cli: Cli) -> None:
    result = bare_cli("--version")
    assert (result.status, result.out, result.err) == (0, f"amoro {version('amoro')}\n", "")


def test_a_command_loads_no_module_of_another_one() -> None:
    program = (
        "import sys; from amoro_cli.main import run; run(None, ['verify', '--help']);"
        "print(sorted(name for name in sys.modules if name.startswith('amoro_cli.commands.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.splitlines()[-1] == "['amoro_cli.commands.verifying']"


def test_help_and_wrong_usage_load_nothing_heavy() -> None:
    program = (
        "import sys; from amoro_cli.main import run; run(None, ['optimize', '--help']); run(None, ['plan', 'x']);"
        "heavy = {'grpc', 'google.protobuf', 'pyarrow', 'pyiceberg', 'sqlite_utils', 'yaml', 'asyncio'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_what_a_coordinator_loads_is_not_searched_for_garbage_and_leaves_out_what_few_need() -> None:
    program = (
        "import gc, sys; from amoro_core.command import _local; before = gc.get_freeze_count(); _local();"
        "few = {'pyspark', 'datafusion', 'sqlalchemy', 'boto3', 'rich.progress', 'amoro_core.demo', 'mcp'};"
        "print(before, gc.get_freeze_count() > 100_000, gc.isenabled(), sorted(few & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "0 True True []\n"


def test_values_have_words_and_no_types(cli: Cli) -> None:
    told = cli("optimize", "-h").out
    assert told.startswith("Usage: amoro optimize [OPTIONS] TABLE...\n")
    assert "\n  TABLE  catalog.namespace.table" in told
    assert "\n  --type <minor|major|full|cluster>\n" in told
    listed = cli("table", "list", "-h").out
    assert "\n  --limit N  " in listed
    assert "\n  --group TEXT  " in listed

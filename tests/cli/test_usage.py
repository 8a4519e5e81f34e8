"""Commands and their usage: each asks for its operation, tells how it is used, and refuses wrong usage by itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from amoro_cli.command_table import COMMANDS, GROUPS
from amoro_cli.connection import Endpoint
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from tests.admin.operations import OPERATIONS, READ_WITHOUT_LOCK, WRONG, Wrong
from tests.cli.conftest import Cli
from tests.cli.fakes import TOKEN, Failure, FakeAdmin, FakeLauncher
from tests.cli.messages import process

ROOT = Path(__file__).parents[2]


#: The words of each command.
WORDS = [tuple(command.path.split()) for command in COMMANDS]


@pytest.mark.parametrize("operation", [name for name, row in OPERATIONS.items() if row.command])
def test_a_command_asks_for_its_operation_and_one_that_looks_takes_no_lock(
    bare_cli: Cli, launcher: FakeLauncher, admin: FakeAdmin, address: str, home: Path, tmp_path: Path, operation: str
) -> None:
    """Where no coordinator runs."""
    row = OPERATIONS[operation]
    launcher.endpoint = Endpoint(address, Secret(TOKEN))
    names = {"file": tmp_path / "password", "queries": tmp_path / "queries"}
    names["file"].write_text("correct horse battery\n")
    names["queries"].write_text('{"columns": ["id"]}\n')
    admin.scripts.clear()
    admin.script("HurryTrash", pb.HurryTrashResponse())
    admin.script("UpgradeTable", Failure("that is all", "AMORO-1001"))
    admin.script("GetProcess", process("running"))
    admin.script(operation, Failure("that is all", "AMORO-1001"))
    ended = bare_cli(*(word.format(**names) for word in row.command), "--home", str(home))
    assert (ended.status, "that is all" in ended.err) == (1, True), ended.err
    assert admin.requests[-1][0] == operation
    looks = not row.is_audited or operation in READ_WITHOUT_LOCK
    assert launcher.calls[0][0] == ("reading" if looks else "embedded")
    assert launcher.calls[-1] == ("reading ended" if looks else "embedded ended")


@pytest.mark.parametrize("wrong", [one for one in WRONG if one.command], ids=lambda one: " ".join(one.command)[:40])
def test_wrong_usage_of_an_operation_asks_nobody(cli: Cli, admin: FakeAdmin, wrong: Wrong) -> None:
    ended = cli(*wrong.command)
    assert (ended.status, ended.out, admin.requests) == (2, "", [])
    assert wrong.words.casefold() in ended.err.casefold()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("optimize a.b.c --timeout 10", "'10' is not a duration: write 30s, 10m or 1h"),
        ("optimize a.b.c --timeout 0s", "'0s' is not a duration above zero and at most 365d"),
        ("optimize", "Missing argument 'TABLE'"),
        ("table list -o xml", "'xml' is not one of"),
        ("up --memory lots", "'lots' is not an amount of memory: write 512MB or 1GB"),
        ("optimizer run --threads 9999999", "Invalid value for '--threads' / '-p': '9999999'"),
        ("table lst", "No such command 'lst'. Did you mean 'list', 'set'?"),
        (f"verify a.b.c --after {2**63}", f"'{2**63}' is not the id of a snapshot"),
        (f"table files a.b.c --limit {2**31}", "Invalid value for '--limit'"),
        (f"demo --seconds {'9' * 400}", "Invalid value for '--seconds'"),
        ("group scale g 2147483648", "Invalid value for 'N': Input should be less than or equal to 10000"),
    ],
)
def test_wrong_usage_ends_with_two_and_says_what_is_right(
    bare_cli: Cli, launcher: FakeLauncher, arguments: str, message: str
) -> None:
    result = bare_cli(*arguments.split())
    assert (result.status, result.out, launcher.calls) == (2, "", [])
    assert message in result.err
    assert "Try 'amoro" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *[(f"optimize {name}", f"{name!r} is not the name of a table") for name in ("orders", "a.b.c.", "a.`b.c")],
        *[(f"{one} a.`b*", "'a.`b*' is not") for one in ("plan", "optimize", "table show", "table enable")],
        *[(f"task show {one}", "[AMORO-2001]") for one in ("01997a", "01997a-", "01997a-0", "01997a-x", "01997-1")],
        ("process show 01997", "'01997' is too short for the id of a process [AMORO-2001]\nHint: Give 6 characters"),
        *[(words, "One statement is needed [AMORO-2001]\nHint: Give it with") for words in ("sql", "sql -e x -f y")],
        ("catalog add sales uri", "Error: 'uri' is not a property [AMORO-2001]\nHint: "),
        ("catalog add sales =secret", "Error: A property has no key [AMORO-2001]\nHint: "),
        ("catalog add sales a=1 a=2", "Error: The property 'a' is given twice [AMORO-2001]\nHint: "),
        ("catalog update sales a=1 --unset a", "Error: The property 'a' is both given and unset [AMORO-2001]\nHint: "),
        ("group update nightly", "[AMORO-2001]"),
        ("group update x --memory 1GB --property memory=1", "[AMORO-2001]"),
        ("user add ann", "there is no terminal to ask for the password"),
        ("lease take sales.db.orders", "a lease needs either --snapshot or --since"),
        ("trash empty a.b.c --now", "--now and --confirm go together"),
        ("table maintain cat.db.t --older-than 3d", "expire-snapshots"),
        ("cluster learn db.orders", "[AMORO-2001]"),
        ("cluster learn db.orders --queries a --spark-event-log b", "Name either"),
        *[(f"event list --follow {one}", "--follow goes by the time") for one in ("--after 1-1", "--sort-by AT")],
        ("plan a.b.c --where=", "the value of --where is empty [AMORO-2001]\nHint: Give it a value, or leave it out."),
        ("table show a.b.\udcff", "'a.b.\\udcff' is not UTF-8 [AMORO-2001]\nHint: Write names and paths in UTF-8."),
    ],
)
def test_what_makes_no_sense_is_wrong_and_nobody_is_asked(cli: Cli, admin: FakeAdmin, words: str, message: str) -> None:
    ended = cli(*words.split())
    assert (ended.status, ended.out, admin.requests) == (2, "", [])
    assert message in ended.err


def test_an_argument_without_text_does_not_count_as_none_given(cli: Cli) -> None:
    shown = ("table", "show", "--address=here:1", ""), "an argument is empty"
    for words, what in ((("--home", "", "table", "list"), "the value of --home is empty"), shown):
        told = cli(*words)
        assert (told.status, told.err) == (2, f"Error: {what} [AMORO-2001]\nHint: Give it a value, or leave it out.\n")


def test_the_help_of_the_program_names_every_command_and_group(bare_cli: Cli) -> None:
    whole = bare_cli("--help", "--debug").out
    assert all(f"\n  {name} " in whole for name, *_ in WORDS)
    assert bare_cli("-h").out == whole


CONNECTION = ("--home", "--config", "--address", "--token-file", "--ca-file", "--certificate-file", "--key-file")


def test_every_help_has_an_example_of_its_own_and_options_about_the_connection_at_its_end(bare_cli: Cli) -> None:
    options = {
        **{key: {"--home", "--config"} for key in (("up",), ("doctor",))},
        **{key: set[str]() for key in (("demo",), ("optimizer", "package"), ("monitoring", "export"))},
        ("optimizer", "run"): {*CONNECTION, "-a,"} - {"--address"},
    }
    for path in ((), *{path[:1] for path in WORDS if len(path) > 1}, *WORDS):
        result = bare_cli(*path, "-h")
        assert (result.status, result.err) == (0, "")
        assert f"\n  Example:\n    {' '.join(('amoro', *path))}" in result.out
        own, _, connection = result.out.partition("\n\nConnection options:\n")
        if path in WORDS or not path:
            listed = {line.split()[0] for line in connection.splitlines() if line.startswith("  -")}
            assert listed == options.get(path, {*CONNECTION}), path
        assert not [line for line in own.splitlines() if line.strip().startswith(CONNECTION)]


def test_help_at_80_columns_cuts_no_description_and_its_examples_are_commands(
    bare_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    examples = {command.example for command in COMMANDS} | {"amoro demo"}
    for path in ("", *GROUPS):
        out = bare_cli(*path.split(), "-h").out
        assert [line for line in out.splitlines()[1:] if line.endswith("...") or len(line) > 80] == []
        assert out.partition("Example:\n    ")[2].partition("\n")[0] in examples
    pages = {command.path: bare_cli(*command.path.split(), "-h").out for command in COMMANDS}
    assert [path for path, page in pages.items() if "[[" in page or "\n      Exit status" in page] == []
    assert "--role <viewer|operator|admin> " in pages["user add"]
    assert "As 12h, or 2026-11-29T22:00 (UTC)." in " ".join(pages["report"].split())


#: A command in prose, in a hint, in a block of code or in a template: what follows it, as far as it may be a name.
_NAMED = re.compile(r"(?<![\w./@'-])amoro ([a-z][a-z|-]*)(?:[ \n]+([a-z][a-z|-]*))?(?![\w:='(]|\.\w)")
#: Words after "amoro" that are no command.
_PROSE = frozenset({"listens", "is", "as", "runs", "ended", "must", "version"})


def test_every_command_that_help_hints_and_docs_name_exists() -> None:
    paths, unknown, named = {command.path for command in COMMANDS}, set[tuple[str, str]](), 0
    for file in (*ROOT.glob("amoro_*/**/*"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"):
        if file.suffix not in (".py", ".html", ".md") or "_pb2" in file.name:
            continue
        for match in _NAMED.finditer(file.read_text(encoding="utf-8")):
            first, second = match[1], (match[2] or "").split("|")
            if first in _PROSE or "|" in first:  # such as `amoro catalog|table list`, each of which has that command
                assert first in _PROSE or {f"{one} {second[0]}" for one in first.split("|")} <= paths
                continue
            named += 1
            if first not in paths and not (first in GROUPS and {f"{first} {one}" for one in second if one} <= paths):
                unknown.add((str(file.relative_to(ROOT)), match[0]))
    assert (unknown, named > 400) == (set(), True)


# What is loaded for it


def test_a_coordinator_loads_nothing_that_few_need() -> None:
    program = (
        "import sys; import amoro_core.bootstrap.coordinator_app;"
        "few = {'pyspark', 'datafusion', 'boto3', 'rich.progress', 'amoro_core.demo', 'mcp', 'uvicorn',"
        "       'starlette', 'jinja2', 'argon2'};"
        "print(sorted(few & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert (done.stdout + done.stderr).splitlines()[-1] == "[]"

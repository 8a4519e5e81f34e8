import json
import subprocess
import sys
from pathlib import Path

import pytest

from amoro_cli.launcher import Kind
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeLauncher


@pytest.fixture
def typed(bare_cli: Cli, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, home: Path) -> object:
    launcher.known = {
        Kind.TABLE: ["cat.db.orders", "cat.db.`odd name`", "other.db.t", "cat.db.\x1b[2J"],
        Kind.CATALOG: ["cat", "other"],
        Kind.PROCESS: ["0199-a", "0199-b"],
        Kind.GROUP: ["default"],
        Kind.OPTIMIZER: ["0198-o"],
    }
    monkeypatch.setenv("AMORO_HOME", str(home))
    monkeypatch.setenv("_AMORO_COMPLETE", "complete_bash")

    def call(words: str) -> list[str]:
        """What bash offers for the last word."""
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        result = bare_cli()
        assert (result.status, result.err) == (0, "")
        return [line for line in result.out.split("\n") if line]

    return call


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("amoro opt", ["optimize", "optimizer"]),
        ("amoro table en", ["enable"]),
        ("amoro plan cat", ["cat.db.orders", "cat.db.`odd name`"]),
        ("amoro verify o", ["other.db.t"]),
        ("amoro table show x", []),
        ("amoro table list --catalog o", ["other"]),
        ("amoro process list --table other", ["other.db.t"]),
        ("amoro process show ", ["0199-a", "0199-b"]),
        ("amoro group show ", ["default"]),
        ("amoro optimizer drain ", ["0198-o"]),
        ("amoro optimizer release ", ["0198-o"]),
        ("amoro catalog show c", ["cat"]),
        ("amoro optimize cat.db.orders o", ["other.db.t"]),
        ("amoro table list --sort-by health,-f", ["health,-files"]),
        ("amoro table list --columns table,s", ["table,status", "table,size", "table,small"]),
    ],
)
def test_the_shell_is_offered_commands_and_names_that_are_safe_to_print(
    typed: object, words: str, offered: list[str]
) -> None:
    assert typed(words) == offered


def test_names_are_those_of_the_state_directory_that_is_meant(
    typed: object, launcher: FakeLauncher, home: Path, tmp_path: Path
) -> None:
    typed("amoro plan cat")
    typed(f"amoro --home {tmp_path} plan cat")
    assert launcher.calls == [("names", Kind.TABLE, home), ("names", Kind.TABLE, tmp_path)]


def test_completion_loads_nothing_that_takes_its_time(tmp_path: Path) -> None:
    program = (
        "import sys, json, atexit;"
        "atexit.register(lambda: print(json.dumps(sorted({'grpc', 'google.protobuf', 'pyarrow', 'pyiceberg',"
        "'sqlite_utils', 'structlog', 'rich', 'yaml'} & set(sys.modules))), file=sys.stderr));"
        "from amoro_core.__main__ import main; main()"
    )
    environment = {
        "AMORO_HOME": str(tmp_path),
        "_AMORO_COMPLETE": "complete_bash",
        "COMP_WORDS": "amoro plan c",
        "COMP_CWORD": "2",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, json.loads(done.stderr)) == (0, [])

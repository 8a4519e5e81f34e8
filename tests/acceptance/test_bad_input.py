"""Bad input: who is not let in, ports that are taken, and state directories that cannot be used.

Commands run in this process, as `amoro` runs them, against a real coordinator.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.acceptance.processes import Installation, Outcome, Process, address_of, amoro
from tests.tiers import sample

#: Options of an optimizer that the coordinator does not let in, the exit status, and what is said.
TURNED_AWAY: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "wrong enrolment token": (
        "--token-file {home}/admin.token", 4,
        ("the enrolment token is wrong", "[AMORO-4001]", "Hint: Give the enrolment token"),
    ),
    "unknown group": (
        "--group nope -hb 500", 3, ("optimizer group 'nope' does not exist", "[AMORO-3005]", "Known groups: default.")
    ),
    "heartbeats that come too late": (
        "", 2, ("heartbeat interval 10 s is not below the coordinator's timeout of 6 s", "[AMORO-2002]")
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def coordinator(shared: Installation) -> Process:
    return shared.up()


@pytest.mark.parametrize("wrong", sample(list(TURNED_AWAY), every=3))
def test_an_optimizer_that_is_not_let_in_says_why(shared: Installation, coordinator: Process, wrong: str) -> None:
    options, status, says = TURNED_AWAY[wrong]
    asked = options.format(home=shared.home).split()
    ended = shared.run("optimizer", "run", "--address", address_of(coordinator), *asked)
    assert (ended.status, ended.stdout) == (status, "")
    assert [text for text in says if text not in ended.stderr] == []


def test_a_taken_port_is_told_without_a_line_of_grpcs_own_log(shared: Installation, coordinator: Process) -> None:
    port = address_of(coordinator).rpartition(":")[2]
    ended = shared.run_apart("up", "--home", str(shared.directory / "c"), "--port", port)
    assert (ended.status, ended.stdout) == (2, "")
    assert re.search(r"^[IWEF]\d{4} ", ended.stderr, re.MULTILINE) is None
    for text in (f"127.0.0.1:{port} can't be listened on", "[AMORO-2003]", "Hint: Stop what listens there"):
        assert text in " ".join(ended.said)


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


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "home"


def run_on(home: Path, *arguments: str) -> Outcome:
    """Run the command on the state directory, without any other configuration."""
    environment = {"HOME": str(home.parents[1]), "PATH": os.environ["PATH"]}
    return amoro((*arguments, "--home", str(home)), environment, Path("/"))


@pytest.mark.parametrize(("name", "content", "says"), UNUSABLE)
def test_an_unusable_state_directory_is_told_as_that(home: Path, name: str, content: bytes | None, says: str) -> None:
    if name == "..":
        home.parent.rmdir()
    path = home.parent if name == ".." else home / name
    path.parent.mkdir(exist_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    before = sorted(home.rglob("*"))
    ended = run_on(home, "optimize", "cat.db.t")
    error, hint = [line for line in ended.stderr.splitlines() if not line.startswith("No coordinator runs")]
    assert (error, hint[:6]) == (f"Error: {says.format(home=home)}", "Hint: ")
    assert ended.status == (4 if "AMORO-4" in says else 2)
    own = {"amoro.lock", "admin.token", "enrolment.token", "amoro.db", "amoro.db-shm", "amoro.db-wal"}
    assert [path for path in sorted(home.rglob("*")) if path.name not in own and path not in before] == []


def test_a_state_directory_that_no_file_system_or_text_holds_is_wrong_usage(home: Path) -> None:
    for name in ("x" * 300, "\udcff"):
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

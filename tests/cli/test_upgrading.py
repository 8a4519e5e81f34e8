"""`amoro table upgrade`: it says what it means and asks, unless it is told not to."""

import json
from collections.abc import Sequence

import pytest

from amoro_core.protocol import snapshots_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin

NAME = "sales.db.orders"
COMMAND = ("table", "upgrade", NAME, "--format-version", "3")


class Terminal:
    """An input at which somebody sits and answers."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return f"{self._answers.pop(0)}\n" if self._answers else ""


@pytest.fixture(autouse=True)
def _answered(admin: FakeAdmin) -> None:
    def answer(request: pb.UpgradeTableRequest) -> pb.TableUpgrade:
        return pb.TableUpgrade(
            table=request.table, before=2, after=3, is_done=not request.dry_run, notes=["It can't be taken back."]
        )

    admin.script("UpgradeTable", answer)


def dry_runs(admin: FakeAdmin) -> Sequence[bool]:
    asked = admin.asked("UpgradeTable")
    assert {(one.table, one.format_version) for one in asked} <= {(NAME, 3)}
    return [one.dry_run for one in asked]


def test_a_dry_run_says_what_it_means(cli: Cli, admin: FakeAdmin) -> None:
    done = cli(*COMMAND, "--dry-run")
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{NAME}: would be upgraded from format 2 to 3\n  It can't be taken back.\n"
    assert dry_runs(admin) == [True]


def test_with_yes_it_does_not_ask(cli: Cli, admin: FakeAdmin) -> None:
    done = cli(*COMMAND, "--yes", "-o", "json")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) | {"notes": []} == {
        "schema": "amoro.upgrade/v1",
        "table": NAME,
        "before": 2,
        "after": 3,
        "is_done": True,
        "notes": [],
    }
    assert dry_runs(admin) == [True, False]


def test_without_a_terminal_it_wants_yes(cli: Cli, admin: FakeAdmin) -> None:
    done = cli(*COMMAND)
    assert (done.status, done.out) == (2, "")
    assert "there is no terminal to ask" in done.err
    assert "Say --yes." in done.err
    assert dry_runs(admin) == [True]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("y", (0, [True, False])), ("Yes", (0, [True, False])), ("n", (2, [True])), ("", (2, [True]))],
)
def test_it_asks_and_does_what_is_answered(
    cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, answer: str, expected: tuple[int, list[bool]]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    done = cli(*COMMAND)
    assert (done.status, dry_runs(admin)) == expected
    assert "It can't be taken back." in done.err
    assert f"Upgrade {NAME} from format 2 to 3? [y/N]\n" in done.err


def test_the_version_has_to_be_said(cli: Cli, admin: FakeAdmin) -> None:
    done = cli("table", "upgrade", NAME, "--yes")
    assert (done.status, dry_runs(admin)) == (2, [])
    assert "--format-version" in done.err

"""A coordinator whose state directory is another's, gone or replaced ends by itself, and commits nothing any more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from amoro_core import __main__ as command
from amoro_core import app
from amoro_core.store.database import Store
from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import look, name_of, small_table


def fenced(home: Path) -> None:
    """As a second coordinator does that was let in, say after the lock file was removed."""
    Store.open(home / "amoro.db").close()


def removed(home: Path) -> None:
    shutil.rmtree(home)


def moved(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))


def database_replaced(home: Path) -> None:
    shutil.copy(home / "amoro.db", home / "backup.db")
    (home / "backup.db").rename(home / "amoro.db")


def lock_replaced(home: Path) -> None:
    (home / "amoro.lock").unlink()
    (home / "amoro.lock").touch()


WAYS: dict[Callable[[Path], None], str] = {
    fenced: "another coordinator has opened the state database since; this one must no longer write",
    removed: "the lock of the state directory {home} is gone since it was taken",
    moved: "the lock of the state directory {home} is gone since it was taken",
    database_replaced: "the state database {home}/amoro.db is another file since it was opened",
    lock_replaced: "the lock of the state directory {home} is another file since it was taken",
}


@pytest.mark.parametrize("lose", WAYS, ids=lambda lose: lose.__name__)
def test_a_coordinator_that_lost_its_state_directory_ends_with_the_reason_and_commits_nothing(
    installation: Installation, lose: Callable[[Path], None]
) -> None:
    """Its commit is held just before it is sent; the embedded optimizer ends with it."""
    table = small_table(installation.catalog)
    before, mark = look(table), installation.directory / "held"
    coordinator = installation.up("--threads", "1", failpoints=f"commit.after_intent=hold:{mark}")
    address_of(coordinator)
    installation.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "the commit is about to be sent")

    lose(installation.home)
    announced = installation.home / "coordinator.json"
    if installation.home.exists():
        announced.write_text('{"pid": 1, "address": "127.0.0.1:1"}')  # whoever has it now says so
    if lose is not lock_replaced:  # as long as the database is ours what is committed stands there
        mark.unlink()  # the commit goes on

    reason = WAYS[lose].format(home=installation.home)
    assert coordinator.wait() == 5
    assert f"Error: {reason} [AMORO-5005]" in coordinator.output.splitlines()
    (event,) = [line for line in coordinator.output.splitlines() if '"coordinator.lost"' in line]
    assert (json.loads(event)["level"], json.loads(event)["why"]) == ("critical", reason)
    assert look(table) == before
    assert announced.exists() == installation.home.exists()


def test_a_command_in_process_that_lost_its_state_directory_ends_with_the_reason(installation: Installation) -> None:
    table = small_table(installation.catalog)
    before, mark = look(table), installation.directory / "held"
    command = installation.start(
        "optimize", name_of(table), "--type", "full", failpoints=f"commit.after_intent=hold:{mark}"
    )
    wait_until(mark.exists, "the commit is about to be sent")

    database_replaced(installation.home)
    mark.unlink()

    assert command.wait() == 5
    reason = f"the state database {installation.home}/amoro.db is another file since it was opened"
    assert f"Error: {reason} [AMORO-5005]" in command.output.splitlines()
    assert look(table) == before


def test_what_is_waited_for_at_such_an_end_is_less_than_five_seconds() -> None:
    assert app.GUARD_INTERVAL_S + app.LOST_PATIENCE.total_seconds() + command._LAST_S < 5

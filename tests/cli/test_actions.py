"""amoro table actions: what is told of an action that the clock leaves alone."""

from __future__ import annotations

import json

import pytest

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

PAUSED = pb.TableAction(
    action="expire-snapshots",
    is_on=True,
    by="table-expire.enabled is true by default",
    reason="planning failed: m1.avro is gone",
    failures=3,
    paused_ms=NOON,
    paused_for="3 failures in a row, the last: planning failed: m1.avro is gone",
)


def test_a_paused_action_says_since_when_why_and_how_it_goes_on(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListActions", pb.ListActionsResponse(table="sales.db.orders", actions=[PAUSED]))
    result = cli("table", "actions", "sales.db.orders")
    assert result.out.splitlines()[-1] == (
        "expire-snapshots is paused since 2026-09-21 14:13:20Z: 3 failures in a row, the last: planning failed: "
        "m1.avro is gone. It resumes after a run that succeeds, amoro table maintain sales.db.orders --action "
        "expire-snapshots, or when its properties change."
    )
    assert "paused since 2026-09-21 14:13:20" in result.out.splitlines()[1]


def test_programs_get_both(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListActions", pb.ListActionsResponse(table="sales.db.orders", actions=[PAUSED]))
    (told,) = json.loads(cli("table", "actions", "sales.db.orders", "-o", "json").out)["actions"]
    assert (told["paused_at"], told["paused_for"]) == ("2026-09-21T14:13:20.123Z", PAUSED.paused_for)


def test_one_that_is_not_paused_says_nothing_of_it(cli: Cli, admin: FakeAdmin) -> None:
    fine = pb.TableAction(action="expire-snapshots", is_on=True)
    admin.script("ListActions", pb.ListActionsResponse(table="sales.db.orders", actions=[fine]))
    assert "pause" not in cli("table", "actions", "sales.db.orders").out
    (told,) = json.loads(cli("table", "actions", "sales.db.orders", "-o", "json").out)["actions"]
    assert (told["paused_at"], told["paused_for"]) == (None, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--location", "None"], "--location needs --action"),
        (["--older-than", "3d"], "expire-snapshots"),
        (["--retain-last", "2", "--dry-run"], "--retain-last needs --action"),
    ],
)
def test_an_option_for_some_action_needs_its_name(cli: Cli, admin: FakeAdmin, arguments: list[str], words: str) -> None:
    ended = cli("table", "maintain", "cat.db.t", *arguments)
    assert ended.status == 2
    assert words in ended.err
    assert admin.requests == []

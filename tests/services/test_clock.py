"""What the clock begins: by whose word, when, how often; and what it is stopped or paused by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyiceberg.table import Table

from amoro_core.actions.snapshots import NAME as EXPIRY
from amoro_core.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitRefused,
    ConfirmationRequired,
    DataFileMissing,
    TableRefused,
)
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.maintenance import Ended, FileKind, Options, Removal, turn
from amoro_core.model.processes import STORAGE, ProcessStatus
from amoro_core.model.tables import ActionRecord, BlockedOperation
from amoro_core.store import actions, pending_deletions, processes
from amoro_core.store.database import Connection
from amoro_core.transactions.maintenance_schedule import ActionState, ScheduleDecision, note
from amoro_core.transactions.store_plan import EVALUATION
from tests.condemning import NAME, Condemn
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.rigs import raising
from tests.services.test_maintaining import begin as begin_tag
from tests.services.test_maintaining import record as tag_record
from tests.services.test_maintaining import table as table
from tests.services.world import World

SWITCH = "maintenance.condemn.enabled"
HOUR_S, DAY_S = 3600.0, 86400.0


class Place:
    """A table on which the action of the tests finds as much as it is told."""

    def __init__(self, new_world: Callable[..., World]) -> None:
        self.found = 1
        self.action = Condemn(lambda: [(f"file:///x/{one}", FileKind.DATA) for one in range(self.found)])
        self.world = new_world(self.action)
        self.table = writer.make_table(self.world.catalog, "db.t", SCHEMA, BY_PART)
        writer.append(self.table, [row(1, "a")])

    def enable(self, more: Mapping[str, str] = MappingProxyType({})) -> None:
        """Switch it on by the table's properties, which are looked at."""
        self.world.refresh_with({"self-optimizing.enabled": "true", **more})

    def is_due_for(self, name: str) -> bool:
        return any(one == name for _, one, _ in self.world.maintaining.list_due())

    def record_of(self, name: str) -> ActionRecord:
        return self.world.store.read(lambda db: actions.get(db, self.world.table().table_id, name))

    @property
    def is_due(self) -> bool:
        return self.is_due_for(NAME)

    @property
    def record(self) -> ActionRecord:
        return self.record_of(NAME)

    def begin(self, trigger: str = "request", **options: bool) -> str:
        table_id = self.world.table().table_id
        return self.world.maintaining.begin(table_id, NAME, trigger=trigger, options=Options(**options)).process_id


@pytest.fixture
def place(new_world: Callable[..., World]) -> Place:
    return Place(new_world)


# By whose word


def test_the_switch_its_default_and_who_enabled_the_table_decide(place: Place) -> None:
    place.world.refresh()
    assert not place.is_due
    assert place.record.reason == f"off: the table is only observed, and {SWITCH} is not set"
    place.world.refresh_with({SWITCH: "true"})
    assert place.is_due
    place.world.tables.set_enabled(place.world.table().identifier, False)
    place.world.refresh()
    assert (place.is_due, place.record.reason) == (False, "off: amoro table disable")
    place.world.tables.set_enabled(place.world.table().identifier, True)
    place.world.refresh_with({SWITCH: "false"})
    assert (place.is_due, place.record.reason) == (False, f"off: {SWITCH}=false")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"gc.enabled": "false"}, "gc.enabled=false: other tables or tools may need its files and snapshots"),
        ({"nessie.commit.id": "abc"}, "its catalog keeps branches of its own"),
    ],
)
def test_what_forbids_to_delete_forbids_it_to_commands_too(
    place: Place, properties: dict[str, str], words: str
) -> None:
    place.enable(properties)
    assert not place.is_due
    assert words in place.record.reason
    with pytest.raises(TableRefused, match=words) as refused:
        place.begin()
    assert (refused.value.reason, refused.value.exit_status) == ("gc", 6)


# When


def test_it_runs_once_in_its_interval_give_or_take_a_tenth_also_where_it_found_nothing(place: Place) -> None:
    place.enable()
    place.world.committing.commit(place.begin(EVALUATION))
    place.world.refresh()
    assert not place.is_due
    place.world.later(0.89 * HOUR_S)
    assert not place.is_due
    place.world.later(0.22 * HOUR_S)
    place.world.refresh()
    assert place.is_due
    place.found = 0
    seen = len(place.action.seen)
    assert [place.begin(EVALUATION), place.begin(EVALUATION)] == ["", ""]
    assert (place.is_due, place.record.last_at, len(place.action.seen)) == (False, place.world.now, seen + 1)


def test_a_window_holds_it_back_until_it_opens(place: Place) -> None:
    """The world begins at noon, UTC."""
    place.enable({"maintenance.window": "22:00-06:00", "maintenance.zone": "Europe/Berlin"})
    assert not place.is_due
    place.world.later(8.9 * HOUR_S)
    assert not place.is_due
    place.world.later(0.2 * HOUR_S)
    assert place.is_due
    # What was due in a window that has closed waits for the next.
    place.world.later(10 * HOUR_S)
    assert place.begin(EVALUATION) == ""
    assert place.record.next_at == place.world.now + timedelta(hours=13.9)
    place.world.later(13.9 * HOUR_S)
    assert place.begin(EVALUATION) != ""


def test_files_that_are_due_outside_of_the_window_wait_for_it(place: Place) -> None:
    place.enable()
    place.world.committing.commit(place.begin())
    place.world.refresh_with({"maintenance.window": "11:00-11:30"})
    (facts,) = place.world.store.read(lambda db: pending_deletions.list_facts(db))
    next_at = place.record_of("empty-trash").next_at
    assert facts.purge_at < place.world.now + timedelta(days=2)
    assert (next_at > facts.purge_at, next_at.hour, next_at.minute) == (True, 11, 0)


def test_the_clock_waits_a_minute_where_something_is_in_the_way(place: Place) -> None:
    place.enable()
    place.world.blockers.block(place.world.table().table_id, frozenset({BlockedOperation.MAINTAIN}))
    place.world.blockers.block(place.world.table().table_id, frozenset({BlockedOperation.OPTIMIZE}), timedelta(hours=1))
    assert place.begin(EVALUATION) == ""
    assert "blocked for maintain" in place.record.reason
    assert (place.is_due, place.record.next_at) == (False, place.world.now + timedelta(minutes=1))
    place.world.later(61)
    assert place.is_due
    assert place.begin(EVALUATION) != ""


# Held


@pytest.fixture
def held(place: Place) -> str:
    place.action.most, place.found = 2, 5
    return place.begin()


def test_a_breaker_holds_a_process_until_somebody_confirms_it(place: Place, held: str) -> None:
    world, found = place.world, place.world.process(held)
    assert (found.status, found.failure_code) == (ProcessStatus.HELD, "AMORO-6002")
    assert found.failure == "5 files are more than 2"
    assert world.optimizing.list_committing() == []
    with pytest.raises(ConfirmationRequired, match=f"{held}.*5 files are more than 2") as refused:
        place.begin()
    assert f"amoro table maintain cat.db.t --action {NAME} --confirm cat.db.t" in refused.value.hint
    world.restart()
    # It is in nobody's way, and the clock lets it be.
    assert world.store.read(lambda db: processes.find_active(db, found.table_id, STORAGE)) is None
    assert world.maintaining.begin(found.table_id, "auto-create-tags", trigger="request").held == ""
    place.enable()
    assert not place.is_due
    place.found = 7
    with pytest.raises(ConfirmationRequired, match=r"more than was confirmed: files 7 \(seen: 5\)"):
        world.confirm(NAME)
    assert world.process(held).status is ProcessStatus.HELD
    assert world.confirm(NAME) is ProcessStatus.SUCCESS  # seven were seen now
    facts = world.store.read(lambda db: pending_deletions.list_facts(db, found.table_id))
    assert [one.files for one in facts] == [7]


def test_what_has_shrunk_to_nothing_is_closed(place: Place, held: str) -> None:
    place.found = 0
    assert place.begin(confirmed=True) == ""
    assert place.world.process(held).status is ProcessStatus.CLOSED


def test_what_nobody_confirms_is_closed_after_a_week(place: Place, held: str) -> None:
    place.world.later(6.9 * DAY_S)
    assert place.world.maintaining.close_unconfirmed() == []
    place.world.later(0.2 * DAY_S)
    assert place.world.maintaining.close_unconfirmed() == [held]
    ended = place.world.process(held)
    assert (ended.status, ended.failure) == (ProcessStatus.CLOSED, "nobody confirmed it within 7 days")
    assert place.world.store.read(lambda db: pending_deletions.paths(db, place.world.table().table_id)) == frozenset()


# Several at once


@pytest.fixture
def several(place: Place) -> Place:
    """On a table of one old snapshot three actions are due, each in a lane of its own or in another's way."""
    place.enable({"maintenance.compute-statistics.enabled": "true"})
    return place


def test_what_is_in_each_other_s_way_follows_at_once_and_waits_no_minute(several: Place) -> None:
    world, table_id = several.world, several.world.table().table_id
    writer.append(several.table, [row(2, "a")])
    named = Options(snapshot_ids=(several.table.refresh().metadata.snapshots[0].snapshot_id,))
    expiry = world.maintaining.begin(table_id, "expire-snapshots", trigger="request", options=named).process_id
    assert expiry
    world.maintaining.begin_due(table_id)  # the lanes of snapshots and of storage exclude each other
    assert world.store.read(lambda db: processes.find_active(db, table_id, STORAGE)) is None
    assert (several.is_due, several.record.reason) == (True, "")
    world.committing.commit(expiry)
    world.maintaining.begin_due(table_id)
    assert world.store.read(lambda db: processes.find_active(db, table_id, STORAGE)).action == NAME


def test_what_is_due_together_begins_in_the_order_of_maintenance_and_nothing_of_another_table(
    several: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, table_id = several.world, several.world.table().table_id
    other = writer.make_table(world.catalog, "db.other", SCHEMA, properties={"self-optimizing.enabled": "true"})
    writer.append(other, [row(1)])
    world.refresh("cat.db.other")
    begun: list[tuple[int, str]] = []
    monkeypatch.setattr(world.maintaining, "begin", lambda table, name, *, trigger: begun.append((table, name)))
    world.maintaining.begin_due(table_id)
    due = [(one, name) for one, name, _ in world.maintaining.list_due() if one == table_id]
    assert len(begun) > 3
    assert sorted(begun) == sorted(due)
    assert begun == sorted(begun, key=lambda one: turn(one[1]))
    assert begun[-1] == (table_id, NAME)  # of another package


# Actions that fail, or change nothing, again and again: the clock leaves them alone until somebody has looked


def known(place: Place, name: str) -> Any:
    found = place.world.maintaining.list_actions(place.world.table())
    return next(one for one in found if one.record.action == name)


@pytest.fixture
def failing(place: Place) -> Place:
    """The action of the tests is on, and its planning fails as often as it is tried."""
    place.enable()
    place.action.error = DataFileMissing("m1.avro is gone")
    return place


def begin(place: Place, times: int) -> None:
    """The clock tries, each time after a day, and fails."""
    for _ in range(times):
        place.world.later(DAY_S)
        with pytest.raises(type(place.action.error)):
            place.begin(EVALUATION)


@pytest.mark.parametrize("found", [0, 1])
def test_the_third_failure_in_a_row_pauses_the_action_until_a_command_succeeds(failing: Place, found: int) -> None:
    begin(failing, 2)
    assert failing.record.paused_at is None
    begin(failing, 1)
    kept = failing.record
    assert kept.paused_at == failing.world.now
    assert kept.paused_for == "3 failures in a row, the last: planning failed: m1.avro is gone"
    failing.world.restart()
    failing.world.later(30 * DAY_S)
    failing.world.refresh()
    assert not failing.is_due
    assert failing.begin(EVALUATION) == ""  # nor does one begin that was on its way
    shown = known(failing, NAME)
    assert (shown.is_due, shown.due_at, shown.record.paused_at) == (False, None, kept.paused_at)
    failing.action.error, failing.found = None, found
    if process_id := failing.begin():
        failing.world.committing.commit(process_id)
    assert (failing.record.paused_at, failing.record.failures) == (None, 0)
    failing.world.later(DAY_S)
    failing.world.refresh()
    assert failing.is_due


def test_a_change_of_its_properties_ends_the_pause(place: Place) -> None:
    place.enable()
    place.world.iceberg.table(history=raising(DataFileMissing("m1.avro is gone")))
    for _ in range(3):
        place.world.later(DAY_S)
        with pytest.raises(DataFileMissing):
            place.world.maintaining.begin(place.world.table().table_id, EXPIRY, trigger=EVALUATION)
    place.world.set_properties({"clean-orphan-file.enabled": "false"})  # another action's
    place.world.refresh()
    assert place.record_of(EXPIRY).paused_at is not None
    place.world.set_properties({"snapshot.keep.duration": "7d"})
    assert known(place, EXPIRY).is_due  # seen before it is kept
    place.world.refresh()
    assert place.record_of(EXPIRY).paused_at is None
    assert place.is_due_for(EXPIRY)


def test_what_a_look_finds_as_it_was_known_is_not_written_again(place: Place) -> None:
    table_id, now = place.world.table().table_id, place.world.now
    looks = {NAME: ActionState(ScheduleDecision(True, ""), every=timedelta(days=1), uuid="1", properties="0")}

    def noted(db: Connection) -> int:
        before = db.raw.total_changes
        note(db, table_id, looks, now)
        return db.raw.total_changes - before

    assert [place.world.store.write(noted) for _ in range(2)] == [1, 0]
    looks[NAME] = replace(looks[NAME], properties="1")
    assert [place.world.store.write(noted) for _ in range(2)] == [1, 0]


def test_a_catalog_that_does_not_answer_pauses_nothing(failing: Place) -> None:
    failing.action.error = CatalogUnavailable("no answer")
    begin(failing, 5)
    assert (failing.record.failures, failing.record.paused_at) == (5, None)


def paused_after_three(world: World, error: Exception) -> ActionRecord:
    """What is known of the action after three processes that could not send their commits."""
    world.iceberg.table(send=raising(error))
    for _ in range(3):
        assert tag_record(world).paused_at is None
        assert world.committing.commit(begin_tag(world)) is ProcessStatus.FAILED
    return tag_record(world)


def test_processes_that_fail_count_and_those_that_somebody_cancels_do_not(world: World, table: Table) -> None:
    for _ in range(4):
        world.optimizing.cancel(begin_tag(world), "by hand")
    kept = paused_after_three(world, CommitRefused("no right"))
    assert kept.paused_for == "3 failures in a row, the last: auto-create-tags failed: no right"


def test_three_runs_that_lost_what_they_had_planned_pause(world: World, table: Table) -> None:
    world.refresh_with({"self-optimizing.commit.timeout": "100"})
    kept = paused_after_three(world, CommitConflict("nothing of it is there any more"))
    assert (kept.failures, kept.fruitless) == (0, 3)
    assert kept.paused_for.startswith("3 runs in a row changed nothing though there was something to do, the last: ")
    assert "other writers were faster" in kept.paused_for


def test_a_trash_of_which_nothing_can_be_deleted_is_paused(place: Place) -> None:
    world, table_id = place.world, place.world.table().table_id
    strays = _strays(place.table, 2)
    place.action.keep = timedelta()
    place.action.files = lambda: [(one, FileKind.DATA) for one in strays]
    world.run(NAME)
    failed = [{strays[0]}, set(strays), set(strays), set(strays)]

    def delete(self: FileAccess, paths: Iterable[str]) -> Mapping[str, Removal]:
        stays = failed.pop(0)
        return {path: Removal(Ended.FAILED if path in stays else Ended.DELETED, "403") for path in paths}

    place.world.iceberg.files(delete_many=delete)
    counts = []
    for _ in range(4):
        process_id = world.maintaining.begin(table_id, "empty-trash", trigger="request").process_id
        world.committing.commit(process_id)
        kept = place.record_of("empty-trash")
        counts.append((kept.fruitless, kept.paused_at is not None))
    more = _strays(place.table, 4)[2:]
    place.action.files = lambda: [(one, FileKind.DATA) for one in more]
    world.run(NAME)  # what is due at once does not begin it either
    assert not place.is_due_for("empty-trash")
    assert counts == [(0, False), (1, False), (2, False), (3, True)]


def _strays(table: Table, number: int) -> Sequence[str]:
    """Files beside the table's that nothing names."""
    data = Path(table.location().removeprefix("file://")) / "data"
    paths = [data / f"stray-{one}.parquet" for one in range(number)]
    for path in paths:
        path.write_bytes(b"x" * 10)
    return [path.as_uri() for path in paths]


@pytest.mark.parametrize(
    ("action", "every", "needs_gc", "by_default"),
    [
        ("expire-snapshots", timedelta(hours=1), True, True),
        ("expire-data", timedelta(days=1), True, False),
        ("clean-orphan-files", timedelta(days=1), True, False),
        ("clean-dangling-delete-files", timedelta(days=1), True, True),
        ("rewrite-manifests", timedelta(days=1), False, True),
    ],
)
def test_an_action_of_the_clock_has_an_interval_and_a_switch(
    world: World, action: str, every: timedelta, needs_gc: bool, by_default: bool
) -> None:
    found = world.services.actions.of(action)
    assert (found.every, found.needs_gc, found.enabled({})) == (every, needs_gc, by_default)
    assert found.enabled({found.switch: str(not by_default).lower()}) is not by_default

"""Actions that fail, or change nothing, again and again: the clock leaves them alone until somebody has looked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.actions.expiring import NAME as EXPIRY
from amoro_core.errors import CatalogUnavailable, CommitConflict, CommitRefused, DataFileMissing
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.maintenance import FileKind
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.stored import Ended, Removal
from amoro_core.model.tables import ActionRecord
from amoro_core.services.known_actions import KnownAction
from amoro_core.store import actions
from amoro_core.store.database import Connection
from amoro_core.transactions.clockwork import Consent, Looked, note
from amoro_core.transactions.planned import EVALUATION
from tests.condemning import NAME
from tests.services.rigs import raising
from tests.services.test_clock import Place, place
from tests.services.test_maintaining import begin as begin_tag
from tests.services.test_maintaining import record as tag_record
from tests.services.test_maintaining import table
from tests.services.world import World

__all__ = ["place", "table"]

DAY_S = 86400.0


def record(place: Place, name: str = NAME) -> ActionRecord:
    return place.world.store.read(lambda db: actions.get(db, place.world.table().table_id, name))


def known(place: Place, name: str = NAME) -> KnownAction:
    found = place.world.known_actions.list_actions(place.world.table())
    return next(one for one in found if one.record.action == name)


def is_due(place: Place, name: str = NAME) -> bool:
    return any(one == name for _, one, _ in place.world.maintaining.list_due())


@pytest.fixture
def failing(place: Place) -> Place:
    """The action of the tests is on, and its planning fails as often as it is tried."""
    place.enable()
    place.refresh()
    place.action.error = DataFileMissing("m1.avro is gone")
    return place


def begin(place: Place, times: int) -> None:
    """The clock tries, each time after a day."""
    for _ in range(times):
        place.world.later(DAY_S)
        with pytest.raises(DataFileMissing):
            place.begin(EVALUATION)


def test_the_third_failure_in_a_row_pauses_the_action_on_its_table(failing: Place) -> None:
    begin(failing, 2)
    assert record(failing).paused_at is None
    begin(failing, 1)
    kept = record(failing)
    assert kept.paused_at == failing.world.now
    assert kept.paused_for == "3 failures in a row, the last: planning failed: m1.avro is gone"
    failing.world.later(30 * DAY_S)
    failing.refresh()
    assert not is_due(failing)
    assert failing.begin(EVALUATION) == ""  # nor does one begin that was on its way
    shown = known(failing)
    assert (shown.is_due, shown.due_at, shown.record.paused_at) == (False, None, kept.paused_at)


def test_others_go_on(failing: Place) -> None:
    begin(failing, 3)
    failing.refresh()
    assert is_due(failing, EXPIRY)


def test_it_is_paused_after_a_restart(failing: Place) -> None:
    begin(failing, 3)
    failing.world.restart()
    assert record(failing).paused_for.startswith("3 failures in a row")
    assert not is_due(failing)


def test_a_command_is_never_held_back_and_its_success_ends_the_pause(failing: Place) -> None:
    begin(failing, 3)
    failing.action.error = None
    failing.world.committing.commit(failing.begin())
    assert (record(failing).paused_at, record(failing).failures) == (None, 0)
    failing.world.later(DAY_S)
    failing.refresh()
    assert is_due(failing)


def test_a_command_that_fails_ends_no_pause(failing: Place) -> None:
    begin(failing, 3)
    with pytest.raises(DataFileMissing):
        failing.begin()
    assert record(failing).paused_at is not None


def test_a_command_that_finds_nothing_to_do_ends_the_pause(failing: Place) -> None:
    begin(failing, 3)
    failing.action.error = None
    failing.found = 0
    assert failing.begin() == ""
    assert record(failing).paused_at is None


def test_a_change_of_its_properties_ends_the_pause(place: Place) -> None:
    place.enable()
    place.refresh()
    place.world.iceberg.table(history=raising(DataFileMissing("m1.avro is gone")))
    for _ in range(3):
        place.world.later(DAY_S)
        with pytest.raises(DataFileMissing):
            place.world.maintaining.begin(place.world.table().table_id, EXPIRY, trigger=EVALUATION)
    place.set(**{"clean-orphan-file.enabled": "false"})  # another action's
    place.refresh()
    assert record(place, EXPIRY).paused_at is not None
    place.set(**{"snapshot.keep.duration": "7d"})
    assert known(place, EXPIRY).is_due  # seen before it is kept
    place.refresh()
    assert record(place, EXPIRY).paused_at is None
    assert is_due(place, EXPIRY)


def test_what_a_look_finds_as_it_was_known_is_not_written_again(place: Place) -> None:
    table_id, now = place.world.table().table_id, place.world.now
    looks = {NAME: Looked(Consent(True, ""), every=timedelta(days=1), uuid="1", properties="0")}

    def noted(db: Connection) -> int:
        before = db.raw.total_changes
        note(db, table_id, looks, now)
        return db.raw.total_changes - before

    assert [place.world.store.write(noted) for _ in range(2)] == [1, 0]
    looks[NAME] = replace(looks[NAME], properties="1")
    assert [place.world.store.write(noted) for _ in range(2)] == [1, 0]


def test_a_catalog_that_does_not_answer_pauses_nothing(place: Place) -> None:
    place.enable()
    place.refresh()
    place.action.error = CatalogUnavailable("no answer")
    for _ in range(5):
        place.world.later(DAY_S)
        with pytest.raises(CatalogUnavailable):
            place.begin(EVALUATION)
    kept = record(place)
    assert (kept.failures, kept.paused_at) == (5, None)


def test_processes_that_fail_count_and_those_that_somebody_cancels_do_not(world: World, table: Table) -> None:
    def fail(self: IcebergTable, payload: bytes) -> None:
        raise CommitRefused("no right")

    for _ in range(4):
        world.optimizing.cancel(begin_tag(world), "by hand")
    assert tag_record(world).paused_at is None
    world.iceberg.table(send=fail)
    for _ in range(3):
        assert tag_record(world).paused_at is None
        assert world.committing.commit(begin_tag(world)) is ProcessStatus.FAILED
    assert tag_record(world).paused_for == "3 failures in a row, the last: auto-create-tags failed: no right"


def test_three_runs_that_lost_what_they_had_planned_pause(world: World, table: Table) -> None:
    def lose(*_: object) -> None:
        raise CommitConflict("nothing of it is there any more")

    with table.refresh().transaction() as change:
        change.set_properties({"self-optimizing.commit.timeout": "100"})
    world.tables.refresh(world.table().table_id)
    world.iceberg.table(send=lose)
    for _ in range(3):
        assert tag_record(world).paused_at is None
        world.committing.commit(begin_tag(world))
    kept = tag_record(world)
    assert (kept.failures, kept.fruitless) == (0, 3)
    assert kept.paused_for.startswith("3 runs in a row changed nothing though there was something to do, the last: ")


def test_a_trash_of_which_nothing_can_be_deleted_is_paused(place: Place) -> None:
    world, table_id = place.world, place.world.table().table_id
    strays = _strays(place.table, 2)
    place.action.keep = timedelta()
    place.action.files = lambda: [(one, FileKind.DATA) for one in strays]
    world.run(NAME)
    failed = [{strays[0]}, set(strays), set(strays), set(strays)]

    def delete(self: IcebergTable, paths: Iterable[str]) -> Mapping[str, Removal]:
        stays = failed.pop(0)
        return {path: Removal(Ended.FAILED if path in stays else Ended.DELETED, "403") for path in paths}

    place.world.iceberg.table(delete_many=delete)
    counts = []
    for _ in range(4):
        process_id = world.maintaining.begin(table_id, "empty-trash", trigger="request").process_id
        world.committing.commit(process_id)
        counts.append((record(place, "empty-trash").fruitless, record(place, "empty-trash").paused_at is not None))
    more = _strays(place.table, 4)[2:]
    place.action.files = lambda: [(one, FileKind.DATA) for one in more]
    world.run(NAME)  # what is due at once does not begin it either
    assert not is_due(place, "empty-trash")
    assert counts == [(0, False), (1, False), (2, False), (3, True)]


def _strays(table: Table, number: int) -> Sequence[str]:
    """Files beside the table's that nothing names."""
    data = Path(table.location().removeprefix("file://")) / "data"
    paths = [data / f"stray-{one}.parquet" for one in range(number)]
    for path in paths:
        path.write_bytes(b"x" * 10)
    return [path.as_uri() for path in paths]

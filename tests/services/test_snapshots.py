"""Two snapshots compared, and what the next expiry would take: as expiry itself decides it."""

from __future__ import annotations

import json

import pytest
from pyiceberg.table import Table

from amoro_core.actions.expiring import NAME
from amoro_core.errors import InvalidArgument, TableNotFound
from amoro_core.maintaining.comparing import SnapshotTotals, totals_of
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.snapshots import SnapshotService
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.test_expiring import ids, made
from tests.services.world import World

TABLE = parse_table("cat.db.t")


def service(world: World) -> SnapshotService:
    return SnapshotService(
        world.store, world.tables_of, lambda name: world.maintaining._of_action(name), lambda: world.now
    )


@pytest.fixture
def table(world: World) -> Table:
    """Four snapshots that are a month old."""
    return made(world)


def test_what_goes_is_what_the_expiry_itself_takes_and_removes(world: World, table: Table) -> None:
    found = service(world).retention(TABLE)
    planned = world.maintaining.preview(TABLE, NAME).plan
    assert planned is not None
    assert list(found.selection.go) == json.loads(planned.detail)["ids"] == ids(table)[:3]
    assert world.run(NAME) == ProcessStatus.SUCCESS
    assert ids(table) == list(found.selection.stay)
    assert service(world).retention(TABLE).selection.go == {}


def test_what_a_lease_or_a_tag_keeps_says_so(world: World, table: Table) -> None:
    oldest, second, *_ = ids(table)
    table.manage_snapshots().create_tag(oldest, "month-end").commit()
    world.leasing.take(world.table(), second, "audit")
    found = service(world).retention(TABLE).selection
    assert found.go == {}
    assert found.stay[oldest].reason == "tag month-end"
    assert "audit" in found.stay[second].reason
    assert found.staying.startswith("4 stay (")


def test_of_a_table_that_is_not_known_its_own_rules_count(world: World, table: Table) -> None:
    found = service(world).retention(TABLE)
    assert (len(found.selection.go), len(found.history.snapshots)) == (3, 4)


def test_two_snapshots_are_compared_by_their_totals_and_how_one_led_to_the_other(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    first, *_, last = ids(table)
    process = world.begin(OptimizingType.MINOR)
    world.run_all(process)
    world.committing.commit(process)
    head = world.table_head()
    found = service(world).compare(TABLE, first, head)
    assert (found.is_ancestor, found.commits, found.own_commits) == (True, 3, 1)
    assert (found.totals_before.data_files, found.totals_after.data_files) == (1, 1)
    assert (found.totals_before.records, found.totals_after.records) == (1, 3)
    again = service(world).compare(TABLE, last, head)
    assert (again.totals_before.data_files, again.commits, again.own_commits) == (3, 1, 1)
    back = service(world).compare(TABLE, head, first)
    assert (back.is_ancestor, back.commits, back.own_commits) == (False, 0, 0)
    same = service(world).compare(TABLE, head, head)
    assert (same.is_ancestor, same.commits) == (True, 0)


def test_an_expired_ancestor_does_not_lead_anywhere(world: World, table: Table) -> None:
    *_, last = ids(table)
    world.run(NAME)
    with pytest.raises(InvalidArgument, match="the table has no snapshot 7"):
        service(world).compare(TABLE, 7, last)


def test_totals_that_a_summary_lacks_are_not_known() -> None:
    unknown = SnapshotTotals(None, None, None, None, None, None)
    assert totals_of({}) == unknown
    assert totals_of({"total-data-files": "-1", "total-records": "1e9", "total-files-size": "9" * 30}) == unknown
    assert totals_of({"total-data-files": "3", "total-position-deletes": "0"}).data_files == 3


def test_a_table_that_does_not_exist_is_said_so(world: World) -> None:
    with pytest.raises(TableNotFound):
        service(world).retention(TABLE)
    with pytest.raises(TableNotFound):
        service(world).compare(TABLE, 1, 2)

"""What is undone in format 3 brings files back with the ids of their rows, by entries that say them."""

import pytest

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer, writer3
from tests.engine.builders import row
from tests.engine.lineage import lineage_of
from tests.services import test_expiring_data as expiring
from tests.services.test_vectors import made, optimize
from tests.services.world import World


@pytest.mark.parametrize("later", [False, True])
def test_undoing_a_rewrite_keeps_the_ids_of_rows(world: World, later: bool) -> None:
    table = made(world)
    before, ids = lineage_of(table), {one.path: one.first_row_id for one in oracle.live_files(table)}
    process_id = optimize(world, OptimizingType.FULL)
    if later:
        writer.append(table, [row(1000)])
    since = lineage_of(table)

    begun = world.maintaining.undo(process_id)
    assert begun.process_id, begun.reason
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS

    assert lineage_of(table) == since
    after = {one.path: one.first_row_id for one in oracle.live_files(table)}
    assert {path: after[path] for path in ids} == ids
    if not later:
        assert lineage_of(table) == before
    # Ids that come next are above all that were given.
    writer.append(table, [row(2000)])
    files = [one for one in oracle.live_files(table) if one.path not in after]
    assert [one.first_row_id for one in files] >= [max(given or 0 for given in after.values()) + 1]


@pytest.mark.parametrize("later", [False, True])
def test_undoing_an_expiry_of_data_keeps_the_ids_of_rows_and_their_vectors(world: World, later: bool) -> None:
    """One of the files that come back has a vector; what others delete by key since is deleted in them, too."""
    table = expiring.make(world, version=3)
    hours = [(number, f"2022-01-01T{12 + number}:00") for number in range(4)]
    expiring.fill(table, hours)
    expiring.fill(table, [(4, "2022-01-01T17:00"), (10, "2022-01-03T12:00")])
    writer3.delete_rows(table, lambda item: item["id"] in (1, 2))
    before, files = lineage_of(table), {one.path: one.first_row_id for one in oracle.live_files(table)}
    assert sorted(before) == [0, 3, 4, 10]
    process_id = expiring.expire(world)
    assert expiring.ids(table.refresh()) == [10]
    if later:
        expiring.fill(table, [(11, "2022-01-03T12:00")])
        key = expiring.record(table, 3, "2022-01-01T15:00")
        writer.row_delta(table, equality_deletes=[writer.EqualityDelete(["id"], [key])])
    since = lineage_of(table)

    begun = world.maintaining.undo(process_id)
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS

    back = {number: lineage for number, lineage in before.items() if not (later and number == 3)}
    assert lineage_of(table.refresh()) == {**since, **back}
    assert files.items() <= {one.path: one.first_row_id for one in oracle.live_files(table)}.items()

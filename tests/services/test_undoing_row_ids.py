"""What is undone in format 3 brings files back with the ids of their rows, by entries that say them."""

import pytest

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer
from tests.engine.builders import row
from tests.engine.lineage import lineage_of
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

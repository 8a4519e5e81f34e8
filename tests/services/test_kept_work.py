"""Most of what is rewritten is kept beside writers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine.writer import make_catalog
from tests.model.lake import Lake, ids_are, row
from tests.services.rigs import reaching
from tests.services.world import World

FILES = 24


@pytest.mark.parametrize(("version", "merges", "rebase"), [(2, False, True), (3, True, True), (3, False, False)])
def test_beside_a_writer_that_deletes_or_merges_by_position_or_by_vector_work_is_kept(
    tmp_path: Path, version: int, merges: bool, rebase: bool
) -> None:
    """It commits after each task, and between the staging and the sending of the commit, which then loses."""
    properties = {
        "self-optimizing.target-size": "6000",
        "self-optimizing.max-task-size-bytes": "6000",
        "self-optimizing.rebase.enabled": str(rebase).lower(),
    }
    lake = Lake.created(make_catalog(tmp_path), version, properties=properties)
    for number in range(FILES):
        lake.append([row(20 * number + at) for at in range(20)])
    world, chance, lost = World(tmp_path, lake.catalog), random.Random(1), list[str]()

    def write() -> None:
        gone = chance.choice(lake.placed()).record["id"]
        lake.delete_positions(ids_are(gone))
        if merges:
            lake.append([row(gone, value="merged")])

    def reach(point: str) -> None:
        if point == "commit.after_intent" and not lost:
            lost.append(point)
            write()

    try:
        process_id, optimizer = world.begin(OptimizingType.FULL, force=True), world.optimizer(1)
        with reaching(reach):
            while world.status(process_id) is ProcessStatus.RUNNING:
                world.run_one(optimizer)
                write()
            world.committing.commit(process_id)
        lake.require()
        done = [one for one in world.commits(process_id) if one.outcome is CommitOutcome.DONE]
        sizes = {
            task.task_id.number: sum(file.size_bytes for file in world.output_of(task).data_files)
            for task in world.tasks(process_id)
        }
    finally:
        world.close()
    share = sum(sizes[number] for one in done for number in one.groups) / sum(sizes.values())
    carried = [one.value for each in done for one in each.receipt.figures if one.name == "rows_carried_over"]
    assert (len(sizes) > 3, bool(lost)) == (True, True)
    assert (sum(carried) > 0, share >= 0.9) == (True, True) if rebase else not sum(carried), (share, carried)

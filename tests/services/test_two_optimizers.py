"""Two optimizers at once on the maintenance of one table: together they find and delete what one would, once each."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from amoro_core.actions.orphans import NAME
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, TaskStatus
from amoro_core.model.work import DELETE
from amoro_core.protocol import maintenance_pb2 as pb
from tests.large import Worker, count_as_large
from tests.services.rigs import Limits
from tests.services.test_large_orphans import condemned_now
from tests.services.test_orphans import Place
from tests.services.world import World

ORPHANS = 24


@pytest.fixture
def place(world: World, limits: Limits, monkeypatch: pytest.MonkeyPatch) -> Place:
    count_as_large(monkeypatch)
    limits(files_of_a_batch=2)
    limits(deleted_by_a_task=4)
    made = Place(world)
    for number in range(ORPHANS):
        made.put(f"data/part={'ab'[number % 2]}/orphan-{number}.parquet")
    return made


def begin(place: Place, action: str) -> str:
    begun = place.world.maintaining.begin(
        place.world.table().table_id, action, trigger="request", options=Options(confirmed=True)
    )
    assert begun.process_id, begun.reason
    return begun.process_id


def die(place: Place, worker: Worker) -> None:
    """As an optimizer that was silent for too long: others get its tasks."""
    place.world.optimizing.dismiss(worker.optimizer, "killed", lost=True)
    place.world.optimizers.forget(worker.optimizer)


def ended(place: Place, process_id: str) -> OptimizingProcess:
    place.world.committing.commit(process_id)
    return place.world.optimizing.find_process(process_id).process


def together(place: Place, process_id: str, *optimizers: Worker) -> list[list[pb.DeleteOutput]]:
    """Let them work at the same time until all is done; what each has deleted."""
    begins = Barrier(len(optimizers))

    def work(worker: Worker) -> list[pb.DeleteOutput]:
        said = []
        begins.wait()
        while any(one.status is TaskStatus.PLANNED for one in place.world.tasks(process_id)):
            for handed in worker.poll():
                if not worker.ack(handed):
                    continue  # the guard answers one at a time: it is scheduled again
                result = worker.execute(handed)
                assert worker.complete(handed, result)
                if handed.work.kind == DELETE:
                    said.append(pb.DeleteOutput.FromString(result.payload))
        return said

    with ThreadPoolExecutor(len(optimizers)) as pool:
        return list(pool.map(work, optimizers))


def test_two_optimizers_condemn_and_delete_each_orphan_once(place: Place) -> None:
    optimizers = [Worker(place.world), Worker(place.world)]
    wanted = sorted(str(path) for path in place.root.rglob("orphan*.parquet"))
    listing = begin(place, NAME)
    together(place, listing, *optimizers)
    assert ended(place, listing).status is ProcessStatus.SUCCESS
    assert condemned_now(place) == wanted
    live = {path: Path(path.removeprefix("file://")).read_bytes() for path in place.live}
    deleting = begin(place, "empty-trash")
    said = together(place, deleting, *optimizers)
    done = ended(place, deleting)
    assert done.receipt is not None
    assert (done.status, {one.name: one.value for one in done.receipt.figures}["data_files_deleted"]) == (
        ProcessStatus.SUCCESS,
        len(wanted),
    )
    outcomes = Counter((one.path, one.outcome) for some in said for output in some for one in output.files)
    assert outcomes == Counter((path, pb.DELETE_OUTCOME_DELETED) for path in wanted)
    assert {path: Path(path.removeprefix("file://")).read_bytes() for path in place.live} == live


def test_what_one_of_them_works_on_when_it_dies_the_other_does_and_the_late_answer_counts_nothing(
    place: Place,
) -> None:
    first, second = Worker(place.world), Worker(place.world)
    listing = begin(place, NAME)
    (handed,) = first.poll()
    assert first.ack(handed)
    found = first.execute(handed)
    die(place, first)
    together(place, listing, second, Worker(place.world))
    assert not first.complete(handed, found)
    assert ended(place, listing).status is ProcessStatus.SUCCESS
    assert len(condemned_now(place)) == ORPHANS + 1
    first = Worker(place.world)
    deleting = begin(place, "empty-trash")
    (handed,) = first.poll()
    assert first.ack(handed)
    deleted = first.execute(handed)  # and nobody hears of it
    die(place, first)
    said = together(place, deleting, second, Worker(place.world))
    assert not first.complete(handed, deleted)
    done = ended(place, deleting)
    gone = {one.path for one in pb.DeleteOutput.FromString(deleted.payload).files}
    told = {one.path: one.outcome for some in said for output in some for one in output.files}
    assert done.status is ProcessStatus.SUCCESS
    assert {path for path, outcome in told.items() if outcome == pb.DELETE_OUTCOME_ABSENT} == gone
    assert list(place.root.rglob("orphan*.parquet")) == []
    assert all(Path(path.removeprefix("file://")).exists() for path in place.live)

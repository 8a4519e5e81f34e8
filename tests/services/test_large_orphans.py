"""Orphan files of large tables: listed by optimizers, each a range of paths, and evaluated again in the coordinator."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from amoro_core import failpoints
from amoro_core.errors import CatalogUnavailable, InvalidArgument, TaskNotFound
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.maintenance.table_locations import TableLocations
from amoro_core.model.maintenance import Options, StoredFile
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, TaskStatus
from amoro_core.model.task_payload import DELETE, LIST, WorkResult
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.services.task_lifecycle import ScheduledTask
from amoro_core.store import pending_deletions, plans, processes
from amoro_core.store.pending_deletions import BatchStatus
from tests.engine import writer
from tests.engine.builders import row
from tests.large import Worker, count_as_large
from tests.services.rigs import Limits
from tests.services.test_orphans import Place, inventory, stored
from tests.services.world import World

NAME = "clean-orphan-files"

#: What a held process has written down is not condemned yet.
CONDEMNED = tuple(one for one in BatchStatus if one is not BatchStatus.WRITTEN)


@pytest.fixture
def place(world: World, monkeypatch: pytest.MonkeyPatch) -> Place:
    count_as_large(monkeypatch)
    return Place(world)


@pytest.fixture
def worker(place: Place) -> Worker:
    return Worker(place.world)


def condemned_now(place: Place) -> list[str]:
    world = place.world
    facts = world.store.read(lambda db: pending_deletions.list_facts(db, world.table().table_id, statuses=CONDEMNED))
    batches = [world.store.read(lambda db, one=one: pending_deletions.get(db, one.batch_id)) for one in facts]
    return sorted(one.path for batch in batches if batch for one in batch.files)


def kept_document(place: Place, process: OptimizingProcess) -> dict[str, object]:
    return dict(place.world.store.read(lambda db: plans.get_plan(db, process.process_id)).document)


def test_tasks_of_optimizers_find_what_the_coordinator_finds(place: Place, worker: Worker) -> None:
    place.put("data/part=b/y.parquet")
    place.put("metadata/old.metadata.json")
    place.put("data/part=a/_hidden.parquet")
    shown = place.preview()  # in the coordinator
    assert shown.plan is not None
    done = worker.run(NAME)
    assert (done.status, len(place.world.tasks(done.process_id)) > 2) == (ProcessStatus.SUCCESS, True)
    assert condemned_now(place) == sorted(one.path for one in shown.plan.condemned)
    assert kept_document(place, done) == shown.plan.document
    assert done.receipt is not None
    assert done.receipt.words == f"condemned {len(shown.plan.condemned)} orphan files"
    before = {str(path) for path in place.root.rglob("*") if path.is_file()}
    worker.run("empty-trash")
    after = {str(path) for path in place.root.rglob("*") if path.is_file()}
    assert before - after == {one.path for one in shown.plan.condemned}


def test_a_file_whose_other_spelling_belongs_to_another_task_is_kept(place: Place, worker: Worker) -> None:
    """Its task can't know whether a snapshot names it; alone the coordinator knows that one does."""
    name = max(place.live).rpartition("/")[2]
    doubtful = place.put(f"data/p%61rt=b/{name}")
    assert place.found() == [place.orphan]
    done = worker.run(NAME)
    assert condemned_now(place) == [place.orphan]
    assert kept_document(place, done)["kept"] == {"spelled in a way that is looked for elsewhere": 1}
    assert os.path.exists(doubtful)


def test_a_table_up_to_the_size_has_no_tasks(place: Place, limits: Limits) -> None:
    limits(large_table=6)  # two files in each of three commits
    assert place.world.tasks(place.run().process_id) == ()
    place.put("data/part=a/again.parquet")
    limits(large_table=5)
    assert place.world.tasks(place.run().process_id) != ()


@pytest.mark.parametrize("name", ["list.parquet", "list.csv"])
def test_tasks_go_by_an_inventory_each_by_its_range_of_it(
    place: Place, worker: Worker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = place.put("data/part=b/y.parquet")
    outside = StoredFile("/elsewhere/x.parquet", 3, place.world.now - timedelta(days=5))
    files = sorted([*stored(place), outside], key=lambda one: one.path)  # as a task has them
    listing = inventory(place, name, files)
    place.put("data/part=b/unlisted.parquet")
    shown = place.preview(file_list=listing)  # in the coordinator
    assert shown.plan is not None
    monkeypatch.setattr(FileAccess, "pages", None)  # of optimizers; the coordinator lists what Flink may still commit
    place.world.iceberg.table(pages=lambda table, where: iter(()))
    done = worker.run(NAME, options=Options(file_list=listing))
    assert (done.status, len(place.world.tasks(done.process_id)) > 2) == (ProcessStatus.SUCCESS, True)
    assert condemned_now(place) == [place.orphan, other]
    assert kept_document(place, done) == shown.plan.document


def test_what_is_no_inventory_is_refused_before_any_task_is_planned(place: Place) -> None:
    listing = inventory(place, "list.parquet", stored(place), mtime="")
    with pytest.raises(InvalidArgument, match="has no column mtime"):
        place.run(file_list=listing)
    assert place.world.store.read(processes.list_active) == []


def test_an_inventory_that_can_not_be_read_any_more_ends_the_process(place: Place, worker: Worker) -> None:
    listing = inventory(place, "list.csv", stored(place))
    table_id = place.world.table().table_id
    begun = place.world.maintaining.begin(table_id, NAME, trigger="request", options=Options(file_list=listing))
    Path(listing).write_text("path,size,mtime\n/x,3,no time\n")
    worker.work()
    place.world.committing.commit(begun.process_id)
    assert place.world.status(begun.process_id) is ProcessStatus.FAILED
    assert condemned_now(place) == []


def test_a_breaker_holds_what_the_tasks_found_until_somebody_confirms_it(place: Place, worker: Worker) -> None:
    for number in range(100):
        place.put(f"data/many/{number}.parquet")
    held = worker.run(NAME)
    assert (held.status, "more than 20 %" in held.failure) == (ProcessStatus.HELD, True)
    assert kept_document(place, held)["orphan_files_count"] == 101
    last = max(task.attempt for task in place.world.tasks(held.process_id))
    confirmed = worker.run(NAME, options=Options(confirmed=True))
    assert (confirmed.process_id, confirmed.status) == (held.process_id, ProcessStatus.SUCCESS)
    assert all(task.attempt > last for task in place.world.tasks(held.process_id)), "what was late stays stale"
    assert len(condemned_now(place)) == 101


def test_it_is_held_again_beyond_what_was_confirmed(place: Place, worker: Worker) -> None:
    for number in range(100):
        place.put(f"data/many/{number}.parquet")
    worker.run(NAME)
    place.put("data/many/more.parquet")
    again = worker.run(NAME, options=Options(confirmed=True))
    assert again.status is ProcessStatus.HELD
    assert "more than was confirmed: files 102 (seen: 101)" in again.failure
    assert condemned_now(place) == []


def test_what_was_confirmed_from_the_start_is_not_held(place: Place, worker: Worker) -> None:
    for number in range(100):
        place.put(f"data/many/{number}.parquet")
    assert worker.run(NAME, options=Options(confirmed=True)).status is ProcessStatus.SUCCESS


def test_what_a_task_does_not_name_is_counted_said_and_found_by_the_next(
    place: Place, worker: Worker, limits: Limits
) -> None:
    limits(listed_by_a_task=10**9)
    limits(candidates_of_a_task=2)
    for number in range(4):
        place.put(f"data/part=a/{number}.parquet", b"12345")
    first = worker.run(NAME)
    assert first.receipt is not None
    assert first.receipt.words == "condemned 2 orphan files; 3 more are left for the next process"
    assert kept_document(place, first)["kept"] == {"beyond what one process takes": 3}
    assert len(condemned_now(place)) == 2
    worker.run(NAME)
    worker.run(NAME)
    assert len(condemned_now(place)) == 5


def test_files_that_are_not_named_count_for_the_breaker(place: Place, worker: Worker, limits: Limits) -> None:
    limits(listed_by_a_task=10**9)
    limits(candidates_of_a_task=2)
    for number in range(100):
        place.put(f"data/many/{number}.parquet")
    assert "101 of" in worker.run(NAME).failure


def last_task(worker: Worker, **changes: object) -> tuple[ScheduledTask, pb.ListOutput]:
    """All tasks but one done; the last with what it would say."""
    planned = len([one for one in worker.world.tasks(worker.begun) if one.status is TaskStatus.PLANNED])
    for _ in range(planned - 1):
        (handed,) = worker.poll()
        assert worker.ack(handed)
        worker.complete(handed, worker.execute(handed))
    (handed,) = worker.poll()
    assert worker.ack(handed)
    return handed, pb.ListOutput.FromString(worker.execute(handed).payload)


@pytest.fixture
def begun(place: Place, worker: Worker) -> str:
    process_id = place.world.maintaining.begin(place.world.table().table_id, NAME, trigger="request").process_id
    worker.begun = process_id
    return process_id


def end(worker: Worker, handed: ScheduledTask, said: pb.ListOutput) -> OptimizingProcess:
    assert worker.complete(handed, WorkResult(LIST, said.SerializeToString()))
    worker.world.committing.commit(handed.attempt.task_id.process_id)
    return worker.world.optimizing.find_process(handed.attempt.task_id.process_id).process


def test_an_optimizer_that_names_a_file_elsewhere_is_not_believed(place: Place, worker: Worker, begun: str) -> None:
    handed, said = last_task(worker)
    said.candidates.add(path="/etc/passwd", size_bytes=1, modified_us=1)
    failed = end(worker, handed, said)
    assert (failed.status, failed.failure_code) == (ProcessStatus.FAILED, "AMORO-1005")
    assert "names 1 files that lie elsewhere than it was to list" in failed.failure
    assert condemned_now(place) == []


def test_a_young_file_that_an_optimizer_names_is_kept_all_the_same(place: Place, worker: Worker, begun: str) -> None:
    handed, said = last_task(worker)
    work = pb.ListWork.FromString(handed.work.payload)
    now_us = round(place.world.now.timestamp() * 1e6)
    young = f"{work.places[-1]}/zzz.parquet"
    said.candidates.add(path=young, size_bytes=1, modified_us=now_us)
    done = end(worker, handed, said)
    assert done.status is ProcessStatus.SUCCESS
    assert condemned_now(place) == [place.orphan]
    kept = kept_document(place, done)["kept"]
    assert isinstance(kept, dict)
    assert kept["young"] == 1


def test_what_is_condemned_meanwhile_is_not_condemned_again(place: Place, worker: Worker, begun: str) -> None:
    """As by a late result, while the tasks run."""
    handed, said = last_task(worker)
    shown, table = place.preview().plan, place.world.table()
    assert shown is not None
    batches = pending_deletions.batches_of(shown.condemned, begun, table.table_id, table.uuid, place.world.now)
    waiting = [replace(one, status=BatchStatus.WAITING) for one in batches]
    place.world.store.write(lambda db: pending_deletions.add_many(db, waiting))
    end(worker, handed, said)
    assert condemned_now(place) == [place.orphan]


def test_a_listing_that_lacks_what_is_there_is_not_believed(place: Place, worker: Worker, begun: str) -> None:
    failed = None
    while handed := worker.poll():
        assert worker.ack(handed[0])
        said = pb.ListOutput.FromString(worker.execute(handed[0]).payload)
        del said.seen[:]
        failed = end(worker, handed[0], said)
    assert failed is not None
    assert (failed.status, "the listing lacks" in failed.failure) == (ProcessStatus.FAILED, True)
    assert condemned_now(place) == []


def test_listings_without_times_are_not_believed(place: Place, worker: Worker, begun: str) -> None:
    handed, said = last_task(worker)
    said.without_time = 1000
    failed = end(worker, handed, said)
    assert (failed.status, "have no modification time" in failed.failure) == (ProcessStatus.FAILED, True)


def test_a_file_of_another_table_ends_the_process_by_name(place: Place, worker: Worker) -> None:
    place.put("metadata/other.metadata.json", b'{"table-uuid": "11111111-2222-3333-4444-555555555555"}')
    failed = worker.run(NAME)
    assert failed.status is ProcessStatus.FAILED
    assert "two tables share a place" in failed.failure


def test_a_file_that_is_committed_while_tasks_run_is_spared_at_the_latest_by_the_guard(
    place: Place, worker: Worker, begun: str
) -> None:
    handed, said = last_task(worker)
    writer.append(place.table, [row(9, "a")])
    end(worker, handed, said)
    live = set(place.live)
    worker.run("empty-trash")
    assert all(os.path.exists(path.removeprefix("file://")) for path in live)


def test_blobs_are_kept_for_as_long_as_the_process(place: Place, worker: Worker, begun: str) -> None:
    def count() -> int:
        return int(place.world.store.read(lambda db: db.select_one("SELECT count(*) AS n FROM work_blob"))["n"])

    assert count() > 0
    place.world.restart()
    assert count() > 0
    worker = Worker(place.world)
    worker.work()
    place.world.committing.commit(begun)
    assert (place.world.status(begun), count()) == (ProcessStatus.SUCCESS, 0)


def test_blobs_of_a_cancelled_process_go(place: Place, worker: Worker, begun: str) -> None:
    (handed,) = worker.poll()
    assert worker.ack(handed)
    place.world.optimizing.cancel(begun, "tests")
    assert place.world.status(begun) is ProcessStatus.CLOSED
    assert place.world.store.read(lambda db: db.select_one("SELECT count(*) AS n FROM work_blob"))["n"] == 0
    assert place.world.optimizing.abandoned(worker.optimizer, [handed.attempt]) == [handed.attempt]
    assert not worker.complete(handed, WorkResult(LIST, pb.ListOutput().SerializeToString()))
    assert condemned_now(place) == []


def test_a_blob_is_for_who_acknowledged_the_attempt(place: Place, worker: Worker, begun: str) -> None:
    (handed,) = worker.poll()
    name = pb.ListWork.FromString(handed.work.payload).blob
    other = Worker(place.world)
    read = place.world.optimizing.read_blob
    for who in (worker.optimizer, other.optimizer):
        with pytest.raises(TaskNotFound, match="has no blob"):
            read(who, handed.attempt, name.sha256, 0)
    assert worker.ack(handed)
    assert len(read(worker.optimizer, handed.attempt, name.sha256, 0) or b"") == name.size_bytes
    assert read(worker.optimizer, handed.attempt, name.sha256, 1) is None
    with pytest.raises(TaskNotFound, match="has no blob"):
        read(other.optimizer, handed.attempt, name.sha256, 0)


def test_blobs_lie_in_pieces(place: Place, limits: Limits) -> None:
    limits(piece_of_a_blob=8)
    assert Worker(place.world).run(NAME).status is ProcessStatus.SUCCESS
    assert condemned_now(place) == [place.orphan]


def test_an_optimizer_that_does_not_know_the_kind_gets_no_task(place: Place, begun: str) -> None:
    assert place.world.poll(place.world.optimizer()) == []


def test_what_was_found_is_gathered_later_where_the_table_does_not_answer(
    place: Place, worker: Worker, begun: str
) -> None:
    worker.work()
    ground = IcebergTable.ground

    def fail(self: IcebergTable) -> TableLocations:
        raise CatalogUnavailable("it does not answer")

    place.world.iceberg.table(ground=fail)
    with pytest.raises(CatalogUnavailable):
        place.world.committing.commit(begun)
    waiting = place.world.optimizing.find_process(begun).process
    assert (waiting.status, waiting.delay is not None) == (ProcessStatus.RUNNING, True)
    assert begun not in [one for one, _ in place.world.optimizing.list_committing()]
    place.world.iceberg.table(ground=ground)
    place.world.later(3600)
    assert begun in [one for one, _ in place.world.optimizing.list_committing()]
    assert place.world.committing.commit(begun) is ProcessStatus.SUCCESS
    assert condemned_now(place) == [place.orphan]


@pytest.mark.parametrize("point", ["gather.before_store", "gather.after_store"])
def test_a_death_while_it_is_gathered_condemns_everything_once(
    place: Place, worker: Worker, begun: str, point: str
) -> None:
    worker.work()
    failpoints.arm(f"{point}=fail")
    with suppress(Exception):
        place.world.committing.commit(begun)
    failpoints.arm("")
    place.world.restart()
    if place.world.status(begun) is ProcessStatus.RUNNING:
        place.world.later(3600)
        place.world.committing.commit(begun)
    assert place.world.status(begun) is ProcessStatus.SUCCESS
    assert condemned_now(place) == [place.orphan]


def test_a_process_that_is_cancelled_while_it_is_gathered_condemns_nothing(
    place: Place, worker: Worker, begun: str
) -> None:
    worker.work()
    ground = IcebergTable.ground

    def cancel(self: IcebergTable) -> TableLocations:
        place.world.optimizing.cancel(begun, "tests")
        return ground(self)

    place.world.iceberg.table(ground=cancel)
    place.world.committing.commit(begun)
    assert place.world.status(begun) is ProcessStatus.CLOSED
    assert condemned_now(place) == []


# Two optimizers at once on the maintenance of one table: together they find and delete what one would, once each


ORPHANS = 24


@pytest.fixture
def shared_place(world: World, limits: Limits, monkeypatch: pytest.MonkeyPatch) -> Place:
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


def test_two_optimizers_condemn_and_delete_each_orphan_once(shared_place: Place) -> None:
    optimizers = [Worker(shared_place.world), Worker(shared_place.world)]
    wanted = sorted(str(path) for path in shared_place.root.rglob("orphan*.parquet"))
    listing = begin(shared_place, NAME)
    together(shared_place, listing, *optimizers)
    assert ended(shared_place, listing).status is ProcessStatus.SUCCESS
    assert condemned_now(shared_place) == wanted
    live = {path: Path(path.removeprefix("file://")).read_bytes() for path in shared_place.live}
    deleting = begin(shared_place, "empty-trash")
    said = together(shared_place, deleting, *optimizers)
    done = ended(shared_place, deleting)
    assert done.receipt is not None
    assert (done.status, {one.name: one.value for one in done.receipt.figures}["data_files_deleted"]) == (
        ProcessStatus.SUCCESS,
        len(wanted),
    )
    outcomes = Counter((one.path, one.outcome) for some in said for output in some for one in output.files)
    assert outcomes == Counter((path, pb.DELETE_OUTCOME_DELETED) for path in wanted)
    assert {path: Path(path.removeprefix("file://")).read_bytes() for path in shared_place.live} == live


def test_what_one_of_them_works_on_when_it_dies_the_other_does_and_the_late_answer_counts_nothing(
    shared_place: Place,
) -> None:
    first, second = Worker(shared_place.world), Worker(shared_place.world)
    listing = begin(shared_place, NAME)
    (handed,) = first.poll()
    assert first.ack(handed)
    found = first.execute(handed)
    die(shared_place, first)
    together(shared_place, listing, second, Worker(shared_place.world))
    assert not first.complete(handed, found)
    assert ended(shared_place, listing).status is ProcessStatus.SUCCESS
    assert len(condemned_now(shared_place)) == ORPHANS + 1
    first = Worker(shared_place.world)
    deleting = begin(shared_place, "empty-trash")
    (handed,) = first.poll()
    assert first.ack(handed)
    deleted = first.execute(handed)  # and nobody hears of it
    die(shared_place, first)
    said = together(shared_place, deleting, second, Worker(shared_place.world))
    assert not first.complete(handed, deleted)
    done = ended(shared_place, deleting)
    gone = {one.path for one in pb.DeleteOutput.FromString(deleted.payload).files}
    told = {one.path: one.outcome for some in said for output in some for one in output.files}
    assert done.status is ProcessStatus.SUCCESS
    assert {path for path, outcome in told.items() if outcome == pb.DELETE_OUTCOME_ABSENT} == gone
    assert list(shared_place.root.rglob("orphan*.parquet")) == []
    assert all(Path(path.removeprefix("file://")).exists() for path in shared_place.live)

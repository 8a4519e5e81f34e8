"""Condemned files of large tables: deleted by optimizers, guarded at each ack, settled by what they say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from amoro_core import failpoints
from amoro_core.errors import CatalogUnavailable, OptimizerError
from amoro_core.iceberg.maintenance.reachability_guard import Guard
from amoro_core.model.maintenance import FileKind, Options
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, TaskStatus
from amoro_core.model.task_payload import DELETE, WorkResult
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.services.task_lifecycle import Admission, ScheduledTask
from amoro_core.store.pending_deletions import BatchStatus
from tests.engine import oracle, writer
from tests.engine.commits import Change, commit
from tests.large import Worker, count_as_large
from tests.services.rigs import Limits, raising
from tests.services.test_sweeping import Place, figures
from tests.services.world import World

NAME = "empty-trash"


@pytest.fixture
def place(new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> Place:
    count_as_large(monkeypatch)
    made = Place(new_world)
    made.action.keep = timedelta()
    return made


@pytest.fixture
def worker(place: Place) -> Worker:
    return Worker(place.world)


def begun(place: Place, strays: int = 0) -> str:
    """The process that deletes what is due; with so many new strays."""
    if strays:
        place.stray(strays)
        place.run()
    process_id = place.world.maintaining.begin(place.table_id, NAME, trigger="request").process_id
    assert process_id
    return process_id


def handed(worker: Worker, *, acked: bool = True) -> ScheduledTask:
    (task,) = worker.poll()
    if acked:
        assert worker.ack(task)
    return task


def end(place: Place, process_id: str) -> OptimizingProcess:
    place.world.committing.commit(process_id)
    return place.world.process(process_id)


def live(place: Place) -> list[str]:
    return [file.path for file in oracle.live_files(place.table)]


def commit_file(place: Place, path: str) -> None:
    """Have the table's head name a file that is there."""

    def added(head: Table) -> Change:
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record("a"),
            record_count=1,
            file_size_in_bytes=10,
        )
        file.spec_id = head.spec().spec_id
        return Change((file,))

    commit(place.table, added)


def test_optimizers_delete_what_is_due_and_the_receipt_tells_as_of_the_coordinator(
    place: Place, worker: Worker
) -> None:
    place.stray(3)
    gone = place.data / "stray-data-0.parquet"
    changed = place.data / "stray-data-1.parquet"
    place.action.sizes = {uri: 10 for uri, _ in place.told}
    place.run()
    gone.unlink()
    changed.write_bytes(b"another file")
    swept = worker.run(NAME)
    assert swept.status is ProcessStatus.SUCCESS
    told = figures(swept)
    assert {key: told[key] for key in told if told[key]} == {
        "data_files_deleted": 1,
        "bytes_deleted": 10,
        "files_absent": 1,
        "files_changed": 1,
    }
    assert (place.left(), place.batches()) == ([changed.name], [])


def test_kinds_go_in_their_order_whoever_polls(place: Place, worker: Worker) -> None:
    for kind in reversed(FileKind):
        place.stray(2, kind)
    place.run()
    process_id = begun(place)
    deleted = []
    while polled := worker.poll(1, 2):
        assert len(polled) == 1, "a kind waits for those before it"
        (task,) = polled
        assert worker.ack(task)
        work = pb.DeleteWork.FromString(task.work.payload)
        deleted += [Path(one.path).name for batch in work.batches for one in batch.files]
        assert worker.complete(task, worker.execute(task))
    words = [name.removeprefix("stray-").rpartition("-")[0] for name in deleted]
    assert words == [kind.value for kind in FileKind for _ in range(2)]
    assert end(place, process_id).status is ProcessStatus.SUCCESS
    assert place.left() == []


def test_a_task_takes_so_many_files_a_process_so_many_tasks_and_the_coordinator_the_rest(
    place: Place, worker: Worker, limits: Limits
) -> None:
    limits(files_of_a_batch=2)
    limits(deleted_by_a_task=4)
    limits(deleting_tasks=2)
    place.stray(11)
    place.run()
    process_id = begun(place)
    assert [task.input_files for task in place.world.tasks(process_id)] == [4, 4]
    worker.work()
    assert figures(end(place, process_id))["data_files_deleted"] == 11
    assert (place.left(), place.batches()) == ([], [])


def test_the_guard_at_the_ack_keeps_a_live_file_alarms_and_holds_the_process(place: Place, worker: Worker) -> None:
    place.stray(2)
    place.told += [(path, FileKind.DATA) for path in live(place)]
    place.run()
    process_id = begun(place)
    (task,) = worker.poll()
    assert not worker.ack(task)
    held = place.world.process(process_id)
    assert (held.status, held.failure_code) == (ProcessStatus.HELD, "AMORO-6002")
    assert f"the table needs {min(live(place))}" in held.failure
    assert place.world.guard_hits == len(live(place))
    assert [one.status for one in place.world.tasks(process_id)] == [TaskStatus.CANCELED]
    assert (worker.poll(), len(place.left())) == ([], 2)
    assert [one.files for one in place.batches(BatchStatus.WAITING)] == [2]
    confirmed = worker.run(NAME, options=Options(confirmed=True))
    assert (confirmed.process_id, confirmed.status, place.left()) == (process_id, ProcessStatus.SUCCESS, [])
    assert all(Path(path.removeprefix("file://")).exists() for path in live(place))


def test_what_is_committed_after_the_plan_is_spared(place: Place, worker: Worker) -> None:
    """A file that is added again between plan and ack."""
    path = live(place)[0]
    size = os.path.getsize(path.removeprefix("file://"))
    writer.copy_on_write(place.table, lambda one: True, lambda one: {**one, "value": "new"})
    writer.expire_snapshots(place.table)
    place.told = [(path, FileKind.DATA)]
    place.action.sizes = {path: size}
    place.run()
    process_id = begun(place)
    assert path not in live(place)
    commit_file(place, path)
    (task,) = worker.poll()
    assert not worker.ack(task)
    assert place.world.process(process_id).status is ProcessStatus.HELD
    assert Path(path.removeprefix("file://")).exists()


def test_an_attempt_that_cannot_be_guarded_has_failed_and_the_process_fails_in_the_end(
    place: Place, worker: Worker
) -> None:
    place.stray(2)
    place.run()

    place.world.iceberg.guard(reachable=raising(CatalogUnavailable("it does not answer")))
    process_id = begun(place)
    tries = 0
    while polled := worker.poll():
        tries += 1
        assert not worker.ack(polled[0])
    failed = place.world.process(process_id)
    assert (failed.status, tries > 1, len(place.left())) == (ProcessStatus.FAILED, True, 2)
    assert "it does not answer" in failed.failure
    assert [one.status for one in place.batches()] == [BatchStatus.WAITING]


def test_what_was_restored_before_the_ack_stays(place: Place, worker: Worker, limits: Limits) -> None:
    limits(files_of_a_batch=2)
    place.stray(2)
    restored = place.run().process_id
    place.told = []
    place.stray(4)
    place.told = place.told[2:]
    place.run()
    process_id = begun(place)
    task = handed(worker, acked=False)
    assert place.world.trash.restore(restored).files == 2
    assert not worker.ack(task), "it was to delete what is restored"
    again = handed(worker)
    assert (again.attempt.task_id, again.attempt.number) == (task.attempt.task_id, 2)
    (batch,) = pb.DeleteWork.FromString(again.work.payload).batches
    assert len(batch.files) == 2
    assert worker.complete(again, worker.execute(again))
    assert end(place, process_id).status is ProcessStatus.SUCCESS
    assert place.left() == ["stray-data-0.parquet", "stray-data-1.parquet"]


def test_what_is_restored_while_it_is_being_guarded_stays(place: Place, worker: Worker) -> None:
    place.stray(2)
    condemning = place.run().process_id
    begun(place)
    reachable = Guard.reachable

    def restore_meanwhile(self: Guard, paths: Iterable[str]) -> Mapping[str, str]:
        if place.batches(BatchStatus.WAITING):
            assert place.world.trash.restore(condemning).files == 2
        return reachable(self, paths)

    place.world.iceberg.guard(reachable=restore_meanwhile)
    assert not worker.ack(handed(worker, acked=False))
    worker.work()
    assert len(place.left()) == 2


def test_batches_are_being_deleted_from_the_ack_on(place: Place, worker: Worker) -> None:
    place.stray(2)
    condemning = place.run().process_id
    begun(place)
    assert worker.ack(handed(worker)), "an ack that is repeated counts once"
    assert [(one.status, one.tries) for one in place.batches()] == [(BatchStatus.DELETING, 1)]
    with pytest.raises(Exception, match="being deleted"):
        place.world.trash.restore(condemning)


def test_a_batch_whose_optimizer_died_is_guarded_again(place: Place, worker: Worker) -> None:
    """Meanwhile a file of it was committed: without the second guard it would be deleted."""
    process_id = begun(place, 2)
    handed(worker)
    path = place.told[0][0]
    commit_file(place, path)
    place.world.optimizing.dismiss(worker.optimizer, "lost", lost=True)
    other = Worker(place.world)
    (again,) = other.poll()
    assert again.attempt.number == 2
    assert not other.ack(again)
    assert place.world.process(process_id).status is ProcessStatus.HELD
    assert len(place.left()) == 2


def test_what_a_dead_optimizer_has_deleted_is_absent_for_the_next(place: Place, worker: Worker) -> None:
    process_id = begun(place, 2)
    worker.execute(handed(worker))  # and dies without a word
    place.world.optimizing.dismiss(worker.optimizer, "lost", lost=True)
    Worker(place.world).work()
    told = figures(end(place, process_id))
    assert (told["files_absent"], place.left(), place.batches()) == (2, [], [])


def test_a_late_result_is_an_outcome_report_only(place: Place, worker: Worker) -> None:
    process_id = begun(place, 2)
    task = handed(worker)
    late = worker.execute(task)
    place.world.optimizing.dismiss(worker.optimizer, "lost", lost=True)
    before = place.batches()
    assert not worker.complete(task, late)
    assert place.batches() == before
    assert place.of(process_id).status is ProcessStatus.RUNNING


def test_what_is_begun_too_late_is_not_deleted(place: Place, worker: Worker) -> None:
    begun(place, 2)
    task = handed(worker)
    worker.age_s = 600.1
    with pytest.raises(OptimizerError, match=r"2 files were not begun to be deleted within 600 s of their ack"):
        worker.execute(task)
    assert len(place.left()) == 2
    worker.age_s = 600.0
    worker.execute(task)
    assert place.left() == []


def test_files_that_an_optimizer_says_nothing_of_are_tried_again_and_others_are_ignored(
    place: Place, worker: Worker
) -> None:
    process_id = begun(place, 2)
    task = handed(worker)
    said = pb.DeleteOutput()
    said.files.add(path=place.told[0][0], outcome=pb.DELETE_OUTCOME_DELETED)
    said.files.add(path=live(place)[0], outcome=pb.DELETE_OUTCOME_DELETED)
    assert worker.complete(task, WorkResult(DELETE, said.SerializeToString()))
    told = figures(end(place, process_id))
    assert (told["data_files_deleted"], told["files_failed"]) == (1, 1)
    assert [(one.status, one.files) for one in place.batches()] == [(BatchStatus.DELETING, 1)]


def test_cancelling_ends_it_between_batches_and_the_next_goes_on(place: Place, worker: Worker, limits: Limits) -> None:
    limits(files_of_a_batch=2)
    limits(deleted_by_a_task=2)
    place.stray(4)
    place.run()
    process_id = begun(place)
    first = handed(worker)
    assert worker.complete(first, worker.execute(first))
    place.world.optimizing.cancel(process_id, "tests")
    assert (worker.poll(), len(place.left())) == ([], 2)
    assert worker.run(NAME).status is ProcessStatus.SUCCESS
    assert (place.left(), place.batches()) == ([], [])


def test_a_restart_of_the_coordinator_goes_on(place: Place, worker: Worker) -> None:
    process_id = begun(place, 2)
    task = handed(worker)
    result = worker.execute(task)
    place.world.restart()
    assert worker.complete(task, result)
    assert figures(end(place, process_id))["data_files_deleted"] == 2


def test_a_death_after_the_guard_deletes_nothing_and_the_next_ack_is_guarded_again(
    place: Place, worker: Worker
) -> None:
    process_id = begun(place, 2)
    task = handed(worker, acked=False)
    failpoints.arm("ack.after_guard=fail")
    with pytest.raises(failpoints.InjectedFault):
        worker.ack(task)
    failpoints.arm("")
    assert [batch.status for batch in place.batches()] == [BatchStatus.WAITING]
    commit_file(place, str(place.data / "stray-data-0.parquet"))
    place.world.restart()
    assert not worker.ack(task)
    assert end(place, process_id).status is ProcessStatus.HELD
    assert place.left() == ["stray-data-0.parquet", "stray-data-1.parquet"]


def test_an_ack_waits_while_the_guard_answers_another(place: Place, worker: Worker) -> None:
    process_id = begun(place, 2)
    task = handed(worker, acked=False)
    guarding = place.world.services.ack_guarding
    kept = guarding._guard_of(process_id)
    with kept.lock:
        ack = place.world.optimizing.ack
        assert ack(worker.optimizer, [task.attempt], may_wait=True) == [Admission.LATER]
        assert [one.status for one in place.world.tasks(process_id)] == [TaskStatus.SCHEDULED]
        assert ack(worker.optimizer, [task.attempt]) == [None]
        (waiting,) = place.world.tasks(process_id)
        assert (waiting.status, waiting.lost_attempts, waiting.failed_runs) == (TaskStatus.PLANNED, 0, 0)
    worker.work()
    assert place.left() == []


def test_no_ack_waits_while_a_new_guard_reads_the_table(place: Place, worker: Worker) -> None:
    process_id = begun(place, 2)
    asked: list[Callable[[], None]] = []
    place.world.services.ack_guarding.background = asked.append
    for _ in range(2):
        task = handed(worker, acked=False)
        assert place.world.optimizing.ack(worker.optimizer, [task.attempt], may_wait=True) == [Admission.LATER]
        assert not worker.ack(task)
        (waiting,) = place.world.tasks(process_id)
        assert (waiting.status, waiting.lost_attempts, waiting.failed_runs) == (TaskStatus.PLANNED, 0, 0)
    (prepare,) = asked
    prepare()
    worker.work()
    assert (place.left(), len(asked)) == ([], 1)


@pytest.mark.parametrize("error", [CatalogUnavailable("no answer"), ValueError("no manifest")])
def test_a_guard_that_can_not_read_the_table_fails_the_attempt_and_reads_it_again(
    place: Place, worker: Worker, error: Exception
) -> None:
    process_id = begun(place, 2)
    asked: list[Callable[[], None]] = []
    place.world.services.ack_guarding.background = asked.append
    task = handed(worker, acked=False)

    assert place.world.optimizing.ack(worker.optimizer, [task.attempt], may_wait=True) == [Admission.LATER]
    with place.world.iceberg.guard(reachable=raising(error)):
        asked.pop()()
    assert not worker.ack(task)
    (failed,) = place.world.tasks(process_id)
    assert (failed.status, failed.failed_runs, len(place.left())) == (TaskStatus.PLANNED, 1, 2)
    assert not worker.ack(handed(worker, acked=False))
    asked.pop()()
    worker.work()
    assert place.left() == []

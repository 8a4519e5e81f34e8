"""Deletion of condemned files; on large tables by tasks of optimizers, batches of one kind together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from amoro_core.actions.action_api import (
    ActionDefaults,
    Plan,
    PlannedTask,
    PlanningContext,
    Prepare,
    Request,
    TriggerVerdict,
)
from amoro_core.errors import IllegalState
from amoro_core.formats.ports import AnyTable, Role, Sweepable
from amoro_core.maintenance.manifests import is_large
from amoro_core.model.maintenance import Condemned, DueBatch, Ended, FileKind, Removal
from amoro_core.model.processes import STORAGE
from amoro_core.model.task_payload import DELETE, Work
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.protocol.codec import milliseconds, to_us

#: Files of a task.
FILES_OF_A_TASK = 10_000
#: Maximum of tasks; the rest is deleted by the next process.
MOST_TASKS = 50
#: How long after its ack an optimizer may still begin: the guard's answer is not valid for longer.
BEGIN_WITHIN = timedelta(minutes=10)

_ENDED = {
    pb.DELETE_OUTCOME_DELETED: Ended.DELETED,
    pb.DELETE_OUTCOME_ABSENT: Ended.ABSENT,
    pb.DELETE_OUTCOME_CHANGED: Ended.CHANGED,
}
_ORDER = tuple(FileKind)


def delete_tasks(table: Sweepable, situation: PlanningContext) -> tuple[PlannedTask, ...]:
    """The tasks that delete due files: a kind of file begins once all files of earlier kinds are processed."""
    chosen = [some for some, _ in zip(_together(situation.due_batches()), range(MOST_TASKS), strict=False)]
    at_once = max(1, min(len(chosen), situation.capacity.threads))
    reach = table.reach()
    work = pb.DeleteWork(
        locations=pb.Locations(location=reach.location, readable=reach.readable, writable=reach.writable),
        begin_within_ms=milliseconds(BEGIN_WITHIN),
        files_per_second=max(1, situation.delete_rate // at_once),
    )
    return tuple(_task(work, some) for some in chosen)


def _together(batches: Iterable[DueBatch]) -> Iterator[list[DueBatch]]:
    """Batches of one kind in order, grouped by task."""
    some: list[DueBatch] = []
    for batch in batches:
        is_full = sum(len(due_batch.files) for due_batch in some) + len(batch.files) > FILES_OF_A_TASK
        if some and (is_full or some[0].kind is not batch.kind):
            yield some
            some = []
        some.append(batch)
    if some:
        yield some


def _task(common: pb.DeleteWork, batches: Sequence[DueBatch]) -> PlannedTask:
    work = pb.DeleteWork()
    work.CopyFrom(common)
    for batch in batches:
        _add(work, batch.batch_id, batch.files)
    return PlannedTask(
        Work(DELETE, work.SerializeToString(deterministic=True)),
        cost=0,
        partition=batches[0].kind.value,
        input_files=sum(len(batch.files) for batch in batches),
        input_bytes=sum(one.size_bytes or 0 for batch in batches for one in batch.files),
        stage=_ORDER.index(batches[0].kind),
    )


def _add(work: pb.DeleteWork, batch_id: int, files: Iterable[Condemned]) -> None:
    batch = work.batches.add(batch_id=batch_id)
    for one in files:
        modified = None if one.modified_at is None else to_us(one.modified_at)
        batch.files.add(path=one.path, size_bytes=one.size_bytes, modified_us=modified)


NAME = "empty-trash"


class EmptyTrash(ActionDefaults):
    """Deletes condemned files; `services.sweeping` does it, batch after batch."""

    name = NAME
    names = (NAME,)
    lane = STORAGE
    roles = frozenset({Role.READ, Role.SWEEP})
    every = timedelta(hours=1)
    switch = ""
    needs_gc = True
    sweeps = True

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """Always on: the decision was made when the files were condemned."""
        return True

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The plan for files that are due. Raises TableRefused for a trash to which files can't be moved."""
        due = situation.around().due
        if not due.batches:
            return TriggerVerdict(False, "nothing that was condemned is due"), None
        trash = table.trash()
        words = f"{due.files} condemned files ({due.bytes} bytes) are due to be deleted"
        if trash is not None:
            words += f", or to be moved to {trash.root}"
        facts = table.facts
        document = {"files": due.files, "bytes": due.bytes, "batches": due.batches}
        # A move is cheap, and is done here whatever the size of the table.
        tasks = delete_tasks(table, situation) if trash is None and is_large(table.snapshots()) else ()
        plan = Plan(NAME, words, facts.snapshot_id or 0, facts.sequence_number, tasks, commits=False, document=document)
        return TriggerVerdict(True, words), plan

    def batches_of(self, payload: bytes) -> Mapping[int, tuple[str, ...]]:
        """The files that a task deletes, by batch."""
        work = pb.DeleteWork.FromString(payload)
        return {batch.batch_id: tuple(delete.path for delete in batch.files) for batch in work.batches}

    def narrowed(self, payload: bytes, left: Mapping[int, Sequence[Condemned]]) -> bytes:
        """The same work for these batches alone, each with these files."""
        work = pb.DeleteWork.FromString(payload)
        del work.batches[:]
        for batch_id, files in left.items():
            _add(work, batch_id, files)
        return work.SerializeToString(deterministic=True)

    def removals_of(self, output: bytes) -> Mapping[str, Removal]:
        """The outcome of each file, as reported by the task; an unknown outcome counts as failed."""
        reported = pb.DeleteOutput.FromString(output).files
        return {one.path: Removal(_ENDED.get(one.outcome, Ended.FAILED), one.why) for one in reported}

    def preparing(self) -> Prepare:
        """Raises IllegalState: it commits nothing."""
        raise IllegalState(f"{NAME} commits nothing")

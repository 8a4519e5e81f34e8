"""Emptying the trash: condemned files are deleted after their waiting time."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from amoro_core.actions.contract import Plan, Prepare, Request, Situation
from amoro_core.actions.delete_tasks import batches_of, delete_tasks, narrowed, removals_of
from amoro_core.actions.untasked import Untasked
from amoro_core.errors import IllegalState
from amoro_core.formats.port import AnyTable, Role
from amoro_core.maintaining.scale import is_large
from amoro_core.model.lanes import STORAGE
from amoro_core.model.maintenance import Condemned
from amoro_core.model.stored import Removal
from amoro_core.records import record

NAME = "empty-trash"


@record
class TrashVerdict:
    """Whether any condemned file is due."""

    reason: str
    due_at: datetime | None = None


class EmptyTrash(Untasked):
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

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TrashVerdict, Plan | None]:
        """What is due; the process deletes what is due by then, or moves it to the trash that the table asks for.

        Raises TableRefused("configuration", "location") for a trash to which files can't be moved.
        """
        due = situation.around().due
        if not due.batches:
            return TrashVerdict("nothing that was condemned is due"), None
        trash = table.trash()
        words = f"{due.files} condemned files ({due.bytes} bytes) are due to be deleted"
        if trash is not None:
            words += f", or to be moved to {trash.root}"
        facts = table.facts
        document = {"files": due.files, "bytes": due.bytes, "batches": due.batches}
        # A move is cheap, and is done here whatever the size of the table.
        tasks = delete_tasks(table, situation) if trash is None and is_large(table.snapshots()) else ()
        plan = Plan(NAME, words, facts.snapshot_id or 0, facts.sequence_number, tasks, commits=False, document=document)
        return TrashVerdict(words), plan

    def batches_of(self, payload: bytes) -> Mapping[int, tuple[str, ...]]:
        """The files that a task deletes, by batch."""
        return batches_of(payload)

    def narrowed(self, payload: bytes, left: Mapping[int, Sequence[Condemned]]) -> bytes:
        """The same work for these batches alone."""
        return narrowed(payload, left)

    def removals_of(self, output: bytes) -> Mapping[str, Removal]:
        """The outcome of each file, as reported by the task."""
        return removals_of(output)

    def preparing(self) -> Prepare:
        """Raises IllegalState: it commits nothing."""
        raise IllegalState(f"{NAME} commits nothing")

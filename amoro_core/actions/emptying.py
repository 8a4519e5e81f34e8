"""Emptying the trash: what was condemned long enough ago is deleted."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from amoro_core.actions.contract import Plan, Prepare, Request, Situation
from amoro_core.actions.untasked import Untasked, refuse_options
from amoro_core.errors import IllegalState
from amoro_core.formats.opening import OpenTable, Role
from amoro_core.model.lanes import STORAGE

NAME = "empty-trash"


@dataclass(frozen=True, slots=True)
class TrashVerdict:
    """Whether anything is due to be deleted."""

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
        """It is always on: what is condemned was decided on before."""
        return True

    def plan(self, table: OpenTable, situation: Situation, request: Request) -> tuple[TrashVerdict, Plan | None]:
        """What is due; the process deletes what is due by then."""
        refuse_options(NAME, request)
        due = situation.around().due
        if not due.batches:
            return TrashVerdict("nothing that was condemned is due"), None
        words = f"{due.files} condemned files ({due.bytes} bytes) are due to be deleted"
        facts = table.facts
        document = {"files": due.files, "bytes": due.bytes, "batches": due.batches}
        plan = Plan(NAME, words, facts.snapshot_id or 0, facts.sequence_number, (), commits=False, document=document)
        return TrashVerdict(words), plan

    def preparing(self) -> Prepare:
        """Raises IllegalState: it commits nothing."""
        raise IllegalState(f"{NAME} commits nothing")

"""Taking back expiry of snapshots and orphan cleaning, as long as their files are there."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from amoro_core.actions.contract import Plan, Prepare, Request, Situation, TriggerVerdict, Undoing
from amoro_core.actions.undoing import UndoFiles, landed_of
from amoro_core.actions.undoing_common import change_of, detail_of, plan_of, refused, undone_here
from amoro_core.actions.undoing_entries import UndoStatistics, UndoTags
from amoro_core.actions.untasked import Untasked
from amoro_core.errors import CommitConflict, IllegalState
from amoro_core.formats.port import AnyTable, Role
from amoro_core.model.actions import Case, Change
from amoro_core.model.commits import SnapshotsGone
from amoro_core.model.lanes import METADATA, STORAGE
from amoro_core.model.processes import Figure, Receipt
from amoro_core.model.undoing import UNDOES

#: Files whose being there is asked for at once.
_ASKED_AT_ONCE = 1000
_CONDEMNED = "_files_condemned"


class UndoExpiry(Untasked):
    """The action that brings expired snapshots back: as new ones, each under a tag `restored-ID`."""

    name = "undo-expire-snapshots"
    names = (name,)
    undoes = UNDOES[name]
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE, Role.SWEEP})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
        """Their return. Raises CannotUndo once any of their files is being deleted, or gone."""
        case = undone_here(table, request)
        removed = landed_of(case).evidence
        if not isinstance(removed, SnapshotsGone) or not removed.snapshot_ids:
            raise refused(case, "it removed no snapshot")
        condemned, waiting = _condemned_by(case), request.restorable
        if waiting is None or waiting.files < condemned:
            raise refused(case, "files of its snapshots are being deleted")
        base = detail_of(case)["base"]
        try:
            _, _, tags = table.stage_return(base, removed)
            _require_files(table, base, removed)
        except CommitConflict as error:
            raise refused(case, error.message) from error
        document = {"restored_snapshots": list(tags), "files": waiting.files, "bytes": waiting.bytes}
        return plan_of(self.name, case, table, {"base": base, "ids": removed.snapshot_ids}, document)

    def preparing(self) -> Prepare:
        """What stages the snapshots, where their files are there still."""
        return _returned

    def restores(self, case: Case) -> str:
        """What the expiry has condemned is needed again."""
        return str(detail_of(case)["process_id"])


def _condemned_by(case: Case) -> int:
    """How many files the process has condemned, as its receipt says."""
    receipt = case.process.receipt
    figures = () if receipt is None else receipt.figures
    return sum(figure.value for figure in figures if figure.name.endswith(_CONDEMNED))


def _require_files(table: AnyTable, base: str, removed: SnapshotsGone) -> None:
    """Raise CommitConflict for a file of the snapshots that is gone."""
    paths = (one.path for one in table.released(base, removed))
    while some := list(islice(paths, _ASKED_AT_ONCE)):
        for path, stored in table.stat_many(some).items():
            if stored is None:
                raise CommitConflict(f"{path} was deleted")


def _returned(table: AnyTable, case: Case, now: datetime) -> Change:
    said = detail_of(case)
    removed = SnapshotsGone(tuple(said["ids"]))
    _require_files(table, said["base"], removed)
    payload, evidence, tags = table.stage_return(said["base"], removed)
    figures = (Figure("snapshots_restored", len(tags), "snapshots"),)
    words = f"brought {len(tags)} snapshots back as {tags[0]}" + (f" … {tags[-1]}" if len(tags) > 1 else "")
    return change_of(case, payload, evidence, words, figures, now)


class UndoOrphans(Untasked):
    """The action by which files that were condemned as orphans stay."""

    name = "undo-clean-orphan-files"
    names = (name,)
    undoes = UNDOES[name]
    lane = STORAGE
    roles = frozenset({Role.READ})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
        """Their staying. Raises CannotUndo once any of them is being deleted."""
        case = undone_here(table, request)
        waiting = request.restorable
        if waiting is None:
            raise refused(case, "its files are being deleted")
        if not waiting.files:
            raise refused(case, "none of its files is condemned any more")
        document: dict[str, object] = {"files": waiting.files, "bytes": waiting.bytes}
        detail = {"files": waiting.files, "bytes": waiting.bytes}
        return plan_of(self.name, case, table, detail, document, commits=False)

    def preparing(self) -> Prepare:
        """Raises IllegalState: it commits nothing."""
        raise IllegalState(f"{self.name} commits nothing")

    def receipt(self, case: Case) -> Receipt:
        """How many files stay."""
        said = detail_of(case)
        figures = (Figure("files_restored", said["files"], "files"), Figure("bytes_restored", said["bytes"], "bytes"))
        return Receipt.told(f"{said['files']} files are condemned no more", case.process.snapshot_id, figures)

    def restores(self, case: Case) -> str:
        """What the cleaning has condemned."""
        return str(detail_of(case)["process_id"])


def undoing() -> Iterator[Undoing]:
    """Every action that takes something back."""
    yield UndoFiles("undo-optimizing")
    yield UndoFiles("undo-expire-data", removes_rows=True)
    yield UndoTags()
    yield UndoStatistics()
    yield UndoExpiry()
    yield UndoOrphans()

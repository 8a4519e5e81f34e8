"""Undoing the expiry of snapshots and orphan cleaning, as long as their files exist."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from types import MappingProxyType

from amoro_core.actions.contract import Plan, Prepare, Request, Situation, TriggerVerdict, Undoing
from amoro_core.actions.undoing import UndoFiles, landed_of, refused
from amoro_core.actions.undoing_common import change_of, detail_of, plan_of, undone_here
from amoro_core.actions.undoing_entries import UndoStatistics, UndoTags
from amoro_core.actions.untasked import Untasked
from amoro_core.errors import CommitConflict, IllegalState
from amoro_core.formats.port import AnyTable, Role
from amoro_core.model.actions import Case, Change
from amoro_core.model.commits import SnapshotsGone
from amoro_core.model.lanes import METADATA, STORAGE
from amoro_core.model.paths import normalise
from amoro_core.model.processes import Figure, Receipt
from amoro_core.model.undoing import UNDOES

#: Files whose existence is checked at once.
_ASKED_AT_ONCE = 1000
_CONDEMNED = "_files_condemned"
#: What became of files that are not where they were.
_GONE = "are being deleted, or were moved to a trash, from which `amoro trash restore` brings them back"


class UndoExpiry(Untasked):
    """The action that restores expired snapshots as new ones, each under a tag `restored-ID`."""

    name = "undo-expire-snapshots"
    names = (name,)
    undoes = UNDOES[name]
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE, Role.SWEEP})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The plan to restore them. Raises CannotUndo once any of their files is being deleted or gone."""
        case = undone_here(table, request)
        removed = landed_of(case).evidence
        if not isinstance(removed, SnapshotsGone) or not removed.snapshot_ids:
            raise refused(case, "it removed no snapshot")
        condemned, waiting = _condemned_by(case), request.restorable
        if waiting is None or waiting.files < condemned:
            raise refused(case, f"files of its snapshots {_GONE}")
        base = detail_of(case)["base"]
        try:
            _, _, tags = table.stage_return(base, removed)
            others = {normalise(path): path for path in request.condemned_by_others}
            spared = _require_files(table, base, removed, others)
        except CommitConflict as error:
            raise refused(case, error.message) from error
        if any(request.condemned_by_others[path] for path in spared):
            raise refused(case, f"files of its snapshots {_GONE}")
        document = {"restored_snapshots": list(tags), "files": waiting.files, "bytes": waiting.bytes}
        detail = {"base": base, "ids": removed.snapshot_ids, "spared": spared}
        return plan_of(self.name, case, table, detail, document)

    def preparing(self) -> Prepare:
        """A function that stages the snapshots, if their files still exist."""
        return _returned

    def restores(self, case: Case) -> str:
        """The expiry, whose condemned files are needed again."""
        return str(detail_of(case)["process_id"])

    def spares(self, case: Case) -> tuple[str, ...]:
        """Files that the snapshots share with others that have expired since, or that are orphans without them."""
        return tuple(detail_of(case).get("spared", ()))


def _condemned_by(case: Case) -> int:
    """The number of files that the process has condemned, from its receipt."""
    receipt = case.process.receipt
    figures = () if receipt is None else receipt.figures
    return sum(figure.value for figure in figures if figure.name.endswith(_CONDEMNED))


def _require_files(
    table: AnyTable, base: str, removed: SnapshotsGone, sought: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """The values in `sought` for the normalised paths of the snapshots' files. Raises CommitConflict for a file that is
    gone."""
    paths = (one.path for one in table.released(base, removed))
    found: list[str] = []
    while some := list(islice(paths, _ASKED_AT_ONCE)):
        for path, stored in table.stat_many(some).items():
            if stored is None:
                raise CommitConflict(f"{path} was deleted")
        found += [sought[place] for place in map(normalise, some) if place in sought]
    return tuple(found)


def _returned(table: AnyTable, case: Case, now: datetime) -> Change:
    said = detail_of(case)
    removed = SnapshotsGone(tuple(said["ids"]))
    _require_files(table, said["base"], removed)
    payload, evidence, tags = table.stage_return(said["base"], removed)
    figures = (Figure("snapshots_restored", len(tags), "snapshots"),)
    words = f"brought {len(tags)} snapshots back as {tags[0]}" + (f" … {tags[-1]}" if len(tags) > 1 else "")
    return change_of(case, payload, evidence, words, figures, now)


class UndoOrphans(Untasked):
    """The action that releases files condemned as orphans."""

    name = "undo-clean-orphan-files"
    names = (name,)
    undoes = UNDOES[name]
    lane = STORAGE
    roles = frozenset({Role.READ})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The plan to release them. Raises CannotUndo once any of them is being deleted."""
        case = undone_here(table, request)
        waiting = request.restorable
        if waiting is None:
            raise refused(case, f"its files {_GONE}")
        if not waiting.files:
            raise refused(case, "none of its files is condemned any more")
        document: dict[str, object] = {"files": waiting.files, "bytes": waiting.bytes}
        detail = {"files": waiting.files, "bytes": waiting.bytes}
        return plan_of(self.name, case, table, detail, document, commits=False)

    def preparing(self) -> Prepare:
        """Raises IllegalState: it commits nothing."""
        raise IllegalState(f"{self.name} commits nothing")

    def receipt(self, case: Case) -> Receipt:
        """The number of released files."""
        said = detail_of(case)
        figures = (Figure("files_restored", said["files"], "files"), Figure("bytes_restored", said["bytes"], "bytes"))
        return Receipt.told(f"{said['files']} files are condemned no more", case.process.snapshot_id, figures)

    def restores(self, case: Case) -> str:
        """The cleaning, whose condemned files are released."""
        return str(detail_of(case)["process_id"])

    def spares(self, case: Case) -> tuple[str, ...]:
        """Nothing: no file is condemned twice."""
        return ()


def undoing() -> Iterator[Undoing]:
    """Every undo action."""
    yield UndoFiles("undo-optimizing")
    yield UndoFiles("undo-expire-data", removes_rows=True)
    yield UndoTags()
    yield UndoStatistics()
    yield UndoExpiry()
    yield UndoOrphans()

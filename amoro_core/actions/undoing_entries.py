"""Taking back what a process did to a table's metadata, or to files that nobody names."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from amoro_core.actions.contract import Plan, Prepare, Request, Situation, TriggerVerdict, Undoing
from amoro_core.actions.undoing import UndoFiles, landed_of, undone_of
from amoro_core.actions.untasked import Untasked
from amoro_core.errors import CannotUndo, CommitConflict, IllegalState
from amoro_core.formats.port import AnyTable, Role
from amoro_core.model.actions import Case, Change
from amoro_core.model.commits import Evidence, RefAt, SnapshotsGone, StatisticsGone, StatisticsNamed
from amoro_core.model.lanes import METADATA, STATISTICS, STORAGE
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.processes import Figure, Receipt
from amoro_core.model.undoing import UNDOES

#: Readers may still open a file that is named no more.
_KEPT = timedelta(days=1)
#: Files whose being there is asked for at once.
_ASKED_AT_ONCE = 1000
_CONDEMNED = "_files_condemned"


def _reason(case: Case) -> str:
    return f"takes back process {case.process.process_id} ({case.process.type})"


def _plan(
    name: str, case: Case, table: AnyTable, detail: dict[str, Any], document: dict[str, object], *, commits: bool = True
) -> tuple[TriggerVerdict, Plan]:
    facts, reason = table.facts, _reason(case)
    known = {"process_id": case.process.process_id, "type": case.process.type}
    plan = Plan(
        name,
        reason,
        facts.snapshot_id or 0,
        facts.sequence_number,
        (),
        json.dumps({**known, **detail}),
        commits=commits,
        document={**known, **document},
    )
    return TriggerVerdict(True, reason), plan


def _detail(case: Case) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(case.process.detail)
    return said


def _change(
    case: Case, payload: bytes, evidence: Evidence, words: str, figures: tuple[Figure, ...], now: datetime
) -> Change:
    told = Receipt.told(words, case.process.snapshot_id, figures)
    duration = round((now - case.process.created_at).total_seconds() * 1000)
    return Change(payload, evidence, replace(told, duration_ms=duration))


def _refused(case: Case, why: str) -> CannotUndo:
    return CannotUndo(f"process {case.process.process_id} can't be undone: {why}")


def _undone_here(table: AnyTable, request: Request) -> Case:
    """The process, of this very table. Raises InvalidArgument, CannotUndo."""
    case = undone_of(request)
    if case.process.table_uuid != table.facts.uuid:
        raise _refused(case, f"{table.facts.identifier} is another table by now")
    return case


class UndoTags(Untasked):
    """The action that removes an automatic tag, as long as it stands where it was made."""

    name = "undo-auto-create-tags"
    names = (name,)
    undoes = UNDOES[name]
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The removal of the tag. Raises CannotUndo where it is gone or stands elsewhere."""
        case = _undone_here(table, request)
        made = landed_of(case).evidence
        if not isinstance(made, RefAt):
            raise _refused(case, "it made no tag")
        if (why := _moved(table, made, anew=False)) is not None:
            raise _refused(case, why)
        detail = {"tag": made.name, "snapshot_id": made.snapshot_id}
        return _plan(self.name, case, table, detail, {"removed_tag": made.name, "snapshot_id": made.snapshot_id})

    def preparing(self) -> Prepare:
        """What stages it, where the tag still stands as it was made."""
        return _untagged


def _moved(table: AnyTable, made: RefAt, *, anew: bool) -> str | None:
    refs = {ref.name: ref.snapshot_id for ref in table.history(anew=anew).refs}
    if made.name not in refs:
        return f"tag {made.name} is not there any more"
    if refs[made.name] != made.snapshot_id:
        return f"tag {made.name} points at snapshot {refs[made.name]} by now, not at {made.snapshot_id}"
    return None


def _untagged(table: AnyTable, case: Case, now: datetime) -> Change:
    said = _detail(case)
    made = RefAt(said["tag"], said["snapshot_id"])
    if (why := _moved(table, made, anew=True)) is not None:
        raise CommitConflict(why)
    payload, evidence = table.stage_expiry(frozenset(), [made.name], clean=False)
    return _change(case, payload, evidence, f"removed tag {made.name}", (), now)


class UndoStatistics(Untasked):
    """The action that removes the entries of statistics, as long as they are as they were made."""

    name = "undo-compute-statistics"
    names = (name,)
    undoes = UNDOES[name]
    lane = STATISTICS
    roles = frozenset({Role.READ, Role.COMMIT, Role.ANALYZE})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The removal of the entries. Raises CannotUndo where one was replaced or removed."""
        case = _undone_here(table, request)
        made = landed_of(case).evidence
        if not isinstance(made, StatisticsNamed):
            raise _refused(case, "it made no statistics")
        sizes = {one.path: one.size_bytes for one in table.statistics().every}
        if gone := [path for path in made.paths if path not in sizes]:
            raise _refused(case, f"its statistics {gone[0]} were replaced or removed")
        files = [{"path": path, "bytes": sizes[path]} for path in made.paths]
        detail = {"snapshot_id": made.snapshot_id, "files": files}
        return _plan(self.name, case, table, detail, {"snapshot_id": made.snapshot_id, "removed_files": files})

    def preparing(self) -> Prepare:
        """What stages the removal of the entries."""
        return _unnamed

    def condemned(self, table: AnyTable, case: Case) -> Iterable[Condemned]:
        """The files that are named no more."""
        named = {one.path for one in table.statistics().every}
        for one in _detail(case)["files"]:
            if one["path"] not in named:
                yield Condemned(one["path"], FileKind.STATISTICS, one["bytes"], None, "statistics that were taken back")

    def keep(self, case: Case) -> timedelta:
        """How long the files stay."""
        return _KEPT


def _unnamed(table: AnyTable, case: Case, now: datetime) -> Change:
    said = _detail(case)
    paths = tuple(one["path"] for one in said["files"])
    payload = table.stage_statistics_removal(paths)
    evidence = StatisticsGone(said["snapshot_id"], paths)
    return _change(case, payload, evidence, f"removed the statistics of snapshot {said['snapshot_id']}", (), now)


class UndoExpiry(Untasked):
    """The action that brings expired snapshots back: as new ones, each under a tag `restored-ID`."""

    name = "undo-expire-snapshots"
    names = (name,)
    undoes = UNDOES[name]
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE, Role.SWEEP})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
        """Their return. Raises CannotUndo once any of their files is being deleted, or gone."""
        case = _undone_here(table, request)
        removed = landed_of(case).evidence
        if not isinstance(removed, SnapshotsGone) or not removed.snapshot_ids:
            raise _refused(case, "it removed no snapshot")
        condemned, waiting = _condemned_by(case), request.restorable
        if waiting is None or waiting.files < condemned:
            raise _refused(case, "files of its snapshots are being deleted")
        base = _detail(case)["base"]
        try:
            _, _, tags = table.stage_return(base, removed)
            _require_files(table, base, removed)
        except CommitConflict as error:
            raise _refused(case, error.message) from error
        document = {"restored_snapshots": list(tags), "files": waiting.files, "bytes": waiting.bytes}
        return _plan(self.name, case, table, {"base": base, "ids": removed.snapshot_ids}, document)

    def preparing(self) -> Prepare:
        """What stages the snapshots, where their files are there still."""
        return _returned

    def restores(self, case: Case) -> str:
        """What the expiry has condemned is needed again."""
        return str(_detail(case)["process_id"])


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
    said = _detail(case)
    removed = SnapshotsGone(tuple(said["ids"]))
    _require_files(table, said["base"], removed)
    payload, evidence, tags = table.stage_return(said["base"], removed)
    figures = (Figure("snapshots_restored", len(tags), "snapshots"),)
    words = f"brought {len(tags)} snapshots back as {tags[0]}" + (f" … {tags[-1]}" if len(tags) > 1 else "")
    return _change(case, payload, evidence, words, figures, now)


class UndoOrphans(Untasked):
    """The action by which files that were condemned as orphans stay."""

    name = "undo-clean-orphan-files"
    names = (name,)
    undoes = UNDOES[name]
    lane = STORAGE
    roles = frozenset({Role.READ})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
        """Their staying. Raises CannotUndo once any of them is being deleted."""
        case = _undone_here(table, request)
        waiting = request.restorable
        if waiting is None:
            raise _refused(case, "its files are being deleted")
        if not waiting.files:
            raise _refused(case, "none of its files is condemned any more")
        document: dict[str, object] = {"files": waiting.files, "bytes": waiting.bytes}
        detail = {"files": waiting.files, "bytes": waiting.bytes}
        return _plan(self.name, case, table, detail, document, commits=False)

    def preparing(self) -> Prepare:
        """Raises IllegalState: it commits nothing."""
        raise IllegalState(f"{self.name} commits nothing")

    def receipt(self, case: Case) -> Receipt:
        """How many files stay."""
        said = _detail(case)
        figures = (Figure("files_restored", said["files"], "files"), Figure("bytes_restored", said["bytes"], "bytes"))
        return Receipt.told(f"{said['files']} files are condemned no more", case.process.snapshot_id, figures)

    def restores(self, case: Case) -> str:
        """What the cleaning has condemned."""
        return str(_detail(case)["process_id"])


def undoing() -> Iterator[Undoing]:
    """Every action that takes something back."""
    yield UndoFiles("undo-optimizing")
    yield UndoFiles("undo-expire-data", removes_rows=True)
    yield UndoTags()
    yield UndoStatistics()
    yield UndoExpiry()
    yield UndoOrphans()

"""Undo of processes: rewrites and data expiry by a new snapshot, tags, statistics, expired snapshots, orphans."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import Any

from amoro_core.actions.action_api import (
    OPTIMIZING_ROLES,
    ActionDefaults,
    Plan,
    PlanningContext,
    Prepare,
    Request,
    TriggerVerdict,
    Undoing,
    duration_ms,
    metadata_change,
    summary_of,
)
from amoro_core.documents.formatting import many
from amoro_core.errors import CannotUndo, CommitConflict, DataFileMissing, InvalidArgument
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import AnyTable, Role
from amoro_core.formats.tables import FileReadCache
from amoro_core.maintenance.schedule import MaintenanceConfig
from amoro_core.model.commits import (
    RESTORED_FROM,
    CommitContent,
    Evidence,
    Head,
    RefAt,
    SnapshotAdded,
    SnapshotsRemoved,
    StatisticsNamed,
    StatisticsRemoved,
)
from amoro_core.model.files import DataFile, DeleteFile
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.paths import normalise
from amoro_core.model.processes import (
    FILES,
    METADATA,
    STATISTICS,
    STORAGE,
    UNDOES,
    Change,
    CommitOutcome,
    Figure,
    ProcessContext,
    Receipt,
)
from amoro_core.model.properties import parse_into
from amoro_core.validation.revert_rules import CommitChange, ambiguous_since, revert

#: The key of a snapshot's summary that names the process it undoes.
UNDONE = "amoro.undoes"
_PRODUCER = "UNDO"
_LOOKS = 5


def process_of_table(table: AnyTable, request: Request) -> ProcessContext:
    """The process to undo, which must be of this table. Raises InvalidArgument, CannotUndo."""
    case = request.undone
    if case is None:
        raise InvalidArgument("nothing is named that is to be undone", hint="Name the process: amoro undo PROCESS")
    if case.process.table_uuid != table.facts.uuid:
        raise refused(case, f"{table.facts.identifier} is another table by now")
    return case


def refused(case: ProcessContext, why: str) -> CannotUndo:
    """The error that the process can't be undone, with the reason, and with the process that took it back before."""
    before = f"; process {case.undone_by} undid it" if case.undone_by else ""
    return CannotUndo(f"process {case.process.process_id} can't be undone: {why}{before}")


def commits_of(case: ProcessContext) -> list[Evidence]:
    """The evidence of the process's commits, in order. Raises CannotUndo for a process without one."""
    result = [attempt.evidence for attempt in case.attempts if attempt.outcome is CommitOutcome.DONE]
    if not result:
        process = case.process
        raise CannotUndo(f"process {process.process_id} ({process.type}, {process.status}) has committed nothing")
    return result


@dataclass(frozen=True, slots=True)
class _Detail:
    """The stored plan of an undo of files."""

    undone: str  # the process
    kind: str  # of that process
    before: int  # the snapshot that its first commit was made on
    after: int  # the snapshot of that commit
    rows: int  # live rows of its inputs; −1: it removed rows
    more: tuple[tuple[int, int], ...] = ()  # before and after of its further commits, in their order

    @property
    def commits(self) -> tuple[tuple[int, int], ...]:
        return ((self.before, self.after), *self.more)


class UndoFiles(ActionDefaults):
    """The action that undoes commits which replaced or removed files."""

    lane = FILES
    roles = OPTIMIZING_ROLES | {Role.SWEEP}

    def __init__(self, name: str, *, removes_rows: bool = False) -> None:
        """`removes_rows`: the undone processes do, so they can be undone only within `maintenance.undo.keep`."""
        self.name = name
        self.undoes = UNDOES[name]
        self._removes_rows = removes_rows

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The plan to undo the commit on the head. Raises CannotUndo with the reason when it is not possible."""
        case = process_of_table(table, request)
        landed = [snapshot_added for snapshot_added in commits_of(case) if isinstance(snapshot_added, SnapshotAdded)]
        if not landed or case.process.type not in self.undoes:
            raise CannotUndo(f"process {case.process.process_id} ({case.process.type}) changed no files")
        if self._removes_rows:
            _require_window(case, situation)
        receipt = case.process.receipt
        rows = -1 if self._removes_rows or receipt is None else receipt.rows_before
        (first_before, first_after), *more = ((commit.parent_snapshot_id, commit.snapshot_id) for commit in landed)
        detail = _Detail(case.process.process_id, case.process.type, first_before, first_after, rows, tuple(more))
        try:
            _, content = _content(table, detail)
        except CommitConflict as error:
            raise refused(case, error.message) from error
        _refuse_condemned(content, situation, detail)
        before = next(snapshot for snapshot in table.snapshots() if snapshot.snapshot_id == detail.before)
        reason = f"undoes process {detail.undone} ({detail.kind})"
        plan = Plan(
            self.name,
            reason,
            before.snapshot_id,
            before.sequence_number,
            (),
            json.dumps(asdict(detail)),
            document=_document(detail, content),
        )
        return TriggerVerdict(True, reason), plan

    def preparing(self) -> Prepare:
        """A function that validates it again and stages it on the present head."""
        cache = FileReadCache()
        return lambda table, case, now: _change(table, case, cache, now)


def _require_window(case: ProcessContext, situation: PlanningContext) -> None:
    keep = parse_into(MaintenanceConfig, situation.properties).undo_keep
    ended = case.process.finished_at or situation.now
    if situation.now - ended > keep:
        raise CannotUndo(
            f"process {case.process.process_id} ended at {ended:%Y-%m-%d %H:%M} UTC: it could be undone for "
            f"{keep / timedelta(days=1):g} d (maintenance.undo.keep)"
        )


def _content(table: AnyTable, detail: _Detail, cache: FileReadCache | None = None) -> tuple[Head, CommitContent]:
    """The change that undoes the commit on the present head. Raises CommitConflict with the reason if impossible."""
    commits = []
    for pair in detail.commits:
        before, after = (table.scan_of(snapshot_id) for snapshot_id in pair)
        if before is None or after is None:
            missing = pair[0] if before is None else pair[1]
            raise CommitConflict(f"its snapshot {missing} has expired, so what it replaced is no longer known")
        commits.append(CommitChange(before, after))
    heads = _heads(table, commits)
    files = [file for commit_change in commits for file in commit_change.files]
    named = (cache or FileReadCache()).positions(table, ambiguous_since(commits, heads), files)
    result = revert(commits, heads, named)
    if result.content is None:
        raise CommitConflict(result.refusal)
    _require_files(table, result.content)
    return heads[0], result.content


def _heads(table: AnyTable, commits: Sequence[CommitChange]) -> list[Head]:
    """One present state, as seen from each of the commits. Raises CommitConflict where it keeps moving."""
    for _ in range(_LOOKS):
        heads = [table.head(commit.after.snapshot_id, commit.number) for commit in commits]
        if len({head.snapshot_id for head in heads}) == 1:
            return heads
    raise CommitConflict(f"other writers committed during each of {_LOOKS} validations")


def _require_files(table: AnyTable, content: CommitContent) -> None:
    """Raise CommitConflict for a file to restore that is gone or was replaced."""
    files = {file.path: file for file in _restored(content)}
    table.refuse_inputs(files)
    try:
        stored = table.access().stat_many(files)
    except DataFileMissing as error:
        raise CommitConflict(error.message) from error
    for path, file in files.items():
        size = stored.get(path)
        if size is None:
            raise CommitConflict(f"{path} was deleted")
        if size.size_bytes != file.size_bytes:
            raise CommitConflict(f"{path} now has {size.size_bytes} bytes instead of {file.size_bytes}")


def _refuse_condemned(content: CommitContent, situation: PlanningContext, detail: _Detail) -> None:
    condemned = {normalise(path) for path in situation.around().condemned}
    for file in _restored(content):
        if normalise(file.path) in condemned:
            raise CannotUndo(f"process {detail.undone} can't be undone: {file.path} is being deleted")


def _change(table: AnyTable, case: ProcessContext, cache: FileReadCache, now: datetime) -> Change:
    more = tuple((before, after) for before, after in case.detail["more"])
    detail = _Detail(**{**case.detail, "more": more})
    head, content = _content(table, detail, cache)
    failpoint("commit.before_intent")
    staged = table.stage(head, content, {**summary_of(case.process, _PRODUCER), UNDONE: detail.undone})
    failpoint("commit.after_stage")
    # Its files were in the table before: only its snapshot shows that it landed.
    evidence = SnapshotAdded(staged.snapshot_id, staged.parent_snapshot_id, staged.sequence_number)
    receipt = _receipt(detail, content, staged.snapshot_id, staged.parent_snapshot_id)
    return Change(
        payload=staged.payload,
        evidence=evidence,
        receipt=replace(receipt, duration_ms=duration_ms(case.process, now)),
        files=tuple(file.path for file in _restored(content)),
        metadata_files=staged.metadata_files,
    )


def _receipt(detail: _Detail, content: CommitContent, snapshot_id: int, base_snapshot_id: int) -> Receipt:
    coming = _bytes(_restored(content))
    if detail.rows < 0:
        more = (
            Figure("data_files", len(content.added_data), "files"),
            Figure("delete_files", len(content.added_deletes), "files"),
            Figure("rows", sum(file.record_count for file in content.added_data), "rows"),
            Figure("bytes", coming, "bytes"),
        )
        receipt = Receipt.brief(f"undid process {detail.undone} ({detail.kind})", snapshot_id, more)
        return replace(receipt, base_snapshot_id=base_snapshot_id)
    return Receipt(
        data_files_before=len(content.removed_data),
        data_files_after=len(content.added_data),
        delete_files_before=len(content.removed_deletes),
        delete_files_after=len(content.added_deletes),
        equality_delete_files_after=sum(bool(delete.equality_ids) for delete in content.added_deletes),
        bytes_before=_bytes((*content.removed_data, *content.removed_deletes)),
        bytes_after=coming,
        rows_before=sum(file.record_count for file in content.removed_data),
        rows_after=detail.rows,
        snapshot_id=snapshot_id,
        base_snapshot_id=base_snapshot_id,
        duration_ms=0,
    )


def _restored(content: CommitContent) -> tuple[DataFile | DeleteFile, ...]:
    return (*content.added_data, *content.added_deletes)


def _bytes(files: Iterable[DataFile | DeleteFile]) -> int:
    return sum(file.size_bytes for file in files)


def _document(detail: _Detail, content: CommitContent) -> Mapping[str, object]:
    return {
        "process_id": detail.undone,
        "type": detail.kind,
        "operation": content.operation.value,
        "data_files_removed": len(content.removed_data),
        "delete_files_removed": len(content.removed_deletes),
        "data_files_restored": len(content.added_data),
        "delete_files_restored": len(content.added_deletes),
        "bytes_restored": _bytes(_restored(content)),
    }


class _Undo(ActionDefaults):
    """What all but the undo of files have in common: the detail holds the id and type of the undone process."""

    def undo(
        self,
        table: AnyTable,
        case: ProcessContext,
        detail: Mapping[str, object],
        details: Mapping[str, object],
        **more: Any,
    ) -> tuple[TriggerVerdict, Plan]:
        """The plan that takes the process back."""
        reason = f"undoes process {case.process.process_id} ({case.process.type})"
        facts = {"process_id": case.process.process_id, "type": case.process.type}
        return self.planned(table, reason, {**facts, **detail}, document={**facts, **details}, **more)


#: Readers may still open a file that is no longer referenced.
_KEPT = timedelta(days=1)


class UndoTags(_Undo):
    """The action that removes an automatic tag, or those that undoing an expiry made, if they point where they did."""

    name = "undo-auto-create-tags"
    undoes = UNDOES[name]
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE})

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The removal of the tags. Raises CannotUndo if none is left, or if the automatic one was moved."""
        case = process_of_table(table, request)
        first = commits_of(case)[0]
        tags = [first] if isinstance(first, RefAt) else _restored_tags(table, case.detail["ids"])
        if not tags:
            raise refused(case, "none of its tags is left")
        if (why := _tag_change(table, tags[0], anew=False)) is not None:
            raise refused(case, why)
        detail = {"tags": [(tag.name, tag.snapshot_id) for tag in tags]}
        document = {"removed_tag": first.name, "snapshot_id": first.snapshot_id} if isinstance(first, RefAt) else None
        return self.undo(table, case, detail, document or {"removed_tags": [tag.name for tag in tags]})

    def change(self, table: AnyTable, case: ProcessContext, now: datetime) -> Change:
        """Stages it, if the tags are unchanged."""
        tags = [RefAt(*tag) for tag in case.detail["tags"]]
        for tag in tags:
            if (why := _tag_change(table, tag, anew=True)) is not None:
                raise CommitConflict(why)
        payload, evidence = table.stage_expiry(frozenset(), [tag.name for tag in tags], clean=False)
        words = f"removed tag {tags[0].name}" if len(tags) == 1 else f"removed {len(tags)} tags"
        return metadata_change(case, payload, evidence, words, (), now)


def _restored_tags(table: AnyTable, snapshot_ids: Iterable[int]) -> list[RefAt]:
    """The tags under which these expired snapshots were restored, as far as the table has them."""
    restored = {f"restored-{snapshot_id}": str(snapshot_id) for snapshot_id in snapshot_ids}
    return [
        RefAt(name, snapshot.snapshot_id)
        for snapshot in reversed(table.history().snapshots)
        for name in snapshot.refs
        if name in restored and snapshot.summary.get(RESTORED_FROM) == restored[name]
    ]


def _tag_change(table: AnyTable, tag: RefAt, *, anew: bool) -> str | None:
    refs = {ref.name: ref.snapshot_id for ref in table.history(anew=anew).refs}
    if tag.name not in refs:
        return f"tag {tag.name} no longer exists"
    if refs[tag.name] != tag.snapshot_id:
        return f"tag {tag.name} now points at snapshot {refs[tag.name]}, not at {tag.snapshot_id}"
    return None


class UndoStatistics(_Undo):
    """The action that removes the entries of statistics, if they are unchanged."""

    name = "undo-compute-statistics"
    undoes = UNDOES[name]
    lane = STATISTICS
    roles = frozenset({Role.READ, Role.COMMIT, Role.ANALYZE})

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The removal of the entries. Raises CannotUndo if one was replaced or removed."""
        case = process_of_table(table, request)
        change = commits_of(case)[0]
        if not isinstance(change, StatisticsNamed):
            raise refused(case, "it computed no statistics")
        sizes = {statistics_entry.path: statistics_entry.size_bytes for statistics_entry in table.statistics().every}
        if missing := [path for path in change.paths if path not in sizes]:
            raise refused(case, f"its statistics {missing[0]} were replaced or removed")
        files = [{"path": path, "bytes": sizes[path]} for path in change.paths]
        detail = {"snapshot_id": change.snapshot_id, "files": files}
        return self.undo(table, case, detail, {"snapshot_id": change.snapshot_id, "removed_files": files})

    def change(self, table: AnyTable, case: ProcessContext, now: datetime) -> Change:
        """Stages the removal of the entries."""
        detail = case.detail
        paths = tuple(file["path"] for file in detail["files"])
        payload = table.stage_statistics_removal(paths)
        evidence = StatisticsRemoved(detail["snapshot_id"], paths)
        return metadata_change(
            case, payload, evidence, f"removed the statistics of snapshot {detail['snapshot_id']}", (), now
        )

    def condemned(self, table: AnyTable, case: ProcessContext) -> Iterable[Condemned]:
        """The files that are no longer referenced."""
        named = {statistics_entry.path for statistics_entry in table.statistics().every}
        for file in case.detail["files"]:
            if file["path"] not in named:
                yield Condemned(file["path"], FileKind.STATISTICS, file["bytes"], None, "statistics that were undone")

    def keep(self, case: ProcessContext) -> timedelta:
        """How long the files are kept."""
        return _KEPT


#: Files whose existence is checked at once.
_ASKED_AT_ONCE = 1000
_CONDEMNED = "_files_condemned"
#: Why files are missing.
_FILES_GONE = "are being deleted, or were moved to a trash, from which `amoro trash restore` brings them back"


class UndoExpiry(_Undo):
    """The action that restores expired snapshots as new ones, each under a tag `restored-ID`."""

    name = "undo-expire-snapshots"
    undoes = UNDOES[name]
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE, Role.SWEEP})

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The plan to restore them. Raises CannotUndo once any of their files is being deleted or gone."""
        case = process_of_table(table, request)
        removed = commits_of(case)[0]
        if not isinstance(removed, SnapshotsRemoved) or not removed.snapshot_ids:
            raise refused(case, "it removed no snapshot")
        waiting, receipt = request.restorable, case.process.receipt
        figures = () if receipt is None else receipt.figures
        condemned = sum(figure.value for figure in figures if figure.name.endswith(_CONDEMNED))
        if waiting is None or waiting.files < condemned:
            raise refused(case, f"files of its snapshots {_FILES_GONE}")
        base = case.detail["base"]
        try:
            _, _, tags = table.stage_return(base, removed)
            others = {normalise(path): path for path in request.condemned_by_others}
            spared = _require_expired_files(table, base, removed, others)
        except CommitConflict as error:
            raise refused(case, error.message) from error
        if any(request.condemned_by_others[path] for path in spared):
            raise refused(case, f"files of its snapshots {_FILES_GONE}")
        document = {"restored_snapshots": list(tags), "files": waiting.files, "bytes": waiting.bytes}
        detail = {"base": base, "ids": removed.snapshot_ids, "spared": spared}
        return self.undo(table, case, detail, document)

    def change(self, table: AnyTable, case: ProcessContext, now: datetime) -> Change:
        """Stages the snapshots, if their files still exist."""
        detail = case.detail
        removed = SnapshotsRemoved(tuple(detail["ids"]))
        _require_expired_files(table, detail["base"], removed)
        payload, evidence, tags = table.stage_return(detail["base"], removed)
        figures = (Figure("snapshots_restored", len(tags), "snapshots"),)
        words = f"restored {many(len(tags), 'snapshot')}, tagged {tags[0]}" + (
            f" … {tags[-1]}" if len(tags) > 1 else ""
        )
        return metadata_change(case, payload, evidence, words, figures, now)

    def restores(self, case: ProcessContext) -> str:
        """The expiry, whose condemned files are needed again."""
        return str(case.detail["process_id"])

    def spares(self, case: ProcessContext) -> tuple[str, ...]:
        """Files that the snapshots share with others that have expired since, or that are orphans without them."""
        return tuple(case.detail["spared"])


def _require_expired_files(
    table: AnyTable, base: str, removed: SnapshotsRemoved, sought: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """The values in `sought` for the normalised paths of the snapshots' files. Raises CommitConflict for a file that is
    gone."""
    paths = (file.path for file in table.released(base, removed))
    result: list[str] = []
    while some := list(islice(paths, _ASKED_AT_ONCE)):
        for path, stored in table.access().stat_many(some).items():
            if stored is None:
                raise CommitConflict(f"{path} was deleted")
        result += [sought[place] for place in map(normalise, some) if place in sought]
    return tuple(result)


class UndoOrphans(_Undo):
    """The action that releases files condemned as orphans."""

    name = "undo-clean-orphan-files"
    undoes = UNDOES[name]
    lane = STORAGE
    roles = frozenset({Role.READ})

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The plan to release them. Raises CannotUndo once any of them is being deleted."""
        case = process_of_table(table, request)
        waiting = request.restorable
        if waiting is None:
            raise refused(case, f"its files {_FILES_GONE}")
        if not waiting.files:
            raise refused(case, "none of its files is marked for deletion any more")
        detail: dict[str, object] = {"files": waiting.files, "bytes": waiting.bytes}
        return self.undo(table, case, detail, detail, commits=False)

    def receipt(self, case: ProcessContext) -> Receipt:
        """The number of released files."""
        detail = case.detail
        figures = (
            Figure("files_restored", detail["files"], "files"),
            Figure("bytes_restored", detail["bytes"], "bytes"),
        )
        return Receipt.brief(
            f"restored {many(detail['files'], 'file')} from the trash", case.process.snapshot_id, figures
        )

    def restores(self, case: ProcessContext) -> str:
        """The cleaning, whose condemned files are released."""
        return str(case.detail["process_id"])

    def spares(self, case: ProcessContext) -> tuple[str, ...]:
        """Nothing: no file is condemned twice."""
        return ()


def undo_actions() -> Iterator[Undoing]:
    """Every undo action."""
    yield UndoFiles("undo-optimizing")
    yield UndoFiles("undo-expire-data", removes_rows=True)
    yield UndoTags()
    yield UndoStatistics()
    yield UndoExpiry()
    yield UndoOrphans()

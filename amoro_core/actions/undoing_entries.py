"""Undoing tags and statistics: they are removed if unchanged."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from types import MappingProxyType

from amoro_core.actions.action_api import Plan, PlanningContext, Prepare, Request, TriggerVerdict, Undoing, Untasked
from amoro_core.actions.undoing import UndoFiles, change_of, detail_of, landed_of, plan_of, refused, undone_here
from amoro_core.errors import CommitConflict, IllegalState
from amoro_core.formats.ports import AnyTable, Role
from amoro_core.model.commits import RefAt, SnapshotsGone, StatisticsGone, StatisticsNamed
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.paths import normalise
from amoro_core.model.processes import METADATA, STATISTICS, STORAGE, UNDOES, Change, Figure, ProcessContext, Receipt

#: Readers may still open a file that is no longer referenced.
_KEPT = timedelta(days=1)


class UndoTags(Untasked):
    """The action that removes an automatic tag, if it still points at its snapshot."""

    name = "undo-auto-create-tags"
    names = (name,)
    undoes = UNDOES[name]
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE})

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The removal of the tag. Raises CannotUndo if it is gone or was moved."""
        case = undone_here(table, request)
        made = landed_of(case).evidence
        if not isinstance(made, RefAt):
            raise refused(case, "it made no tag")
        if (why := _moved(table, made, anew=False)) is not None:
            raise refused(case, why)
        detail = {"tag": made.name, "snapshot_id": made.snapshot_id}
        return plan_of(self.name, case, table, detail, {"removed_tag": made.name, "snapshot_id": made.snapshot_id})

    def preparing(self) -> Prepare:
        """A function that stages it, if the tag is unchanged."""
        return _untagged


def _moved(table: AnyTable, made: RefAt, *, anew: bool) -> str | None:
    refs = {ref.name: ref.snapshot_id for ref in table.history(anew=anew).refs}
    if made.name not in refs:
        return f"tag {made.name} is not there any more"
    if refs[made.name] != made.snapshot_id:
        return f"tag {made.name} points at snapshot {refs[made.name]} by now, not at {made.snapshot_id}"
    return None


def _untagged(table: AnyTable, case: ProcessContext, now: datetime) -> Change:
    said = detail_of(case)
    made = RefAt(said["tag"], said["snapshot_id"])
    if (why := _moved(table, made, anew=True)) is not None:
        raise CommitConflict(why)
    payload, evidence = table.stage_expiry(frozenset(), [made.name], clean=False)
    return change_of(case, payload, evidence, f"removed tag {made.name}", (), now)


class UndoStatistics(Untasked):
    """The action that removes the entries of statistics, if they are unchanged."""

    name = "undo-compute-statistics"
    names = (name,)
    undoes = UNDOES[name]
    lane = STATISTICS
    roles = frozenset({Role.READ, Role.COMMIT, Role.ANALYZE})

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan]:
        """The removal of the entries. Raises CannotUndo if one was replaced or removed."""
        case = undone_here(table, request)
        made = landed_of(case).evidence
        if not isinstance(made, StatisticsNamed):
            raise refused(case, "it made no statistics")
        sizes = {one.path: one.size_bytes for one in table.statistics().every}
        if gone := [path for path in made.paths if path not in sizes]:
            raise refused(case, f"its statistics {gone[0]} were replaced or removed")
        files = [{"path": path, "bytes": sizes[path]} for path in made.paths]
        detail = {"snapshot_id": made.snapshot_id, "files": files}
        return plan_of(self.name, case, table, detail, {"snapshot_id": made.snapshot_id, "removed_files": files})

    def preparing(self) -> Prepare:
        """A function that stages the removal of the entries."""
        return _unnamed

    def condemned(self, table: AnyTable, case: ProcessContext) -> Iterable[Condemned]:
        """The files that are no longer referenced."""
        named = {one.path for one in table.statistics().every}
        for one in detail_of(case)["files"]:
            if one["path"] not in named:
                yield Condemned(one["path"], FileKind.STATISTICS, one["bytes"], None, "statistics that were taken back")

    def keep(self, case: ProcessContext) -> timedelta:
        """How long the files are kept."""
        return _KEPT


def _unnamed(table: AnyTable, case: ProcessContext, now: datetime) -> Change:
    said = detail_of(case)
    paths = tuple(one["path"] for one in said["files"])
    payload = table.stage_statistics_removal(paths)
    evidence = StatisticsGone(said["snapshot_id"], paths)
    return change_of(case, payload, evidence, f"removed the statistics of snapshot {said['snapshot_id']}", (), now)


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

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan]:
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

    def restores(self, case: ProcessContext) -> str:
        """The expiry, whose condemned files are needed again."""
        return str(detail_of(case)["process_id"])

    def spares(self, case: ProcessContext) -> tuple[str, ...]:
        """Files that the snapshots share with others that have expired since, or that are orphans without them."""
        return tuple(detail_of(case).get("spared", ()))


def _condemned_by(case: ProcessContext) -> int:
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


def _returned(table: AnyTable, case: ProcessContext, now: datetime) -> Change:
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

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan]:
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

    def receipt(self, case: ProcessContext) -> Receipt:
        """The number of released files."""
        said = detail_of(case)
        figures = (Figure("files_restored", said["files"], "files"), Figure("bytes_restored", said["bytes"], "bytes"))
        return Receipt.told(f"{said['files']} files are condemned no more", case.process.snapshot_id, figures)

    def restores(self, case: ProcessContext) -> str:
        """The cleaning, whose condemned files are released."""
        return str(detail_of(case)["process_id"])

    def spares(self, case: ProcessContext) -> tuple[str, ...]:
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

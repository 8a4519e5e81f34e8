"""Undoing tags and statistics: they are removed if unchanged."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from amoro_core.actions.contract import Plan, Prepare, Request, Situation, TriggerVerdict
from amoro_core.actions.undoing import landed_of, refused
from amoro_core.actions.undoing_common import change_of, detail_of, plan_of, undone_here
from amoro_core.actions.untasked import Untasked
from amoro_core.errors import CommitConflict
from amoro_core.formats.port import AnyTable, Role
from amoro_core.model.actions import Case, Change
from amoro_core.model.commits import RefAt, StatisticsGone, StatisticsNamed
from amoro_core.model.lanes import METADATA, STATISTICS
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.undoing import UNDOES

#: Readers may still open a file that is no longer referenced.
_KEPT = timedelta(days=1)


class UndoTags(Untasked):
    """The action that removes an automatic tag, if it still points at its snapshot."""

    name = "undo-auto-create-tags"
    names = (name,)
    undoes = UNDOES[name]
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE})

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
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


def _untagged(table: AnyTable, case: Case, now: datetime) -> Change:
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

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan]:
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

    def condemned(self, table: AnyTable, case: Case) -> Iterable[Condemned]:
        """The files that are no longer referenced."""
        named = {one.path for one in table.statistics().every}
        for one in detail_of(case)["files"]:
            if one["path"] not in named:
                yield Condemned(one["path"], FileKind.STATISTICS, one["bytes"], None, "statistics that were taken back")

    def keep(self, case: Case) -> timedelta:
        """How long the files are kept."""
        return _KEPT


def _unnamed(table: AnyTable, case: Case, now: datetime) -> Change:
    said = detail_of(case)
    paths = tuple(one["path"] for one in said["files"])
    payload = table.stage_statistics_removal(paths)
    evidence = StatisticsGone(said["snapshot_id"], paths)
    return change_of(case, payload, evidence, f"removed the statistics of snapshot {said['snapshot_id']}", (), now)

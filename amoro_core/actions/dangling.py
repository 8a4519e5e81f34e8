"""Dangling delete files: those that no live data file needs are removed in a snapshot that changes no row."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from amoro_core.actions.action_api import (
    OPTIMIZING_ROLES,
    Plan,
    PlanningContext,
    Prepare,
    Request,
    TriggerVerdict,
    Untasked,
    staged_change,
    summary_of,
)
from amoro_core.errors import CommitConflict
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import Rewritable
from amoro_core.maintenance.data_expiry import DANGLING_SWITCH, DanglingConfig
from amoro_core.model.commits import CommitContent
from amoro_core.model.files import DeleteFile, DeleteKind
from amoro_core.model.processes import FILES, Change, Figure, ProcessContext
from amoro_core.model.properties import parse_into
from amoro_core.validation.removable_deletes import dangling_deletes

NAME = "clean-dangling-delete-files"
_TOTAL = "total-delete-files"


class CleanDanglingDeletes(Untasked):
    """The action that removes delete files which delete nothing.

    Whether a delete dangles is decided on the scan of the head that is committed on, by the rule of rewriting: by
    sequence number and partition alone, over all live data files.
    """

    name = NAME
    names = (NAME,)
    configuration = DanglingConfig
    lane = FILES
    roles = OPTIMIZING_ROLES
    every = timedelta(days=1)
    switch = DANGLING_SWITCH
    needs_gc = True

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """By its property, on without it."""
        return parse_into(DanglingConfig, properties).enabled

    def plan(
        self, table: Rewritable, situation: PlanningContext, request: Request
    ) -> tuple[TriggerVerdict, Plan | None]:
        """The deletes that dangle now. Raises InvalidArgument for any option."""
        if (why := table.left_alone()) is not None:
            return TriggerVerdict(False, why), None
        # A scan reads every manifest; a total of 0 shows without it that there is nothing to find.
        scan = None if table.facts.snapshot_summary.get(_TOTAL) == "0" else table.scan()
        going = () if scan is None else dangling_deletes(scan)
        if scan is None or not going:
            return TriggerVerdict(False, "no delete file dangles"), None
        reason = f"{len(going)} delete files apply to no data file"
        plan = Plan(NAME, reason, scan.snapshot_id, scan.sequence_number, (), document=_document(going))
        return TriggerVerdict(True, reason), plan

    def preparing(self) -> Prepare:
        """A function that stages the removal of deletes that dangle on the present head."""
        return _change


def _change(table: Rewritable, case: ProcessContext, now: datetime) -> Change:
    head = table.head(case.process.snapshot_id, case.process.sequence_number)
    going = dangling_deletes(head.scan)
    if not going:
        raise CommitConflict("no delete file dangles any more")
    failpoint("commit.before_intent")
    staged = table.stage(head, CommitContent((), (), going, (), ()), summary_of(case.process, "CLEAN_DANGLING_DELETE"))
    failpoint("commit.after_stage")
    figures = tuple(Figure(name, value, "bytes" if name == "bytes" else "files") for name, value in _counts(going))
    return staged_change(case, staged, f"removed {len(going)} dangling delete files", figures, now)


def _counts(going: tuple[DeleteFile, ...]) -> tuple[tuple[str, int], ...]:
    position = sum(one.kind is DeleteKind.POSITION for one in going)
    return (
        ("removed_position_delete_files", position),
        ("removed_equality_delete_files", len(going) - position),
        ("bytes", sum(one.size_bytes for one in going)),
    )


def _document(going: tuple[DeleteFile, ...]) -> dict[str, object]:
    return {
        "removed_delete_files_count": len(going),
        **dict(_counts(going)),
        "delete_files": [one.path for one in going],
    }

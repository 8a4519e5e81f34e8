"""Why a table is optimized, or why it is not, now: a pure function of what the coordinator knows."""

from collections.abc import Iterator

from amoro_core.documents.quantities import format_count, format_time
from amoro_core.model.tables import OptimizingStatus
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.records import record

_AT_WORK = {
    OptimizingStatus.PLANNING: "It is being planned.",
    OptimizingStatus.MINOR_OPTIMIZING: "It is being optimized: minor.",
    OptimizingStatus.MAJOR_OPTIMIZING: "It is being optimized: major.",
    OptimizingStatus.FULL_OPTIMIZING: "It is being optimized: full.",
    OptimizingStatus.COMMITTING: "Its rewritten files are being committed.",
}


@record
class Reason:
    """One thing that holds the table back or drives it. `look`: good, busy, wait or bad, as badges have it."""

    look: str
    title: str
    text: str = ""
    links_to: str = ""  # what the page links it to: process, group, enable, block


def reasons(table: pb.Table, group: pb.Group | None, now_ms: int) -> tuple[Reason, ...]:
    """Everything that says why the table is (not) optimized now, the most pressing first. `group` None: not known."""
    return (*_held(table), *_work(table), *_back_off(table, now_ms), *_room(table, group), *_evaluated(table, now_ms))


def _held(table: pb.Table) -> Iterator[Reason]:
    if table.status == OptimizingStatus.REFUSED:
        yield Reason("bad", "It is refused", table.status_reason)
    if not table.enabled:
        yield Reason("wait", "It is only observed", table.enabled_origin or "It was never enabled.", "enable")
    else:
        yield Reason("good", "It is enabled", table.enabled_origin)
    for blocker in table.blockers:
        until = f"Until {format_time(blocker.expires_ms)}"
        yield Reason("wait", f"Blocked: {', '.join(blocker.operations)}", f"{until}. {blocker.reason}", "block")


def _work(table: pb.Table) -> Iterator[Reason]:
    if told := _AT_WORK.get(OptimizingStatus(table.status)):
        yield Reason("busy", told, table.status_reason, "process" if table.process_id else "")
    elif table.process_id:
        yield Reason("busy", "A process has not ended.", table.status_reason, "process")
    if table.status == OptimizingStatus.PENDING:
        yield Reason("wait", "It waits for its plan.", table.status_reason, "queue")


def _back_off(table: pb.Table, now_ms: int) -> Iterator[Reason]:
    if table.retry_at_ms > now_ms:
        yield Reason(
            "wait", f"It is tried again at {format_time(table.retry_at_ms)}", "After failures it is left alone."
        )
    if table.failure:
        yield Reason("bad", "The last try failed", table.failure)
    if table.late_deletes:
        yield Reason("bad", "Rows that another application deleted came back", table.late_deletes)


def _room(table: pb.Table, group: pb.Group | None) -> Iterator[Reason]:
    if table.no_optimizer:
        yield Reason("bad", "No optimizer takes its tasks", table.no_optimizer, "group")
        return
    if group is None:
        return
    if group.threads and group.running_tasks >= group.threads:
        text = f"Each of the {format_count(group.threads)} threads of {group.name} has a task."
        yield Reason("wait", "Its group has no free thread", text, "group")
    for use in group.uses:
        if use.table == table.table and 0 < use.limit <= use.running_tasks:
            text = f"It runs {use.running_tasks} tasks; its quota of {use.quota:g} allows {use.limit} threads now."
            yield Reason("wait", "Its quota is used up", text, "group")


def _evaluated(table: pb.Table, now_ms: int) -> Iterator[Reason]:
    if table.status == OptimizingStatus.IDLE:
        known = table.status_reason or "Nothing was found to do when it was last looked at."
        yield Reason("good" if table.enabled else "", "There is nothing to do", known)
    if table.next_due_ms > now_ms:
        text = "Then it is due by the clock, without a new commit."
        yield Reason("", f"Next due at {format_time(table.next_due_ms)}", text)

"""Processes that commit group by group: which groups are settled, and what all of the commits came to."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from amoro_core.errors import AmoroError
from amoro_core.model.processes import CommitAttempt, CommitOutcome, Figure, OptimizingProcess, Receipt
from amoro_core.state import processes as process_machine
from amoro_core.state.deciding import NOTHING_SETTLED, Settled
from amoro_core.store import commits, dropped_groups, tasks
from amoro_core.store.database import Connection


def settled_groups(db: Connection, process: OptimizingProcess) -> Settled:
    """The groups of the process that are committed or dropped; of one that commits all at once nothing is told."""
    if not process.max_commits:
        return NOTHING_SETTLED
    committed = committed_groups(commits.list_for_process(db, process.process_id))
    dropped = dropped_groups.of(db, process.process_id)
    return Settled(committed, {number: why for number, why in dropped.items() if number not in committed})


def committed_groups(attempts: Iterable[CommitAttempt]) -> frozenset[int]:
    """The groups whose results the table has."""
    return frozenset(number for one in attempts if one.outcome is CommitOutcome.DONE for number in one.groups)


def landed(attempts: Iterable[CommitAttempt]) -> list[CommitAttempt]:
    """The attempts that have landed with results, in the order in which they were sent."""
    return [one for one in attempts if one.outcome is CommitOutcome.DONE and one.groups]


def receipt_of(db: Connection, process: OptimizingProcess) -> Receipt | None:
    """What all commits of a process that ends came to together; None where it has committed nothing.

    Groups that it has not committed count as dropped.
    """
    done = landed(commits.list_for_process(db, process.process_id))
    if not done:
        return None
    groups = {task.task_id.number for task in tasks.list_for_process(db, process.process_id)}
    receipt = merged([one.receipt for one in done], len(done))
    dropped = Figure("groups_dropped", len(groups - committed_groups(done)), "groups")
    return replace(receipt, more=(*receipt.more, dropped))


def merged(receipts: Sequence[Receipt], commits_made: int = 1) -> Receipt:
    """The receipt of several commits of one process: counts in sum, what holds of the table as the last one has it.

    Figures that end in `_before` or `_after` and are of no file, row or byte are those of the first and the last one.
    """
    first, last = receipts[0], receipts[-1]

    return replace(
        last,
        data_files_before=sum(one.data_files_before for one in receipts),
        data_files_after=sum(one.data_files_after for one in receipts),
        delete_files_before=sum(one.delete_files_before for one in receipts),
        delete_files_after=sum(one.delete_files_after for one in receipts),
        bytes_before=sum(one.bytes_before for one in receipts),
        bytes_after=sum(one.bytes_after for one in receipts),
        rows_before=sum(one.rows_before for one in receipts),
        rows_after=sum(one.rows_after for one in receipts),
        disputed_deletes=sum(one.disputed_deletes for one in receipts),
        base_snapshot_id=first.base_snapshot_id,
        more=(*_figures(receipts), Figure("commits", commits_made, "")),
    )


#: Of figures in these units several commits are summed up.
_COUNTED = ("files", "rows", "bytes", "ms", "groups")


def _figures(receipts: Sequence[Receipt]) -> list[Figure]:
    found: dict[str, Figure] = {}
    for receipt in receipts:
        for figure in receipt.more:
            known = found.get(figure.name)
            if known is None or (figure.unit not in _COUNTED and figure.name.endswith("_after")):
                found[figure.name] = figure
            elif figure.unit in _COUNTED:
                found[figure.name] = replace(known, value=known.value + figure.value)
    return list(found.values())


def ended_partly(
    db: Connection, process: OptimizingProcess, code: str, reason: str
) -> process_machine.EndedPartly | None:
    """The end of a process that commits nothing more; None where nothing of it is committed."""
    receipt = receipt_of(db, process) if process.max_commits else None
    return None if receipt is None else process_machine.EndedPartly(receipt, code, reason)


def failure_of(
    db: Connection, process: OptimizingProcess, attempts: Sequence[CommitAttempt], error: AmoroError
) -> process_machine.ProcessEvent:
    """The process's end; with an attempt still open only a table that is gone, or another by now, leads here."""
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    if any(attempt.is_open for attempt in attempts):
        unknown = f"{message}; whether a commit to it was applied is not known, and none of its files is removed"
        return process_machine.TableGone(error.code, unknown)
    partly = ended_partly(db, process, error.code, message)
    return partly or process_machine.ProcessFailed(error.code, message)

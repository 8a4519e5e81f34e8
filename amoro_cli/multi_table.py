"""The outcome of a command for each of several tables, and the one exit status for all."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from amoro_cli.connection import remote_error
from amoro_cli.progress import ProgressReport
from amoro_cli.wait import Deadline, failure_of, optimize_once, wait_for_end
from amoro_core.documents.formatting import many
from amoro_core.errors import (
    AmoroError,
    CommitUnknown,
    Conflict,
    InvalidArgument,
    NotAllowed,
    NotFound,
    TableBusy,
    TableRefused,
    WaitTimeout,
)
from amoro_core.model.principals import is_pattern
from amoro_core.protocol import admin_pb2 as pb

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient
    from amoro_cli.connection import Connection

Answer = TypeVar("Answer")
Optimized = tuple[pb.OptimizeTableResponse, pb.Process | None]

#: Exit statuses, worst first: those that need a person, then those that a later run settles, then success.
WORST_FIRST = (1, 4, 2, 3, 6, 7, 5, 124, 0)
_WORDS: tuple[tuple[type[AmoroError], str], ...] = (
    (TableRefused, "refused"),
    (NotFound, "not_found"),
    (NotAllowed, "not_allowed"),
    (InvalidArgument, "wrong_usage"),
    (CommitUnknown, "commit_unknown"),
    (Conflict, "conflict"),
    (WaitTimeout, "not_ended"),
)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Answer]):
    """The outcome for one table, or for a catalog that could not be listed: an answer, an error, or both."""

    table: str
    word: str
    answer: Answer | None = None
    error: AmoroError | None = None

    @property
    def exit_status(self) -> int:
        """The error's exit status; 0 without an error."""
        return self.error.exit_status if self.error else 0


def is_one(names: Sequence[str]) -> bool:
    """Whether exactly one table is named, not by a pattern: the output is then about that table alone."""
    return len(names) == 1 and not is_pattern(names[0])


def select(client: "AdminClient", names: Sequence[str]) -> tuple[list[str], list[Outcome[Any]]]:
    """The selected tables, and an outcome for each catalog that could not be listed."""
    tables_response = client.SelectTables(pb.SelectTablesRequest(names=names))
    unlisted: list[Outcome[Any]] = [
        failed(item.catalog, remote_error(item.code, item.exit_status, item.message, item.hint))
        for item in tables_response.unlisted
    ]
    return list(tables_response.tables), unlisted


def tried(table: str, act: Callable[[str], Answer], word: Callable[[Answer], str]) -> Outcome[Answer]:
    """The outcome of `act` for the table."""
    try:
        answer = act(table)
    except AmoroError as error:
        return failed(table, error)
    return Outcome(table, word(answer), answer)


def failed(table: str, error: AmoroError, answer: Answer | None = None) -> Outcome[Answer]:
    """The outcome of a table that failed with the error."""
    word = next((word for kind, word in _WORDS if isinstance(error, kind)), "failed")
    return Outcome(table, word, answer, error)


def worst(statuses: Iterable[int]) -> int:
    """The worst exit status; 0 for none. An unknown status is worse than any other."""
    ranks = {status: rank for rank, status in enumerate(WORST_FIRST)}
    return min(statuses, key=lambda status: ranks.get(status, -1), default=0)


def raise_worst(outcomes: Sequence[Outcome[Any]]) -> None:
    """Raise the error that the command ends with: that of the first of the worst tables, if any failed."""
    status = worst(outcome.exit_status for outcome in outcomes)
    if not status:
        return
    chosen = next(outcome for outcome in outcomes if outcome.exit_status == status)
    bad = sum(bool(outcome.exit_status) for outcome in outcomes)
    error = chosen.error or AmoroError("")
    message = f"{bad} of {many(len(outcomes), 'table')} did not succeed; the worst is {chosen.table}: {error.message}"
    raise remote_error(error.code, status, message, error.hint or error.remedy)


def ranked(outcomes: list[Outcome[pb.Plan]]) -> list[Outcome[pb.Plan]]:
    """Tables by the files that optimizing would save, as in lists; then those without work, and those not planned."""
    return sorted(outcomes, key=_place)


def _place(outcome: Outcome[pb.Plan]) -> tuple[int, int, str]:
    plan = outcome.answer
    if plan is None:
        return 2, 0, outcome.table
    return (0 if plan.type else 1), -plan.saved_files, outcome.table


_PLANNED_AT_ONCE = 4


def plan_each(tables: Sequence[str], plan: Callable[[str], pb.Plan]) -> list[Outcome[pb.Plan]]:
    """The plans of the tables, in their order; a few are made concurrently."""

    def plan_one(table: str) -> Outcome[pb.Plan]:
        return tried(table, plan, lambda plan: "planned" if plan.type else "nothing_to_do")

    with ThreadPoolExecutor(_PLANNED_AT_ONCE, thread_name_prefix="plan") as pool:
        return list(pool.map(plan_one, tables))


@dataclass
class MultiTableRun:
    """Optimizes tables, and knows the outcome of each at any time."""

    connection: "Connection"
    request: pb.OptimizeTableRequest  # for each table, without its name
    deadline: Deadline
    report: ProgressReport
    wait: bool
    outcomes: list[Outcome[Optimized]] = field(default_factory=list)

    def optimize(self, tables: Sequence[str]) -> None:
        """Optimize the tables.

        In this process they run one by one, so that those cut off by --timeout have not begun; a coordinator gets all
        at once, and its optimizers share them. Busy tables come last.
        """
        for table in tables:
            self.outcomes.append(self._begin(table, patient=False))
        for at, outcome in enumerate(self.outcomes):
            if isinstance(outcome.error, TableBusy):
                self.outcomes[at] = self._begin(outcome.table, patient=True)
        if self.connection.embedded or not self.wait:
            return
        try:
            for at, outcome in enumerate(self.outcomes):
                if outcome.answer and outcome.answer[0].process_id:
                    self.outcomes[at] = self._awaited(outcome)
        except KeyboardInterrupt:
            self.report.note("The processes go on. See: amoro process list")
            raise

    def _begin(self, table: str, *, patient: bool) -> Outcome[Optimized]:
        if not self.deadline.remaining:
            return failed(table, WaitTimeout(f"{table} was not started in time", hint="Give a longer --timeout."))
        request = pb.OptimizeTableRequest(table=table)
        request.MergeFrom(self.request)
        try:
            answer, process = optimize_once(
                self.connection, request, self.deadline, self.report, wait=False, patient=patient
            )
        except AmoroError as error:
            return failed(table, error)
        return self._ended(answer, process)

    def _awaited(self, outcome: Outcome[Optimized]) -> Outcome[Optimized]:
        if outcome.answer is None:
            return outcome
        answer = outcome.answer[0]
        try:
            process = wait_for_end(self.connection.client, answer.process_id, self.deadline, self.report)
        except AmoroError as error:
            return failed(outcome.table, error, outcome.answer)
        return self._ended(answer, process)

    def _ended(self, answer: pb.OptimizeTableResponse, process: pb.Process | None) -> Outcome[Optimized]:
        table = answer.plan.table
        if process is None:
            return Outcome(table, "planned" if answer.process_id else "nothing_to_do", (answer, None))
        failure = failure_of(process, self.connection.embedded)
        return Outcome(table, process.status, (answer, process), failure)

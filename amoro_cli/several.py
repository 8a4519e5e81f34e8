"""Planning and optimizing several tables with one command."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from amoro_cli.ordering import Ordering
from amoro_cli.outcomes import Outcome, failed, tried
from amoro_cli.progress import ProgressReport
from amoro_cli.waiting import Deadline, failure_of, optimize_once, wait_for_end
from amoro_core.errors import AmoroError, TableBusy, WaitTimeout

if TYPE_CHECKING:
    from amoro_cli.connection import Connection
    from amoro_core.protocol import admin_pb2 as pb

    Optimized = tuple[pb.OptimizeTableResponse, pb.Process | None]

_PLANNED_AT_ONCE = 4


def plan_each(tables: Sequence[str], plan: "Callable[[str], pb.Plan]") -> "list[Outcome[pb.Plan]]":
    """The plans of the tables, in their order; a few are made concurrently."""

    def one(table: str) -> "Outcome[pb.Plan]":
        return tried(table, plan, lambda made: "planned" if made.type else "nothing_to_do")

    with ThreadPoolExecutor(_PLANNED_AT_ONCE, thread_name_prefix="plan") as pool:
        return list(pool.map(one, tables))


class Several:
    """Optimizes tables, and knows the outcome of each at any time."""

    def __init__(
        self,
        connection: "Connection",
        request: tuple[str, bool, str, Ordering],
        deadline: Deadline,
        report: ProgressReport,
        *,
        wait: bool,
    ) -> None:
        """`request`: type, force and condition for all of them."""
        self._connection = connection
        self._request = request
        self._deadline = deadline
        self._report = report
        self._wait = wait
        self.outcomes: list[Outcome[Optimized]] = []

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
        if self._connection.embedded or not self._wait:
            return
        try:
            for at, outcome in enumerate(self.outcomes):
                if outcome.answer and outcome.answer[0].process_id:
                    self.outcomes[at] = self._awaited(outcome)
        except KeyboardInterrupt:
            self._report.note("The processes go on. See: amoro process list")
            raise

    def _begin(self, table: str, *, patient: bool) -> "Outcome[Optimized]":
        type_, force, where, ordering = self._request
        if not self._deadline.left:
            return failed(table, WaitTimeout(f"{table} was not started in time", hint="Give a longer --timeout."))
        try:
            answer, process = optimize_once(
                self._connection,
                table,
                type_,
                force,
                self._deadline,
                self._report,
                wait=False,
                where=where,
                patient=patient,
                ordering=ordering,
            )
        except AmoroError as error:
            return failed(table, error)
        return self._ended(answer, process)

    def _awaited(self, outcome: "Outcome[Optimized]") -> "Outcome[Optimized]":
        if outcome.answer is None:
            return outcome
        answer = outcome.answer[0]
        try:
            process = wait_for_end(self._connection.client, answer.process_id, self._deadline, self._report)
        except AmoroError as error:
            return failed(outcome.table, error, outcome.answer)
        return self._ended(answer, process)

    def _ended(self, answer: "pb.OptimizeTableResponse", process: "pb.Process | None") -> "Outcome[Optimized]":
        table = answer.plan.table
        if process is None:
            return Outcome(table, "planned" if answer.process_id else "nothing_to_do", (answer, None))
        failure = failure_of(process, self._connection.embedded)
        return Outcome(table, process.status, (answer, process), failure)

"""Acks and results of all threads, many in one call."""

from collections.abc import Mapping, Sequence

from amoro_core.errors import AmoroError, CoordinatorUnavailable, UnknownToken
from amoro_core.model.processes import Attempt
from amoro_core.model.secrets import Secret
from amoro_core.model.work import DELETE, WorkResult
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.records import record
from amoro_optimizer.batching import Batches
from amoro_optimizer.client import Client, PolledTask, report_of

#: Of the results of one call, beyond its first; a message has a limit.
CALL_BYTES = 4 * 1024 * 1024

Vended = Mapping[str, str] | None


@record
class _Report:
    """A result, and the thread for which the call polls; 0: none."""

    token: Secret
    message: pb.TaskResult
    thread_id: int


@record
class Reported:
    """Whether a result was accepted, and what its thread does next, if there is something."""

    accepted: bool
    following: PolledTask | None


class Reports:
    """Sends what threads have to say: what comes while a call is under way shares the next one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._acks: Batches[tuple[Secret, Attempt], Vended] = Batches(self._ack_all, CALL_BYTES)
        self._results: Batches[_Report, Reported | AmoroError] = Batches(self._complete_all, CALL_BYTES)

    def ack(self, token: Secret, attempt: Attempt, kind: str) -> Vended:
        """The vended storage properties, None when the attempt is stale. Raises AmoroError."""
        if kind == DELETE:  # its guard may let it wait, and others must not
            return self._client.ack(token, attempt)
        return self._acks.ask((token, attempt))

    def complete(self, token: Secret, attempt: Attempt, result: WorkResult | AmoroError, thread_id: int) -> Reported:
        """Report a result and poll for that thread; 0: for none. Raises AmoroError."""
        message = report_of(attempt, result)
        answer = self._results.ask(_Report(token, message, thread_id), message.ByteSize())
        if isinstance(answer, AmoroError):
            raise answer
        return answer

    def _ack_all(self, asked: Sequence[tuple[Secret, Attempt]]) -> list[Vended]:
        told: dict[Attempt, Vended] = {}
        for token in {token.reveal(): token for token, _ in asked}.values():
            attempts = [attempt for one, attempt in asked if one == token]
            told.update(zip(attempts, self._client.ack_all(token, attempts), strict=True))
        return [told[attempt] for _, attempt in asked]

    def _complete_all(self, reports: Sequence[_Report]) -> list[Reported | AmoroError]:
        try:
            return self._complete_together(reports)
        except (CoordinatorUnavailable, UnknownToken):
            raise
        except AmoroError as error:
            # One of them is refused for what it says; each may be sent again.
            return [error] if len(reports) == 1 else [self._alone(report) for report in reports]

    def _alone(self, report: _Report) -> Reported | AmoroError:
        try:
            return self._complete_together([report])[0]
        except AmoroError as error:
            return error

    def _complete_together(self, reports: Sequence[_Report]) -> list[Reported | AmoroError]:
        told: dict[int, Reported | AmoroError] = {}
        for token in {report.token.reveal(): report.token for report in reports}.values():
            mine = [number for number, report in enumerate(reports) if report.token == token]
            messages = [reports[number].message for number in mine]
            threads = [reports[number].thread_id for number in mine if reports[number].thread_id]
            accepted, tasks = self._client.complete_all(token, messages, threads)
            following = {task.thread_id: task for task in tasks}
            for number, counts in zip(mine, accepted, strict=True):
                told[number] = Reported(counts, following.get(reports[number].thread_id))
        return [told[number] for number in range(len(reports))]

"""Calls that several threads make together."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from amoro_core.errors import AmoroError, CoordinatorUnavailable, UnknownToken
from amoro_core.model.processes import Attempt
from amoro_core.model.task_payload import DELETE, WorkResult
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_optimizer.client import Client, PolledTask, report_of

#: How long a call waits at least for others that are likely to come: little beside any work, much beside the time
#: between them.
GATHER_S = 0.002
#: Of the time of the call before: a coordinator whose answers take long is busy, and fewer calls spare it.
GATHER_SHARE = 0.5
#: At most: a call that hung says nothing of the next one.
GATHER_MOST_S = 0.05

A = TypeVar("A")
R = TypeVar("R")


class _Asked(Generic[A, R]):
    """What one thread asks for; it sleeps until it has an answer or is to make the next call."""

    def __init__(self, one: A, size: int) -> None:
        self.one, self.size = one, size
        self.woken = threading.Event()
        self.answer: R | None = None
        self.error: BaseException | None = None
        self.is_done = False


class Batches(Generic[A, R]):
    """While one call is under way what others ask waits, and goes together in the next one.

    Where the call before carried several, the next one waits a moment for more: who was answered together is likely to
    ask again together. Who asks alone never waits.
    """

    def __init__(
        self,
        call: Callable[[Sequence[A]], Sequence[R]],
        most_bytes: int,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`call` gives an answer for each; a batch beyond its first has at most so many bytes."""
        self._call, self._most_bytes, self._sleep, self._clock = call, most_bytes, sleep, clock
        self._size, self._took_s = 0, 0.0  # of the call before
        self._lock = threading.Lock()
        self._waiting: list[_Asked[A, R]] = []
        self._is_calling = False

    def ask(self, one: A, size: int = 0) -> R:
        """The answer, once the call that carries it has returned. Raises what that call raised."""
        asked = _Asked[A, R](one, size)
        with self._lock:
            self._waiting.append(asked)
            leads, self._is_calling = not self._is_calling, True
        if not leads:
            asked.woken.wait()
        if not asked.is_done:
            self._lead()
        if asked.error is not None:
            raise asked.error
        return asked.answer  # type: ignore[return-value]  # of the type R, which may be None

    def _lead(self) -> None:
        """Call for those that wait, the leading thread among them as the first; then the next one leads."""
        if self._size > 1:
            self._sleep(min(max(GATHER_S, GATHER_SHARE * self._took_s), GATHER_MOST_S))
        with self._lock:
            batch = [self._waiting.pop(0)]
            size = batch[0].size
            while self._waiting and size + self._waiting[0].size <= self._most_bytes:
                batch.append(self._waiting.pop(0))
                size += batch[-1].size
            self._size = len(batch)
        begun = self._clock()
        try:
            answers = self._call([asked.one for asked in batch])
            for asked, answer in zip(batch, answers, strict=True):
                asked.answer = answer
        except BaseException as error:
            for asked in batch:
                asked.error = error
        self._took_s = self._clock() - begun
        with self._lock:
            for asked in batch:
                asked.is_done = True
            following = self._waiting[0] if self._waiting else None
            self._is_calling = following is not None
        for asked in batch:
            asked.woken.set()
        if following is not None:
            following.woken.set()


#: Of the results of one call, beyond its first; a message has a limit.
CALL_BYTES = 4 * 1024 * 1024

Vended = Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class _Report:
    """A result, and the thread for which the call polls; 0: none."""

    token: Secret
    message: pb.TaskResult
    thread_id: int


@dataclass(frozen=True, slots=True)
class ResultReply:
    """Whether a result was accepted, and what its thread does next, if there is something."""

    accepted: bool
    following: PolledTask | None


class Reports:
    """Sends what threads have to say: what comes while a call is under way shares the next one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._acks: Batches[tuple[Secret, Attempt], Vended] = Batches(self._ack_all, CALL_BYTES)
        self._results: Batches[_Report, ResultReply | AmoroError] = Batches(self._complete_all, CALL_BYTES)

    def ack(self, token: Secret, attempt: Attempt, kind: str) -> Vended:
        """The vended storage properties, None when the attempt is stale. Raises AmoroError."""
        if kind == DELETE:  # its guard may let it wait, and others must not
            return self._client.ack(token, attempt)
        return self._acks.ask((token, attempt))

    def complete(self, token: Secret, attempt: Attempt, result: WorkResult | AmoroError, thread_id: int) -> ResultReply:
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

    def _complete_all(self, reports: Sequence[_Report]) -> list[ResultReply | AmoroError]:
        try:
            return self._complete_together(reports)
        except (CoordinatorUnavailable, UnknownToken):
            raise
        except AmoroError as error:
            # One of them is refused for what it says; each may be sent again.
            return [error] if len(reports) == 1 else [self._alone(report) for report in reports]

    def _alone(self, report: _Report) -> ResultReply | AmoroError:
        try:
            return self._complete_together([report])[0]
        except AmoroError as error:
            return error

    def _complete_together(self, reports: Sequence[_Report]) -> list[ResultReply | AmoroError]:
        told: dict[int, ResultReply | AmoroError] = {}
        for token in {report.token.reveal(): report.token for report in reports}.values():
            mine = [number for number, report in enumerate(reports) if report.token == token]
            messages = [reports[number].message for number in mine]
            threads = [reports[number].thread_id for number in mine if reports[number].thread_id]
            accepted, tasks = self._client.complete_all(token, messages, threads)
            following = {task.thread_id: task for task in tasks}
            for number, counts in zip(mine, accepted, strict=True):
                told[number] = ResultReply(counts, following.get(reports[number].thread_id))
        return [told[number] for number in range(len(reports))]

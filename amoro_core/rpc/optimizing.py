"""The OptimizingService: calls of optimizers, translated to the services."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from amoro_core.errors import InvalidArgument, UnknownToken
from amoro_core.model.processes import Attempt, Optimizer
from amoro_core.model.task_payload import REWRITE, WorkResult
from amoro_core.notifier import Changes, wait_for
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.protocol.optimizing_pb2_grpc import OptimizingServiceServicer
from amoro_core.rpc.calls import Context, abort, bearer, off_loop
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.task_lifecycle import (
    Acked,
    Admission,
    Failure,
    OptimizingService,
    PollRequest,
    Refusal,
    Report,
    ScheduledTask,
)

PROTOCOL_VERSION = 1
MAX_POLL_WAIT_S = 20.0
#: Long polls that get nothing are answered at multiples of this: idle optimizers cost a wake each.
WAKE_STEP_S = 1.0
#: Limit of the wait of an ack for the guard of its table; no thread waits.
MAX_ACK_WAIT_S = 10.0
_ACK_RETRY_S = 0.2

T = TypeVar("T")


@dataclass(eq=False)
class OptimizingServicer(OptimizingServiceServicer):
    """Translates calls of optimizers; long polls wait for an event without holding a thread."""

    optimizing: OptimizingService
    optimizers: OptimizerService
    may_enrol: Callable[[str], bool]
    heartbeat_interval: timedelta
    heartbeat_timeout: timedelta
    start_to_close: timedelta
    work: Changes
    pool: Executor

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterResponse:
        try:
            token = bearer(context)
            if not await off_loop(self.pool, lambda: self.may_enrol(token)):
                raise UnknownToken("the enrolment token is wrong")
            if request.protocol_version != PROTOCOL_VERSION:
                raise InvalidArgument(
                    f"the optimizer speaks protocol version {request.protocol_version}, "
                    f"the coordinator version {PROTOCOL_VERSION}"
                )
            registered = await off_loop(
                self.pool,
                lambda: self.optimizers.register(
                    group=request.group,
                    threads=request.threads,
                    memory_bytes=request.memory_bytes,
                    labels=dict(request.labels),
                    heartbeat_interval=timedelta(milliseconds=request.heartbeat_interval_ms) or self.heartbeat_interval,
                    running=[codec.decode_attempt(attempt) for attempt in request.running],
                    kinds=tuple(request.work_kinds) or (REWRITE,),
                    previous_id=request.previous_optimizer_id,
                    max_cluster_bytes=request.max_cluster_bytes,
                ),
            )
        except Exception as error:
            await abort(context, error)
        return pb.RegisterResponse(
            optimizer_id=registered.optimizer.optimizer_id,
            token=registered.token,
            heartbeat_interval_ms=request.heartbeat_interval_ms
            or round(self.heartbeat_interval.total_seconds() * 1000),
            heartbeat_timeout_ms=round(self.heartbeat_timeout.total_seconds() * 1000),
            adopted=[codec.encode_attempt(attempt) for attempt in registered.adopted],
            polls_keep_alive=True,
        )

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        def work(optimizer: Optimizer) -> pb.HeartbeatResponse:
            abandon = self._touch(optimizer, request)
            return pb.HeartbeatResponse(
                abandon=[codec.encode_attempt(attempt) for attempt in abandon], draining=optimizer.draining
            )

        return await self._as_optimizer(context, work)

    async def PollTask(self, request: pb.PollTaskRequest, context: Context) -> pb.PollTaskResponse:
        try:
            return await self._answer_poll(request, bearer(context))
        except Exception as error:
            await abort(context, error)

    async def _answer_poll(self, request: pb.PollTaskRequest, token: str) -> pb.PollTaskResponse:
        """The answer to a poll, which is a heartbeat if it states its threads."""
        if request.threads < 1:
            return await self._wait_for_tasks(request, token)
        optimizer = self.optimizers.authenticate(token)
        if request.running or request.threads != optimizer.threads:  # the store is asked or changed
            abandon = await off_loop(self.pool, lambda: self._touch(optimizer, request))
        else:
            abandon = self._touch(optimizer, request)
        if abandon:
            return pb.PollTaskResponse(abandon=[codec.encode_attempt(attempt) for attempt in abandon])
        with self.optimizers.polling(optimizer.optimizer_id):
            return await self._wait_for_tasks(request, token)

    async def _wait_for_tasks(self, request: pb.PollTaskRequest, token: str) -> pb.PollTaskResponse:
        """The answer to a poll, once there are tasks or its time to wait is over."""
        deadline = _end_of_wait(time.monotonic(), min(request.wait_ms / 1000, MAX_POLL_WAIT_S))
        while True:
            planned = self.work.current()
            answer = await self._tasks_now(request, token)
            seconds = deadline - time.monotonic()
            # An optimizer that learns by heartbeats alone that it drains must not poll again at once.
            must_answer = answer.draining and request.threads > 0
            if answer.tasks or must_answer or seconds <= 0 or self.work.are_over:
                return answer
            await wait_for(planned, seconds)

    async def _tasks_now(self, request: pb.PollTaskRequest, token: str) -> pb.PollTaskResponse:
        """The answer to a poll that does not wait."""
        optimizer = self.optimizers.authenticate(token)
        if optimizer.draining:
            return pb.PollTaskResponse(draining=True)
        answer = pb.PollTaskResponse()
        for task in await off_loop(
            self.pool, lambda: self.optimizing.poll(optimizer.optimizer_id, optimizer.group, request.thread_ids)
        ):
            self._put(answer.tasks.add(), task)
        return answer

    async def AckTask(self, request: pb.AckTaskRequest, context: Context) -> pb.AckTaskResponse:
        attempts = [codec.decode_attempt(attempt) for attempt in request.attempts]
        answers: dict[Attempt, Acked] = {}
        deadline = time.monotonic() + MAX_ACK_WAIT_S

        def ack(optimizer: Optimizer) -> None:
            given = self.optimizing.ack(optimizer.optimizer_id, attempts, may_wait=True)
            answers.update(zip(attempts, given, strict=True))

        def ask_again(optimizer: Optimizer) -> None:
            guarded = [attempt for attempt in attempts if answers[attempt] is Admission.LATER]
            may_wait = time.monotonic() < deadline
            answers.update(self.optimizing.ack_guarded(optimizer.optimizer_id, guarded, may_wait=may_wait))

        await self._as_optimizer(context, ack)
        while Admission.LATER in answers.values():  # the guard of attempts that delete answers others
            await asyncio.sleep(_ACK_RETRY_S)
            await self._as_optimizer(context, ask_again)
        return pb.AckTaskResponse(results=[_acked(attempt, answers[attempt]) for attempt in attempts])

    async def CompleteTask(self, request: pb.CompleteTaskRequest, context: Context) -> pb.CompleteTaskResponse:
        def work(optimizer: Optimizer) -> pb.CompleteTaskResponse:
            reports = [
                Report(optimizer.optimizer_id, codec.decode_attempt(result.attempt), _outcome(result))
                for result in request.results
            ]
            threads = tuple(request.poll.thread_ids)
            poll = PollRequest(optimizer.optimizer_id, optimizer.group, threads) if threads else None
            reply = self.optimizing.report(reports, None if optimizer.draining else poll)
            answer = pb.CompleteTaskResponse()
            for result, counts in zip(request.results, reply.accepted, strict=True):
                status = pb.REPORT_STATUS_ACCEPTED if counts else pb.REPORT_STATUS_STALE
                answer.results.add(attempt=result.attempt, status=status)
            if threads:
                answer.polled.draining = optimizer.draining
                for task in reply.tasks:
                    self._put(answer.polled.tasks.add(), task)
            return answer

        return await self._as_optimizer(context, work)

    async def FetchBlob(self, request: pb.FetchBlobRequest, context: Context) -> AsyncIterator[pb.BlobPiece]:
        attempt = codec.decode_attempt(request.attempt)
        for number in itertools.count():

            def work(optimizer: Optimizer, piece: int = number) -> bytes | None:
                return self.optimizing.read_blob(optimizer.optimizer_id, attempt, request.sha256, piece)

            content = await self._as_optimizer(context, work)
            if content is None:
                return
            yield pb.BlobPiece(content=content)

    async def Deregister(self, request: pb.DeregisterRequest, context: Context) -> pb.DeregisterResponse:
        def work(optimizer: Optimizer) -> pb.DeregisterResponse:
            self.optimizing.dismiss(optimizer.optimizer_id, "the optimizer left", lost=False)
            return pb.DeregisterResponse()

        return await self._as_optimizer(context, work)

    def _put(self, task: pb.Task, scheduled: ScheduledTask) -> None:
        """Fill the message of a task in its place: inputs may be large."""
        task.attempt.CopyFrom(codec.encode_attempt(scheduled.attempt))
        task.thread_id = scheduled.thread_id
        task.table = str(scheduled.table)
        task.start_to_close_ms = round(self.start_to_close.total_seconds() * 1000)
        codec.put_work(task, scheduled.work)

    def _touch(self, optimizer: Optimizer, request: pb.HeartbeatRequest | pb.PollTaskRequest) -> list[Attempt]:
        """Note that the optimizer lives, and what it runs; the attempts to abandon."""
        progress = {codec.decode_attempt(item.attempt): (item.rows_done, item.rows_total) for item in request.running}
        core_ms = {codec.decode_attempt(item.attempt): item.core_ms for item in request.running if item.core_ms > 0}
        self.optimizers.touch(optimizer.optimizer_id, request.threads, progress, core_ms)
        return self.optimizing.abandoned(optimizer.optimizer_id, progress) if progress else []

    async def _as_optimizer(self, context: Context, work: Callable[[Optimizer], T]) -> T:
        """Run work for the optimizer that calls; errors end the call with their status."""
        try:
            optimizer = self.optimizers.authenticate(bearer(context))
            return await off_loop(self.pool, lambda: work(optimizer))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await abort(context, error)


def _end_of_wait(now_s: float, wait_s: float) -> float:
    """When a poll without tasks is answered, in seconds of the clock of `now_s`."""
    end = now_s + wait_s
    return end - end % WAKE_STEP_S if wait_s > 4 * WAKE_STEP_S else end


def _acked(attempt: Attempt, answer: Acked) -> pb.AckResult:
    is_accepted = answer is not None and not isinstance(answer, Admission)
    return pb.AckResult(
        attempt=codec.encode_attempt(attempt),
        status=pb.REPORT_STATUS_ACCEPTED if is_accepted else pb.REPORT_STATUS_STALE,
        io_properties={} if answer is None or isinstance(answer, Admission) else answer,
    )


def _outcome(message: pb.TaskResult) -> WorkResult | Failure | Refusal:
    """The reported outcome of the attempt. Raises InvalidArgument for an unknown kind of result."""
    match message.WhichOneof("result"):
        case "failure":
            return Failure(message.failure.code, message.failure.message)
        case "refusal":
            return Refusal(message.refusal.kind, message.refusal.message)
    result = codec.result_of(message)
    if result is None:
        raise InvalidArgument(
            f"the result of attempt {codec.decode_attempt(message.attempt)} is of no kind that this coordinator knows",
            hint="Update the coordinator: the optimizer is of a later version.",
        )
    return result

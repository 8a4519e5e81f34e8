"""The optimizer's side of the OptimizingService: a deadline on every call, retries nowhere else."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from amoro_core.errors import (
    AmoroError,
    CoordinatorUnavailable,
    GroupNotFound,
    InvalidSettings,
    NotAllowed,
    OptimizerError,
    UnknownToken,
    UnknownWork,
)
from amoro_core.model.principals import Trust
from amoro_core.model.processes import Attempt
from amoro_core.model.task_payload import Work, WorkResult
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.protocol.channels import connection_error, is_encrypted, open_channel, short_details
from amoro_core.protocol.optimizing_pb2_grpc import OptimizingServiceStub
from amoro_optimizer.execution import BlobName
from amoro_optimizer.session import Registration, Running

PROTOCOL_VERSION = 1
MESSAGE_LIMIT = 16 * 1024 * 1024
CALL_DEADLINE_S = 30.0
#: Of a blob, which may have many MiB.
FETCH_DEADLINE_S = 300.0

_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolledTask:
    """A task that a poll returned for a thread."""

    attempt: Attempt
    thread_id: int
    table: str
    work: Work


@dataclass(frozen=True, slots=True)
class Polled:
    """The answer to a poll: what begins, what is to be abandoned, and whether the optimizer is draining."""

    tasks: tuple[PolledTask, ...]
    abandon: tuple[Attempt, ...]
    draining: bool


@dataclass(frozen=True, slots=True)
class ResultReply:
    """Whether a result was accepted (also if repeated; a stale one is absorbed), and what its thread does next."""

    accepted: bool
    following: PolledTask | None


class Client:
    """One channel to the coordinator, safe for many threads."""

    def __init__(self, address: str, trust: Trust, *, stopping: threading.Event) -> None:
        self._encrypted = is_encrypted(address, trust)
        self._channel = open_channel(
            address,
            trust,
            [
                ("grpc.max_send_message_length", MESSAGE_LIMIT),
                ("grpc.max_receive_message_length", MESSAGE_LIMIT),
                ("grpc.initial_reconnect_backoff_ms", 200),
                ("grpc.max_reconnect_backoff_ms", 5000),
            ],
        )
        self._stub = OptimizingServiceStub(self._channel)
        self._stopping = stopping
        self._lock = threading.Lock()
        self._polls: set[grpc.Future[pb.PollTaskResponse]] = set()
        self._address = address

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def register(
        self, enrolment_token: Secret, *, running: Iterable[Attempt], heartbeat_interval_s: float, **facts: Any
    ) -> tuple[Registration, tuple[Attempt, ...]]:
        """Register in a group; returns the registration and the adopted attempts. `facts`: fields of RegisterRequest.

        Raises CoordinatorUnavailable, NotAllowed (wrong enrolment token), Untrusted, GroupNotFound, InvalidSettings.
        """
        request = pb.RegisterRequest(
            protocol_version=PROTOCOL_VERSION,
            heartbeat_interval_ms=round(heartbeat_interval_s * 1000),
            running=[codec.encode_attempt(attempt) for attempt in running],
            **facts,
        )
        try:
            answer = self._stub.Register(request, timeout=CALL_DEADLINE_S, metadata=_bearer(enrolment_token))
        except grpc.RpcError as error:
            reason = connection_error(self._address, error.details() or "", encrypted=self._encrypted)
            raise reason or _translate(error, self._address, registering=True) from error
        registration = Registration(
            optimizer_id=answer.optimizer_id,
            token=Secret(answer.token),
            heartbeat_interval_s=answer.heartbeat_interval_ms / 1000,
            heartbeat_timeout_s=answer.heartbeat_timeout_ms / 1000,
        )
        return registration, tuple(codec.decode_attempt(attempt) for attempt in answer.adopted)

    def heartbeat(self, token: Secret, running: Iterable[Running], threads: int) -> tuple[tuple[Attempt, ...], bool]:
        """Report running attempts; returns the attempts to abandon and whether the optimizer is draining."""
        request = pb.HeartbeatRequest(running=_progress(running), threads=threads)
        answer = self._once(lambda: self._stub.Heartbeat(request, timeout=10.0, metadata=_bearer(token)))
        return tuple(codec.decode_attempt(attempt) for attempt in answer.abandon), answer.draining

    def poll(
        self, token: Secret, thread_ids: Sequence[int], wait_s: float, running: Iterable[Running], threads: int
    ) -> Polled:
        """Wait for work at most `wait_s` seconds, reporting running attempts; nothing when `stop_polling` ends it."""
        request = pb.PollTaskRequest(
            thread_ids=thread_ids, wait_ms=round(wait_s * 1000), running=_progress(running), threads=threads
        )
        call = self._stub.PollTask.future(request, timeout=wait_s + CALL_DEADLINE_S, metadata=_bearer(token))
        with self._lock:
            self._polls.add(call)
        if self._stopping.is_set():  # `stop_polling` may have run before this poll was registered
            self.stop_polling()
        try:
            return _polled(call.result())
        except grpc.FutureCancelledError:
            return Polled((), (), False)
        except grpc.RpcError as error:
            raise _translate(error, self._address) from error
        finally:
            with self._lock:
                self._polls.discard(call)

    def stop_polling(self) -> None:
        """End waiting polls; a task that was just scheduled is returned by deregistering."""
        with self._lock:
            polls = tuple(self._polls)
        for call in polls:
            call.cancel()

    def ack(self, token: Secret, attempt: Attempt) -> Mapping[str, str] | None:
        """Accept an attempt; returns the vended storage properties, None when the attempt is stale."""
        request = pb.AckTaskRequest(attempts=[codec.encode_attempt(attempt)])
        answer = self._once(lambda: self._stub.AckTask(request, timeout=CALL_DEADLINE_S, metadata=_bearer(token)))
        (result,) = answer.results
        return dict(result.io_properties) if result.status == pb.REPORT_STATUS_ACCEPTED else None

    def refuse(self, token: Secret, attempt: Attempt, kind: str, error: UnknownWork) -> None:
        """Return an attempt with an unknown kind of work: it has neither begun nor failed."""
        message = pb.TaskResult(attempt=codec.encode_attempt(attempt))
        message.refusal.CopyFrom(pb.WorkRefusal(kind=kind, message=error.full_text))
        self._report(token, message)

    def complete(
        self, token: Secret, attempt: Attempt, result: WorkResult | AmoroError, thread_id: int = 0
    ) -> ResultReply:
        """Report a result, then poll for that thread without waiting; 0: for none."""
        message = pb.TaskResult(attempt=codec.encode_attempt(attempt))
        if isinstance(result, WorkResult):
            codec.put_result(message, result)
        else:
            message.failure.CopyFrom(pb.TaskFailure(code=result.code, message=result.full_text))
        return self._report(token, message, thread_id)

    def _report(self, token: Secret, message: pb.TaskResult, thread_id: int = 0) -> ResultReply:
        request = pb.CompleteTaskRequest(results=[message])
        if thread_id:
            request.poll.thread_ids.append(thread_id)
        answer = self._once(lambda: self._stub.CompleteTask(request, timeout=CALL_DEADLINE_S, metadata=_bearer(token)))
        (reply,) = answer.results
        tasks = _polled(answer.polled).tasks
        return ResultReply(reply.status == pb.REPORT_STATUS_ACCEPTED, tasks[0] if tasks else None)

    def fetch_blob(self, token: Secret, attempt: Attempt, name: BlobName) -> bytes:
        """The blob of an attempt that was acknowledged.

        Raises OptimizerError for one that is truncated, altered or unavailable; CoordinatorUnavailable, UnknownToken.
        """
        request = pb.FetchBlobRequest(attempt=codec.encode_attempt(attempt), sha256=name.sha256)
        content, hashed = bytearray(), hashlib.sha256()
        try:
            for piece in self._stub.FetchBlob(request, timeout=FETCH_DEADLINE_S, metadata=_bearer(token)):
                content += piece.content
                hashed.update(piece.content)
                if len(content) > name.size_bytes:
                    break
        except grpc.RpcError as error:
            failed = _translate(error, self._address)
            passing = (CoordinatorUnavailable, UnknownToken)
            raise failed if isinstance(failed, passing) else OptimizerError(failed.message) from error
        if len(content) != name.size_bytes or hashed.hexdigest() != name.sha256:
            raise OptimizerError(
                f"the blob of attempt {attempt} is not what its work names: {len(content)} bytes with the SHA-256 "
                f"{hashed.hexdigest()}, not {name.size_bytes} with {name.sha256}"
            )
        return bytes(content)

    def deregister(self, token: Secret) -> None:
        """Leave; unfinished attempts are planned again."""
        self._once(lambda: self._stub.Deregister(pb.DeregisterRequest(), timeout=5.0, metadata=_bearer(token)))

    def _once(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except grpc.RpcError as error:
            raise _translate(error, self._address) from error


def _polled(answer: pb.PollTaskResponse) -> Polled:
    return Polled(
        tuple(
            PolledTask(codec.decode_attempt(task.attempt), task.thread_id, task.table, codec.work_of(task))
            for task in answer.tasks
        ),
        tuple(codec.decode_attempt(attempt) for attempt in answer.abandon),
        answer.draining,
    )


def _progress(running: Iterable[Running]) -> list[pb.AttemptProgress]:
    return [
        pb.AttemptProgress(
            attempt=codec.encode_attempt(item.attempt),
            rows_done=item.rows_done,
            rows_total=item.rows_total,
            stage=item.stage,
            core_ms=item.core_ms,
        )
        for item in running
    ]


def _bearer(token: Secret) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token.reveal()}"),)


def _translate(error: grpc.RpcError, address: str, *, registering: bool = False) -> AmoroError:
    status, details = error.code(), error.details() or ""
    sent = next((item.value for item in error.trailing_metadata() or () if item.key == "amoro-hint-bin"), "")
    hint = sent.decode("utf-8", "replace") if isinstance(sent, bytes) else ""
    if status in _RETRIED:
        return CoordinatorUnavailable(f"the coordinator at {address} does not answer: {short_details(details)}")
    if status == grpc.StatusCode.UNAUTHENTICATED:
        if registering:
            return NotAllowed(details, hint="Give the enrolment token of the coordinator with --token-file.")
        return UnknownToken(details)
    if status == grpc.StatusCode.NOT_FOUND and registering:
        return GroupNotFound(details, hint=hint)
    if status in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION) and registering:
        return InvalidSettings(details, hint=hint)
    return AmoroError(f"{status.name}: {details}")

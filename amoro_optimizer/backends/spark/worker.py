"""The code that runs in Spark's Python workers: the work of one attempt for each element."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from amoro_core.errors import AmoroError, OptimizerError
from amoro_core.model.task_payload import WorkResult
from amoro_core.model.text_sanitizing import briefly, without_secrets
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_optimizer.backends.spark.driver_channel import Superseded, WorkerLine, connected
from amoro_optimizer.execution import steady_s
from amoro_optimizer.work_kinds import Run, installed_kinds

#: The only part of a job of one task.
WHOLE = "task"
#: How long a worker whose executor has ended may take to remove what it wrote.
HANG_UP_S = 30


@dataclass(frozen=True, slots=True, repr=False)
class Assignment:
    """What is sent to a worker: messages of the contract, and where the driver listens."""

    attempt: bytes  # TaskAttempt
    kind: str
    work: bytes  # the kind's message
    io_properties: Mapping[str, str]
    memory_bytes: int
    driver: tuple[str, int]
    key: bytes
    job: str
    blob: bytes = b""  # that the kind needs

    def __repr__(self) -> str:
        return f"Assignment({self.job})"  # credentials and key stay out of tracebacks


def run_partition(assignments: Iterable[Assignment]) -> Iterator[bytes]:
    """The result of each assignment, as a TaskResult."""
    context = TaskContext.get()
    if context is None:
        raise OptimizerError("this runs in Spark's Python workers only")
    # An executor has one worker for each of its cores: Arrow must not take all cores in each of them.
    pa.set_cpu_count(max(1, context.cpus()))
    for assignment in assignments:
        with hang_up_noted() as is_hung_up:
            result = run_assignment(assignment, context.taskAttemptId(), is_hung_up)
        yield result


@contextmanager
def hang_up_noted() -> Iterator[Callable[[], bool]]:
    """Defer SIGHUP to the end of the block; yields a predicate whether it was received.

    Spark's daemon sends it to its workers when the executor has ended, for example because the driver was killed, when
    only they can remove the files they have begun. A stuck worker is ended all the same.
    """
    heard: list[int] = []  # a handler takes no lock

    def note(number: int, frame: object) -> None:
        heard.append(number)
        signal.alarm(HANG_UP_S)

    before = signal.signal(signal.SIGHUP, note)
    try:
        yield lambda: bool(heard)
    finally:
        signal.signal(signal.SIGHUP, before)
        if heard:
            os.kill(os.getpid(), signal.SIGHUP)


def run_assignment(assignment: Assignment, execution: int, is_hung_up: Callable[[], bool]) -> bytes:
    """Do the work, as that execution of the driver's job; the TaskResult says what came of it, failures too.

    Failures are values, so that Spark repeats what was lost only. Raises Superseded, which Spark must not take for one.
    """
    result = pb.TaskResult(attempt=pb.TaskAttempt.FromString(assignment.attempt))
    try:
        with connected(assignment.driver, assignment.key, assignment.job, WHOLE, execution) as line:
            try:
                codec.put_result(result, _executed(assignment, result.attempt, line, is_hung_up))
            except AmoroError:
                if line.is_superseded:
                    raise Superseded(f"a newer execution of {WHOLE} has begun") from None
                raise
    except Superseded:
        raise
    except Exception as error:
        code, message = failure_of(error)
        result.failure.CopyFrom(pb.TaskFailure(code=code, message=message))
    return result.SerializeToString()


def failure_of(error: Exception) -> tuple[str, str]:
    """The code of a failure in a worker, and its message with the hint, without secrets.

    Unexpected failures are also written to the executor's log, which others may read.
    """
    if isinstance(error, AmoroError):
        return error.code, f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, MemoryError):
        return OptimizerError.code, "out of memory"
    sys.stderr.write(without_secrets(traceback.format_exc()))
    return OptimizerError.code, without_secrets(briefly(f"{type(error).__name__}: {error}", 1000))


def _executed(
    assignment: Assignment, attempt: pb.TaskAttempt, line: WorkerLine, is_hung_up: Callable[[], bool]
) -> WorkResult:
    kind = installed_kinds().of(assignment.kind)
    access = kind.open(assignment.work, assignment.io_properties)
    access.on_create = line.announce
    run = Run(
        codec.decode_attempt(attempt),
        assignment.io_properties,
        assignment.memory_bytes,
        on_progress=line.progress,
        is_cancelled=lambda: is_hung_up() or line.is_stopped,
        fetch=lambda name: assignment.blob,
        age_s=_age(line),
    )
    return WorkResult(assignment.kind, kind.execute(assignment.work, access, run))


def _age(line: WorkerLine) -> Callable[[], float]:
    """The age of the attempt's ack: requested from the driver on first use, and counted locally from then on.

    Local counting starts before the request, so that the age is never too low, whatever the machines' clocks.
    """
    requested: list[float] = []

    def age_s() -> float:
        if not requested:
            asked_s = steady_s()
            requested.append(asked_s - line.ask_age())
        return steady_s() - requested[0]

    return age_s

"""What runs in Spark's Python workers: the work of one attempt for each element, as in all optimizers."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from amoro_core.errors import AmoroError, OptimizerError
from amoro_core.files.io import FileAccess
from amoro_core.model.secrets import without_secrets
from amoro_core.model.texts import briefly
from amoro_core.model.work import WorkResult
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_optimizer.backends.spark.channel import WorkerLine, connected
from amoro_optimizer.kinds import Run, installed_kinds

#: How long a worker whose executor has ended may take to remove what it wrote.
HANG_UP_S = 30


@dataclass(frozen=True, slots=True, repr=False)
class Assignment:
    """What a worker is sent: messages of the contract, and where the driver listens."""

    attempt: bytes  # TaskAttempt
    kind: str
    work: bytes  # the kind's message
    io_properties: Mapping[str, str]
    memory_bytes: int
    driver: tuple[str, int]
    key: bytes
    job: str

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
        with _hang_up_noted() as is_hung_up:
            result = run_assignment(assignment, context.taskAttemptId(), is_hung_up)
        yield result


@contextmanager
def _hang_up_noted() -> Iterator[Callable[[], bool]]:
    """Within the block SIGHUP does not end this process: what is yielded tells of it, the end comes after it.

    By it Spark's daemon ends its workers when the executor has ended, for example since the driver was killed, so that
    nobody else removes what they have begun. One that is stuck is ended all the same.
    """
    hung_up = threading.Event()

    def note(number: int, frame: object) -> None:
        hung_up.set()
        signal.alarm(HANG_UP_S)

    before = signal.signal(signal.SIGHUP, note)
    try:
        yield hung_up.is_set
    finally:
        signal.signal(signal.SIGHUP, before)
        if hung_up.is_set():
            os.kill(os.getpid(), signal.SIGHUP)


def run_assignment(assignment: Assignment, execution: int, is_hung_up: Callable[[], bool]) -> bytes:
    """Do the work, as that execution of the driver's job; the TaskResult says what came of it, failures too."""
    result = pb.TaskResult(attempt=pb.TaskAttempt.FromString(assignment.attempt))
    try:
        with connected(assignment.driver, assignment.key, assignment.job, execution) as line:
            codec.put_result(result, _executed(assignment, result.attempt, line, is_hung_up))
    except AmoroError as error:
        _fail(result, error)
    except MemoryError:
        _fail(result, OptimizerError("out of memory"))
    except Exception as error:
        # Into the executor's log, which others may read.
        sys.stderr.write(without_secrets(traceback.format_exc()))
        _fail(result, OptimizerError(without_secrets(briefly(f"{type(error).__name__}: {error}", 1000))))
    return result.SerializeToString()


def _executed(
    assignment: Assignment, attempt: pb.TaskAttempt, line: WorkerLine, is_hung_up: Callable[[], bool]
) -> WorkResult:
    kind = installed_kinds().of(assignment.kind)
    access = AnnouncingAccess(kind.open(assignment.work, assignment.io_properties), line)
    run = Run(
        codec.decode_attempt(attempt),
        assignment.io_properties,
        assignment.memory_bytes,
        on_progress=line.progress,
        is_cancelled=lambda: is_hung_up() or line.is_stopped,
    )
    return WorkResult(assignment.kind, kind.execute(assignment.work, access, run))


class AnnouncingAccess(FileAccess):
    """The same access, which tells the driver of each file before it is created."""

    def __init__(self, access: FileAccess, line: WorkerLine) -> None:
        vars(self).update(vars(access))
        self._line = line

    def create_output(self, path: str) -> Any:
        self._line.announce(path)
        return super().create_output(path)


def _fail(result: pb.TaskResult, error: AmoroError) -> None:
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    result.failure.CopyFrom(pb.TaskFailure(code=error.code, message=message))

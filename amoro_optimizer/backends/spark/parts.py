"""A part of a job of several stages, in a Python worker: its line to the driver, and what becomes of its failures."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext

from amoro_core.errors import OptimizerError
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_optimizer.backends.spark.channel import Superseded, WorkerLine, connected
from amoro_optimizer.backends.spark.worker import AnnouncingAccess, Assignment, hang_up_noted, told_of
from amoro_optimizer.kinds import Run, installed_kinds
from amoro_optimizer.rewrite.memory import choose_pool

Made = TypeVar("Made")


class Part:
    """One execution of a part."""

    def __init__(self, assignment: Assignment, line: WorkerLine, is_hung_up: Callable[[], bool]) -> None:
        self.payload = assignment.work
        kind = installed_kinds().of(assignment.kind)
        #: Access to the table's files, which tells the driver of each before it is created.
        self.access = AnnouncingAccess(kind.open(assignment.work, assignment.io_properties), line)
        self.run = Run(
            codec.decode_attempt(pb.TaskAttempt.FromString(assignment.attempt)),
            assignment.io_properties,
            assignment.memory_bytes,
            on_progress=line.progress,
            is_cancelled=lambda: is_hung_up() or line.is_stopped,
        )
        self._line = line
        self._began = time.monotonic()

    def conclude(self, facts: Mapping[str, int]) -> None:
        """Tell the driver at the end what the part took and made: these, and for how long it had a core.

        Raises AttemptAbandoned.
        """
        core_ms = round((time.monotonic() - self._began) * 1000)
        self._line.conclude({**facts, "core_ms": core_ms})


def in_part(stage: str, assignment: Assignment, do: Callable[[Part], Iterator[Made]]) -> Iterator[Made]:
    """What `do` makes in this partition of the stage, as one execution of that part.

    What fails in it is told to the driver, which ends the job: Spark is to repeat nothing for it, so the part ends
    as if nothing more came. Whatever the driver has not heard of is raised, so that Spark repeats the part; so is what
    ends because its executor has.
    """
    context = TaskContext.get()
    if context is None:
        raise OptimizerError("this runs in Spark's Python workers only")
    name = f"{stage} {context.partitionId()}"
    # An executor has one worker for each of its cores: Arrow must not take all cores in each of them.
    pa.set_cpu_count(max(1, context.cpus()))
    choose_pool()
    with (
        hang_up_noted() as is_hung_up,
        connected(assignment.driver, assignment.key, assignment.job, name, context.taskAttemptId()) as line,
    ):
        try:
            yield from do(Part(assignment, line, is_hung_up))
        except Exception as error:
            if line.is_superseded:
                raise Superseded(f"a newer execution of {name} has begun") from None
            if is_hung_up():  # its executor has ended, and with it this execution alone
                raise
            code, message = told_of(error)
            if not (line.is_over or line.fail(code, message)):
                raise OptimizerError(f"the driver is not reached: {message}") from None

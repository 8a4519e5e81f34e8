"""What an action works on and what it answers: a process with all that was stored of it, and the change to commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from amoro_core.model.commits import Evidence
from amoro_core.model.processes import CommitAttempt, OptimizingProcess, Receipt
from amoro_core.model.tables import TableRuntime
from amoro_core.model.work import Work


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task that has succeeded: its number, the kind of its work, and the kind's own messages."""

    number: int
    kind: str
    input: bytes = field(repr=False)
    output: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Case:
    """A process, with all that was stored of it."""

    process: OptimizingProcess
    runtime: TableRuntime
    results: tuple[TaskResult, ...]  # of the tasks that have succeeded, by number
    attempts: tuple[CommitAttempt, ...]  # in the order in which they were sent
    tasks: int  # all that were planned
    open_work: tuple[Work, ...] = ()  # of the tasks that have not succeeded (yet)


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be committed on the head that it was made for: staged, not yet visible to anybody."""

    payload: bytes = field(repr=False)  # requirements and updates, to be sent any number of times byte for byte
    evidence: Evidence  # by which the table shows that it landed
    receipt: Receipt  # as it stands if it lands
    groups: tuple[int, ...] = ()  # the tasks whose results it holds, by number
    files: tuple[str, ...] = ()  # data and delete files that it adds
    metadata_files: tuple[str, ...] = ()  # every file that was written for it
    dropped: Mapping[int, str] = field(default_factory=dict)  # tasks whose results it lacks, with the reason

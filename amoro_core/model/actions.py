"""Input and output of an action: a process with everything stored about it, and the change to commit."""

from collections.abc import Mapping
from dataclasses import field

from amoro_core.model.commits import Evidence
from amoro_core.model.processes import CommitAttempt, OptimizingProcess, Receipt
from amoro_core.model.tables import TableRuntime
from amoro_core.model.work import Work
from amoro_core.records import record


@record
class TaskResult:
    """A task that has succeeded: its number, the kind of its work, and the kind's own messages."""

    number: int
    kind: str
    input: bytes = field(repr=False)
    output: bytes = field(repr=False)


@record
class Case:
    """A process with everything stored about it."""

    process: OptimizingProcess
    runtime: TableRuntime
    results: tuple[TaskResult, ...]  # of the tasks that have succeeded, by number
    attempts: tuple[CommitAttempt, ...]  # in the order in which they were sent
    tasks: int  # all that were planned
    open_work: tuple[Work, ...] = ()  # of the tasks that have not succeeded (yet)
    undone_by: str = ""  # the process that took it back


@record
class Dropped:
    """Groups that can't be committed any more, with the reasons; nothing else of the process is ready."""

    groups: Mapping[int, str]


@record
class Change:
    """A staged change for one head: its files are written, but it is not visible to readers yet."""

    payload: bytes = field(repr=False)  # requirements and updates, to be sent any number of times byte for byte
    evidence: Evidence  # what the table shows once it landed
    receipt: Receipt  # valid if it lands
    groups: tuple[int, ...] = ()  # the tasks whose results it holds, by number
    files: tuple[str, ...] = ()  # data and delete files that it adds
    metadata_files: tuple[str, ...] = ()  # every file that was written for it
    dropped: Mapping[int, str] = field(default_factory=dict)  # tasks whose results it lacks, with the reason

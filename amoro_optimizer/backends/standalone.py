"""Executing work in the optimizer's own threads, without a JVM."""

from collections.abc import Sequence

from amoro_core.model.task_payload import Work, WorkResult
from amoro_optimizer.cluster.writing import free_disk
from amoro_optimizer.rewrite.spilling import default_spill_root, sweep_spills
from amoro_optimizer.work_kinds import Kinds, Run, installed_kinds

#: How many times the size of a group's files its rows may take while they are sorted.
_SPILL_FACTOR = 3


class InProcess:
    """A backend that works in the calling thread, within the run's memory limit.

    Spill files left by killed processes are removed first.
    """

    def __init__(self, kinds: Kinds | None = None) -> None:
        """`kinds`: by default those of this installation."""
        sweep_spills(default_spill_root())
        self._kinds = installed_kinds() if kinds is None else kinds

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of work that it can execute."""
        return self._kinds.names

    @property
    def max_cluster_bytes(self) -> int:
        """A third of the disk that is free for spill: sorting takes more bytes than the files have."""
        return free_disk(default_spill_root()) // _SPILL_FACTOR

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        """Do the work. Raises UnknownWork, and what the kind raises."""
        return self._kinds.execute(work, run)

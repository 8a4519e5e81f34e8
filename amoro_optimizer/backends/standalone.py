"""Work in the optimizer's own threads: no JVM."""

from collections.abc import Sequence

from amoro_core.model.work import Work, WorkResult
from amoro_optimizer.kinds import Kinds, Run, installed_kinds
from amoro_optimizer.rewrite.spilling import default_spill_root, sweep_spills


class InProcess:
    """A backend that works in the calling thread, within the memory that the run says.

    What a killed process has left of its spilled keys is removed first.
    """

    def __init__(self, kinds: Kinds | None = None) -> None:
        """`kinds`: those of this installation unless others are given."""
        sweep_spills(default_spill_root())
        self._kinds = installed_kinds() if kinds is None else kinds

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of work that it can execute."""
        return self._kinds.names

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        """Do the work. Raises UnknownWork, and what the kind raises."""
        return self._kinds.execute(work, run)

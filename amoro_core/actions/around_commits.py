"""What the engine of commits needs of its neighbours: what gathers before a commit, and what removes afterwards."""

from collections.abc import Callable, Iterable
from typing import Protocol

from amoro_core.actions.contract import Gathering
from amoro_core.errors import AmoroError
from amoro_core.events import get_logger
from amoro_core.formats.port import Committable, Role, lacking, with_roles
from amoro_core.model.actions import Case

log = get_logger("amoro.committing")


class Clearing(Protocol):
    """What removes files of processes."""

    def clear(self, process_id: str) -> None:
        """Remove what a process wrote down that it is to remove, and end it."""

    def clean_up(self, process_id: str) -> tuple[str, ...]:
        """Remove what a process has written that ended without commit."""

    def tidy(self, process_id: str) -> None:
        """Remove what lies empty beside the table's files, where that is the end of the process."""

    def remove(self, case: Case, paths: Iterable[str], since: int = 0) -> tuple[str, ...] | None:
        """Remove those of the files that no snapshot names; they were written before the table reached `since`."""


class Gatherer(Protocol):
    """What makes of results what a process does."""

    def gather(self, case: Case, action: Gathering) -> None:
        """Do what the results of all tasks come to."""


def remove_fallen(case: Case, table: Committable, kept: Callable[[], frozenset[str]]) -> None:
    """Delete what the commit has pushed out of the table's log, as far as nobody here needs it (`kept`)."""
    if lacking(table, (Role.EXPIRE,), case.process.type) is not None:
        return
    try:
        gone = with_roles(table, (Role.EXPIRE,), case.process.type).remove_fallen(kept)
    except AmoroError as error:
        log.warning("metadata.left_over", table=str(case.runtime.identifier), why=error.message)  # an orphan
        return
    if gone:
        log.info("metadata.removed", table=str(case.runtime.identifier), files=len(gone))

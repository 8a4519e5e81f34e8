"""What may run on a table at the same time: one process in each lane, and of some lanes one in both."""

from collections.abc import Iterable

from amoro_core.model.lanes import METADATA, STORAGE
from amoro_core.model.processes import OptimizingProcess, ProcessStatus

#: Lanes that exclude each other: what one removes from the metadata, the other takes for nobody's.
EXCLUDING: frozenset[frozenset[str]] = frozenset({frozenset({METADATA, STORAGE})})


def in_the_way(
    lane: str, active: Iterable[OptimizingProcess], excluding: frozenset[frozenset[str]] = EXCLUDING
) -> tuple[OptimizingProcess, str] | None:
    """The active process of the table that keeps another one from beginning in the lane, and why; None: it may begin.

    While it is not known whether a commit was applied nothing else begins, in any lane: what tells of it must stay.
    """
    for one in sorted(active, key=lambda item: item.process_id):
        if one.status == ProcessStatus.COMMIT_UNKNOWN:
            return one, "it is not known whether its commit was applied"
        if one.status == ProcessStatus.HELD:
            continue  # it begins anew when somebody confirms it
        if one.lane == lane:
            return one, f"it holds the lane {lane}"
        if frozenset({one.lane, lane}) in excluding:
            return one, f"the lanes {one.lane} and {lane} exclude each other"
    return None

"""Which processes may run on a table concurrently: one in each lane, and only one in lanes that exclude each other."""

from collections.abc import Iterable

from amoro_core.model.lanes import LAYOUT, METADATA, STORAGE
from amoro_core.model.processes import IN_NO_LANE, OptimizingProcess, ProcessStatus

#: Lanes that exclude each other: what one removes from the metadata, the other takes for nobody's.
EXCLUDING: frozenset[frozenset[str]] = frozenset({frozenset({METADATA, STORAGE})})
#: Lanes with the actions of other lanes that they exclude: data expiry takes whole files, whoever orders their rows.
APART: frozenset[tuple[str, str]] = frozenset({(LAYOUT, "expire-data")})


def in_the_way(
    lane: str,
    active: Iterable[OptimizingProcess],
    excluding: frozenset[frozenset[str]] = EXCLUDING,
    action: str = "",
    apart: frozenset[tuple[str, str]] = APART,
) -> tuple[OptimizingProcess, str] | None:
    """The active process of the table that prevents another one from starting in the lane, and why; None: it may start.

    `action` is that of the one which is to start.

    While it is unknown whether a commit was applied nothing else starts in any lane: the commit's evidence must stay.
    """
    for one in sorted(active, key=lambda item: item.process_id):
        if one.status == ProcessStatus.COMMIT_UNKNOWN:
            return one, "it is not known whether its commit was applied"
        if one.status in IN_NO_LANE:
            continue  # it is asked for its lane when it starts
        if one.lane == lane:
            return one, f"it holds the lane {lane}"
        if frozenset({one.lane, lane}) in excluding:
            return one, f"the lanes {one.lane} and {lane} exclude each other"
        if (lane, one.action) in apart or (one.lane, action) in apart:
            named, other = (one.action, lane) if (lane, one.action) in apart else (action, one.lane)
            return one, f"{named} and the lane {other} exclude each other"
    return None

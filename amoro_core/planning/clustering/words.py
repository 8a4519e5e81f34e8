"""The words of clustering's verdicts."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from amoro_core.model.plans import PartitionKey
from amoro_core.model.scans import ColumnChoice
from amoro_core.planning.clustering.facts import PartitionDepth
from amoro_core.planning.clustering.properties import COLUMNS_KEY

NO_SNAPSHOT = "nothing to do: the table has no snapshot"
NO_FILES = "nothing to do: the table has no data files"
NO_COLUMNS = "nothing to do: no columns are set"
_UNITS = (("TB", 1024**4), ("GB", 1024**3), ("MB", 1024**2), ("KB", 1024))


def size(size_bytes: int) -> str:
    """The size with its unit."""
    unit, factor = next(((unit, factor) for unit, factor in _UNITS if size_bytes >= factor), ("bytes", 1))
    return f"{size_bytes} bytes" if factor == 1 else f"{size_bytes / factor:.1f} {unit}".replace(".0 ", " ")


def count(number: int, noun: str) -> str:
    """The number with the noun in its number."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_last_clustered() -> str:
    """What is told of a layout that nobody has set."""
    return f"no columns are set: shown is the layout of the newest group; set {COLUMNS_KEY} for more to be clustered so"


def chosen(choice: ColumnChoice, reason: str) -> str:
    """The columns that `auto` has chosen, with what each of them adds, and why they stand."""
    each = ", ".join(f"{name} {share:.0%}" for name, share in choice.evidence.items())
    return (
        f"auto chose {', '.join(choice.columns)} on {choice.chosen_at:%Y-%m-%d} by {count(choice.scans, 'scan')}, "
        f"which it spares {choice.saved:.0%} of the bytes ({each}); {reason}"
    )


def left_out(why: str) -> str:
    """Why a partition is not looked at."""
    return f"nothing to do: {why}"


def quiet(until: datetime, quiet: timedelta) -> str:
    """Why a partition waits that others write to."""
    return f"nothing to do yet: others wrote within {quiet}; at {until:%Y-%m-%d %H:%M} UTC"


def too_little(unclustered: int, least: int) -> str:
    """Why the unclustered files of a partition wait for more."""
    if not unclustered:
        return "nothing to do: no unclustered files"
    return f"nothing to do: {size(unclustered)} unclustered, {size(least)} needed"


def shallow(ratio: float, trigger: float) -> str:
    """Why no trigger fires."""
    return f"nothing to do: a point query meets {ratio:.1f} × the files of a perfect layout, above {trigger:g} × is due"


def gains_little(ratio: float, reached: float) -> str:
    """Why what is unclustered stays so."""
    return (
        f"nothing to do: a point query meets {ratio:.1f} × the files of a perfect layout, clustering reaches about "
        f"{reached:.1f} ×"
    )


def no_groups() -> str:
    """Why nothing is planned though a trigger fires or a request was made."""
    return "nothing to do: no files that would gain together"


def pays_not_back(core_ms: int, spared_ms: float, within: timedelta) -> str:
    """Why it is not worth it by the scans that are known."""
    return (
        f"nothing to do: about {core_ms / 1000:.0f} CPU s, of which scans would spare {spared_ms / 1000:.1f} s a day, "
        f"and not all within {within.days} d"
    )


def taken() -> str:
    """Why nothing is planned where other plans have the files."""
    return "nothing to do yet: other plans have the unclustered files"


def by_depth(ratio: float, trigger: float) -> str:
    """Why a partition is due by its depth."""
    return f"a point query meets {ratio:.1f} × the files of a perfect layout, more than {trigger:g} ×"


def by_commits(commits: int, enough: int) -> str:
    """Why a partition is due by commits."""
    return f"{count(commits, 'commit')} since it was clustered, {enough} are enough"


def by_interval(last: datetime | None, interval: timedelta) -> str:
    """Why a partition is due by its interval."""
    return "never clustered" if last is None else f"clustered more than {interval} ago"


def by_tier(groups: int) -> str:
    """Why sealed groups become one."""
    return f"{groups} sealed groups of one tier overlap"


def by_request(unclustered: int, full: bool) -> str:
    """Why a requested partition is due."""
    return "asked for, groups in order too" if full else f"asked for: {size(unclustered)} unclustered"


def of_table(partitions: Sequence[PartitionDepth], path_of: Callable[[PartitionKey], str]) -> str:
    """The reason for the whole table: that of the first due partition, or why there is none."""
    due = [one for one in partitions if one.is_due]
    if due:
        first = due[0]
        more = f"; {len(due)} of {len(partitions)} partitions need work" if len(partitions) > 1 else ""
        return f"{_named(first, path_of)}{more}"
    if len(partitions) == 1:
        return partitions[0].reason
    waiting = [one for one in partitions if one.due_at is not None]
    if waiting:
        first = min(waiting, key=lambda one: (one.due_at, one.key.spec_id))
        return f"nothing to do in {len(partitions)} partitions; {_named(first, path_of)}"
    reasons = {one.reason for one in partitions}
    alike = f": {next(iter(reasons)).removeprefix('nothing to do: ')}" if len(reasons) == 1 else ""
    return f"nothing to do in {len(partitions)} partitions{alike}"


def _named(partition: PartitionDepth, path_of: Callable[[PartitionKey], str]) -> str:
    name = path_of(partition.key)
    return f"{name}: {partition.reason}" if name else partition.reason

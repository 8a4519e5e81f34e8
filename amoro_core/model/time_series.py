"""Values over time: which are kept, in which steps, and for how long."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType


class SeriesKind(StrEnum):
    """How the values of a step are read; the words are sent."""

    LEVEL = "level"  # sampled: the mean of a step is its sum by its count
    TOTAL = "total"  # what was added in a step is its sum; without anything it is 0
    STATE = "state"  # noted when it changed: it holds until the next value


@dataclass(frozen=True, slots=True)
class SeriesFacts:
    """What a series is."""

    kind: SeriesKind
    unit: str  # "" for a plain count
    label: str  # what its label names; "": it has none
    meaning: str


_LEVEL, _TOTAL, _STATE = SeriesKind.LEVEL, SeriesKind.TOTAL, SeriesKind.STATE

#: Series of the system and of groups, by name.
SYSTEM_SERIES: Mapping[str, SeriesFacts] = MappingProxyType(
    {
        "tables": SeriesFacts(_LEVEL, "", "", "Tables that are known."),
        "tables-pending": SeriesFacts(_LEVEL, "", "", "Tables that wait for a plan."),
        "tables-refused": SeriesFacts(_LEVEL, "", "", "Tables that are refused."),
        "backlog-age": SeriesFacts(_LEVEL, "seconds", "", "For how long the oldest pending table has waited."),
        "processes-active": SeriesFacts(_LEVEL, "", "", "Processes that have not ended."),
        "threads": SeriesFacts(_LEVEL, "", "group", "Threads of a group's optimizers."),
        "threads-busy": SeriesFacts(_LEVEL, "", "group", "Those of them that have a task."),
        "queue-tasks": SeriesFacts(_LEVEL, "", "group", "Tasks that wait for a thread of the group."),
        "queue-age": SeriesFacts(_LEVEL, "seconds", "group", "For how long the oldest process among them has waited."),
        "processes-ended": SeriesFacts(_TOTAL, "", "status", "Processes that ended, by their last status."),
        "bytes-rewritten": SeriesFacts(_TOTAL, "bytes", "", "Bytes of the files that processes replaced."),
        "files-removed": SeriesFacts(_TOTAL, "files", "", "Data and delete files fewer by what processes committed."),
        "rows-rewritten": SeriesFacts(_TOTAL, "rows", "", "Rows of the files that processes wrote."),
    }
)

#: Series of one table, by name, in the order of `TableFigures`.
TABLE_SERIES: Mapping[str, SeriesFacts] = MappingProxyType(
    {
        "health": SeriesFacts(_STATE, "", "", "The health score, 0 to 100; -1: not known."),
        "data-files": SeriesFacts(_STATE, "files", "", "Data files."),
        "small-files": SeriesFacts(_STATE, "files", "", "Fragments and undersized files."),
        "delete-files": SeriesFacts(_STATE, "files", "", "Position and equality deletes."),
        "data-bytes": SeriesFacts(_STATE, "bytes", "", "Bytes of the data files."),
        "records": SeriesFacts(_STATE, "rows", "", "Rows of the data files, deletes not subtracted."),
    }
)


@dataclass(frozen=True, slots=True)
class Step:
    """How long a step lasts, and how long its values are kept."""

    length: timedelta
    keep: timedelta

    @property
    def seconds(self) -> int:
        """The length in whole seconds."""
        return int(self.length.total_seconds())


#: Steps of the system's series, the finest first.
SYSTEM_STEPS = (
    Step(timedelta(minutes=1), timedelta(hours=48)),
    Step(timedelta(minutes=10), timedelta(days=30)),
    Step(timedelta(hours=2), timedelta(days=400)),
)
#: Steps of tables' series, the finest first.
TABLE_STEPS = (Step(timedelta(hours=1), timedelta(days=7)), Step(timedelta(days=1), timedelta(days=90)))
#: Groups that are sampled; more would make the series as large as the rest of the state.
MOST_GROUPS = 32
#: Points of one series, above which a coarser step is taken where nobody asks for one.
COMFORTABLE = 1500


@dataclass(frozen=True, slots=True)
class Sample:
    """A value to be added to its series."""

    name: str
    value: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """The values of one step. A step without any has no point: that is a gap."""

    at: datetime  # the beginning of the step
    n: int
    sum: int
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one series, by time."""

    name: str
    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class TableFigures:
    """The numbers of a table at a moment, in the order of `TABLE_SERIES`."""

    health: int
    data_files: int
    small_files: int
    delete_files: int
    data_bytes: int
    records: int


def fitting(steps: tuple[Step, ...], since: datetime, until: datetime, now: datetime) -> Step:
    """The finest step that is kept for so long and has no more than a comfortable number of points."""
    for step in steps:
        if now - since <= step.keep and (until - since) / step.length <= COMFORTABLE:
            return step
    return steps[-1]

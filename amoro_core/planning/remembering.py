"""What earlier evaluations found about partitions of the same table in which nothing has changed since."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from amoro_core.live.files import LiveFiles
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.plans import PartitionKey, PartitionVerdict
from amoro_core.model.tables import LastOptimized
from amoro_core.planning.partitions import PartitionFiles, PartitionStats
from amoro_core.records import record

#: Evaluations by other terms of which something is kept, such as those of clustering.
_TERMS = 2
#: Files in the work of all verdicts that are kept; a file takes about 2 kB.
MOST_FILES = 30_000


@record
class Decided:
    """The verdict of the triggers on a partition, and what it was made of besides the partition's files."""

    verdict: PartitionVerdict
    files: int  # in the verdict's work
    last: LastOptimized
    dangling: int
    since: datetime
    until: datetime | None  # when an interval ends; None: time alone changes nothing

    def holds(self, last: LastOptimized, dangling: int, now: datetime) -> bool:
        """Whether the triggers would say the same again."""
        in_time = self.since <= now and (self.until is None or now < self.until)
        return in_time and self.last == last and self.dangling == dangling


@record
class Remembered:
    """What was found about one partition; `stamp` is that of its files."""

    stamp: int
    stats: PartitionStats
    scores: tuple[int, int, int]
    decided: Decided | None = None


@record
class Terms:
    """What verdicts follow from beside a table's files."""

    config: OptimizingConfig
    kept: frozenset[str]  # the groups whose order stays
    folds: bool  # position delete files are to be folded into vectors


def remembered(files: LiveFiles, terms: Terms) -> Mapping[PartitionKey, Remembered]:
    """What was found by the same terms about partitions whose files are still the same."""
    known = dict(files.memory.found.get(terms, ()))
    stamps = zip(files.columns.places, files.stamps, strict=False)
    keys = ((PartitionKey(*place), stamp) for place, stamp in stamps)
    return {key: found for key, stamp in keys if (found := known.get(key)) is not None and found.stamp == stamp}


def remember(
    files: LiveFiles,
    terms: Terms,
    partitions: Sequence[PartitionFiles],
    scores: Iterable[tuple[int, int, int]],
    decided: Mapping[PartitionKey, Decided],
) -> None:
    """Keep what was found about all partitions, if their files can be recognised later."""
    if not files.stamps:
        return
    stamps = {PartitionKey(*place): stamp for place, stamp in zip(files.columns.places, files.stamps, strict=True)}
    found, room = {}, MOST_FILES
    for partition, points in zip(partitions, scores, strict=True):
        key, verdict = partition.key, decided.get(partition.key)
        if verdict is not None and verdict.files > room:
            verdict = None
        room -= 0 if verdict is None else verdict.files
        found[key] = Remembered(stamps[key], partition.stats, points, verdict)
    others = [(name, one) for name, one in files.memory.found.items() if name != terms]
    files.memory.found = dict([*others[1 - _TERMS :], (terms, found)])

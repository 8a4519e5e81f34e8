"""What clustering a group costs, and what readers gain by it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from math import floor, log2

from amoro_core.model.scans import ScanUse
from amoro_core.records import record

MB = 1024 * 1024
#: What a core reads of data in a second, as far as reads that are spared are concerned.
_READ_BYTES_PER_S = 100_000_000
#: The days of which scans are counted.
SCAN_DAYS = 7


@record
class Reading:
    """How a table is read in a day: sets of columns that are filtered by, with the number of such scans."""

    per_day: Mapping[frozenset[str], float]

    @property
    def is_known(self) -> bool:
        """Whether anybody told of a scan."""
        return bool(self.per_day)

    def spared_ms(self, size_bytes: int, columns: Mapping[str, tuple[float, float]]) -> float:
        """Milliseconds of a core in a day that scans need not read of so many bytes.

        `columns` has, by name, the share of the bytes that a point query on it reads, before and after.
        """
        spared = 0.0
        for filtered, scans in self.per_day.items():
            before = after = 1.0
            for name in filtered & columns.keys():
                before, after = before * columns[name][0], after * columns[name][1]
            spared += scans * size_bytes * max(0.0, before - after)
        return 1000 * spared / _READ_BYTES_PER_S


def reading_of(scans: Iterable[ScanUse], today: date) -> Reading:
    """The scans of the last days, as so many a day."""
    since = today - timedelta(days=SCAN_DAYS)
    counted = [one for one in scans if one.day > since]
    found: dict[frozenset[str], float] = {}
    for one in counted:
        columns = frozenset(item.column for item in one.filters)
        found[columns] = found.get(columns, 0.0) + one.scans / SCAN_DAYS
    return Reading(found)


def core_ms(size_bytes: int, per_mb: float) -> int:
    """The milliseconds of a core that so many bytes take, at least 1."""
    return max(1, round(size_bytes / MB * per_mb))


def pays_back(cost_ms: int, spared_ms_a_day: float, within: timedelta) -> bool:
    """Whether the reads that are spared in that time take as long as the work."""
    return cost_ms <= spared_ms_a_day * (within / timedelta(days=1))


def rank(gain: float) -> int:
    """Gains that are less than 1.4 times each other are about equal: the order of partitions decides between them."""
    return floor(2 * log2(gain)) if gain > 0 else -1000


def mean(values: Sequence[float]) -> float:
    """The mean; 1.0 of nothing."""
    return sum(values) / len(values) if values else 1.0

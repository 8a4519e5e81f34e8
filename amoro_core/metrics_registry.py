"""Counters, gauges and histograms that are kept in memory, from the start of the coordinator on."""

import shutil
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from time import monotonic

from amoro_core.model.metrics import BUCKETS_S, Metric, Sample
from amoro_core.model.tls_files import Certificates

#: A time series: a metric and the values of its labels.
Series = tuple[Metric, tuple[str, ...]]
Labels = tuple[str, ...]


class Meters:
    """What parts of the coordinator count and measure; any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[Series, float] = defaultdict(float)
        self._gauges: dict[Series, float] = {}
        self._durations: defaultdict[Series, _Durations] = defaultdict(_Durations)
        self._readers: dict[Metric, Callable[[], Mapping[Labels, float]]] = {}

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[metric, labels] += by

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._gauges[metric, labels] = value

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        with self._lock:
            self._durations[metric, labels].add(seconds)

    @contextmanager
    def timed(self, metric: Metric, *labels: str) -> Iterator[None]:
        """Observe how long the block takes, also one that raises."""
        begun = monotonic()
        try:
            yield
        finally:
            self.observe(metric, monotonic() - begun, *labels)

    def ask(self, metric: Metric, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Read a gauge with this function, each time that it is wanted."""
        self._readers[metric] = read

    def keep_only(self, metric: Metric, known: Iterable[Labels]) -> None:
        """Forget the series of a gauge whose labels are none of these."""
        wanted = set(known)
        with self._lock:
            gone = [series for series in self._gauges if series[0] is metric and series[1] not in wanted]
            for series in gone:
                del self._gauges[series]

    def values(self) -> dict[Series, float]:
        """Counters and gauges as they stand."""
        asked = {(metric, labels): v for metric, read in self._readers.items() for labels, v in read().items()}
        with self._lock:
            return {**self._counts, **self._gauges, **asked}

    def histograms(self) -> list[Sample]:
        """The histograms as they stand."""
        with self._lock:
            return [durations.sample(metric, labels) for (metric, labels), durations in self._durations.items()]


class _Durations:
    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BUCKETS_S, seconds)] += 1
        self._sum_s += seconds

    def sample(self, metric: Metric, labels: Labels) -> Sample:
        return Sample(metric.name, self._sum_s, labels, tuple(accumulate(self._counts)))


def free_part(home: Path) -> Mapping[tuple[str, ...], float]:
    """The free part of the disk with the directory, 0 to 1; nothing when it can't be told."""
    try:
        disk = shutil.disk_usage(home)
    except OSError:
        return {}
    # As `df` counts: what is reserved for root is neither free nor used.
    return {(): disk.free / max(1, disk.used + disk.free)}


def certificate_end(files: Certificates) -> Mapping[tuple[str, ...], float]:
    """When the certificate ends or has ended, in seconds since 1970; nothing while the file can't be read."""
    # Loaded only where calls are encrypted.
    from cryptography import x509

    try:
        own = x509.load_pem_x509_certificates(files.certificate.read_bytes())[0]
    except (OSError, ValueError):
        return {}
    return {(): own.not_valid_after_utc.timestamp()}

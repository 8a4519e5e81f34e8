"""The coordinator's metrics in one registry of prometheus-client; counters and histograms grow from its start."""

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from amoro_core.model.metrics import BUCKETS_S, Metric, MetricKind, MetricSample
from amoro_core.model.principals import Certificates

Labels = tuple[str, ...]
#: A time series: a metric and the values of its labels.
Series = tuple[Metric, Labels]
_FAMILIES = {MetricKind.GAUGE: GaugeMetricFamily, MetricKind.COUNTER: CounterMetricFamily}

disable_created_metrics()  # type: ignore[no-untyped-call]


class Meters:
    """What the coordinator counts and measures; any thread may call any method."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._lock = threading.Lock()
        self._counters: dict[Metric, Counter] = {}
        self._gauges: dict[Metric, Gauge] = {}
        self._histograms: dict[Metric, Histogram] = {}
        self._readers: dict[str, Callable[[], Mapping[Series, float]]] = {}

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter; `by` 0 makes the series appear."""
        with self._lock:
            if metric not in self._counters:
                self._counters[metric] = Counter(metric.name, metric.meaning, metric.labels, registry=self._registry)
        (self._counters[metric].labels(*labels) if labels else self._counters[metric]).inc(by)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        with self._lock:
            if metric not in self._gauges:
                self._gauges[metric] = Gauge(metric.name, metric.meaning, metric.labels, registry=self._registry)
        (self._gauges[metric].labels(*labels) if labels else self._gauges[metric]).set(value)

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        self._histogram(metric, labels).observe(seconds)

    def timed(self, metric: Metric, *labels: str) -> AbstractContextManager[object]:
        """Observe how long the block takes, also one that raises."""
        return self._histogram(metric, labels).time()

    def _histogram(self, metric: Metric, labels: Labels) -> Histogram:
        with self._lock:
            if metric not in self._histograms:
                self._histograms[metric] = Histogram(
                    metric.name, metric.meaning, metric.labels, registry=self._registry, buckets=BUCKETS_S
                )
        return self._histograms[metric].labels(*labels) if labels else self._histograms[metric]

    def ask(self, metric: Metric, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Read a metric with this function on each scrape."""
        self.ask_all(metric.name, lambda: {(metric, labels): value for labels, value in read().items()})

    def ask_all(self, source: str, read: Callable[[], Mapping[Series, float]]) -> None:
        """Read metrics with this function on each scrape; it replaces an earlier one of the same source."""
        self._readers[source] = read

    def keep_only(self, metric: Metric, current: Iterable[Labels]) -> None:
        """Forget the series of a gauge whose labels are none of these."""
        if (gauge := self._gauges.get(metric)) is not None:
            present = {tuple(sample.labels.values()) for family in gauge.collect() for sample in family.samples}
            for labels in present - set(current):
                gauge.remove(*labels)

    def collect(self) -> Iterator[Family]:
        """What is read on each scrape, as the registry wants it."""
        families: dict[Metric, Family] = {}
        for read in list(self._readers.values()):
            for (metric, labels), value in read().items():
                if metric not in families:
                    families[metric] = _FAMILIES[metric.kind](metric.name, metric.meaning, labels=metric.labels)
                families[metric].add_metric(labels, value)  # type: ignore[attr-defined]
        yield from families.values()

    def samples(self) -> list[MetricSample]:
        """All present values but those of histograms."""
        return [
            MetricSample(sample.name, sample.value, tuple(sample.labels.values()))
            for family in self._registry.collect()
            for sample in family.samples
            if family.type != "histogram"
        ]

    def exposed(self) -> bytes:
        """All present values in Prometheus's text format."""
        return generate_latest(self._registry)


def free_part(home: Path) -> Mapping[Labels, float]:
    """The free part of the disk with the directory, 0 to 1; empty if it can't be read."""
    try:
        disk = shutil.disk_usage(home)
    except OSError:
        return {}
    # As `df` counts: what is reserved for root is neither free nor used.
    return {(): disk.free / max(1, disk.used + disk.free)}


def certificate_end(files: Certificates) -> Mapping[Labels, float]:
    """When the certificate expires, in seconds since 1970; empty while the file can't be read."""
    # Loaded only where calls are encrypted.
    from cryptography import x509

    try:
        own = x509.load_pem_x509_certificates(files.certificate.read_bytes())[0]
    except (OSError, ValueError):
        return {}
    return {(): own.not_valid_after_utc.timestamp()}

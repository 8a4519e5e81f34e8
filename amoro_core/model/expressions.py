"""Expressions over metrics, which are evaluated here and written for Prometheus from one description."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from amoro_core.model.metrics import METRICS, Metric, MetricKind, Sample
from amoro_core.records import record

#: Values by the labels that an expression keeps.
Vector = Mapping[tuple[str, ...], float]
Series = tuple[str, tuple[str, ...]]  # a metric's name, and the values of its labels

_COUNTERS = frozenset(metric.name for metric in METRICS if metric.kind is MetricKind.COUNTER)


@record
class Counted:
    """The samples of a moment, and the counters as they stood an hour before (0 where they were not told)."""

    samples: Sequence[Sample]
    hour_ago: Mapping[Series, float] = field(default_factory=dict)
    now_s: float = 0.0  # since 1970


def counters(samples: Sequence[Sample]) -> dict[Series, float]:
    """The counters among the samples, as a later moment may compare with them."""
    return {(sample.name, sample.labels): sample.value for sample in samples if sample.name in _COUNTERS}


class Expression(Protocol):
    """Something that has values at a moment, by its labels."""

    @property
    def by(self) -> tuple[str, ...]:
        """The labels that it keeps."""

    def values(self, counted: Counted) -> Vector:
        """Its values; a series that is left out is not there, which is not 0."""

    def promql(self) -> str:
        """The same for Prometheus, with rates over an hour."""


@record
class Sum:
    """The sum of a metric's series by some labels; `where` admits series by the values of other labels."""

    metric: Metric
    by: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, counted: Counted) -> Vector:
        """The sums."""
        return _summed((labels, sample.value) for labels, sample in _chosen(self, counted))

    def promql(self) -> str:
        """sum by (…) (metric{…})."""
        return f"sum{_by(self.by)}({_selector(self)})"


@record
class Most:
    """The greatest value of a metric's series by some labels."""

    metric: Metric
    by: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, counted: Counted) -> Vector:
        """The greatest values."""
        found: dict[tuple[str, ...], float] = {}
        for labels, sample in _chosen(self, counted):
            found[labels] = max(sample.value, found.get(labels, -math.inf))
        return found

    def promql(self) -> str:
        """max by (…) (metric{…})."""
        return f"max{_by(self.by)}({_selector(self)})"


@record
class Least:
    """The smallest value of a metric's series by some labels."""

    metric: Metric
    by: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, counted: Counted) -> Vector:
        """The smallest values."""
        found: dict[tuple[str, ...], float] = {}
        for labels, sample in _chosen(self, counted):
            found[labels] = min(sample.value, found.get(labels, math.inf))
        return found

    def promql(self) -> str:
        """min by (…) (metric{…})."""
        return f"min{_by(self.by)}({_selector(self)})"


@record
class Grown:
    """By how much a counter has grown within the last hour."""

    metric: Metric
    by: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, counted: Counted) -> Vector:
        """The growth since an hour ago, or since the start where that is later."""
        return _summed(
            (labels, sample.value - counted.hour_ago.get((sample.name, sample.labels), 0.0))
            for labels, sample in _chosen(self, counted)
        )

    def promql(self) -> str:
        """Rounded, since Prometheus extrapolates between scrapes."""
        return f"round(sum{_by(self.by)}(increase({_selector(self)}[1h])))"


_Chosen = Sum | Most | Least | Grown


def _chosen(wanted: _Chosen, counted: Counted) -> Iterator[tuple[tuple[str, ...], Sample]]:
    """The samples that are meant, each with the values of the labels that are kept."""
    names = wanted.metric.labels
    for sample in counted.samples:
        if sample.name == wanted.metric.name:
            known = dict(zip(names, sample.labels, strict=True))
            if all(known[name] in admitted for name, admitted in wanted.where.items()):
                yield tuple(known[name] for name in wanted.by), sample


def _summed(items: Iterable[tuple[tuple[str, ...], float]]) -> Vector:
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for labels, value in items:
        sums[labels] += value
    return dict(sums)


def _by(labels: Sequence[str]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""


def _selector(wanted: _Chosen) -> str:
    matchers = [
        f'{name}="{values[0]}"' if len(values) == 1 else f'{name}=~"{"|".join(values)}"'
        for name, values in wanted.where.items()
    ]
    return wanted.metric.name + (f"{{{','.join(matchers)}}}" if matchers else "")

"""A histogram that takes many observations at once, also ones counted elsewhere, and a counter for
events of every message.

Prometheus's own histogram takes one observation at a time. A gateway makes a hundred thousand
deliveries a second, and its data plane counts its own; both are added here in one step for each
chunk of readers. Prometheus's own counter takes a lock each time, and a router counts each message
a dozen times. Only the event loop's thread adds to these two, so they need no lock. In ``/metrics``
they are a histogram and a counter like any other.

The number of label sets is bounded: beyond :data:`MOST` all further ones are ``other``.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

#: Label sets of one metric.
MOST: Final = 128
OTHER: Final = "other"
# Any message is a good example of its bucket: a new one every second is enough.
_EXAMPLE_SECONDS: Final = 1.0


class HistogramSums:
    """The observations of one label set, in seconds."""

    __slots__ = ("_bounds", "counts", "examples", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        # The count of each bucket alone; there is one bucket more than bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.examples: list[Exemplar | None] = [None] * (len(bounds) + 1)

    def observe(self, seconds: float, many: int = 1) -> None:
        """Add ``many`` observations of the same value."""
        self.counts[bisect.bisect_left(self._bounds, seconds)] += many
        self.sum += seconds * many

    def add(self, bucket: int, many: int) -> None:
        """Add ``many`` to a bucket (0 is the lowest) without a sum; ignore unknown buckets."""
        if 0 <= bucket < len(self.counts):
            self.counts[bucket] += many

    def add_sum(self, seconds: float) -> None:
        """Add the total time of the observations that :meth:`add` counted."""
        self.sum += seconds

    def exemplify(self, seconds: float, labels: Mapping[str, str]) -> None:
        """Store a message as an example of this delay, unless one was stored a moment ago."""
        bucket = bisect.bisect_left(self._bounds, seconds)
        now, last = time.time(), self.examples[bucket]
        if last is None or now >= float(last.timestamp or 0) + _EXAMPLE_SECONDS:
            self.examples[bucket] = Exemplar(dict(labels), seconds, now)


class Count:
    """The number of events of one label set."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def inc(self, many: int = 1) -> None:
        """Add ``many`` events."""
        self.total += many


class Counted(Collector):
    """A counter called ``name``, without ``_total``; ``labels`` are names of labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str]) -> None:
        self._name, self._help, self._names = name, help, tuple(labels)
        self._counts: dict[tuple[str, ...], Count] = {}

    def labels(self, *values: str) -> Count:
        """Return the count of these values, one for each label."""
        found = self._counts.get(values)
        if found is None:
            found = self._counts.setdefault(_bounded(values, self._names, self._counts), Count())
        return found

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Return the samples; Prometheus's client calls it."""
        family = CounterMetricFamily(self._name, self._help, labels=self._names)
        for values, count in self._counts.items():
            family.add_metric(values, count.total)
        return [family]

    def describe(self) -> Iterable[CounterMetricFamily]:
        """Return the family without samples, which reserves its name."""
        return [CounterMetricFamily(self._name, self._help, labels=self._names)]


class BulkHistogram(Collector):
    """A histogram of seconds called ``name``; ``labels`` are names of labels."""

    def __init__(
        self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name, self._help, self._names = name, help, tuple(labels)
        self._bounds = tuple(bounds)
        self._ends = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._sums: dict[tuple[str, ...], HistogramSums] = {}

    def labels(self, *values: str) -> HistogramSums:
        """Return the sums of these values, one for each label."""
        found = self._sums.get(values)
        if found is None:
            values = _bounded(values, self._names, self._sums)
            found = self._sums.setdefault(values, HistogramSums(self._bounds))
        return found

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Return the samples; Prometheus's client calls it."""
        family = HistogramMetricFamily(self._name, self._help, labels=self._names)
        for values, sums in self._sums.items():
            family.add_metric(values, self._cumulative(sums), sums.sum)
        return [family]

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """Return the family without samples, which reserves its name."""
        return [HistogramMetricFamily(self._name, self._help, labels=self._names)]

    def _cumulative(
        self, sums: HistogramSums
    ) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        total = 0
        for end, count, example in zip(self._ends, sums.counts, sums.examples, strict=True):
            total += count
            buckets.append((end, total) if example is None else (end, total, example))
        return buckets


def _bounded(
    values: tuple[str, ...], names: tuple[str, ...], known: Collection[object]
) -> tuple[str, ...]:
    """Return the ``values`` to count under; ValueError if they aren't one for each of ``names``."""
    if len(values) != len(names):
        raise ValueError(f"the labels are {', '.join(names)}")
    return values if len(known) < MOST else (OTHER,) * len(names)

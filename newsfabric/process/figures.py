"""Figures for operators, computed from a process's own metrics. Pure: samples and time in.

A gauge gives its value, a counter its growth per second over the last seconds, a histogram of
seconds its p50 and p99 over the last ten seconds. A figure has the name of its metric without
``newsfabric_`` and ``_total``, then the kept label's value if there is one, then ``p50`` or
``p99``: ``gateway_readers``, ``gateway_closes.slow_reader``, ``gateway_delay_seconds.p99``. So an
operator can find the metric of each figure.

The decision that a reader may question: rates are computed here, not by Prometheus. The board must
work where nothing scrapes, and a scraper that runs each fifteen seconds has no figure of the last
seconds.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

from newsfabric.json_fields import MAX_COUNT
from newsfabric.metrics import REGISTRY
from newsfabric.metrics.bulk import BulkHistogram, Counted

RATE_SECONDS: Final = 3.0
QUANTILE_SECONDS: Final = 10.0
# More frequent reads use the same past.
_LEAST_SECONDS: Final = 0.4
# Values of one kept label; the first ones stay. Labels are closed sets, so few are ever lost.
MAX_LABELS: Final = 16
_PREFIX: Final = "newsfabric_"
_QUANTILES: Final = {"p50": 0.5, "p99": 0.99}
_LEFT_OUT: Final = ("_created", "_sum", "_count")

Key = tuple[str, str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A metric to read. Its labels are summed, but ``label``, which is kept."""

    metric: Counter | Counted | Gauge | Histogram | BulkHistogram
    label: str | None = None

    @property
    def family(self) -> str:
        """The metric's name, a counter's without ``_total``."""
        return next(iter(self.metric.describe())).name


@dataclasses.dataclass(frozen=True, slots=True)
class _Look:
    """The values of the counters and the histograms' buckets at ``at``."""

    at: float
    counts: Mapping[Key, float]


class ProcessFigures:
    """A periodic reader of ``wanted``; call :meth:`read` about once a second."""

    def __init__(self, wanted: Sequence[Wanted], registry: CollectorRegistry = REGISTRY) -> None:
        self._labels = {one.family: one.label for one in wanted}
        self._kinds = {one.family: next(iter(one.metric.describe())).type for one in wanted}
        self._registry = registry.restricted_registry(
            [name for family in self._labels for name in _samples_of(family, self._kinds[family])]
        )
        self._known: dict[str, set[str]] = collections.defaultdict(set)
        self._past: collections.deque[_Look] = collections.deque()

    def read(self, now: float) -> dict[str, float]:
        """Return every figure at ``now`` (monotonic, in seconds).

        There is a rate from the second read on, one with a label only while it isn't 0, a quantile
        only while there were observations.
        """
        return self.of(self._registry.collect(), now)

    def of(self, families: Iterable[Metric], now: float) -> dict[str, float]:
        """Return the figures of ``families``, which were collected at ``now``."""
        figures: dict[str, float] = {}
        counts: dict[Key, float] = {}
        for family in families:
            if family.name in self._labels:
                self._add(family, figures, counts)
        look = _Look(now, counts)
        figures |= self._rates(look) | self._quantiles(look)
        self._keep(look)
        return {name: round(value, 6) for name, value in figures.items() if _is_sayable(value)}

    def _add(self, family: Metric, figures: dict[str, float], counts: dict[Key, float]) -> None:
        label = self._labels[family.name]
        for sample in family.samples:
            if sample.name.endswith(_LEFT_OUT) and family.type != "gauge":
                continue
            kept = "" if label is None else sample.labels.get(label, "")
            if not self._admits(family.name, kept):
                continue
            if family.type == "gauge":
                name = _figure(family.name, kept)
                figures[name] = figures.get(name, 0.0) + sample.value
            else:
                key = (family.name, kept, sample.labels.get("le", ""))
                counts[key] = counts.get(key, 0.0) + sample.value

    def _admits(self, family: str, value: str) -> bool:
        known = self._known[family]
        if value not in known and len(known) < MAX_LABELS:
            known.add(value)
        return value in known

    def _rates(self, look: _Look) -> dict[str, float]:
        before = self._before(look.at, RATE_SECONDS)
        if before is None:
            return {}
        seconds = look.at - before.at
        found: dict[str, float] = {}
        for (family, kept, le), value in look.counts.items():
            if self._kinds[family] != "counter":
                continue
            grown = max(0.0, value - before.counts.get((family, kept, le), 0.0))
            # Most labels of most counters don't change, and a report is sent each second.
            if grown or not kept:
                found[_figure(family, kept)] = grown / seconds
        return found

    def _quantiles(self, look: _Look) -> dict[str, float]:
        before = self._before(look.at, QUANTILE_SECONDS)
        if before is None:
            return {}
        buckets: dict[tuple[str, str], dict[float, float]] = collections.defaultdict(dict)
        for (family, kept, le), value in look.counts.items():
            if self._kinds[family] == "histogram":
                grown = value - before.counts.get((family, kept, le), 0.0)
                buckets[family, kept][float(le)] = max(0.0, grown)
        found: dict[str, float] = {}
        for (family, kept), grown_by in buckets.items():
            for name, share in _QUANTILES.items():
                value_or_none = quantile(grown_by, share)
                if value_or_none is not None:
                    found[f"{_figure(family, kept)}.{name}"] = value_or_none
        return found

    def _before(self, now: float, seconds: float) -> _Look | None:
        """Return the last values that are ``seconds`` old, or else the oldest."""
        found = None
        for look in self._past:
            if found is not None and now - look.at < seconds:
                break
            found = look
        return found if found is not None and found.at < now else None

    def _keep(self, look: _Look) -> None:
        past = self._past
        if past and look.at - past[-1].at < _LEAST_SECONDS:
            return
        past.append(look)
        while len(past) > 1 and look.at - past[1].at >= QUANTILE_SECONDS:
            past.popleft()


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return the ``share`` quantile of cumulative ``buckets``; None if they are empty.

    As in Prometheus: evenly within a bucket, and values above all bounds are at the last one.
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return None
    rank = share * buckets[bounds[-1]]
    low, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= rank and count > below:
            share_of_it = (rank - below) / (count - below)
            return low if math.isinf(bound) else low + (bound - low) * share_of_it
        if not math.isinf(bound):
            low = bound
        below = max(below, count)
    return low


def _samples_of(family: str, kind: str) -> list[str]:
    if kind == "counter":
        return [f"{family}_total"]
    return [f"{family}_bucket"] if kind == "histogram" else [family]


def _figure(family: str, kept: str) -> str:
    name = family.removeprefix(_PREFIX)
    return f"{name}.{kept}" if kept else name


def _is_sayable(value: float) -> bool:
    return -MAX_COUNT <= value <= MAX_COUNT

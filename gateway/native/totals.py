"""The data plane's counters, added to the gateway's own metrics.

Both engines' metrics have the same names, so that dashboards needn't know the engine. The data
plane reports totals since its start. Differences are added here, so that a control plane that
serves some readers itself can add to the same metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import Counter, Gauge

from gateway.feed.engine import Totals
from gateway.native.commands import SERIES
from gateway.process import measures
from newsfabric import metrics
from newsfabric.closing import ErrorCode
from newsfabric.metrics.bulk import BulkHistogram, Counted

_METRICS: Final[Mapping[str, Counter | Counted | Gauge | BulkHistogram]] = {
    "readers": measures.READERS,
    "connects": measures.CONNECTS,
    "closes": measures.CLOSES,
    "rejected": measures.REJECTED_CONNECTS,
    "deliveries": measures.DELIVERIES,
    "held_deliveries": measures.HELD,
    "delay": measures.DELAY,
    "behind": measures.BEHIND,
    "errors": measures.ERRORS,
    "verbs": measures.VERBS,
    "dropped": measures.DROPPED,
    "copies": measures.DUPLICATES,
    "evicted_early": measures.EVICTED_EARLY,
    "accept_pauses": measures.ACCEPT_PAUSES,
    "accepts": metrics.counter("gateway_accepts", "Connections accepted by the data plane"),
    "bad_requests": metrics.counter("gateway_bad_requests", "Malformed requests"),
    "handshake_timeouts": metrics.counter(
        "gateway_handshake_timeouts", "Requests whose head didn't arrive in time"
    ),
    "abandoned": metrics.counter(
        "gateway_abandoned_connections", "Connections that ended before their request was complete"
    ),
    "handovers": metrics.counter("gateway_handovers", "Requests given to the control plane"),
    "unavailable": metrics.counter(
        "gateway_unavailable_answers", "Requests refused because there was no control plane"
    ),
    "thread": metrics.gauge(
        "gateway_thread_connections", "Connections of each I/O thread", ["thread"]
    ),
}
# The data plane counts errors by name; the metric's label is the number.
_ERROR_NUMBERS: Final = {code.name.lower(): str(code.value) for code in ErrorCode}
_MICROSECONDS: Final = 1e-6


class DataPlaneTotals(Totals):
    """The counters of one data plane, or of several one after the other."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}

    def get(self, name: str, default: int = 0) -> int:
        """See :meth:`.Totals.get`."""
        return self._values.get(name, default)

    def update(self, values: Mapping[str, int]) -> None:
        """Take the data plane's new counters; counters of other names stay."""
        for name, value in values.items():
            self._change(name, value - self.get(name))
            self._values[name] = value

    def restart(self) -> None:
        """Start again: the data plane is gone with its readers, and the next one counts from 0."""
        for name, value in self._values.items():
            if isinstance(_METRICS.get(name.partition(".")[0]), Gauge):
                self._change(name, -value)
        self._values.clear()

    def _change(self, name: str, by: int) -> None:
        family, _, rest = name.partition(".")
        label = rest.partition(".")[0]
        if family == "errors":
            label = _ERROR_NUMBERS.get(label, label)
        match _METRICS.get(family):
            case Gauge() as gauge:
                gauge.labels(label).inc(by)
            case BulkHistogram() as histogram:
                _add(histogram, *rest.rpartition(".")[::2], max(0, by))
            case Counted() as counted:
                counted.labels(label).inc(max(0, by))
            case Counter() as counter:
                (counter.labels(label) if label else counter).inc(max(0, by))
        if family in ("readers", "connects", "deliveries"):
            setattr(self, family, getattr(self, family) + by)


def _add(histogram: BulkHistogram, series: str, what: str, by: int) -> None:
    """Add to a bucket, by its number, or to ``sum_us``; other names are another version's."""
    try:
        totals = histogram.labels(*(series.split(SERIES) if series else ()))
    except ValueError:
        return
    if what == "sum_us":
        totals.add_sum(by * _MICROSECONDS)
    elif what.isdecimal():
        totals.add(int(what), by)

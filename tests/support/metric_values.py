"""The value of a metric of this process, by its public interface."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import Metric


class _Collected(Protocol):
    def collect(self) -> list[Metric]: ...


def value(metric: _Collected) -> float:
    """Return the value of a counter or gauge; if it has labels, pass it with its labels."""
    samples = [sample for each in metric.collect() for sample in each.samples]
    [found] = [sample.value for sample in samples if not sample.name.endswith("_created")]
    return found

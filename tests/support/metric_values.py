"""What a metric of this process says, by its public side."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import Metric


class _Collected(Protocol):
    def collect(self) -> list[Metric]: ...


def value(metric: _Collected) -> float:
    """The value of a counter or gauge; one with labels is asked with its labels."""
    samples = [sample for each in metric.collect() for sample in each.samples]
    [found] = [sample.value for sample in samples if not sample.name.endswith("_created")]
    return found

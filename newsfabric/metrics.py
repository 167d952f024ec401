"""Prometheus metrics: one registry per process, names ``newsfabric_<service>_<what>_<unit>``.

Services declare their metrics as module-level constants on :data:`REGISTRY` with
:func:`counter`, :func:`gauge` and :func:`histogram`; pages serve :func:`exposition`.
Labels come from closed sets (reasons, classes, regions, topics' *patterns*), never from a
stranger's input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

# Publisher to reader is milliseconds in a region, tens between regions, seconds in trouble.
SECONDS: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1, 2, 4, 8, 30)


def counter(name: str, help: str, labels: Sequence[str] = ()) -> Counter:
    """A counter called ``newsfabric_<name>_total``."""
    return Counter(f"newsfabric_{name}", help, labels, registry=REGISTRY)


def gauge(name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
    """A gauge called ``newsfabric_<name>``."""
    return Gauge(f"newsfabric_{name}", help, labels, registry=REGISTRY)


def histogram(name: str, help: str, labels: Sequence[str] = ()) -> Histogram:
    """A histogram of seconds called ``newsfabric_<name>_seconds``."""
    return Histogram(f"newsfabric_{name}_seconds", help, labels, buckets=SECONDS, registry=REGISTRY)


def exposition() -> bytes:
    """All metrics of this process in the Prometheus text format."""
    return generate_latest(REGISTRY)

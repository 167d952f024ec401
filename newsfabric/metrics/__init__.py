"""Prometheus metrics: one registry per process, names ``newsfabric_<process kind>_<noun>_<unit>``.

Services declare their metrics as module-level constants on :data:`REGISTRY` with
:func:`counter`, :func:`counted`, :func:`gauge`, :func:`histogram` and :func:`bulk_histogram`, in
literals and always as ``metrics.counter(...)``: :mod:`observability.catalogue` reads them from the
source. Pages serve :func:`exposition`. Labels come from closed sets (reasons, classes, regions,
topics' *patterns*), never from a stranger's input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

from newsfabric.metrics.bulk import BulkHistogram, Counted

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

# Publisher to reader takes milliseconds in a region, tens between regions, seconds in trouble. The
# data plane has the same bounds (dataplane/src/delays.rs).
SECONDS: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1, 2, 4, 8, 30)


def counter(name: str, help: str, labels: Sequence[str] = ()) -> Counter:
    """Make a counter called ``newsfabric_<name>_total``."""
    return Counter(f"newsfabric_{name}", help, labels, registry=REGISTRY)


def counted(name: str, help: str, labels: Sequence[str] = ()) -> Counted:
    """Make a counter ``newsfabric_<name>_total`` that only the event loop adds to, and often."""
    made = Counted(f"newsfabric_{name}", help, labels)
    REGISTRY.register(made)
    return made


def gauge(name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
    """Make a gauge called ``newsfabric_<name>``."""
    return Gauge(f"newsfabric_{name}", help, labels, registry=REGISTRY)


def histogram(name: str, help: str, labels: Sequence[str] = ()) -> Histogram:
    """Make a histogram of seconds called ``newsfabric_<name>_seconds``."""
    return Histogram(f"newsfabric_{name}_seconds", help, labels, buckets=SECONDS, registry=REGISTRY)


def bulk_histogram(name: str, help: str, labels: Sequence[str] = ()) -> BulkHistogram:
    """Make a histogram ``newsfabric_<name>_seconds``, which takes many observations at once."""
    made = BulkHistogram(f"newsfabric_{name}_seconds", help, labels, SECONDS)
    REGISTRY.register(made)
    return made


def exposition(accept: str = "") -> tuple[bytes, str]:
    """Return all metrics of this process, and their content type.

    OpenMetrics, which alone has exemplars, if ``accept`` (a request's header) names it; else the
    Prometheus text format.
    """
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY), content_type

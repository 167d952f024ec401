"""The soak's definition of flat."""

from __future__ import annotations

import pytest

from bench.soak.__main__ import descriptors, memory
from bench.soak.processes import ProcessSample

MIB = 1 << 20


def samples(*mib: float) -> list[ProcessSample]:
    return [ProcessSample(float(at), int(rss * MIB), 10) for at, rss in enumerate(mib)]


@pytest.mark.parametrize(
    ("mib", "good"),
    [
        ([100.0] * 40, True),
        # The warm-up may grow without a bound.
        ([float(n) for n in range(10)] + [100.0] * 30, True),
        ([100.0] * 20 + [111.0] * 20, True),
        ([100.0] * 20 + [115.0] * 20, False),
        ([float(n) for n in range(100, 140)], False),
        # At a small size, a few MiB are a large percentage.
        ([5.0] * 20 + [12.0] * 20, True),
        ([5.0] * 20 + [14.0] * 20, False),
        # A single high sample is ignored.
        ([100.0] * 39 + [900.0], True),
    ],
)
def test_memory_is_flat_if_its_end_is_about_its_beginning(mib: list[float], good: bool) -> None:
    assert memory("it", samples(*mib)).good is good


@pytest.mark.parametrize(("after", "good"), [(5, True), (10, True), (18, True), (19, False)])
def test_descriptors_are_flat_if_no_more_are_open_than_before(after: int, good: bool) -> None:
    assert descriptors("it", ProcessSample(0, 1, 10), ProcessSample(1, 1, after)).good is good

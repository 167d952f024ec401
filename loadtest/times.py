"""Distributions of durations: each time in ms, with its count. Pure."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

#: Time in ms → count.
Times = Mapping[float, int]


def of_counts(counts: Iterable[Sequence[int]]) -> Times:
    """Return times from the reports of ``newsfabric-crowd``: pairs of µs and count."""
    return {us / 1000: often for us, often in counts}


def added(many: Iterable[Times]) -> Times:
    """Return the sum of ``many``."""
    total: collections.Counter[float] = collections.Counter()
    for times in many:
        total.update(times)
    # Not the Counter itself: dataclasses.asdict would count its items.
    return dict(total)


def share_of(times: Times, share: float) -> float | None:
    """Return the time below which that ``share`` of them is; None without any."""
    below = int(share * sum(times.values()))
    for ms in sorted(times):
        below -= times[ms]
        if below < 0:
            return ms
    return max(times, default=None)

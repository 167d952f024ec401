"""How long things took, of many: each time in ms, with how often it was there. Pure."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

#: Time in ms → how often.
Times = Mapping[float, int]


def of_counts(counts: Iterable[Sequence[int]]) -> Times:
    """From what ``newsfabric-crowd`` reports: pairs of µs and how often."""
    return {us / 1000: often for us, often in counts}


def added(many: Iterable[Times]) -> Times:
    """The sum of ``many``."""
    total: collections.Counter[float] = collections.Counter()
    for times in many:
        total.update(times)
    # Not the Counter itself: dataclasses.asdict would count its items.
    return dict(total)


def share_of(times: Times, share: float) -> float | None:
    """The time below which that ``share`` of them is; None of none."""
    below = int(share * sum(times.values()))
    for ms in sorted(times):
        below -= times[ms]
        if below < 0:
            return ms
    return max(times, default=None)

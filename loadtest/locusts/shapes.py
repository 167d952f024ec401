"""The numbers of readers and of messages, second by second. Pure.

``steady``           all readers within a tenth of the time; nothing else happens
``breaking_news``    a fifth of them; then all within a tenth of the time, and four times as many
                     messages; at last half of the readers leave
``reconnect_storm``  all readers; twice every connection is cut at once
``diurnal``          one day: a fifth of the readers at night, all at noon, messages with them

Times are seconds since the test began. Messages end at ``seconds``. Then follows the time to
settle, in which no reader arrives or leaves. It is prolonged while messages still arrive: if a load
test lacks processor time, its readers get messages late, and late ones aren't lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from loadtest.locusts.options import LocustOptions

_FEW: Final = 0.2
_NEWS: Final = 4.0
# Seconds without arrivals after which all has arrived; and the most seconds beyond ``settle``.
_QUIET: Final = 5.0
_LATEST: Final = 120.0
# breaking_news, in shares of the time: the news breaks, all are there, readers begin to leave.
_BREAKS, _ALL, _LEAVING, _LEFT = 0.3, 0.4, 0.8, 0.9


def readers_at(options: LocustOptions, at: float, quiet: float) -> int | None:
    """Return the number of readers to have; None when the test is over.

    ``quiet``: seconds since a message last arrived. Example: with 120 s and 10 s to settle, and
    messages that arrive until second 140, the test is over at second 145; if they never end, at
    250.
    """
    settled = at - options.seconds - options.settle
    if settled >= _LATEST or (settled >= 0 and quiet >= _QUIET):
        return None
    return min(options.readers, max(1, round(options.readers * _share(options, at))))


def dense_at(options: LocustOptions, at: float) -> int:
    """Return the number of readers that each crowd is to have."""
    return round(options.dense_each * _share(options, at))


def _share(options: LocustOptions, at: float) -> float:
    return _CURVES[options.shape](min(at / options.seconds, 1.0))


def messages_at(options: LocustOptions, at: float) -> float:
    """Return messages a second of all publishers together; 0 in the time to settle."""
    if at >= options.seconds:
        return 0.0
    part = at / options.seconds
    if options.shape == "breaking_news" and part >= _BREAKS:
        return options.messages * _NEWS
    if options.shape == "diurnal":
        return options.messages * _day(part)
    return options.messages


def storms(options: LocustOptions) -> tuple[float, ...]:
    """Return the times at which every connection is cut."""
    if options.shape != "reconnect_storm":
        return ()
    return (options.seconds / 3, options.seconds * 2 / 3)


def _steady(part: float) -> float:
    return min(1.0, part * 10)


def _breaking_news(part: float) -> float:
    if part < _BREAKS:
        return _FEW * min(1.0, part * 10)
    if part < _ALL:
        return _FEW + (1 - _FEW) * (part - _BREAKS) / (_ALL - _BREAKS)
    if part < _LEAVING:
        return 1.0
    return 1 - 0.5 * min(1.0, (part - _LEAVING) / (_LEFT - _LEAVING))


def _day(part: float) -> float:
    return _FEW + (1 - _FEW) * (1 - math.cos(2 * math.pi * part)) / 2


_CURVES: Final[dict[str, Callable[[float], float]]] = {
    "steady": _steady,
    "breaking_news": _breaking_news,
    "reconnect_storm": _steady,
    "diurnal": _day,
}

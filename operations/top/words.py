"""Texts of numbers, times and ages for a narrow column. Pure."""

from __future__ import annotations

import time
from typing import Final

UNKNOWN: Final = "-"
#: The last second of the year 9999.
LAST_DATE: Final = 253_402_300_799
_BARS: Final = "▁▂▃▄▅▆▇█"


def count(value: float | None) -> str:
    """Return a number in at most six characters: 12345, 123.4k, 1.2M."""
    if value is None:
        return UNKNOWN
    if value < 99_999.5:
        return f"{value:.0f}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if value < 999.95 * size:
            return f"{value / size:.1f}{unit}"
    return f"{value / 1e12:.3g}T"


def rate(value: float | None) -> str:
    """Return a rate a second as text: 0, 0.4, 37, 12345; None is unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if 0 < value < 9.95 else count(value)


def ms(value: float | None) -> str:
    """Return milliseconds as text: 0.4, 12, 1.2s; None is unknown."""
    if value is None:
        return UNKNOWN
    if value < 9.95:
        return f"{value:.1f}"
    return f"{value:.0f}" if value < 999.5 else span(value)


def span(value: float | None) -> str:
    """Return a duration, given in ms, as text: 0.8s, 12s, 3m, 5h, 9d."""
    if value is None:
        return UNKNOWN
    seconds = value / 1000
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    for unit, size, below in (("m", 60, 100), ("h", 3600, 100)):
        if seconds < size * below:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


def not_heard(value: float | None) -> str:
    """Return the text of a silence of ``value`` ms."""
    return f"not heard for {span(value)}"


def share(value: float | None, whole: float | None) -> str:
    """Return ``value`` in percent of ``whole``."""
    if value is None or not whole:
        return UNKNOWN
    return f"{min(999.0, 100 * value / whole):.0f}%"


def clock(at_ms: float | None) -> str:
    """Return the time of day in UTC, as in logs."""
    if not at_ms or at_ms > 1e14:
        return UNKNOWN
    return time.strftime("%H:%M:%S", time.gmtime(at_ms / 1000))


def figure(name: str, value: float) -> str:
    """Return the value of the metric ``name`` as text; a timestamp as a date."""
    metric = name.partition(".")[0]
    if metric.endswith("_timestamp_seconds") and 0 <= value <= LAST_DATE:
        return time.strftime("%Y-%m-%d", time.gmtime(value))
    return f"{value:.6g}"


def spark(values: list[float | None], width: int) -> str:
    """Return the last ``width`` values as bars, from zero to the largest; a space if unknown."""
    shown = values[-width:] if width > 0 else []
    largest = max((value for value in shown if value is not None), default=0.0)
    return "".join(" " if value is None else _bar(value, largest) for value in shown)


def _bar(value: float, largest: float) -> str:
    if largest <= 0:
        return _BARS[0]
    return _BARS[min(len(_BARS) - 1, int(value / largest * len(_BARS)))]

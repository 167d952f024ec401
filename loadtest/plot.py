"""Panels of lines over one axis, mostly of time, as SVG. Pure.

Written by hand instead of with a plotting library, for the reason in localfabric/chaos/plot.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 1100
_LEFT, _RIGHT, _TOP = 90, 30, 60
_PANEL: Final = 180
_GAP: Final = 56
_INK, _DIM, _GRID = "#1c2733", "#62707f", "#e3e8ee"
_COLORS: Final = ("#2563a8", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d")
# Seconds between two labels of the time axis.
_TICKS: Final = (1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 86400, 604800)
# Points of one line.
_MOST_POINTS: Final = 300


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line; as many values as there are times."""

    name: str
    values: Sequence[float]


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """Lines that share an axis from 0."""

    title: str
    lines: Sequence[Line]


def draw(
    title: str, times: Sequence[float], panels: Sequence[Panel], labels: Sequence[str] = ()
) -> str:
    """Return the picture; ``times`` in seconds.

    With ``labels`` the axis isn't one of time: it has steps, evenly spaced, with a label each.
    """
    marks = _clock_marks(times[-1]) if not labels else list(zip(times, labels, strict=True))
    height = _TOP + len(panels) * (_PANEL + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="26" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for n, panel in enumerate(panels):
        parts += _panel(panel, times, marks, _TOP + n * (_PANEL + _GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _clock_marks(last: float) -> list[tuple[float, str]]:
    """Return the places and texts of the labels of the time axis."""
    every = next(one for one in _TICKS if last / one <= 13)
    return [(n * every, _clock(n * every, last)) for n in range(int(last / every) + 1)]


def _panel(
    panel: Panel, times: Sequence[float], marks: Sequence[tuple[float, str]], top: float
) -> Iterator[str]:
    most = max((value for line in panel.lines for value in line.values), default=1.0) or 1.0
    step = 10 ** math.floor(math.log10(most)) / 2
    while most / step > 5:
        step *= 2
    last = times[-1]
    yield f'<text x="{_LEFT}" y="{top - 10}" font-weight="600">{escape(panel.title)}</text>'
    for n in range(int(most / step) + 1):
        y = _y(n * step, most, top)
        yield f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="{_GRID}"/>'
        yield _label(_LEFT - 8, y + 4, f"{n * step:,.6g}", "end")
    for at, label in marks:
        yield _label(_x(at, last), top + _PANEL + 16, label, "middle")
    for n, line in enumerate(panel.lines):
        color = _COLORS[n % len(_COLORS)]
        x = _WIDTH - _RIGHT - 140 * (len(panel.lines) - n)
        yield f'<rect x="{x}" y="{top - 18}" width="14" height="4" fill="{color}"/>'
        yield _label(x + 20, top - 11, line.name, "start")
        yield _polyline(line.values, times, most, top, color)


def _clock(seconds: int, last: float) -> str:
    """Return hours and minutes, or minutes and seconds if ``last`` is below an hour."""
    whole = seconds if last < 3600 else seconds // 60
    return f"{whole // 60}:{whole % 60:02d}"


def _polyline(
    values: Sequence[float], times: Sequence[float], most: float, top: float, color: str
) -> str:
    every = max(1, len(values) // _MOST_POINTS)
    points = []
    for n in range(0, len(values), every):
        # The highest of the values that share a point, so that no peak is lost.
        value = max(values[n : n + every])
        points.append(f"{_x(times[n], times[-1])},{_y(value, most, top)}")
    return (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="1.5"/>'
    )


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{_DIM}">{escape(text)}</text>'


def _x(at: float, last: float) -> float:
    return round(_LEFT + at / last * (_WIDTH - _LEFT - _RIGHT), 1)


def _y(value: float, most: float, top: float) -> float:
    return round(top + _PANEL * (1 - value / (most * 1.05)), 1)

"""Panels of lines over one axis, mostly of time, as SVG; faults are bands above them. Pure.

Written by hand, without a plotting library: this is a hundred lines of code, and a library would be
the largest dependency of the project.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 1200
_LEFT, _RIGHT, _TOP = 120, 30, 60
_BAND_LINE: Final = 20
_PANEL: Final = 190
_GAP: Final = 56
_INK, _DIM, _GRID = "#1c2733", "#62707f", "#e3e8ee"
_COLORS: Final = ("#2563a8", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d")
# Seconds between two labels of the time axis.
_TICKS: Final = (1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 86400, 604800)
# Points of one line.
_MOST_POINTS: Final = 300
# Seconds; a logarithmic axis begins here.
_FLOOR: Final = 0.001


@dataclasses.dataclass(frozen=True, slots=True)
class PlotLine:
    """A line; as many values as there are times. None leaves a hole in the line."""

    name: str
    values: Sequence[float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """Lines that share an axis from 0, or of ``durations``: a logarithmic one, of seconds."""

    title: str
    lines: Sequence[PlotLine]
    durations: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Band:
    """A fault from ``since`` to ``until``; faults of one ``kind`` share a line."""

    since: float
    until: float
    kind: str
    label: str


Mark = tuple[float, str]
Axis = Callable[[float], float]


def draw(
    title: str,
    times: Sequence[float],
    panels: Sequence[Panel],
    *,
    labels: Sequence[str] = (),
    bands: Sequence[Band] = (),
) -> str:
    """Return the picture; ``times`` in seconds.

    With ``labels`` the axis isn't one of time: it has steps, evenly spaced, with a label each.
    """
    kinds = list(dict.fromkeys(band.kind for band in bands))
    first = _TOP + _BAND_LINE * len(kinds) + (_GAP if kinds else 0)
    height = first + len(panels) * (_PANEL + _GAP)
    x = _axis(0, times[-1] or 1, _LEFT, _WIDTH - _RIGHT)
    marks = list(zip(times, labels, strict=True)) if labels else _clock_marks(times[-1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">',
        _rect(0, 0, _WIDTH, height, "#ffffff"),
        f'<text x="{_LEFT}" y="26" font-size="15" font-weight="600">{escape(title)}</text>',
        *_faults(bands, kinds, x, height - _GAP),
    ]
    for n, panel in enumerate(panels):
        parts += _panel(panel, times, marks, x, first + n * (_PANEL + _GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axis(low: float, high: float, start: float, end: float) -> Axis:
    return lambda value: round(start + (value - low) / (high - low) * (end - start), 1)


def _rect(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    at = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return (
        f'<rect {at} fill="{fill}"><title>{escape(title)}</title></rect>'
        if title
        else (f'<rect {at} fill="{fill}"/>')
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{_DIM}">{escape(text)}</text>'


def _faults(bands: Sequence[Band], kinds: Sequence[str], x: Axis, bottom: float) -> Iterator[str]:
    """Draw each fault in the line of its kind, and as a faint column through all panels."""
    for n, kind in enumerate(kinds):
        yield _text(_LEFT - 10, _TOP + _BAND_LINE * n + 14, kind, "end")
    for behind in (True, False):
        for band in bands:
            n = kinds.index(band.kind)
            left, width = x(band.since), max(3.0, round(x(band.until) - x(band.since), 1))
            if behind:
                yield _rect(left, _TOP, width, bottom - _TOP, "#f1f4f8")
            else:
                color = _COLORS[n % len(_COLORS)]
                yield _rect(
                    left, _TOP + _BAND_LINE * n + 4, width, _BAND_LINE - 7, color, band.label
                )


def _clock_marks(last: float) -> list[Mark]:
    """Return the places and texts of the labels of the time axis."""
    every = next(one for one in _TICKS if last / one <= 13)
    return [(n * every, _clock(n * every, last)) for n in range(int(last / every) + 1)]


def _clock(seconds: int, last: float) -> str:
    """Return hours and minutes, or minutes and seconds if ``last`` is below an hour."""
    whole = seconds if last < 3600 else seconds // 60
    return f"{whole // 60}:{whole % 60:02d}"


def _panel(
    panel: Panel, times: Sequence[float], marks: Sequence[Mark], x: Axis, top: float
) -> Iterator[str]:
    values = [value for line in panel.lines for value in line.values if value is not None]
    y, levels = (_durations if panel.durations else _amounts)(values, top)
    yield f'<text x="{_LEFT}" y="{top - 10}" font-weight="600">{escape(panel.title)}</text>'
    for value, label in levels:
        yield (
            f'<line x1="{_LEFT}" y1="{y(value)}" x2="{_WIDTH - _RIGHT}" y2="{y(value)}" '
            f'stroke="{_GRID}"/>'
        )
        yield _text(_LEFT - 8, y(value) + 4, label, "end")
    for at, label in marks:
        yield _text(x(at), top + _PANEL + 16, label, "middle")
    for n, line in enumerate(panel.lines):
        color = _COLORS[n % len(_COLORS)]
        left = _WIDTH - _RIGHT - 140 * (len(panel.lines) - n)
        yield _rect(left, top - 18, 14, 4, color)
        yield _text(left + 20, top - 11, line.name, "start")
        yield from _polylines(line.values, times, x, y, color)


def _amounts(values: Sequence[float], top: float) -> tuple[Axis, list[Mark]]:
    """Return an axis from 0, and its labels."""
    most = max(values, default=1.0) or 1.0
    step = 10 ** math.floor(math.log10(most)) / 2
    while most / step > 5:
        step *= 2
    levels = [(n * step, f"{n * step:,.6g}") for n in range(int(most / step) + 1)]
    return _axis(0, most * 1.05, top + _PANEL, top), levels


def _durations(values: Sequence[float], top: float) -> tuple[Axis, list[Mark]]:
    """Return a logarithmic axis from a millisecond, and its labels."""
    low, high = round(math.log10(_FLOOR)), math.ceil(math.log10(max([1.0, *values])))
    straight = _axis(low, high, top + _PANEL, top)
    levels = [
        (10.0**power, f"{10 ** (power + 3):g} ms" if power < 0 else f"{10**power:g} s")
        for power in range(low, high + 1)
    ]
    return lambda value: straight(math.log10(max(value, _FLOOR))), levels


def _polylines(
    values: Sequence[float | None], times: Sequence[float], x: Axis, y: Axis, color: str
) -> Iterator[str]:
    every = max(1, len(values) // _MOST_POINTS)
    run: list[str] = []
    for n in range(0, len(values) + every, every):
        # The highest of the values that share a point, so that no peak is lost.
        value = max((v for v in values[n : n + every] if v is not None), default=None)
        if value is not None:
            run.append(f"{x(times[n])},{y(value)}")
        elif run:
            # A value between two holes is a line without length, which round ends make visible.
            yield (
                f'<polyline points="{" ".join(run if len(run) > 1 else run * 2)}" fill="none" '
                f'stroke="{color}" stroke-width="1.5" stroke-linejoin="round" '
                f'stroke-linecap="round"/>'
            )
            run = []

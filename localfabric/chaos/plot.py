"""The picture of a chaos run as SVG: faults, rates and delays over one time axis. Pure.

Written by hand, without a plotting library: three panels of lines are a hundred lines of code, and
a library would be the largest dependency of the project.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 1200
_LEFT, _RIGHT, _TOP = 120, 30, 50
_ROW: Final = 20
_PANEL: Final = 190
_GAP: Final = 48
_INK, _DIM, _GRID = "#1c2733", "#62707f", "#e3e8ee"
_LINES: Final = ("#c2410c", "#2563a8", "#15803d")
_BANDS: Final = ("#c2410c", "#2563a8", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d")
_FLOOR: Final = 0.001


@dataclasses.dataclass(frozen=True, slots=True)
class Band:
    """A fault from ``since`` to ``until``; faults of one ``row`` share a line."""

    since: float
    until: float
    row: str
    label: str


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """Values, one a second; None leaves a hole in the line."""

    name: str
    values: Sequence[float | None]


def draw(
    *,
    title: str,
    seconds: int,
    bands: Sequence[Band],
    rates: Sequence[Series],
    delays: Sequence[Series],
    headings: tuple[str, str] = ("a second", "delay, by when it was sent"),
) -> str:
    """Return the picture. Rates are linear, delays (s) logarithmic; ``headings`` name them."""
    rows = list(dict.fromkeys(band.row for band in bands))
    first = _TOP + _ROW * len(rows) + _GAP
    second = first + _PANEL + _GAP
    height = second + _PANEL + 50
    x = _Axis(0, seconds, _LEFT, _WIDTH - _RIGHT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_LEFT, 26, title, size=15, weight=600),
        *_shades(bands, x, _TOP, second + _PANEL),
        *_time_axis(x, seconds, _TOP, second + _PANEL),
        *_faults(bands, rows, x),
        *_rates(rates, x, first, headings[0]),
        *_delays(delays, x, second, headings[1]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclasses.dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return round(self.start + share * (self.end - self.start), 1)


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, weight: int = 400
) -> str:
    fill = _INK if weight > 400 else _DIM
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{fill}">{escape(words)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_GRID}"/>'


def _shades(bands: Sequence[Band], x: _Axis, top: float, bottom: float) -> Iterator[str]:
    """Draw each fault as a faint column through all panels."""
    for band in bands:
        yield (
            f'<rect x="{x(band.since)}" y="{top}" width="{_width(band, x)}" '
            f'height="{bottom - top}" fill="#f1f4f8"/>'
        )


def _faults(bands: Sequence[Band], rows: Sequence[str], x: _Axis) -> Iterator[str]:
    for n, row in enumerate(rows):
        y = _TOP + _ROW * n
        yield _text(_LEFT - 10, y + 14, row, anchor="end")
        yield _line(_LEFT, y + _ROW, _WIDTH - _RIGHT, y + _ROW)
    for band in bands:
        n = rows.index(band.row)
        yield (
            f'<rect x="{x(band.since)}" y="{_TOP + _ROW * n + 4}" width="{_width(band, x)}" '
            f'height="{_ROW - 7}" rx="2" fill="{_BANDS[n % len(_BANDS)]}">'
            f"<title>{escape(band.label)}</title></rect>"
        )


def _width(band: Band, x: _Axis) -> float:
    return max(3.0, round(x(band.until) - x(band.since), 1))


def _time_axis(x: _Axis, seconds: int, top: float, bottom: float) -> Iterator[str]:
    step = next((s for s in (10, 30, 60, 120, 300) if seconds / s <= 12), 600)
    for at in range(0, seconds + 1, step):
        yield _line(x(at), top, x(at), bottom)
        yield _text(x(at), bottom + 18, f"{at // 60}:{at % 60:02d}", anchor="middle")


def _rates(series: Sequence[Series], x: _Axis, top: float, words: str) -> Iterator[str]:
    most = max((v for s in series for v in s.values if v is not None), default=1.0) or 1.0
    step = 10 ** math.floor(math.log10(most)) / 2
    while most / step > 5:
        step *= 2
    y = _Axis(0, most * 1.05, top + _PANEL, top)
    yield from _heading(words, series, top)
    for n in range(int(most / step) + 1):
        yield _line(_LEFT, y(n * step), _WIDTH - _RIGHT, y(n * step))
        yield _text(_LEFT - 10, y(n * step) + 4, f"{n * step:g}", anchor="end")
    for n, each in enumerate(series):
        yield from _polylines(each.values, x, y, _LINES[n])


def _delays(series: Sequence[Series], x: _Axis, top: float, words: str) -> Iterator[str]:
    values = [v for s in series for v in s.values if v is not None]
    high = math.ceil(math.log10(max([1.0, *values])))
    y = _Axis(math.log10(_FLOOR), high, top + _PANEL, top)
    yield from _heading(words, series, top)
    for power in range(-3, high + 1):
        label = f"{10 ** (power + 3):g} ms" if power < 0 else f"{10**power:g} s"
        yield _line(_LEFT, y(power), _WIDTH - _RIGHT, y(power))
        yield _text(_LEFT - 10, y(power) + 4, label, anchor="end")
    for n, each in enumerate(series):
        logs = [None if v is None else math.log10(max(v, _FLOOR)) for v in each.values]
        yield from _polylines(logs, x, y, _LINES[n])


def _heading(words: str, series: Sequence[Series], top: float) -> Iterator[str]:
    yield _text(_LEFT, top - 12, words, weight=600)
    at = _WIDTH - _RIGHT - 130 * len(series)
    for n, each in enumerate(series):
        yield (
            f'<rect x="{at + 130 * n}" y="{top - 20}" width="16" height="4" rx="2" '
            f'fill="{_LINES[n]}"/>'
        )
        yield _text(at + 130 * n + 22, top - 13, each.name)


def _polylines(values: Sequence[float | None], x: _Axis, y: _Axis, color: str) -> Iterator[str]:
    run: list[str] = []
    for second, value in enumerate([*values, None]):
        if value is not None:
            run.append(f"{x(second + 0.5)},{y(value)}")
            continue
        if run:
            points = " ".join(run if len(run) > 1 else [*run, run[0]])
            yield (
                f'<polyline points="{points}" fill="none" stroke="{color}" '
                f'stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round"/>'
            )
        run = []

"""The report of a load test: a page with plots, and the same as JSON. Pure except for writing."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from loadtest.locusts.options import LocustOptions
from loadtest.records import Census
from localfabric.plot import Panel, PlotLine, draw

#: Event, kind of user, count, failures; p50, p99 and maximum in ms.
Row = tuple[str, str, int, int, float, float, float]

_HEADINGS: Final = ("event", "who", "count", "failures", "p50, ms", "p99, ms", "most, ms")
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
    "color:#1c2733}table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right;"
    "border-bottom:1px solid #e3e8ee}td:first-child,th:first-child,td.who{text-align:left}"
    ".bad{color:#b91c1c}.good{color:#15803d}svg{max-width:100%}"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocustSample:
    """A moment: events per second, and p50 and p99 of the last ten seconds (ms; slowest kind)."""

    at: float
    readers: int
    connect: float
    receive: float
    resume: float
    publish: float
    doubled: float
    failures: float
    connect_ms: tuple[float, float]
    delay_ms: tuple[float, float]


def summary(found: Census, broken: Sequence[str]) -> str:
    """Return the run in one line."""
    kept = "; ".join(broken) if broken else "every promise was kept"
    return (
        f"{found.readers} readers, {found.owed} deliveries owed, {found.lost} lost, "
        f"{found.doubled} doubled: {kept}"
    )


def write_report(
    folder: Path,
    options: LocustOptions,
    samples: Sequence[LocustSample],
    found: Census,
    broken: Sequence[str],
    rows: Sequence[Row],
) -> None:
    """Write ``report.html`` and ``report.json`` into ``folder``, which exists."""
    # Paths of secret files are left out, too.
    given = {
        name: value
        for name, value in dataclasses.asdict(options).items()
        if not name.endswith("_file")
    }
    document = {
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
        "options": given,
        "census": dataclasses.asdict(found),
        "broken_promises": list(broken),
        "events": [dict(zip(_HEADINGS, row, strict=True)) for row in rows],
        "samples": [dataclasses.asdict(sample) for sample in samples],
    }
    (folder / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    page = "\n".join(_page(document["at"], options, samples, found, broken, rows))  # type: ignore[arg-type]
    (folder / "report.html").write_text(page + "\n", encoding="utf-8")


def plot(samples: Sequence[LocustSample], title: str) -> str:
    """Return the plots of all seconds, as SVG."""
    times = [sample.at for sample in samples]
    panels = [
        Panel("readers", [PlotLine("readers", [s.readers for s in samples])]),
        Panel("connects a second", [PlotLine("connects", [s.connect for s in samples])]),
        Panel(
            "deliveries a second",
            [
                PlotLine("live", [s.receive for s in samples]),
                PlotLine("after a resume", [s.resume for s in samples]),
            ],
        ),
        Panel(
            "delay from publish to receive, ms",
            [
                PlotLine("p50", [s.delay_ms[0] for s in samples]),
                PlotLine("p99", [s.delay_ms[1] for s in samples]),
            ],
        ),
        Panel(
            "connect time, ms",
            [
                PlotLine("p50", [s.connect_ms[0] for s in samples]),
                PlotLine("p99", [s.connect_ms[1] for s in samples]),
            ],
        ),
        Panel(
            "what went wrong, a second",
            [
                PlotLine("doubled", [s.doubled for s in samples]),
                PlotLine("failures", [s.failures for s in samples]),
            ],
        ),
    ]
    return draw(title, times, panels)


def _page(
    at: str,
    options: LocustOptions,
    samples: Sequence[LocustSample],
    found: Census,
    broken: Sequence[str],
    rows: Sequence[Row],
) -> Iterator[str]:
    readers = options.readers + options.dense
    title = f"Load test: {options.shape}, {readers:,} readers"
    yield f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    yield f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>"
    yield f'<p class="{"bad" if broken else "good"}">{escape(summary(found, broken))}</p>'
    cores, kernel = os.cpu_count(), escape(platform.release())
    yield f"<p>{at}; {cores} cores, Linux {kernel}. Locust's own page: "
    yield '<a href="locust.html">locust.html</a>; '
    yield 'all figures: <a href="report.json">report.json</a>.</p>'
    yield "<table>" + "".join(_facts(found)) + "</table>"
    yield "<h2>Events</h2><table><tr>"
    yield "".join(f"<th>{heading}</th>" for heading in _HEADINGS) + "</tr>"
    for what, who, *numbers in rows:
        cells = "".join(f"<td>{number:,.6g}</td>" for number in numbers)
        yield f'<tr><td>{escape(what)}</td><td class="who">{escape(who)}</td>{cells}</tr>'
    yield "</table><h2>Second by second</h2>"
    yield plot(samples, title) if len(samples) > 1 else "<p>It ended too soon for a plot.</p>"


def _facts(found: Census) -> Iterator[str]:
    for name, value in (
        ("readers who came", found.readers),
        ("messages with a receipt", found.messages),
        ("messages without one", found.unreceipted),
        ("deliveries owed", found.owed),
        ("… lost", found.lost),
        ("… not there yet when a reader left", found.late),
        ("… doubled", found.doubled),
        ("repeats after a reconnect, dropped by identity", found.repeats),
        ("resumes told that something may be missing", found.gaps),
        ("readers who were outside at the end", found.outside),
    ):
        yield f"<tr><td>{name}</td><td>{value:,}</td></tr>"

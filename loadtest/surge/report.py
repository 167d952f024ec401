"""The output of a surge for people and programs: report.md, report.json, plot.svg in a folder."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadtest.surge.figures import FLAT, Figures, SurgeSample, figures_document
from loadtest.surge.run import SurgeOptions
from loadtest.times import share_of
from localfabric.plot import Band as Bar
from localfabric.plot import Panel, PlotLine, draw


def write_report(
    folder: Path,
    samples: Sequence[SurgeSample],
    found: Figures,
    options: SurgeOptions,
    *,
    capacity: int,
) -> None:
    """Write all three files."""
    at = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    record = {
        "at": at,
        "cores": os.cpu_count(),
        "options": {**dataclasses.asdict(options), "capacity": capacity},
        "figures": figures_document(found),
        "boxes": boxes_over_time(samples),
        "samples": [_brief(sample) for sample in samples],
    }
    (folder / "report.json").write_text(json.dumps(record) + "\n", encoding="utf-8")
    (folder / "plot.svg").write_text(_plot(samples, found, capacity), encoding="utf-8")
    text = "\n".join(_markdown(found, samples, options, capacity=capacity, at=at)) + "\n"
    (folder / "report.md").write_text(text, encoding="utf-8")


def summary(found: Figures) -> str:
    """Return the run in one line."""
    flat = "unknown" if found.flat is None else f"{found.flat:.2f}"
    return (
        f"{found.most_present} readers, {found.boxes_at_first} → {found.boxes_at_most} → "
        f"{found.boxes_at_last} boxes, {found.refused_after} refused, {found.lost} of "
        f"{found.owed} deliveries lost, {found.doubled} doubled, connect p50 {flat} × the first"
    )


def boxes_over_time(samples: Sequence[SurgeSample]) -> list[dict[str, Any]]:
    """Return each change: its time, the readers, the boxes, and how many take readers."""
    rows: list[dict[str, Any]] = []
    before: tuple[tuple[str, ...], int] | None = None
    for sample in samples:
        now = (sample.started, sample.standing)
        if now != before:
            rows.append(
                {
                    "at": round(sample.at, 1),
                    "readers": sample.present,
                    "boxes": list(sample.started),
                    "standing": sample.standing,
                    "wanted": sample.wanted,
                }
            )
        before = now
    return rows


def _brief(sample: SurgeSample) -> dict[str, Any]:
    found = dataclasses.asdict(sample)
    found |= {"at": round(sample.at, 1), "started": len(sample.started)}
    for name in ("arrivals", "connects", "delays"):
        times = found[name]
        found[name] = {
            "count": sum(times.values()),
            "p50_ms": _rounded(share_of(times, 0.5)),
            "p99_ms": _rounded(share_of(times, 0.99)),
        }
    return found


def _markdown(
    found: Figures, samples: Sequence[SurgeSample], options: SurgeOptions, *, capacity: int, at: str
) -> Iterator[str]:
    yield f"# A surge: {summary(found)}"
    yield ""
    yield (
        f"{at}, {os.cpu_count()} cores for everything. {options.few} readers, then {options.many} "
        f"({options.rate:g} a second), then {options.few} again ({options.leave_rate:g} a second); "
        f"{options.messages:g} gold messages a second all the while; {capacity} readers a box."
    )
    yield ""
    yield "![readers, boxes and connect times](plot.svg)"
    yield ""
    broken = list(found.broken_promises())
    yield from (f"- **not kept: {text}**" for text in broken)
    if not broken:
        yield "Every promise was kept."
    yield ""
    yield "| | |"
    yield "| --- | ---: |"
    yield from (f"| {name} | {value} |" for name, value in _rows(found))
    yield ""
    yield "## Connect time by load"
    yield ""
    yield "From asking the frontdesk to `subscribed`, of readers who come for the first time."
    yield ""
    yield "| readers there | connects | p50 | p99 |"
    yield "| ---: | ---: | ---: | ---: |"
    for band in found.bands:
        yield f"| {band.least}–{band.most} | {band.connects} | {_ms(band.p50)} | {_ms(band.p99)} |"
    yield ""
    yield "## Boxes over time"
    yield ""
    yield "| at | readers | boxes started | take readers | wanted |"
    yield "| ---: | ---: | --- | ---: | ---: |"
    for row in boxes_over_time(samples):
        numbers = ", ".join(name.rpartition("-")[2] for name in row["boxes"])
        wanted = "" if row["wanted"] is None else row["wanted"]
        yield f"| {row['at']} s | {row['readers']} | {numbers} | {row['standing']} | {wanted} |"


def _rows(found: Figures) -> Iterator[tuple[str, str]]:
    yield "readers in all", str(found.readers)
    yield "at the same time", str(found.most_present)
    yield (
        "boxes at first, at most, at last",
        (f"{found.boxes_at_first}, {found.boxes_at_most}, {found.boxes_at_last}"),
    )
    yield "messages with a receipt", str(found.messages)
    yield "deliveries owed", str(found.owed)
    yield "… lost", str(found.lost)
    yield "… not there yet when a reader left, 10 s after they were sent", str(found.late)
    yield "… doubled", str(found.doubled)
    yield "repeats after a reconnect, dropped by identity", str(found.repeats)
    yield "readers refused, in all", str(found.refused)
    yield "… after the first new box stood", str(found.refused_after)
    yield "readers who never got in", str(found.never_in)
    yield "connections that nobody answered", str(found.failed)
    yield "connections that ended without a word", str(found.broken)
    yield "readers moved by a draining box", str(found.moved)
    yield "resumes told that something may be missing", str(found.gaps)
    yield "connect time, p50 and p99", f"{_ms(found.connect_p50)}, {_ms(found.connect_p99)}"
    flat = "unknown" if found.flat is None else f"{found.flat:.2f}"
    yield f"longest p50 of a tenth of the load ÷ first (≤ {FLAT})", flat
    yield (
        "delay from publisher to reader, p50 and p99",
        (f"{_ms(found.delay_p50)}, {_ms(found.delay_p99)}"),
    )
    least, most = found.machine_load
    yield "the machine's load average, least and most", f"{least:.1f}, {most:.1f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _ms(value: float | None) -> str:
    return "—" if value is None else f"{value:.1f} ms"


def _plot(samples: Sequence[SurgeSample], found: Figures, capacity: int) -> str:
    seconds = int(samples[-1].at) + 1
    by_second: dict[int, SurgeSample] = {int(sample.at): sample for sample in samples}
    line = [by_second.get(n) for n in range(seconds)]
    readers = [
        PlotLine("readers", [None if s is None else s.present for s in line]),
        PlotLine("room for", [None if s is None else s.standing * capacity for s in line]),
    ]
    times = [
        PlotLine("connect, p50", [_seconds(s, 0.5) for s in line]),
        PlotLine("connect, p99", [_seconds(s, 0.99) for s in line]),
    ]
    panels = [
        Panel("readers", readers),
        Panel("connect time, by when a reader was in", times, durations=True),
    ]
    return draw(summary(found), range(seconds), panels, bands=list(_bars(samples)))


def _seconds(sample: SurgeSample | None, share: float) -> float | None:
    found = None if sample is None else share_of(sample.arrivals, share)
    return None if found is None else found / 1000


def _bars(samples: Sequence[SurgeSample]) -> Iterator[Bar]:
    names = list(dict.fromkeys(name for sample in samples for name in sample.started))
    for name in names:
        there = [sample.at for sample in samples if name in sample.started]
        yield Bar(there[0], there[-1], name, name)

"""The table of a comparison: on the terminal, and as a report with a plot in a folder."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.meter import machine
from bench.peers.catalogue import OUR_OTHERS, OURS
from bench.peers.play import FLOOR, Plan, Run, as_json, median, ratios

_COLUMNS: Final = (
    "server", "CPU µs", "× floor", "least – most", "bytes/reader", "bytes/stalled", "readers/s",
    "p50 ms", "p99 ms", "p99.9 ms", "worst ms", "missing",
)  # fmt: skip
#: Figures that are compared; True if more is better, False if less is.
_BETTER: Final = {
    "cpu_us": False,
    "bytes_each": False,
    "bytes_stalled": False,
    "handshakes": True,
    "p50_ms": False,
    "p99_ms": False,
    "p999_ms": False,
}
_BAR, _LINE, _LEFT = 420, 24, 150


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """The results of one plan: runs by name, and the reasons why other peers have none."""

    plan: Plan
    found: Mapping[str, Sequence[Run]]
    failed: Mapping[str, str]


def rows(compared: Compared) -> Iterator[tuple[str, ...]]:
    """Yield a line for each server, as text; medians of its runs."""
    for name, runs in compared.found.items():
        compares = ratios(compared.found, name) if FLOOR in compared.found else None
        yield (
            name,
            _number(median(runs, "cpu_us"), 2),
            f"{compares[0]:.2f}" if compares else "",
            f"{compares[1]:.2f} – {compares[2]:.2f}" if compares else "",
            *(
                _number(median(runs, figure), 0)
                for figure in ("bytes_each", "bytes_stalled", "handshakes")
            ),
            *(
                _number(median(runs, figure), 1)
                for figure in ("p50_ms", "p99_ms", "p999_ms", "worst_ms")
            ),
            f"{sum(run.missing for run in runs):,}",
        )


def ahead(compared: Compared) -> list[str]:
    """Return the figures in which a peer's median is better than ours, as text."""
    if OURS not in compared.found:
        return []
    better = []
    for name, runs in compared.found.items():
        if name in (OURS, *OUR_OTHERS, FLOOR):
            continue
        for figure, more in _BETTER.items():
            theirs, our = median(runs, figure), median(compared.found[OURS], figure)
            if theirs is not None and our is not None and (theirs > our if more else theirs < our):
                better.append(f"{name}: {figure} {theirs:,.3g}, ours {our:,.3g}")
    return better


def print_tables(results: Sequence[Compared]) -> None:
    """Print a table for each plan, and the peers that are missing."""
    console = Console(width=max(Console().width, 150))
    for compared in results:
        table = Table(title=compared.plan.title)
        for column in _COLUMNS:
            table.add_column(column, justify="left" if column == "server" else "right")
        for row in rows(compared):
            table.add_row(*row)
        console.print(table)
        for line in (*_skipped(compared), *(f"ahead: {text}" for text in ahead(compared))):
            console.print(line, markup=False, highlight=False)


def write(folder: Path, results: Sequence[Compared], command: str, rounds: int) -> None:
    """Write report.md, report.json and a plot for each plan."""
    folder.mkdir(parents=True, exist_ok=True)
    document = [
        {"plan": dataclasses.asdict(one.plan), "runs": as_json(one.found), "failed": one.failed}
        for one in results
    ]
    about = {**machine(), "node": _node()}
    whole: dict[str, Any] = {"about": about, "command": command, "results": document}
    (folder / "report.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    lines = [
        "# The gateway beside its peers",
        "",
        f"`{command}`, {about['when']}: {rounds} rounds in turn, medians. {about['processor']}, "
        f"{about['cores']} cores; kernel {about['kernel']}; Python {about['python']}, "
        f"node {about['node']}.",
        "",
        "CPU is the server's, user and system, for one delivery to one reader; its ratio is to "
        "that of the floor (a loop of bare `send()` calls) in the same round. In a storm it is all "
        "that the server does from the cut until the last reader is back, deliveries too, for one "
        "reader that comes back. Memory for a reader that is stalled is beside that of any "
        "reader. In a storm delays are those of readers who stay. Delays are from when "
        "a message was due to be published until a reader had it. `newsfabric` is published to "
        "through a RabbitMQ broker, and its pushes say more than the payload; the others are "
        "given the payload by a pipe, or over HTTP (nchan, Mercure). Readers of `newsfabric-sse` "
        "and Mercure have Server-Sent Events, all others WebSocket.",
    ]
    for number, one in enumerate(results):
        plot = f"plot-{number + 1}.svg"
        (folder / plot).write_text(_plot(one), encoding="utf-8")
        lines += ["", f"## {one.plan.title}", "", f"![Processor time]({plot})", ""]
        lines += [_markdown(_COLUMNS), _markdown(["---", *["---:"] * (len(_COLUMNS) - 1)])]
        lines += [_markdown(row) for row in rows(one)]
        lines += ["", *(f"- {line}" for line in _skipped(one))]
        lines += [f"- ahead of us: {text}" for text in ahead(one)]
    (folder / "report.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _skipped(compared: Compared) -> list[str]:
    return [f"not run: {name}: {why}" for name, why in compared.failed.items()]


def _markdown(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _node() -> str:
    try:
        done = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return done.stdout.strip().removeprefix("v")


def _plot(compared: Compared) -> str:
    """Draw bars: processor time for one delivery."""
    values = {name: median(runs, "cpu_us") or 0.0 for name, runs in compared.found.items()}
    longest = max(values.values(), default=1.0) or 1.0
    width, height = _LEFT + _BAR + 90, _LINE * len(values) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="13">'
        f"<title>Processor time, {escape(compared.plan.title)}</title>"
        f'<rect width="100%" height="100%" fill="#fff"/>'
    ]
    for number, (name, value) in enumerate(sorted(values.items(), key=lambda each: each[1])):
        y = 5 + number * _LINE
        color = "#2563eb" if name == OURS else "#94a3b8"
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_LEFT}" y="{y + 3}" width="{value / longest * _BAR:.0f}" '
            f'height="{_LINE - 6}" fill="{color}"/>'
            f'<text x="{_LEFT + value / longest * _BAR + 6:.0f}" y="{y + 16}">{value:.2f} µs</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"

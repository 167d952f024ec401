"""Figures at several sizes of one thing: a table, a plot, a report. Pure, but for the writing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.rows import NotMeasured
from localfabric.plot import Panel, PlotLine, draw


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A column. A plot's legend has room for 22 letters of its name."""

    name: str
    unit: str
    digits: int = 2

    @property
    def title(self) -> str:
        """The name with its unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


@dataclasses.dataclass(frozen=True, slots=True)
class Growth:
    """A row of values, as many as there are ``figures``, for each size of the growing thing."""

    title: str
    grows: str
    figures: tuple[Figure, ...]
    steps: tuple[tuple[int, tuple[float, ...]], ...]
    #: A remark that no column contains.
    seen: str = ""

    @property
    def head(self) -> list[str]:
        """Titles of all columns."""
        return [self.grows, *(figure.title for figure in self.figures)]

    @property
    def rows(self) -> list[list[str]]:
        """All values as text."""
        digits = [figure.digits for figure in self.figures]
        return [_cells(size, values, digits) for size, values in self.steps]

    def as_json(self) -> dict[str, Any]:
        """Return everything for a file; each value beside its column's title."""
        titles = [figure.title for figure in self.figures]
        rows = [
            {self.grows: size, **dict(zip(titles, values, strict=True))}
            for size, values in self.steps
        ]
        digits = [figure.digits for figure in self.figures]
        return {"title": self.title, "rows": rows, "digits": digits, "seen": self.seen}

    def plot(self) -> str:
        """Return a plot with a panel for each unit; sizes are evenly spaced."""
        units = dict.fromkeys(figure.unit for figure in self.figures)
        panels = [Panel(unit or "ratio", self._lines(unit)) for unit in units]
        labels = [f"{size:,}" for size, _ in self.steps]
        return draw(self.title, range(len(labels)), panels, labels=labels)

    def _lines(self, unit: str) -> list[PlotLine]:
        return [
            PlotLine(figure.name, [values[column] for _, values in self.steps])
            for column, figure in enumerate(self.figures)
            if figure.unit == unit
        ]


Found = Mapping[str, Growth | NotMeasured]


def print_tables(found: Found) -> None:
    """Print one table for each part."""
    console = Console(width=max(Console().width, 110))
    for name, growth in found.items():
        if isinstance(growth, NotMeasured):
            console.print(escape(f"{name}: not measured: {growth.why}"))
            continue
        table = Table(title=growth.title, title_justify="left")
        for column in growth.head:
            table.add_column(column, justify="right")
        for row in growth.rows:
            table.add_row(*row)
        console.print(table)
        console.print(growth.seen, markup=False, highlight=False)


def write(folder: Path, found: Found, command: str, about: Mapping[str, str]) -> None:
    """Write report.md, report.json, and a plot for each part that has two sizes.

    Parts that the folder's report has, and that weren't measured now, stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = _parts_before(folder)
    for name, one in found.items():
        part = {"not_measured": one.why} if isinstance(one, NotMeasured) else one.as_json()
        parts[name] = {**part, "command": command, "about": dict(about)}
        if not isinstance(one, NotMeasured) and len(one.steps) > 1:
            (folder / f"{name}.svg").write_text(one.plot(), encoding="utf-8")
    text = json.dumps({"parts": parts}, indent=1, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")
    lines = [
        "# How costs grow",
        "",
        "CPU is processor time, user and system, of all threads. In plots sizes are evenly spaced. "
        "`python -m bench.growth --help` explains the parts.",
    ]
    for name, part in parts.items():
        lines += _section(name, part)
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _parts_before(folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / "report.json"
    if not file.exists():
        return {}
    parts: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["parts"]
    return parts


def _section(name: str, part: Mapping[str, Any]) -> list[str]:
    """Return the lines of report.md for one part of report.json."""
    about = part["about"]
    measured = (
        f"`{part['command']}`, {about['when']}: {about['processor']}, {about['cores']} cores, load "
        f"{about['load']} at its end; kernel {about['kernel']}; Python {about['python']}."
    )
    if "not_measured" in part:
        return ["", f"## {name}", "", f"Not measured: {part['not_measured']}", "", measured]
    rows = part["rows"]
    lines = ["", f"## {part['title']}", "", _markdown(list(rows[0]))]
    lines.append(_markdown(["---:"] * len(rows[0])))
    for row in rows:
        size, *values = row.values()
        lines.append(_markdown(_cells(size, values, part["digits"])))
    lines += ["", *([part["seen"], ""] if part["seen"] else []), measured]
    if len(rows) > 1:
        lines += ["", f"![{part['title']}]({name}.svg)"]
    return lines


def _cells(size: int, values: Sequence[float], digits: Sequence[int]) -> list[str]:
    return [f"{size:,}", *(f"{v:,.{d}f}" for v, d in zip(values, digits, strict=True))]


def _markdown(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"

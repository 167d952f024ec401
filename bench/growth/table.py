"""Figures at several sizes of one thing: a table, a plot, a report. Pure but for writing it."""

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
from loadtest.plot import Line, Panel, draw


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """What a column is. A plot's legend has room for 22 letters of its name."""

    name: str
    unit: str
    digits: int = 2

    @property
    def title(self) -> str:
        """With its unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


@dataclasses.dataclass(frozen=True, slots=True)
class Growth:
    """A row of values, as many as there are ``figures``, for each size of what ``grows``."""

    title: str
    grows: str
    figures: tuple[Figure, ...]
    steps: tuple[tuple[int, tuple[float, ...]], ...]
    #: What was seen that no column says.
    seen: str = ""

    @property
    def head(self) -> list[str]:
        """Titles of all columns."""
        return [self.grows, *(figure.title for figure in self.figures)]

    @property
    def rows(self) -> list[list[str]]:
        """All values as text."""
        return [
            [
                f"{size:,}",
                *(f"{v:,.{f.digits}f}" for v, f in zip(values, self.figures, strict=True)),
            ]
            for size, values in self.steps
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file; a value beside its column's title."""
        titles = [figure.title for figure in self.figures]
        rows = [
            {self.grows: size, **dict(zip(titles, values, strict=True))}
            for size, values in self.steps
        ]
        return {"title": self.title, "rows": rows, "seen": self.seen}

    def plot(self) -> str:
        """A panel for each unit; sizes are evenly spaced."""
        units = dict.fromkeys(figure.unit for figure in self.figures)
        panels = [Panel(unit or "ratio", self._lines(unit)) for unit in units]
        labels = [f"{size:,}" for size, _ in self.steps]
        return draw(self.title, range(len(labels)), panels, labels)

    def _lines(self, unit: str) -> list[Line]:
        return [
            Line(figure.name, [values[column] for _, values in self.steps])
            for column, figure in enumerate(self.figures)
            if figure.unit == unit
        ]


Found = Mapping[str, Growth | NotMeasured]


def print_tables(found: Found) -> None:
    """One table for each part."""
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
    """report.md, report.json, and a plot for each part that has two sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        name: {"not_measured": one.why} if isinstance(one, NotMeasured) else one.as_json()
        for name, one in found.items()
    }
    whole = {"about": about, "command": command, "parts": parts}
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")
    lines = [
        "# How costs grow",
        "",
        f"`{command}`, {about['when']}: {about['processor']}, {about['cores']} cores, load "
        f"{about['load']} at its end; kernel {about['kernel']}; Python {about['python']}. "
        "CPU is processor time, user and system, of all threads. In plots sizes are evenly spaced.",
    ]
    for name, growth in found.items():
        if isinstance(growth, NotMeasured):
            lines += ["", f"## {name}", "", f"Not measured: {growth.why}"]
            continue
        lines += ["", f"## {growth.title}", "", _markdown(growth.head)]
        lines += [_markdown(["---:"] * len(growth.head)), *map(_markdown, growth.rows)]
        if growth.seen:
            lines += ["", growth.seen]
        if len(growth.steps) > 1:
            (folder / f"{name}.svg").write_text(growth.plot(), encoding="utf-8")
            lines += ["", f"![{growth.title}]({name}.svg)"]
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _markdown(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"

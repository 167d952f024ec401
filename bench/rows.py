"""One figure of the bench, and the table of all."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured, what was asked of it, and what the floor is.

    ``floor`` is the same figure of what no server can beat (or of the bare chain of brokers),
    measured in the same run. At most one of the limits is set; with none the row is for comparison.
    """

    figure: str
    value: float
    unit: str
    digits: int = 1
    at_most: float | None = None
    at_least: float | None = None
    floor: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether it is what was asked; None if nothing was."""
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None

    @property
    def asked(self) -> str:
        """The limit as text."""
        if self.at_most is not None:
            return f"≤ {self.at_most:,g} {self.unit}"
        if self.at_least is not None:
            return f"≥ {self.at_least:,g} {self.unit}"
        return ""

    @property
    def measured(self) -> str:
        """The value as text."""
        return f"{self.value:,.{self.digits}f} {self.unit}"

    @property
    def ratio(self) -> str:
        """The value beside the floor, as text."""
        return f"{self.value / self.floor:.2f}" if self.floor else ""

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return dataclasses.asdict(self) | {"reached": self.reached}


def print_table(sections: Iterable[tuple[str, list[Row]]]) -> None:
    """All rows, a section for each part."""
    table = Table(title=f"newsfabric on {os.cpu_count()} cores, Python {platform.python_version()}")
    for column in ("figure", "measured", "asked", "× floor", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    marks = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}
    for name, rows in sections:
        table.add_section()
        table.add_row(f"[bold]{name}[/]")
        for row in rows:
            table.add_row(row.figure, row.measured, row.asked, row.ratio, marks[row.reached])
    Console(width=max(Console().width, 110)).print(table)

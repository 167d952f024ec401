"""A figure of the bench, or the reason why there is none, and the table of all."""

from __future__ import annotations

import dataclasses
import os
import platform
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from newsfabric.errors import SetupError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class BenchRow:
    """A measured value, its limit, and its floor.

    ``floor`` is the same figure of the least possible work (or of the bare chain of brokers),
    measured in the same run. At most one of the limits is set; without one the row only compares.
    """

    figure: str
    value: float
    unit: str
    _: dataclasses.KW_ONLY
    digits: int = 1
    at_most: float | None = None
    at_least: float | None = None
    floor: float | None = None

    @property
    def reached(self) -> bool | None:
        """True if the limit is kept; None without a limit."""
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
        """Return everything, for a file."""
        return dataclasses.asdict(self) | {"reached": self.reached}


@dataclasses.dataclass(frozen=True, slots=True)
class NotMeasured:
    """Takes the place of the rows of a part that could not run."""

    why: str


def measured(measure: Callable[[], T]) -> T | NotMeasured:
    """Return the result of a part, or the reason why there is none, for any error."""
    try:
        return measure()
    except SetupError as exc:
        return NotMeasured(str(exc))
    except Exception as exc:
        traceback.print_exc()
        return NotMeasured(f"{type(exc).__name__}: {exc}")


Section = tuple[str, list[BenchRow] | NotMeasured]


def as_json(sections: Iterable[Section]) -> dict[str, Any]:
    """Return all rows, or the reasons why there are none, by part."""
    return {
        name: {"not_measured": found.why}
        if isinstance(found, NotMeasured)
        else [row.as_json() for row in found]
        for name, found in sections
    }


def print_table(sections: Iterable[Section]) -> None:
    """Print all rows, a section for each part."""
    table = Table(title=f"newsfabric on {os.cpu_count()} cores, Python {platform.python_version()}")
    for column in ("figure", "measured", "asked", "× floor", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    marks = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}
    for name, found in sections:
        table.add_section()
        table.add_row(f"[bold]{name}[/]")
        if isinstance(found, NotMeasured):
            table.add_row(escape(f"not measured: {found.why}"))
            continue
        for row in found:
            table.add_row(row.figure, row.measured, row.asked, row.ratio, marks[row.reached])
    Console(width=max(Console().width, 110)).print(table)

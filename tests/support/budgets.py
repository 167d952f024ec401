"""Budgets: the worker-seconds that the tests of each folder may take, in tests/budgets.toml.

pytest-xdist's workers spend these seconds; the duration of a run is their sum by the number of
workers. ``--budgets`` prints a table of a whole run, and fails a run in which a folder takes more
than twice its budget and a minute. So much a busy machine may add.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

FILE: Final = Path(__file__).resolve().parents[1] / "budgets.toml"
#: The share of a budget that a folder may take, and the seconds that any folder may take beside it.
NOISE: Final = 2.0
SLACK: Final = 60.0
#: The row of the test files that are in no folder.
TOP: Final = "."


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetRow:
    """The worker-seconds of a folder's tests, and its budget; None: it has none."""

    folder: str
    seconds: float
    budget: float | None

    @property
    def is_over(self) -> bool:
        """True if the folder took more than noise explains, or has no budget."""
        return self.budget is None or self.seconds > NOISE * self.budget + SLACK


def read_budgets(file: Path = FILE) -> dict[str, float]:
    """Return the budget of each folder, in worker-seconds."""
    found: dict[str, float] = tomllib.loads(file.read_text("utf-8"))["worker-seconds"]
    return found


def folder_of(nodeid: str) -> str:
    """Return the folder of a test below tests/."""
    _, _, rest = nodeid.partition("::")[0].partition("/")
    folder, slash, _ = rest.partition("/")
    return folder if slash else TOP


def table(durations: Iterable[tuple[str, float]], budgets: Mapping[str, float]) -> list[BudgetRow]:
    """Return a row for each folder of these tests and seconds, the longest first."""
    seconds: dict[str, float] = {}
    for nodeid, took in durations:
        folder = folder_of(nodeid)
        seconds[folder] = seconds.get(folder, 0.0) + took
    rows = (BudgetRow(folder, took, budgets.get(folder)) for folder, took in seconds.items())
    return sorted(rows, key=lambda row: row.seconds, reverse=True)


def lines(rows: Iterable[BudgetRow]) -> list[str]:
    """Return the table as text: folder, seconds, budget."""
    text = [f"{'folder':20} {'seconds':>8} {'budget':>8}"]
    for row in rows:
        budget = "none" if row.budget is None else f"{row.budget:.0f}"
        over = "  over its budget" if row.is_over else ""
        text.append(f"{row.folder:20} {row.seconds:8.0f} {budget:>8}{over}")
    return text


class Budgets:
    """A plugin that adds up the durations of all tests of a run."""

    def __init__(self, budgets: Mapping[str, float]) -> None:
        self._budgets = budgets
        self._durations: list[tuple[str, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._durations.append((report.nodeid, report.duration))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and any(row.is_over for row in self._rows()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("worker-seconds by folder (tests/budgets.toml)")
        for line in lines(self._rows()):
            terminalreporter.line(line)

    def _rows(self) -> list[BudgetRow]:
        return table(self._durations, self._budgets)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budgets", action="store_true", help="compare the run with tests/budgets.toml"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Workers report to the process that started them.
    if config.getoption("budgets") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Budgets(read_budgets()))

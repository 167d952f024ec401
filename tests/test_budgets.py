"""tests/support/budgets.py: a folder that takes much longer than its budget fails a run in CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from budgets import TOP, BudgetRow, folder_of, lines, read_budgets, table

TESTS = Path(__file__).parent
SUPPORT = TESTS / "support"
#: The folder of code that tests share.
NOT_COUNTED = {"support"}


@pytest.mark.parametrize(
    ("nodeid", "folder"),
    [
        ("tests/e2e/test_chaos.py::test_a", "e2e"),
        ("tests/gateway/native/test_app.py::test_a[a/b]", "gateway"),
        ("tests/test_limits.py::test_a", TOP),
    ],
)
def test_a_test_belongs_to_the_folder_below_tests(nodeid: str, folder: str) -> None:
    assert folder_of(nodeid) == folder


def test_twice_a_budget_and_a_minute_is_noise_and_more_is_over_it() -> None:
    took = [("tests/e2e/test_a.py::test_a", 50.0), ("tests/e2e/test_b.py::test_b", 30.0)]
    took += [("tests/http/test_a.py::test_a", 80.1), ("tests/new/test_a.py::test_a", 0.1)]
    rows = table(took, {"e2e": 10.0, "http": 10.0})
    assert rows == [
        BudgetRow("http", 80.1, 10.0),
        BudgetRow("e2e", 80.0, 10.0),
        BudgetRow("new", 0.1, None),
    ]
    assert [row.is_over for row in rows] == [True, False, True]
    assert [line.split()[:3] for line in lines(rows)] == [
        ["folder", "seconds", "budget"],
        ["http", "80", "10"],
        ["e2e", "80", "10"],
        ["new", "0", "none"],
    ]


def test_each_folder_of_tests_has_a_budget_and_no_other_has() -> None:
    folders = {path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py"))}
    assert read_budgets().keys() == folders - NOT_COUNTED | {TOP}


@pytest.mark.parametrize(("options", "code"), [(["--budgets"], 1), ([], 0)])
def test_a_run_over_its_budget_fails(tmp_path: Path, options: list[str], code: int) -> None:
    (tmp_path / "tests" / "unheard_of").mkdir(parents=True)
    (tmp_path / "tests" / "unheard_of" / "test_a.py").write_text("def test_a(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-pbudgets", "-pno:cacheprovider", "-n1", *options],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("over its budget" in done.stdout) is bool(options)

"""A quick part of the Autobahn TestSuite on the data plane; ``make conformance`` runs all of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from autobahn import JUSTIFIED, QUICK, RESULTS, changes, faults, read, run, written
from gateways import ENGINES
from installed import installed

from newsfabric.errors import SetupError


@pytest.fixture
def wstest() -> Path:
    """Return the suite's program; else skip on a laptop, fail in CI if it could be had there."""
    try:
        return installed("autobahn")
    except SetupError as exc:
        # Debian and PyPI have no Python 2.7, so the project can't install it on an empty machine.
        if os.environ.get("CI") and "needs Python 2.7" not in str(exc):
            pytest.fail(f"CI must have the Autobahn TestSuite: {exc}")
        pytest.skip(str(exc))


@pytest.mark.timeout(900)
@pytest.mark.skipif("native" not in ENGINES, reason="the data plane isn't built: make dataplane")
async def test_the_data_plane_does_as_the_committed_results_say(wstest: Path) -> None:
    outcomes = await run(wstest, QUICK)
    assert len(outcomes) > 200
    assert faults(outcomes) == []
    assert changes(outcomes, read(RESULTS.read_text())) == []


def test_the_committed_results_have_no_fault() -> None:
    committed = read(RESULTS.read_text())
    assert len(committed) == 517
    assert faults(committed) == []
    assert written(committed) == RESULTS.read_text()


def test_every_exception_is_needed() -> None:
    committed = read(RESULTS.read_text())
    assert {case for case, (behaviour, _) in committed.items() if behaviour != "OK"} == set(
        JUSTIFIED
    )


def test_a_fault_and_a_change_are_seen() -> None:
    assert faults({"1.1.1": ("OK", "OK"), "7.1.6": ("INFORMATIONAL", "INFORMATIONAL")}) == []
    assert faults({"1.1.1": ("NON-STRICT", "OK"), "1.1.2": ("OK", "FAILED")}) == [
        "1.1.1: NON-STRICT, close OK",
        "1.1.2: OK, close FAILED",
    ]
    assert changes({"1.1.1": ("OK", "OK")}, {"1.1.1": ("OK", "OK")}) == []
    assert changes({"1.1.1": ("OK", "OK")}, {}) == ["1.1.1: was not run, is OK OK"]

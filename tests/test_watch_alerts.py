"""The report of scripts/watch-alerts on the data of a Prometheus."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from types import ModuleType
from typing import Any

import pytest
from worlds import ROOT


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load the script; a made-up Prometheus has two alerts and a process that was away once."""
    loader = importlib.machinery.SourceFileLoader(
        "watch_alerts", str(ROOT / "scripts" / "watch-alerts")
    )
    spec = importlib.util.spec_from_loader("watch_alerts", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)

    def series(values: list[str], **labels: str) -> dict[str, Any]:
        return {"metric": labels, "values": [[5 * n, value] for n, value in enumerate(values)]}

    late = {"__name__": "ALERTS", "alertname": "DelayHigh", "region": "oregon"}
    silent = {"__name__": "ALERTS", "alertname": "ShovelSilent", "region": "dublin"}
    remembered = {
        "ALERTS": [
            series(["1", "1"], **late, alertstate="pending"),
            series(["1", "1", "1"], **late, alertstate="firing"),
            series(["1"], **silent, alertstate="pending"),
        ],
        "up": [series(["1", "0", "1", "1"])],
    }
    monkeypatch.setattr(module, "_range", lambda _url, query, _began, _ended: remembered[query])
    return module


def test_it_says_how_long_each_alert_was_pending_and_fired(script: ModuleType) -> None:
    found = script.report("http://prometheus", 0.0, 90.0, [1.0, 4.0])
    assert found == {
        "minutes": 1.5,
        "load": {"mean": 2.5, "most": 4.0},
        "scraped": 0.75,
        "alerts": [
            {
                "alert": "DelayHigh",
                "about": "region=oregon",
                "pending_seconds": 10.0,
                "firing_seconds": 15.0,
            },
            {
                "alert": "ShovelSilent",
                "about": "region=dublin",
                "pending_seconds": 5.0,
                "firing_seconds": 0.0,
            },
        ],
    }
    assert script._words(found).splitlines()[1:] == [
        "DelayHigh (region=oregon): pending 10 s, firing 15 s",
        "ShovelSilent (region=dublin): pending 5 s, firing 0 s",
    ]


def test_it_says_that_there_was_none(script: ModuleType) -> None:
    found = script.report("http://prometheus", 0.0, 60.0, []) | {"alerts": []}
    assert script._words(found).splitlines()[1:] == ["no alert was pending or fired"]

"""A real Prometheus scrapes a world: dashboards have data, and alerts fire for faults."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from observability import grafana
from observability.dashboards import DASHBOARDS
from prometheus import Prometheus, running
from standing_worlds import Standing
from worlds import PORTS, World

pytestmark = [pytest.mark.world, pytest.mark.slow, pytest.mark.timeout(600)]

# Canaries count as silent after 20 s, and the machine may be busy.
PATIENCE = 180.0
# Apart from the worlds' ports.
PORT = PORTS + 1690
# Alerts that accompany any fault: a gateway that receives delayed messages, a process that waits
# for a dead one.
BESIDE = {
    "NewsfabricProcessNotReady",
    "NewsfabricDelayHigh",
    "NewsfabricHolesOpen",
    "NewsfabricReadersLost",
}


@contextlib.contextmanager
def _traffic(world: World) -> Iterator[None]:
    """Play a day of news to a reader in each region."""
    commands = [["replay", "examples/newsday.jsonl", "--speed", "600"]]
    commands += [["tail", "news.breaking", "--region", region] for region in ("oregon", "dublin")]
    started = [
        subprocess.Popen(
            world.command(*command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for command in commands
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def prometheus(
    standing: Standing, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Yield a Prometheus for all tests of this file, whose alerts don't wait."""
    world = standing.of("world", PORTS)
    targets = json.loads(world.run("targets").stdout)
    with running(tmp_path_factory.mktemp("watched"), PORT, targets, quick=True) as prometheus:
        yield prometheus


@pytest.fixture
def watched(world: World, prometheus: Prometheus) -> Iterator[tuple[World, Prometheus]]:
    """Yield a healthy world with traffic, whose earlier alerts have ended, and the Prometheus."""
    with _traffic(world):
        _until(lambda: _are_all_up(prometheus))
        _is_quiet(prometheus)
        try:
            yield world, prometheus
        finally:
            world.mend()


def _are_all_up(prometheus: Prometheus) -> bool:
    """Return whether every target replied to the last scrape."""
    found = prometheus.get("targets", state="active")["activeTargets"]
    return bool(found) and all(target["health"] == "up" for target in found)


def _is_quiet(prometheus: Prometheus) -> None:
    _until(lambda: not prometheus.firing().keys() - BESIDE)


def _until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return found


def _alerts(prometheus: Prometheus, alert: str, **labels: str) -> set[str]:
    """Wait for ``alert`` with ``labels``; return the other alerts that fire, without BESIDE."""

    def fires() -> set[str]:
        firing = prometheus.firing()
        if any(labels.items() <= found.items() for found in firing.get(alert, ())):
            return set(firing)
        return set()

    return set(_until(fires)) - BESIDE - {alert}


def _broken(world: World, *fault: str) -> None:
    done = world.run("chaos", *fault)
    assert done.returncode == 0, done.stderr


def test_every_dashboard_has_answers_and_a_well_world_is_silent(
    watched: tuple[World, Prometheus],
) -> None:
    _, prometheus = watched
    queries = [
        (dashboard.uid, panel.title, grafana.asked(query))
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        for query in panel.queries
        if not query.rare
    ]

    def unanswered() -> list[tuple[str, str, str]]:
        return [one for one in queries if not _has_numbers(prometheus.query(one[2]))]

    deadline = time.monotonic() + PATIENCE
    while left := unanswered():
        assert time.monotonic() < deadline, left
        time.sleep(1)
    assert prometheus.firing() == {}


def _has_numbers(found: list[dict[str, Any]]) -> bool:
    return any(one["value"][1] != "NaN" for one in found)


def test_an_exemplar_leads_from_a_delay_to_a_message(watched: tuple[World, Prometheus]) -> None:
    world, prometheus = watched

    def exemplars() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = prometheus.get(
            "query_exemplars",
            query="newsfabric_gateway_delay_seconds_bucket",
            start=str(time.time() - 600),
            end=str(time.time()),
        )
        return found

    series, *_ = _until(exemplars)
    id_ = series["exemplars"][-1]["labels"]["id"]
    traced = world.run("trace", id_)
    assert traced.returncode == 0, traced.stderr
    assert id_ in traced.stdout


def test_a_region_whose_gateway_is_dead_has_no_box(watched: tuple[World, Prometheus]) -> None:
    world, prometheus = watched
    _broken(world, "kill", "oregon-retail-1-gateway", "oregon-retail-1-dataplane")
    down = _alerts(prometheus, "NewsfabricProcessDown", instance="oregon-retail-1-gateway")
    assert down <= {"NewsfabricRegionWithoutBox"}
    assert _alerts(prometheus, "NewsfabricRegionWithoutBox", region="oregon") <= {
        "NewsfabricProcessDown"
    }
    world.mend()
    _is_quiet(prometheus)


def test_one_dead_router_is_a_process_and_both_are_a_region(
    watched: tuple[World, Prometheus],
) -> None:
    world, prometheus = watched
    _broken(world, "kill", "dublin-router-1")
    assert _alerts(prometheus, "NewsfabricProcessDown", instance="dublin-router-1") == set()
    _broken(world, "kill", "dublin-router-2")
    assert _alerts(prometheus, "NewsfabricRegionWithoutRouter", region="dublin") == {
        "NewsfabricProcessDown"
    }
    world.mend()
    _is_quiet(prometheus)


def test_shovels_of_a_broker_that_stands_still_are_silent(
    watched: tuple[World, Prometheus],
) -> None:
    world, prometheus = watched
    _broken(world, "stop", "oregon-client-1")
    beside = _alerts(
        prometheus, "NewsfabricShovelSilent", region="oregon", shovel="oregon/core/publish.oregon.1"
    )
    assert beside <= {"NewsfabricShovelsMissing", "NewsfabricShovelRestarts"}


def test_regions_that_are_cut_apart_are_reported_in_both(watched: tuple[World, Prometheus]) -> None:
    world, prometheus = watched
    _broken(world, "cut", "oregon", "dublin")
    beside = {"NewsfabricShovelSilent", "NewsfabricShovelsMissing", "NewsfabricShovelRestarts"}
    assert _alerts(prometheus, "NewsfabricRegionCut", region="oregon", source="dublin") <= beside
    assert _alerts(prometheus, "NewsfabricRegionCut", region="dublin", source="oregon") <= beside


def test_a_store_that_takes_nothing_is_away(watched: tuple[World, Prometheus]) -> None:
    world, prometheus = watched
    store = sqlite3.connect(world.state / "store.sqlite", isolation_level=None)
    with contextlib.closing(store):
        store.execute("BEGIN IMMEDIATE")
        beside = _alerts(prometheus, "NewsfabricStoreAway", region="oregon")
        store.execute("ROLLBACK")
    assert beside <= {"NewsfabricRegionWithoutRouter", "NewsfabricRouterBehind"}

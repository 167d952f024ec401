"""Canaries through every shovel of a region."""

from __future__ import annotations

import random

from fabrics import TOPICS, fabric

from newsfabric.topology import Cluster, region_links
from newsfabric.watch import SILENT_AFTER
from shovels.watch import Watch

CLIENT, CORE = Cluster("oregon", "client"), Cluster("oregon", "core")
FAR_CLIENT, FAR_CORE = Cluster("dublin", "client"), Cluster("dublin", "core")
ALL_RUN = {
    (CORE, "publish.oregon.1"),
    (CORE, "publish.dublin.1"),
    (CORE, "outbound.dublin.1"),
    (CLIENT, "receipts.1"),
}


def _watch() -> Watch:
    return Watch(region_links(fabric(), "oregon", TOPICS), random.Random(1))


def _second(watch: Watch, now: float, *, broken: str = "") -> None:
    """Canaries are sent to every source and come through every shovel but the ``broken`` one."""
    for cluster, exchange in watch.sources:
        watch.sent(cluster, exchange, now)
    for cluster, name in ALL_RUN:
        if name != broken:
            watch.arrived(cluster, name, now, now + 0.1)


def test_canaries_go_into_the_exchanges_that_the_regions_shovels_take_from() -> None:
    assert _watch().sources == {
        (CLIENT, "publish"),
        (FAR_CLIENT, "publish"),
        (FAR_CORE, "outbound"),
        (CORE, "receipts"),
    }


def test_the_shovel_that_brings_none_is_the_one_that_is_distrusted() -> None:
    watch = _watch()
    found: list[tuple[int, str]] = []
    for second in range(60):
        _second(watch, float(second), broken="outbound.dublin.1" if second >= 20 else "")
        found += [(second, link.name) for link in watch.distrusted(ALL_RUN, second + 0.5)]
    assert found[0] == (20 + SILENT_AFTER, "outbound.dublin.1")
    assert {name for _, name in found} == {"outbound.dublin.1"}
    ages = watch.ages(60.0)
    assert ages["oregon/core/outbound.dublin.1"] == 41.0
    assert ages["oregon/core/publish.oregon.1"] == 1.0
    assert not watch.all_fresh(60.0)


def test_a_source_that_is_away_accuses_no_shovel() -> None:
    watch = _watch()
    for second in range(10):
        _second(watch, float(second))
    for second in range(10, 100):
        watch.sent(CLIENT, "publish", float(second))
        watch.arrived(CORE, "publish.oregon.1", float(second), second + 0.1)
        assert watch.distrusted(ALL_RUN, second + 0.5) == []


def test_a_shovel_that_doesnt_say_it_runs_is_for_the_plan_to_mend() -> None:
    watch = _watch()
    running = ALL_RUN - {(CORE, "outbound.dublin.1")}
    for second in range(100):
        _second(watch, float(second), broken="outbound.dublin.1")
        watch.idle(running)
        assert watch.distrusted(running, second + 0.5) == []
    assert watch.distrusted(ALL_RUN, 100.0) == []


def test_what_nobody_keeps_is_nobodys_canary() -> None:
    watch = _watch()
    watch.arrived(CORE, "publish.atlantis.1", 1.0, 1.1)
    assert set(watch.ages(2.0).values()) == {None}
    assert [each["canary_age_ms"] for each in watch.document(2.0)["shovels"]] == [None] * 4
    assert watch.distrusted({(CORE, "archive")}, 1e6) == []


def test_while_a_cluster_cant_be_heard_its_shovels_are_excused() -> None:
    watch = _watch()
    for second in range(100):
        _second(watch, float(second), broken="outbound.dublin.1")
        watch.unheard({FAR_CORE} if second < 50 else ())
        found = watch.distrusted(ALL_RUN, second + 0.5)
        assert (found != []) == (second == 50 + SILENT_AFTER), second
        if found:
            return
    raise AssertionError

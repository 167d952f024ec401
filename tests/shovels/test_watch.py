"""Canaries through every shovel of a region, and shovels that don't run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Mapping
from itertools import pairwise

from fabrics import TOPICS, broker, fabric
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.brokers.watch import RESTART_CAP, SILENT_AFTER
from newsfabric.topology import Broker, ShovelPlace, region_links
from shovels.watch import LEFT_FOR, MISSING_AFTER, TRIES, UNFIT_FOR, CanaryWatch, DownShovel

CLIENT, CORE = broker("oregon-client-1"), broker("oregon-core-1")
CORE_2 = broker("oregon-core-2")
FAR_CLIENT, FAR_CORE = broker("dublin-client-1"), broker("dublin-core-1")
ALL_RUN = {
    CORE: {
        "publish.oregon.1": "running",
        "publish.dublin.1": "running",
        "outbound.dublin.1": "running",
    },
    CLIENT: {"receipts.1": "running"},
}
PUBLISH = "oregon/core/publish.oregon.1"


def _watch(*, core: int = 1) -> CanaryWatch:
    return CanaryWatch(region_links(fabric(core=core), "oregon", TOPICS), random.Random(1))


def _second(watch: CanaryWatch, now: float, *, broken: str = "") -> None:
    """Send canaries to each source; they arrive through each shovel except the ``broken`` one."""
    for source, exchange in watch.sources:
        watch.sent(source, exchange, now)
    for host, shovels in ALL_RUN.items():
        for name in shovels.keys() - {broken}:
            watch.arrived(host, name, now, now + 0.1)


def _due(
    watch: CanaryWatch,
    now: float,
    *,
    states: Mapping[Broker, Mapping[str, str]] = ALL_RUN,
    away: Collection[Broker] = (),
) -> list[str]:
    return [link.name for link in watch.due(states, away, now)]


def _but(name: str) -> dict[Broker, dict[str, str]]:
    """Return the brokers' replies while the shovel ``name`` doesn't run."""
    return {
        host: {shovel: state for shovel, state in shovels.items() if shovel != name}
        for host, shovels in ALL_RUN.items()
    }


def test_canaries_go_into_the_exchanges_that_the_regions_shovels_may_take_from() -> None:
    assert _watch().sources == {
        (CLIENT, "publish"),
        (FAR_CLIENT, "publish"),
        (FAR_CORE, "outbound"),
        (CORE, "receipts"),
    }
    assert {(broker("dublin-core-2"), "outbound"), (broker("oregon-core-2"), "receipts")} <= (
        _watch(core=2).sources
    )


def test_the_shovel_that_brings_none_is_the_one_that_is_distrusted() -> None:
    watch = _watch()
    found: list[tuple[int, str]] = []
    for second in range(60):
        _second(watch, float(second), broken="outbound.dublin.1" if second >= 20 else "")
        found += [(second, name) for name in _due(watch, second + 0.5)]
    assert found[0] == (20 + SILENT_AFTER, "outbound.dublin.1")
    assert {name for _, name in found} == {"outbound.dublin.1"}
    ages = watch.ages(60.0)
    assert ages["oregon/core/outbound.dublin.1"] == 41.0
    assert ages[PUBLISH] == 1.0
    assert not watch.all_fresh(60.0)


def test_a_source_that_takes_no_canaries_accuses_no_shovel() -> None:
    watch = _watch()
    for second in range(10):
        _second(watch, float(second))
    for second in range(10, 100):
        watch.sent(CLIENT, "publish", float(second))
        watch.arrived(CORE, "publish.oregon.1", float(second), second + 0.1)
        assert _due(watch, second + 0.5) == []


def test_a_canary_of_one_broker_accuses_no_shovel_that_takes_from_another() -> None:
    watch = _watch(core=2)
    links = {link.name: link for link in region_links(fabric(core=2), "oregon", TOPICS)}
    link = links["receipts.1"]
    other = next(place for place in link.places() if place != link.preferred)
    watch.looked({link.id: other}, {}, 0.0)
    assert watch.place(link) == other
    running = {other.host: {link.name: "running"}}
    for second in range(20):
        watch.sent(link.preferred.source, link.exchange, float(second))
        assert link.name not in _due(watch, float(second), states=running)
    for second in range(20, 40):
        watch.sent(other.source, link.exchange, float(second))
        found = _due(watch, float(second), states=running)
        assert (link.name in found) == (second == 20 + SILENT_AFTER + 1), second
        if found:
            return
    raise AssertionError


def test_what_nobody_keeps_is_nobodys_canary() -> None:
    watch = _watch()
    watch.arrived(CORE, "publish.atlantis.1", 1.0, 1.1)
    assert set(watch.ages(2.0).values()) == {None}
    assert [each["canary_age_ms"] for each in watch.links_document(2.0)["shovels"]] == [None] * 4
    assert _due(watch, 1e6, states={CORE: {**ALL_RUN[CORE], "archive": "terminated"}}) == []


def test_while_a_broker_cant_be_heard_its_shovels_are_excused() -> None:
    watch = _watch()
    for second in range(100):
        _second(watch, float(second), broken="outbound.dublin.1")
        watch.unheard({FAR_CORE} if second < 50 else ())
        found = _due(watch, second + 0.5)
        assert (found != []) == (second == 50 + SILENT_AFTER), second
        if found:
            return
    raise AssertionError


def test_a_shovel_that_doesnt_run_for_half_a_minute_is_made_anew_with_growing_pauses() -> None:
    watch = _watch()
    found = [
        second
        for second in range(3600)
        if _due(watch, float(second), states=_but("receipts.1")) == ["receipts.1"]
    ]
    assert found[0] == MISSING_AFTER
    pauses = [later - earlier for earlier, later in pairwise(found)]
    assert min(pauses) >= MISSING_AFTER
    assert max(pauses) <= MISSING_AFTER + RESTART_CAP + 1
    assert max(pauses[:2]) <= MISSING_AFTER + 21
    assert len(found) < 40


def test_a_shovel_that_starts_in_time_is_left_alone() -> None:
    watch = _watch()
    for second in range(300):
        runs = second % 30 == 29
        states = ALL_RUN if runs else _but("receipts.1")
        _second(watch, float(second))
        assert _due(watch, float(second), states=states) == []


@given(st.lists(st.sampled_from(["no host", "no source"]), min_size=1, max_size=60))
def test_nothing_is_made_anew_while_a_broker_of_it_is_away(seconds: list[str]) -> None:
    watch = _watch()
    for n, wrong in enumerate(seconds):
        states = {CLIENT: ALL_RUN[CLIENT]} if wrong == "no host" else _but("publish.oregon.1")
        away = {CLIENT} if wrong == "no source" else set()
        assert "publish.oregon.1" not in _due(watch, n * 10.0, states=states, away=away)
    # The time begins again once both are back.
    back = len(seconds) * 10.0
    assert _due(watch, back, states=_but("publish.oregon.1")) == []
    assert _due(watch, back + MISSING_AFTER - 1, states=_but("publish.oregon.1")) == []


def _until_unfit(
    watch: CanaryWatch, states: Mapping[Broker, Mapping[str, str]], name: str = PUBLISH
) -> int:
    for second in range(1000):
        _due(watch, float(second), states=states)
        if watch.unfit(float(second))[name]:
            return second
    raise AssertionError


def test_after_two_tries_in_vain_a_shovel_is_made_elsewhere_and_after_ten_minutes_there_again() -> (
    None
):
    watch = _watch(core=2)
    states = {CORE: dict.fromkeys(ALL_RUN[CORE].keys() - {"publish.oregon.1"}, "running")}
    at = _until_unfit(watch, states)
    assert (TRIES + 1) * MISSING_AFTER <= at <= (TRIES + 1) * MISSING_AFTER + 32
    assert watch.unfit(at)[PUBLISH] == {CORE}
    assert watch.unfit(at + UNFIT_FOR - 1)[PUBLISH] == {CORE}
    assert watch.unfit(at + UNFIT_FOR)[PUBLISH] == set()


def test_a_broker_is_fit_again_as_soon_as_the_shovel_brings_something_there() -> None:
    watch = _watch(core=2)
    at = _until_unfit(watch, {CORE: {}})
    watch.looked({PUBLISH: ShovelPlace(CLIENT, CORE_2)}, {}, float(at))
    _due(watch, at + 1.0, states={CORE: {"publish.oregon.1": "running"}})
    assert watch.unfit(at + 1.0)[PUBLISH] == {CORE}
    watch.arrived(CORE, "publish.oregon.1", at + 1.5, at + 2.0)
    assert watch.unfit(at + 2.0)[PUBLISH] == set()


def test_a_source_is_fit_again_as_soon_as_something_comes_from_it() -> None:
    watch = _watch()
    name = "oregon/client/receipts.1"
    at = _until_unfit(watch, {CLIENT: {}}, name)
    assert watch.hopeless(at) == {name}
    watch.arrived(CLIENT, "receipts.1", at + 1.5, at + 2.0)
    assert watch.unfit(at + 2.0)[name] == set()
    assert watch.hopeless(at + 2.0) == set()


def test_a_shovel_that_stops_each_time_before_it_brings_anything_makes_its_broker_unfit() -> None:
    watch = _watch(core=2)
    flapping = itertools.cycle([{CORE: {"publish.oregon.1": "running"}}, {CORE: {}}])
    found = []
    for second in range(2 * (TRIES + 1)):
        found.append(watch.unfit(float(second)).get(PUBLISH))
        _due(watch, float(second), states=next(flapping))
    assert set(found) == {frozenset()}
    assert watch.unfit(10.0)[PUBLISH] == {CORE}


def test_a_shovel_that_brings_something_each_time_before_it_stops_doesnt() -> None:
    watch = _watch(core=2)
    for second in range(0, 100, 2):
        _due(watch, float(second), states={CORE: {"publish.oregon.1": "running"}})
        watch.arrived(CORE, "publish.oregon.1", second + 0.1, second + 0.2)
        _due(watch, second + 1.0, states={CORE: {}})
    assert watch.unfit(100.0)[PUBLISH] == set()


def test_a_shovel_with_one_host_takes_from_another_broker_after_two_tries_in_vain() -> None:
    watch = _watch(core=2)
    name = "oregon/client/receipts.1"
    at = _until_unfit(watch, {CLIENT: {}}, name)
    assert watch.unfit(at)[name] == {CORE}


def _until_unfit_of_silence(watch: CanaryWatch, host: Broker, began: int = 0) -> int:
    """Let ``publish.oregon.1`` run silently on ``host``; return the second when that is unfit."""
    for second in range(began, began + 1000):
        watch.sent(CLIENT, "publish", float(second))
        _due(watch, second + 0.5, states={host: {"publish.oregon.1": "running"}})
        if host in watch.unfit(second + 0.5).get(PUBLISH, ()):
            return second
    raise AssertionError


def test_a_shovel_that_stays_silent_is_made_elsewhere_after_two_tries_in_vain() -> None:
    watch = _watch(core=2)
    at = _until_unfit_of_silence(watch, CORE)
    # Ten seconds of silence precede each try; the pauses grow from ten seconds to twenty.
    assert (TRIES + 1) * SILENT_AFTER <= at <= (TRIES + 1) * (SILENT_AFTER + 1) + 30
    assert watch.unfit(at + 0.5)[PUBLISH] == {CORE}
    assert watch.unfit(at + UNFIT_FOR)[PUBLISH] == {CORE}
    assert watch.unfit(at + UNFIT_FOR + 0.5)[PUBLISH] == set()


def test_that_a_silent_shovel_says_it_runs_doesnt_make_its_broker_fit_again() -> None:
    watch = _watch(core=2)
    at = _until_unfit_of_silence(watch, CORE)
    watch.looked({PUBLISH: ShovelPlace(CLIENT, CORE_2)}, {}, float(at))
    both = {host: {"publish.oregon.1": "running"} for host in (CORE, CORE_2)}
    for second in range(at + 1, at + 100):
        watch.sent(CLIENT, "publish", float(second))
        watch.arrived(CORE_2, "publish.oregon.1", float(second), second + 0.1)
        assert "publish.oregon.1" not in _due(watch, second + 0.5, states=both)
        assert watch.proven(second + 0.5)[PUBLISH] == {CORE_2}
    assert watch.unfit(at + 100.0)[PUBLISH] == {CORE}


def test_a_shovel_that_works_nowhere_is_hopeless_and_isnt_waited_for() -> None:
    watch = _watch()
    for second in range(1000):
        _second(watch, float(second), broken="publish.oregon.1")
        _due(watch, second + 0.5)
        found = watch.hopeless(second + 0.5)
        assert found <= {PUBLISH}
        assert watch.all_fresh(second + 0.5) == (found == {PUBLISH})
        if found:
            return
    raise AssertionError


def test_a_shovel_that_may_go_elsewhere_isnt_hopeless() -> None:
    watch = _watch(core=2)
    at = _until_unfit_of_silence(watch, CORE)
    assert watch.hopeless(at + 0.5) == set()


def test_a_broker_that_was_away_is_fit_again() -> None:
    watch = _watch(core=2)
    at = _until_unfit_of_silence(watch, CORE)
    watch.looked({PUBLISH: ShovelPlace(CLIENT, CORE_2)}, {}, float(at))
    _due(watch, at + 1.0, states={CORE_2: {"publish.oregon.1": "running"}}, away={CORE})
    assert watch.unfit(at + 1.0)[PUBLISH] == set()


def test_a_shovel_that_is_silent_elsewhere_too_gets_as_many_tries_there() -> None:
    watch = _watch(core=2)
    at = _until_unfit_of_silence(watch, CORE)
    watch.looked({PUBLISH: ShovelPlace(CLIENT, CORE_2)}, {}, float(at))
    again = _until_unfit_of_silence(watch, CORE_2, at + 1)
    assert again - at >= (TRIES + 1) * SILENT_AFTER
    assert watch.unfit(again + 0.5)[PUBLISH] == {CORE, CORE_2}


def test_what_is_brought_now_and_then_makes_no_broker_unfit() -> None:
    watch = _watch(core=2)
    remade = 0
    for second in range(3600):
        watch.sent(CLIENT, "publish", float(second))
        remade += "publish.oregon.1" in _due(
            watch, second + 0.5, states={CORE: {"publish.oregon.1": "running"}}
        )
        if second % 25 == 24:
            watch.arrived(CORE, "publish.oregon.1", float(second), second + 0.9)
        assert watch.unfit(second + 0.5)[PUBLISH] == set()
    assert remade > 0


def test_what_another_broker_brings_doesnt_speak_for_the_one_where_the_shovel_is() -> None:
    watch = _watch(core=2)
    for second in range(100):
        watch.sent(CLIENT, "publish", float(second))
        watch.arrived(CORE_2, "publish.oregon.1", float(second), second + 0.1)
        if _due(watch, second + 0.5, states={CORE: {"publish.oregon.1": "running"}}):
            return
    raise AssertionError


def test_a_link_may_go_back_to_a_source_that_came_back_since_and_to_any_after_ten_minutes() -> None:
    watch = _watch(core=2)
    links = {link.name: link for link in region_links(fabric(core=2), "oregon", TOPICS)}
    link = links["receipts.1"]
    away = ShovelPlace(CORE_2, CLIENT)
    watch.looked({link.id: away}, {link.id: [link.preferred]}, 10.0)
    assert watch.known()[link.id] == {CORE, CORE_2}
    # The new source, which was chosen at 10.0, is seen in use only now.
    watch.looked({link.id: away}, {link.id: [away]}, 15.0)
    assert watch.known()[link.id] == {CORE_2}
    assert watch.back(20.0)[link.id] == set()
    watch.looked({link.id: away}, {link.id: [away]}, 20.0, unsteady={CORE})
    assert watch.back(20.0)[link.id] == {CORE}
    watch.looked({link.id: away}, {link.id: [away]}, 25.0, unsteady={CLIENT})
    assert watch.back(25.0)[link.id] == {CORE, CORE_2}
    watch.looked({link.id: link.preferred}, {link.id: [link.preferred]}, 30.0)
    assert watch.back(30.0)[link.id] == set()
    assert watch.back(30.0 + UNFIT_FOR)[link.id] == {CORE, CORE_2}


def test_a_source_that_another_keeper_chose_is_fit() -> None:
    watch = _watch(core=2)
    link = next(x for x in region_links(fabric(core=2), "oregon", TOPICS) if x.name == "receipts.1")
    at = _until_unfit(watch, {CLIENT: {}}, link.id)
    other = ShovelPlace(CORE_2, CLIENT)
    watch.looked({link.id: other}, {link.id: [link.preferred]}, float(at))
    watch.looked({link.id: other}, {link.id: [other]}, at + 5.0)
    assert watch.unfit(at + 5.0)[link.id] == {CORE}
    watch.looked({link.id: link.preferred}, {link.id: [link.preferred]}, at + 10.0)
    assert watch.unfit(at + 10.0)[link.id] == {CORE}
    watch.looked({link.id: other}, {link.id: [other]}, at + 15.0)
    watch.looked({link.id: other}, {link.id: [link.preferred]}, at + 20.0)
    assert watch.unfit(at + 20.0)[link.id] == set()


def test_a_link_is_left_to_those_who_removed_its_stand_in_for_a_minute() -> None:
    watch = _watch(core=2)
    link = next(
        x for x in region_links(fabric(core=2), "oregon", TOPICS) if x.name == "publish.oregon.1"
    )
    other = ShovelPlace(CLIENT, CORE_2)
    watch.looked({link.id: other}, {link.id: []}, 0.0, unsteady={CORE})
    assert watch.left(0.0) == set()
    watch.looked({link.id: other}, {link.id: [other]}, 5.0, unsteady={CORE})
    watch.looked({link.id: other}, {link.id: []}, 10.0, unsteady={CORE})
    assert watch.left(10.0) == {link.id}
    assert watch.left(10.0 + LEFT_FOR) == set()


def test_a_link_that_went_with_its_broker_isnt_left_to_anyone() -> None:
    watch = _watch(core=2)
    link = next(
        x for x in region_links(fabric(core=2), "oregon", TOPICS) if x.name == "publish.oregon.1"
    )
    other = ShovelPlace(CLIENT, CORE_2)
    watch.looked({link.id: other}, {link.id: [other]}, 5.0, unsteady={CORE})
    watch.looked({link.id: other}, {link.id: []}, 10.0, unsteady={CORE, CORE_2})
    assert watch.left(10.0) == set()


def test_pauses_begin_small_again_after_a_shovel_has_run_for_a_while() -> None:
    missing, rng = DownShovel(), random.Random(1)
    now = 0.0
    for _ in range(5 * 360):
        missing.due(now, rng)
        now += 1.0
    missing.runs(now)
    now += 3600
    tries = []
    for _ in range(100):
        if missing.due(now, rng):
            tries.append(now)
        now += 1.0
    assert tries[1] - tries[0] <= MISSING_AFTER + 11

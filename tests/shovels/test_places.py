"""The places of shovels while brokers die and come back, as one keeper sees them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from fabrics import CREDENTIALS, TOPICS, all_run, answering, broker, fabric, fresh, fresh_fabric
from fabrics import performed as _performed
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_share import examples

from newsfabric.settings import Credentials, Fabric
from newsfabric.topology import Broker, ShovelPlace, brokers_of, region_links
from shovels.places import STEADY_AFTER, BrokersView, Uptimes, choose_place, plan_now
from shovels.plan import Action, Actual, diff

CLIENT = broker("oregon-client-1")
FIRST, SECOND, THIRD = (broker(f"oregon-core-{n}") for n in (1, 2, 3))
NOBODY = frozenset[Broker]()

State = dict[Broker, Actual]


def _look(
    known: Fabric,
    actual: State,
    away: Collection[Broker] = NOBODY,
    *,
    begun: Collection[Broker] = NOBODY,
    unfit: dict[str, frozenset[Broker]] | None = None,
    credentials: Credentials = CREDENTIALS,
) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    """Look once, while brokers are ``away`` and others have only just ``begun``."""
    there = {at: _cut_off(found, away) for at, found in answering(actual, away).items()}
    links = region_links(known, "oregon", TOPICS)
    hosts = frozenset(there)
    seen = BrokersView(
        frozenset(away),
        hosts - frozenset(begun),
        unfit=unfit or {},
        proven=dict.fromkeys((link.id for link in links), hosts),
        back=dict.fromkeys((link.id for link in links), frozenset(brokers_of(known))),
        known=dict.fromkeys((link.id for link in links), frozenset(brokers_of(known))),
    )
    plan = plan_now(known, "oregon", TOPICS, there, seen)
    return diff("oregon", plan.parts, there, credentials), plan.moving


def _cut_off(found: Actual, away: Collection[Broker]) -> Actual:
    """Return ``found`` with each shovel stopped whose source is ``away``."""
    names = {each.name for each in away}
    gone = {name for name, value in found.shovels.items() if _taken_from(value) in names}
    states = {name: "starting" if name in gone else state for name, state in found.states.items()}
    return dataclasses.replace(found, states=states)


def _taken_from(value: Mapping[str, Any]) -> str:
    return str(value["src-uri"]).rpartition("@")[2].partition(".")[0]


def _round(
    known: Fabric,
    actual: State,
    away: Collection[Broker] = NOBODY,
    *,
    begun: Collection[Broker] = NOBODY,
) -> State:
    """Look, perform the actions, and let all shovels run."""
    actions, _ = _look(known, actual, away, begun=begun)
    return all_run(_performed(actual, actions))


def _settled(known: Fabric) -> State:
    actual = _round(known, fresh_fabric(known))
    assert _look(known, actual) == ((), ())
    return actual


def _hosts(actual: State, shovel: str = "publish.oregon.1") -> set[Broker]:
    return {at for at, found in actual.items() if shovel in found.shovels}


def _source(actual: State, shovel: str) -> str:
    return _taken_from(actual[CLIENT].shovels[shovel])


def _oregon(core: int) -> Fabric:
    return fabric(regions=("oregon",), core=core)


def test_while_a_broker_is_away_another_runs_its_shovels_that_the_other_path_doesnt_need() -> None:
    known = _oregon(3)
    actual = _round(known, _settled(known), {FIRST})
    assert _hosts(actual) == {FIRST, THIRD}
    assert _hosts(actual, "publish.oregon.1.2") == {SECOND}
    assert _source(actual, "receipts.1") == THIRD.name
    assert _source(actual, "receipts.1.2") == SECOND.name
    assert _look(known, actual, {FIRST}) == ((), ())


def test_a_keeper_that_has_just_started_leaves_it_there() -> None:
    known = _oregon(3)
    moved = _round(known, _settled(known), {FIRST})
    emptied = {**moved, FIRST: fresh()}
    back = _round(known, emptied, begun=brokers_of(known))
    assert _hosts(back) == {THIRD}
    assert _source(back, "receipts.1") == THIRD.name


def test_a_broker_that_is_back_runs_what_it_remembers_and_the_stand_in_goes_once_it_is_steady() -> (
    None
):
    known = _oregon(3)
    moved = _round(known, _settled(known), {FIRST})
    back = _round(known, moved, begun={FIRST})
    assert _hosts(back) == {FIRST, THIRD}
    assert _look(known, back, begun={FIRST}) == (
        (),
        ("oregon/core/publish.oregon.1",),
    )
    settled = _round(known, _round(known, back))
    assert _hosts(settled) == {FIRST}
    assert settled == _settled(known)


def test_the_stand_in_stays_until_the_shovel_on_the_steady_broker_runs() -> None:
    known = _oregon(3)
    moved = _round(known, _settled(known), {FIRST})
    actions, _ = _look(known, {**moved, FIRST: fresh()})
    assert ("create", "publish.oregon.1") in {(each.verb, each.name) for each in actions}
    beside = _performed({**moved, FIRST: fresh()}, actions)
    assert _hosts(beside) == {FIRST, THIRD}
    assert ("delete", "shovel") not in {(a.verb, a.kind) for a in _look(known, beside)[0]}
    assert _hosts(_round(known, all_run(beside))) == {FIRST}


def test_the_stand_in_stays_while_the_shovel_before_it_runs_and_brings_nothing() -> None:
    known = _oregon(3)
    link = next(x for x in region_links(known, "oregon", TOPICS) if x.name == "publish.oregon.1")
    beside = all_run({**_round(known, _settled(known), {FIRST}), FIRST: _settled(known)[FIRST]})
    assert _hosts(beside) == {FIRST, THIRD}
    brokers = frozenset(beside)
    for proven, gone in (({THIRD}, set()), ({FIRST, THIRD}, {THIRD}), (set(), set())):
        seen = BrokersView(steady=brokers, proven={link.id: frozenset(proven)})
        plan = plan_now(known, "oregon", TOPICS, beside, seen)
        assert plan.places[link.id] == link.preferred
        found = diff("oregon", plan.parts, beside, CREDENTIALS)
        went = {a.broker for a in found if (a.verb, a.name) == ("delete", link.name)}
        assert went == gone


def test_where_only_the_source_changes_queue_and_binding_come_first_and_the_old_queue_last() -> (
    None
):
    known = _oregon(3)
    moved = _round(known, _settled(known), {FIRST})
    emptied = {**moved, FIRST: fresh()}
    steps = [
        (each.verb, each.kind, str(each.broker))
        for each in _look(known, emptied)[0]
        if "receipts.1" in each.name and each.kind != "exchange"
    ]
    assert steps == [
        ("create", "queue", "oregon-core-1"),
        ("create", "binding", "oregon-core-1"),
        ("update", "shovel", "oregon-client-1"),
    ]
    changed = _round(known, emptied)
    assert _source(changed, "receipts.1") == FIRST.name
    assert "shovel.receipts.1" in changed[THIRD].queues
    assert "shovel.receipts.1" not in _round(known, changed)[THIRD].queues


def test_a_queue_that_waits_on_a_broker_that_is_back_is_left_for_the_shovel() -> None:
    known = _oregon(3)
    moved = _round(known, _settled(known), {FIRST})
    back = _round(known, moved, begun={FIRST})
    assert _source(back, "receipts.1") == THIRD.name
    assert "shovel.receipts.1" in back[FIRST].queues


def test_when_the_stand_in_fails_too_the_next_one_takes_over() -> None:
    known = _oregon(3)
    actual = _settled(known)
    for away in ({FIRST}, {FIRST, THIRD}):
        actual = _round(known, actual, away)
    assert _hosts(answering(actual, {FIRST, THIRD})) == {SECOND}


def test_a_better_stand_in_that_is_steady_takes_over_so_that_two_paths_stay_apart() -> None:
    known = _oregon(3)
    actual = _settled(known)
    # Both paths are on the second broker; then the third comes back, and the first doesn't.
    for away in ({FIRST}, {FIRST, THIRD}, {FIRST}, {FIRST}, {FIRST}):
        actual = _round(known, actual, away)
    assert _hosts(answering(actual, {FIRST})) == {THIRD}
    assert _hosts(answering(actual, {FIRST}), "publish.oregon.1.2") == {SECOND}


def test_with_no_broker_left_everything_stays_as_it_is() -> None:
    known = _oregon(2)
    actual = _settled(known)
    assert _look(known, actual, {FIRST, SECOND}) == ((), ())
    moved = _round(known, actual, {FIRST})
    assert _look(known, moved, {FIRST, CLIENT}) == ((), ())


def test_a_shovel_isnt_made_where_it_cant_be_made_to_run() -> None:
    known = _oregon(3)
    link = region_links(known, "oregon", TOPICS)[-2]
    assert link.name == "publish.oregon.1"
    settled = frozenset(brokers_of(known))

    def chosen(*unfit: Broker, away: Collection[Broker] = NOBODY) -> ShovelPlace:
        steady = settled - frozenset(away)
        seen = BrokersView(frozenset(away), steady, unfit={link.id: frozenset(unfit)})
        return choose_place(link, [link.preferred], seen)

    assert chosen(FIRST) == ShovelPlace(CLIENT, THIRD)
    assert chosen(FIRST, THIRD) == ShovelPlace(CLIENT, SECOND)
    assert chosen(FIRST, away={THIRD, SECOND}) == ShovelPlace(CLIENT, FIRST)
    assert chosen(FIRST, THIRD, away={SECOND}) == ShovelPlace(CLIENT, FIRST)


def test_a_shovel_isnt_put_on_a_broker_without_room_and_takes_from_one() -> None:
    known = _oregon(3)
    links = {link.name: link for link in region_links(known, "oregon", TOPICS)}
    steady = frozenset(brokers_of(known))

    def chosen(name: str, *full: Broker) -> ShovelPlace:
        link = links[name]
        return choose_place(
            link, [link.preferred], BrokersView(steady=steady, full=frozenset(full))
        )

    assert chosen("publish.oregon.1", FIRST) == ShovelPlace(CLIENT, THIRD)
    assert chosen("publish.oregon.1", FIRST, THIRD) == ShovelPlace(CLIENT, SECOND)
    assert chosen("publish.oregon.1", FIRST, SECOND, THIRD) == ShovelPlace(CLIENT, FIRST)
    assert chosen("publish.oregon.1", CLIENT) == ShovelPlace(CLIENT, FIRST)
    assert chosen("receipts.1", FIRST) == ShovelPlace(FIRST, CLIENT)


def test_a_source_isnt_away_for_the_shovel_that_runs_from_it() -> None:
    known = _oregon(3)
    actual = _settled(known)
    # Only this keeper can't reach it.
    seen = BrokersView(frozenset({FIRST}), frozenset(actual) - {FIRST})
    there = answering(actual, {FIRST})
    plan = plan_now(known, "oregon", TOPICS, there, seen)
    assert plan.places["oregon/client/receipts.1"] == ShovelPlace(FIRST, CLIENT)
    assert plan.places["oregon/core/publish.oregon.1"] == ShovelPlace(CLIENT, THIRD)


def test_a_source_that_works_is_left_only_for_one_that_came_back() -> None:
    known = _oregon(3)
    links = {link.name: link for link in region_links(known, "oregon", TOPICS)}
    link, steady = links["receipts.1"], frozenset(brokers_of(known))
    at = ShovelPlace(THIRD, CLIENT)

    def chosen(back: Collection[Broker], unfit: Collection[Broker] = NOBODY) -> Broker:
        found = BrokersView(
            steady=steady, back={link.id: frozenset(back)}, unfit={link.id: frozenset(unfit)}
        )
        return choose_place(link, [at], found).source

    assert chosen({SECOND}) == THIRD
    assert chosen({FIRST}) == FIRST
    assert chosen((), unfit={THIRD}) == FIRST
    assert chosen((), unfit={FIRST, SECOND, THIRD}) == THIRD


def test_what_another_keeper_has_chosen_is_fit_and_stays() -> None:
    known = _oregon(3)
    moved = _round(known, _settled(known), {FIRST})
    links = [link.id for link in region_links(known, "oregon", TOPICS)]
    name = "oregon/client/receipts.1"
    for sources, stays in (({FIRST}, THIRD), ({FIRST, THIRD}, FIRST)):
        seen = BrokersView(
            steady=frozenset(moved),
            unfit={name: frozenset({THIRD})},
            back=dict.fromkeys(links, frozenset(moved)),
            known=dict.fromkeys(links, frozenset(sources)),
        )
        plan = plan_now(known, "oregon", TOPICS, moved, seen)
        assert plan.places[name].source == stays


def test_while_a_host_doesnt_answer_the_queue_that_its_shovel_takes_from_stays() -> None:
    known = _oregon(3)
    moved = _round(known, _settled(known), {FIRST})
    assert _source(moved, "receipts.1") == THIRD.name
    gone = _performed(moved, _look(known, moved, {CLIENT})[0])
    assert "shovel.receipts.1" in gone[THIRD].queues


def test_another_login_moves_nothing() -> None:
    known = _oregon(3)
    actual = _round(known, _settled(known), {FIRST})
    other = Credentials("other", "pw")
    actions, _ = _look(known, actual, {FIRST}, begun=brokers_of(known), credentials=other)
    assert {(each.verb, each.kind) for each in actions} == {("update", "shovel")}
    assert _hosts(_performed(actual, actions, other)) == {FIRST, THIRD}


@given(
    st.integers(1, 4),
    st.lists(st.sets(st.integers(1, 4)), max_size=5),
)
@settings(max_examples=examples(40))
def test_whatever_failed_before_once_all_are_back_the_plan_is_reached_in_three_rounds(
    nodes: int, failures: list[set[int]]
) -> None:
    known = _oregon(nodes)
    actual = planned = _settled(known)
    for failed in failures:
        away = {broker(f"oregon-core-{n}") for n in failed if n <= nodes}
        actual = _round(known, actual, away)
    for _ in range(3):
        actual = _round(known, actual)
    assert actual == planned


def test_a_broker_is_away_as_long_as_it_is_seen_not_to_run() -> None:
    uptimes = Uptimes()
    assert uptimes.observe({FIRST: True, SECOND: False}, 0.0).away == {SECOND}
    assert uptimes.observe({FIRST: False, SECOND: True}, 1.0).away == {FIRST}
    assert uptimes.observe({}, 2.0).away == NOBODY


def test_a_broker_is_steady_once_it_was_seen_to_run_for_ten_seconds() -> None:
    uptimes = Uptimes()
    both, one = {FIRST: True, SECOND: True}, {FIRST: False, SECOND: True}
    # A keeper that has just started doesn't know for how long they have run.
    assert uptimes.observe(both, 0.0).steady == NOBODY
    assert uptimes.observe(both, STEADY_AFTER).steady == {FIRST, SECOND}
    assert uptimes.observe(one, 11.0).steady == {SECOND}
    assert uptimes.observe(both, 12.0).steady == {SECOND}
    assert uptimes.observe(both, 12.0 + STEADY_AFTER).steady == {FIRST, SECOND}


def test_a_broker_is_young_once_it_was_seen_to_come_back_until_it_is_steady() -> None:
    uptimes = Uptimes()
    assert uptimes.observe({FIRST: True, SECOND: False}, 0.0).young == NOBODY
    assert uptimes.observe({FIRST: True, SECOND: True}, 1.0).young == {SECOND}
    assert uptimes.observe({FIRST: True, SECOND: True}, 1.0 + STEADY_AFTER).young == NOBODY

"""A process's memory of its last messages, and of the copies of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from newsfabric.messages.envelope import id_of, identity_text
from newsfabric.metrics.bulk import Counted
from newsfabric.tracing.races import MOST_WAYS, Races
from newsfabric.tracing.sightings import (
    MAX_COPIES,
    MAX_FOUND,
    Arrival,
    RacePlace,
    SeenCopy,
    Sighting,
    Sightings,
)

NOW = 1_800_000_000_000
ONE, TWO = ("publish.oregon.1",), ("publish.oregon.2",)


def _sighting(identity: int, at_ms: int = NOW, *, way: tuple[str, ...] = ONE) -> Sighting:
    return Sighting(identity, "news.breaking", f"story-{identity}", NOW - 5, [SeenCopy(at_ms, way)])


def test_the_first_copy_wins_and_the_next_ways_copy_says_by_how_much() -> None:
    ring = Sightings()
    assert ring.again(7, SeenCopy(NOW, TWO)) is None
    ring.first(_sighting(7, way=TWO))
    assert ring.again(7, SeenCopy(NOW + 3, ONE)) == Arrival(RacePlace.LATER, TWO, 3)
    assert ring.again(7, SeenCopy(NOW + 9, ("x",))) == Arrival(RacePlace.LATER, TWO, None)
    assert ring.again(7, SeenCopy(NOW + 10, TWO)) == Arrival(RacePlace.AGAIN, TWO, None)
    found = ring.get(7)
    assert found is not None
    assert [copy.at_ms - NOW for copy in found.copies] == [0, 3, 9, 10]


def test_a_repeat_by_the_winners_way_doesnt_hide_the_race() -> None:
    ring = Sightings()
    ring.first(_sighting(7))
    ring.again(7, SeenCopy(NOW + 1, ONE))
    assert ring.again(7, SeenCopy(NOW + 2, TWO)) == Arrival(RacePlace.LATER, ONE, 2)


def test_what_another_router_made_of_it_is_another_way() -> None:
    ring = Sightings()
    first = SeenCopy(NOW, ("postoffice.1",), router="oregon-router-1", epoch=1, seq=1)
    ring.first(Sighting(7, "news.breaking", None, NOW, [first]))
    second = first._replace(at_ms=NOW + 4, router="oregon-router-2")
    assert ring.again(7, second) == Arrival(RacePlace.LATER, ("postoffice.1",), 4)


def test_a_clock_that_was_set_back_makes_no_negative_lead() -> None:
    ring = Sightings()
    ring.first(_sighting(7))
    assert ring.again(7, SeenCopy(NOW - 60_000, TWO)) == Arrival(RacePlace.LATER, ONE, 0)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), max_size=300))
def test_it_is_bounded_in_number_copies_and_age(arrivals: list[tuple[int, int]]) -> None:
    ring = Sightings(most=10, keep_seconds=60.0)
    now = NOW
    for identity, seconds in arrivals:
        now += seconds * 1000
        if ring.again(identity, SeenCopy(now, TWO)) is None:
            ring.first(_sighting(identity, now))
        assert len(ring) <= 10
        found = ring.get(identity)
        assert found is not None
        assert len(found.copies) <= MAX_COPIES
        assert ring.sightings_document("nothing")["since_ms"] >= found.copies[0].at_ms - 60_000


def test_a_publisher_that_repeats_itself_for_ever_takes_bounded_room() -> None:
    ring = Sightings()
    ring.first(_sighting(7))
    for n in range(1000):
        ring.again(7, SeenCopy(NOW + n, TWO))
    (found,) = ring.sightings_document("story-7")["sightings"]
    assert len(found["copies"]) == MAX_COPIES
    assert found["copies_in_all"] == 1001


def test_it_is_found_by_id_identity_the_beginning_of_either_and_message_id() -> None:
    ring = Sightings()
    identity = 0x1234567890ABCDEF123
    id_text = id_of(NOW, identity)
    ring.first(_sighting(1))
    ring.first(_sighting(identity))
    found = ring.get(identity)
    assert found is not None
    found.id = id_text
    for text in (
        id_text,
        id_text.upper(),
        id_text[:9],
        identity_text(identity),
        identity_text(identity)[:4],
        f"story-{identity}",
        # The same message, routed by another router a second later.
        id_of(NOW + 1000, identity),
    ):
        assert ring.find(text) == [found], text


@pytest.mark.parametrize("text", ["123", "", "zzzz", "story", "----", "a" * 700, "\x00", "%2e"])
def test_what_names_nothing_finds_nothing(text: str) -> None:
    ring = Sightings()
    ring.first(_sighting(0x1234567890ABCDEF123))
    assert ring.find(text) == []


def test_a_search_that_fits_all_returns_the_newest_few() -> None:
    ring = Sightings()
    for n in range(100):
        ring.first(_sighting(n, NOW + n))
    found = ring.find("0000")
    assert [each.identity for each in found] == list(range(99, 99 - MAX_FOUND, -1))


def _races() -> tuple[Races, CollectorRegistry]:
    registry = CollectorRegistry()
    copies = Counted("copies", "c", ["way", "place"])
    registry.register(copies)
    lead = Histogram("lead_seconds", "l", ["way"], registry=registry)
    return Races(copies, lead), registry


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


def test_wins_and_leads_are_counted_by_way() -> None:
    races, registry = _races()
    for identity in range(3):
        assert not races.again(identity, SeenCopy(NOW, ONE))
        races.first(_sighting(identity, way=ONE if identity else TWO))
        assert races.again(identity, SeenCopy(NOW + 20, TWO if identity else ONE))
    assert _value(registry, "copies_total", way=ONE[0], place="first") == 2
    assert _value(registry, "copies_total", way=TWO[0], place="first") == 1
    assert _value(registry, "copies_total", way=TWO[0], place="later") == 2
    assert _value(registry, "lead_seconds_count", way=ONE[0]) == 2
    assert _value(registry, "lead_seconds_sum", way=ONE[0]) == pytest.approx(0.04)


def test_a_stranger_who_makes_up_ways_makes_no_more_labels() -> None:
    races, registry = _races()
    for n in range(1000):
        races.first(_sighting(n, way=(f"forged.{n}",)))
    ways = {
        sample.labels["way"]
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "copies_total"
    }
    assert len(ways) == MOST_WAYS + 1
    assert _value(registry, "copies_total", way="other", place="first") == 1000 - MOST_WAYS
    assert len(races._counted) == MOST_WAYS


def test_what_no_shovel_brought_came_directly() -> None:
    races, registry = _races()
    races.first(_sighting(1, way=()))
    assert _value(registry, "copies_total", way="direct", place="first") == 1

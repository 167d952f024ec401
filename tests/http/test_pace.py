"""The rate at which an address may send requests."""

from __future__ import annotations

from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.http.pace import Rate, RateLimit

RATE = Rate(burst=3, per_second=0.5)


def test_an_address_may_ask_in_bursts_and_then_at_its_rate() -> None:
    pace = RateLimit(RATE)
    assert [pace.seconds_to_wait("192.0.2.1", 100.0) for _ in range(4)] == [0, 0, 0, 2.0]
    assert pace.seconds_to_wait("192.0.2.2", 100.0) == 0
    assert pace.seconds_to_wait("192.0.2.1", 101.0) == 1.0
    assert pace.seconds_to_wait("192.0.2.1", 102.0) == 0
    assert [pace.seconds_to_wait("192.0.2.1", 1e6) for _ in range(4)] == [0, 0, 0, 2.0]


def test_a_network_of_ipv6_is_one_address_and_a_mapped_one_is_of_ipv4() -> None:
    pace = RateLimit(RATE)
    for n in range(3):
        assert pace.seconds_to_wait(f"2001:db8:0:1::{n}", 0.0) == 0
        assert pace.seconds_to_wait(f"192.0.2.{1}" if n else "::ffff:192.0.2.1", 0.0) == 0
    assert pace.seconds_to_wait("2001:db8:0:1:ffff::", 0.0) == 2.0
    assert pace.seconds_to_wait("::ffff:192.0.2.1", 0.0) == 2.0
    assert len(pace) == 2


def test_free_networks_ask_at_any_rate_and_are_not_remembered() -> None:
    pace = RateLimit(RATE, free=[ip_network("10.0.0.0/8")])
    assert {pace.seconds_to_wait("10.1.2.3", 0.0) for _ in range(100)} == {0.0}
    assert len(pace) == 0


def test_the_longest_silent_address_is_forgotten_for_want_of_room() -> None:
    pace = RateLimit(RATE, most=2)
    for _ in range(3):
        pace.seconds_to_wait("192.0.2.1", 0.0)
    pace.seconds_to_wait("192.0.2.2", 1.0)
    assert pace.seconds_to_wait("192.0.2.1", 1.0) == 1.0
    pace.seconds_to_wait("192.0.2.3", 1.0)
    assert len(pace) == 2
    assert pace.seconds_to_wait("192.0.2.1", 1.0) == 1.0


@given(st.lists(st.tuples(st.text(max_size=20), st.floats(0, 10)), max_size=60))
def test_whoever_asks_nobody_is_given_more_than_the_rate(asked: list[tuple[str, float]]) -> None:
    pace, now, given_to = RateLimit(RATE, most=10), 0.0, 0
    for _, step in asked:
        now += step
        given_to += pace.seconds_to_wait("192.0.2.1", now) == 0
    assert given_to <= RATE.burst + now * RATE.per_second
    for name, _ in asked:
        assert pace.seconds_to_wait(name, now) >= 0
    assert len(pace) <= 10

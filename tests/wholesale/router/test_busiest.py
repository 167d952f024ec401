"""The busiest names are found in bounded memory, whatever names come."""

from __future__ import annotations

import collections

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.messages.reports import Busy
from wholesale.router.busiest import PART_SECONDS, PARTS, Busiest


def test_the_busiest_come_first_with_their_rates():
    busiest = Busiest()
    for n in range(100):
        now = n / 10
        busiest.add("news.breaking", now)
        if n % 2:
            busiest.add("live.scores", now)
    top = busiest.top(9.9, count=2)
    assert [busy.name for busy in top] == ["news.breaking", "live.scores"]
    assert [round(busy.messages_per_second) for busy in top] == [10, 5]


def test_what_was_busy_ten_seconds_ago_isnt_any_more():
    busiest = Busiest()
    busiest.add("old", 0.0)
    busiest.add("new", PART_SECONDS * PARTS)
    assert [busy.name for busy in busiest.top(PART_SECONDS * PARTS)] == ["new"]
    assert busiest.top(1000.0) == ()


def test_one_message_is_no_more_than_one_a_second():
    busiest = Busiest()
    busiest.add("news", 5.0)
    assert busiest.top(5.0) == (Busy(name="news", messages_per_second=1.0),)


@given(st.lists(st.integers(0, 60), max_size=400))
def test_a_count_is_too_low_by_a_share_at_most_and_never_too_high(names: list[int]):
    most = 16
    busiest = Busiest(most=most)
    for name in names:
        busiest.add(str(name), 0.0)
    found = {busy.name: busy.messages_per_second for busy in busiest.top(1.0, count=100)}
    assert len(found) <= most
    for name, count in collections.Counter(map(str, names)).items():
        assert count - len(names) / (most + 1) <= found.get(name, 0.0) <= count


def test_ever_new_names_take_no_room():
    busiest = Busiest(most=16)
    for n in range(10_000):
        busiest.add(f"user.{n}", n / 1000)
        busiest.add("news", n / 1000)
    assert busiest.top(10.0)[0].name == "news"
    assert len(busiest.top(10.0, count=1000)) <= 16 * (PARTS + 1)

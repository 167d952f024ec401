"""The share of new readers that each box gets, and its effect over time."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.messages.control import BoxState, LoadReport
from wholesale.frontdesk.presence.boxes import Boxes, OfferedBox
from wholesale.frontdesk.presence.weights import LEAST, MOST, MOST_OF_ALL, Vessel, shares

OLD = 3600.0


def vessel(
    connections: int, *, capacity: int = 1_000, rate: float = 0.0, age: float = OLD
) -> Vessel:
    return Vessel(connections=connections, capacity=capacity, connects_per_second=rate, age=age)


def test_equals_share_evenly():
    assert shares([vessel(300)] * 4) == pytest.approx([0.25] * 4)


def test_a_box_of_twice_the_size_gets_twice_as_many():
    found = shares([vessel(300), vessel(600, capacity=2_000)])
    assert found == pytest.approx([1 / 3, 2 / 3])


def test_one_box_alone_gets_everybody():
    assert shares([vessel(999)]) == [1.0]


def test_one_that_has_just_joined_gets_no_more_than_its_even_share():
    found = shares([*[vessel(500)] * 7, vessel(0, age=0.0)])
    assert found[-1] == pytest.approx(1 / 8)


def test_later_it_gets_more_and_never_more_than_four_times_its_share():
    later = [shares([*[vessel(500)] * 7, vessel(0, age=age)])[-1] for age in (0, 10, 20, 30, 600)]
    assert later == sorted(later)
    assert later[-1] == later[-2] == pytest.approx(MOST / 8)


def test_beside_one_other_it_doesnt_get_everybody():
    assert shares([vessel(900), vessel(0)]) == pytest.approx([0.25, 0.75])


def test_an_overloaded_box_gets_little():
    found = shares([vessel(990), *[vessel(500)] * 3])
    assert found[0] <= LEAST / 4 * 1.1
    assert found[1:] == pytest.approx([(1 - found[0]) / 3] * 3)


def test_what_is_nearly_level_is_not_turned_upside_down():
    found = shares([vessel(500), vessel(501), vessel(502)])
    assert max(found) / min(found) < 1.5


def test_a_crowd_on_its_way_is_spread_wider_than_a_trickle():
    trickle = shares([vessel(400), vessel(450)])
    crowd = shares([vessel(400, rate=20.0), vessel(450, rate=20.0)])
    assert trickle[0] > crowd[0] > 0.5


VESSELS = st.lists(
    st.builds(
        lambda capacity, full, rate, age: Vessel(
            connections=min(capacity - 1, int(capacity * full)),
            capacity=capacity,
            connects_per_second=rate,
            age=age,
        ),
        st.integers(1, 200_000),
        st.floats(0, 1),
        st.floats(0, 1e6),
        st.floats(0, 1e9),
    ),
    min_size=1,
    max_size=30,
)


@given(VESSELS)
def test_all_shares_are_above_nothing_and_make_a_whole(vessels: list[Vessel]):
    found = shares(vessels)
    assert all(0 < share <= 1 for share in found)
    assert sum(found) == pytest.approx(1)


@given(VESSELS)
def test_of_boxes_alike_the_emptier_gets_no_less(vessels: list[Vessel]):
    alike = [dataclasses.replace(one, capacity=200_000, age=OLD) for one in vessels]
    found = shares(alike)
    for (one, a), (other, b) in itertools.combinations(zip(alike, found, strict=True), 2):
        if one.connections < other.connections:
            assert a >= b - 1e-9


# --- a region fills up


@dataclasses.dataclass
class WeighedBox:
    name: str
    joins: float
    state: BoxState = "ready"
    readers: int = 0
    came: int = 0
    fastest: int = 0

    def report(self, now: float) -> LoadReport:
        self.fastest, came, self.came = max(self.fastest, self.came), self.came, 0
        return LoadReport(
            region="oregon",
            box=self.name,
            state=self.state,
            connections=self.readers,
            capacity=100_000,
            deliveries_per_second=0.0,
            connects_per_second=float(came),
            sockjs_url="",
            websocket_url=self.name,
            sse_url="",
            sent_ms=int(now * 1000),
        )


class City:
    """Readers of one region: their caches keep an answer for five seconds, reports take one."""

    def __init__(
        self, boxes: list[WeighedBox], seed: int, *, frontdesks: int = 2, caches: int = 40
    ) -> None:
        self.rng = random.Random(seed)
        self.boxes = {box.name: box for box in boxes}
        self.frontdesks = [Boxes("oregon", rng=random.Random(seed + n)) for n in range(frontdesks)]
        self.caches: list[tuple[float, list[OfferedBox]]] = [(-self.rng.random() * 5, [])] * caches
        self.under_way: collections.deque[list[LoadReport]] = collections.deque()
        self.now = 0.0

    def second(self, arrivals: int, *, leaving: float = 0.0) -> None:
        """Let a second pass: readers arrive by way of caches, and a share of all leaves."""
        self.now += 1.0
        if len(self.under_way) > 1:
            for report in self.under_way.popleft():
                for frontdesk in self.frontdesks:
                    frontdesk.report(report, now=self.now)
        for number in range(len(self.caches)):
            count = arrivals * (number + 1) // len(self.caches)
            count -= arrivals * number // len(self.caches)
            self._come(number, count)
        for box in self.boxes.values():
            box.readers -= sum(self.rng.random() < leaving for _ in range(box.readers and 100)) * (
                box.readers // 100
            )
        there = [box for box in self.boxes.values() if box.joins <= self.now]
        self.under_way.append([box.report(self.now) for box in there])

    def _come(self, number: int, count: int) -> None:
        made, offers = self.caches[number]
        if self.now - made >= 5.0 or not offers:
            offers = self.rng.choice(self.frontdesks).offers(now=self.now)
            self.caches[number] = (self.now, offers)
        if not offers:
            return
        weights = list(itertools.accumulate(offer.weight for offer in offers))
        for _ in range(count):
            at = bisect.bisect(weights, self.rng.random() * weights[-1], hi=len(weights) - 1)
            box = self.boxes[offers[at].report.box]
            box.readers += 1
            box.came += 1

    def uneven(self) -> float:
        """Return the largest difference of a box from the even load, as a share of that load."""
        loads = [box.readers for box in self.boxes.values()]
        even = sum(loads) / len(loads)
        return max(abs(load - even) for load in loads) / even


@pytest.mark.parametrize("seed", range(3))
def test_half_a_million_readers_over_eight_boxes_that_join_one_after_the_other(seed: int):
    boxes = [WeighedBox(f"oregon-retail-{n}", joins=40.0 * n) for n in range(8)]
    city = City(boxes, seed)
    city.second(0)
    city.second(0)
    for _ in range(500):
        city.second(1_000)
    assert sum(box.readers for box in boxes) == 500_000
    assert city.uneven() < 0.05
    # Even to an empty box: of 1,000 a second it got at most four times its even share, or 750.
    for n, box in enumerate(boxes[1:], 2):
        assert box.fastest <= 1_000 * min(MOST_OF_ALL, MOST / n) * 1.15


def test_it_stays_even_while_readers_come_and_go_and_crowds_come():
    boxes = [WeighedBox(f"oregon-retail-{n}", joins=0.0, readers=40_000) for n in range(8)]
    city = City(boxes, 7)
    furthest = 0.0
    for n in range(300):
        city.second(8_000 if n % 60 == 30 else 200, leaving=0.0005)
        furthest = max(furthest, city.uneven())
    assert furthest < 0.05


def test_a_box_that_is_drained_and_comes_back_fills_up_without_a_flood():
    boxes = [WeighedBox(f"oregon-retail-{n}", joins=0.0, readers=50_000) for n in range(4)]
    city = City(boxes, 3)
    for _ in range(10):
        city.second(100)
    boxes[0].state, boxes[0].readers = "draining", 0
    # Two seconds for the report, five for the caches.
    for _ in range(8):
        city.second(100)
    boxes[0].came = boxes[0].fastest = 0
    for _ in range(20):
        city.second(100)
    assert boxes[0].fastest == 0
    boxes[0].state = "ready"
    for _ in range(900):
        city.second(200)
    assert boxes[0].fastest <= 190
    assert city.uneven() < 0.1

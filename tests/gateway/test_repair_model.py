"""Whatever is lost on the way is published in the end, once, and no hole stays open.

A small world under a seeded dice: routers whose clocks are apart, that store late, crash between
storing and routing, start again, run twice under one name; a feed that drops, doubles, delays and
reorders; regions that are cut off, for hours too, and whose rows come to our store long after; a
gateway that is stopped, and replaced by the next one; a journal that can't be read for a while.
Streams, hub and repair are the real ones, and so is the time for which identities are remembered.

`python tests/gateway/histories.py repair 0 4000` looks for seeds that fail.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import random

import pytest
from envelopes import envelope
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.gaps import Closed, Ending
from gateway.hub import Hub
from gateway.native.marks import decode_marks, encode_marks, resume
from gateway.repair import Plan, Repair, RepairLimits
from gateway.streams import Streams
from gateway.sweep import Phase, Sweep
from newsfabric.control import Tick
from newsfabric.envelope import Envelope, id_of, ms_of_id
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="news.*", keep=4)])
BASE = 1_700_000_000.0
STEP = 0.1
HOME, AWAY = "oregon", "dublin"
# So long the data plane knows a message that an earlier gateway has published.
REMEMBERED = 600.0


class Router:
    """Numbers messages. ``unrouted`` are stored and not confirmed: a crash gives them to others."""

    def __init__(self, world: World, region: str, name: str, skew: float) -> None:
        self.world, self.region, self.name, self.skew = world, region, name, skew
        self.start()

    def start(self) -> None:
        self.epoch = self.ms
        self.seq = 0
        self.void: list[int] = []

    @property
    def ms(self) -> int:
        return int((self.world.wall + self.skew) * 1000)

    def number(self, message: int) -> Envelope:
        self.seq += 1
        made = envelope(message, origin=self.region, router=self.name, topic=f"news.{message % 3}")
        fresh = {"id": id_of(self.ms, made.identity), "epoch": self.epoch, "seq": self.seq}
        return dataclasses.replace(made, **fresh)

    def tick(self) -> Tick:
        return Tick(
            origin=self.region,
            router=self.name,
            epoch=self.epoch,
            seq=self.seq,
            sent_ms=self.ms,
            void=tuple(self.void),
        )


class World:
    """``now`` is monotonic; the gateway's own clock shows BASE more."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 0.0
        self.messages = itertools.count(1)
        self.routers = [
            Router(self, region, f"{region}-router-{n}", self.dice.uniform(-5.0, 5.0))
            for region in (HOME, AWAY)
            for n in (1, 2)
        ]
        if self.dice.random() < 0.3:
            # Started twice with one name, half a second later.
            self.now += 0.5
            twin = self.routers[0]
            self.routers.append(Router(self, twin.region, twin.name, twin.skew))
        # (readable from, envelope)
        self.journal: list[tuple[float, Envelope]] = []
        self.feed: list[tuple[float, int, Envelope | Tick]] = []
        self.order = itertools.count()
        self.cut_until = 0.0
        # While it is cut off, what AWAY stores is there; later it is here, at some time.
        self.unsent: list[Envelope] = []
        self.replicated = True
        self.unreadable_until = 0.0
        # Routed since the first gateway was ready: before, nobody was there to miss anything.
        self.open = False
        self.routed: set[int] = set()
        # What the data plane knows outlives the gateways.
        self.delivered: collections.Counter[int] = collections.Counter()
        self.delivered_at: dict[int, float] = {}
        self.quiet = False
        self.gateways = 0
        self.gave_up: list[Closed] = []
        self.begin(None)

    @property
    def wall(self) -> float:
        return BASE + self.now

    @property
    def wall_ms(self) -> int:
        return int(self.wall * 1000)

    # The gateway.

    def begin(self, blob: bytes | None) -> None:
        self.hub = Hub(TABLE, Streams(self.wall))
        self.repair = Repair(self.hub.streams, RepairLimits(), rng=self.dice)
        if blob is None:
            self.repair.begin(self.wall_ms)
        else:
            marks = decode_marks(blob)
            resume(self.hub.streams, marks)
            self.repair.go_on(marks.at_ms, self.wall_ms)
        self.blob = blob
        self.gateways += 1
        self.fed_at: float | None = None
        # The feed waits for the journal, but not for long.
        self.listening, self.began = False, self.now
        self.reading: tuple[float, Plan] | None = None

    def offer(self, one: Envelope) -> None:
        publication = self.hub.offer(one, self.wall)
        if publication is not None and not self.delivered[one.identity]:
            self.delivered[one.identity] += 1
            self.delivered_at[one.identity] = self.now
        elif publication is not None:
            # The data plane has had it from the gateway before: it drops the copy.
            assert self.gateways > 1
            assert self.now < self.delivered_at[one.identity] + REMEMBERED

    def take(self, item: Envelope | Tick) -> None:
        self.repair.heard(item.origin, item.router, item.epoch, self.now)
        if isinstance(item, Envelope):
            self.offer(item)
            return
        self.hub.ticked(item, self.wall)
        if item.origin == HOME:
            self.fed_at = self.now

    def turn(self) -> None:
        """What the gateway does each tenth of a second."""
        self.listening |= self.repair.ready or self.now > self.began + 2.0
        while self.listening and self.feed and self.feed[0][0] <= self.now:
            self.take(heapq.heappop(self.feed)[2])
        self.account(self.repair.look(self.now, self.wall_ms, self.fed_at))
        if self.reading is None:
            plan = self.repair.plan(self.now, self.wall_ms)
            if plan is not None:
                self.reading = (self.now + (0 if self.quiet else self.dice.uniform(0, 1)), plan)
        elif self.reading[0] <= self.now:
            plan, self.reading = self.reading[1], None
            complete = self.now >= self.unreadable_until
            if complete:
                self.read(plan)
                if plan.sweep is not None:
                    self.sweep(plan.sweep)
            self.account(self.repair.finished(plan, self.now, complete=complete))
        self.open |= self.repair.ready
        if self.repair.tells_all(self.now):
            self.blob = encode_marks(self.hub.streams, self.wall_ms)

    def read(self, plan: Plan) -> None:
        for span in plan.spans:
            for one in self.rows(*span):
                if self.repair.wants(one, self.now):
                    self.offer(one)

    def sweep(self, sweep: Sweep) -> None:
        from_ms, to_ms = sweep.part()
        rows = self.rows(from_ms, to_ms)
        # A page may end anywhere.
        if len(rows) > 20 and (at_ms := ms_of_id(rows[20].id)) > from_ms:
            rows, to_ms = self.rows(from_ms, at_ms), at_ms
        if sweep.phase is not Phase.PUBLISH:
            self.repair.note(sweep, rows, self.now)
        for one in rows if sweep.phase is Phase.PUBLISH else ():
            if self.repair.wants(one, self.now, sweep=sweep):
                if one.identity in sweep.copies:
                    self.hub.gave(one.identity, self.wall)
                self.offer(one)
        sweep.reached(to_ms, self.now)

    def rows(self, from_ms: int, to_ms: int) -> list[Envelope]:
        found = [
            one
            for readable, one in self.journal
            if readable <= self.now and from_ms <= ms_of_id(one.id) < to_ms
        ]
        return sorted(found, key=lambda one: (ms_of_id(one.id), one.router, one.epoch, one.seq))

    def account(self, closed: list[Closed]) -> None:
        self.gave_up += [hole for hole in closed if hole.ending is Ending.GIVEN_UP]

    # The fabric.

    def send(self, item: Envelope | Tick) -> None:
        lost = 0.0 if self.quiet else 0.25
        if item.origin == AWAY and self.now < self.cut_until:
            return
        for _ in range(1 + (self.dice.random() < 0.2)):
            if self.dice.random() >= lost:
                late = 0.0 if self.quiet else self.dice.choice([0.0, 0.0, 0.2, 2.0])
                heapq.heappush(self.feed, (self.now + late, next(self.order), item))

    def route(self, router: Router, message: int) -> None:
        """One message through one router, whatever becomes of it."""
        one = router.number(message)
        fate = self.dice.random()
        if fate < 0.1:
            # Refused: declared void, and its number came to nothing.
            router.void.append(one.seq)
            return
        if fate < 0.2:
            # Killed before, or while, it was stored: the broker gives it to another.
            if self.dice.random() < 0.5:
                self.store(one)
            self.crash(router)
            self.route_by_another(router, message)
            return
        self.store(one)
        if self.open:
            self.routed.add(one.identity)
        self.send(one)

    def store(self, one: Envelope) -> None:
        if self.replicated or one.origin == HOME:
            self.journal.append((self.now + self.dice.choice([0.0, 0.0, 2.0]), one))
        else:
            self.unsent.append(one)

    def route_by_another(self, router: Router, message: int) -> None:
        others = [r for r in self.routers if r.region == router.region and r is not router]
        self.route(self.dice.choice(others or [router]), message)

    def crash(self, router: Router) -> None:
        self.now += 0.001
        router.start()

    def step(self) -> None:
        dice = self.dice
        for router in self.routers:
            if dice.random() < 0.3:
                self.route(router, next(self.messages))
        if dice.random() < 0.01:
            self.cut_until = self.now + dice.uniform(0, 20)
        if dice.random() < 0.01:
            self.unreadable_until = self.now + dice.uniform(0, 8)
        if dice.random() < 0.01:
            # Stopped; what comes meanwhile waits, or is too much for the queue.
            self.now += dice.uniform(3.5, 30)
            self.feed = [item for item in self.feed if dice.random() < 0.5]
            heapq.heapify(self.feed)
        if dice.random() < 0.01:
            # Killed, and the next one is slow to come.
            self.now += dice.uniform(0, 5)
            self.begin(self.blob if self.blob is not None else None)

    def tick_all(self) -> None:
        for router in self.routers:
            self.send(router.tick())


def advance(world: World, steps: int, seconds: float = STEP) -> None:
    for n in range(steps):
        if not world.quiet:
            world.step()
        if n % 10 == 0 or seconds >= 1.0:
            world.tick_all()
        world.turn()
        world.now += seconds


def settle(world: World, seconds: int) -> None:
    """Nothing goes wrong any more, for so long."""
    world.quiet = True
    advance(world, 200)
    advance(world, seconds, 1.0)


def cut_off(world: World, seconds: int) -> None:
    """AWAY is cut off, and goes on; its rows come later, as many as went before."""
    dice = world.dice
    world.quiet, world.replicated, world.cut_until = True, False, world.now + seconds
    while world.now < world.cut_until:
        if dice.random() < 0.2:
            world.route(dice.choice(world.routers), next(world.messages))
        if dice.random() < 0.01:
            # It went both ways in, or was sent twice, one some minutes after the other.
            message = next(world.messages)
            for region in dice.sample([HOME, AWAY], 2):
                its = [router for router in world.routers if router.region == region]
                world.route(dice.choice(its), message)
                left = max(0, int(world.cut_until - world.now))
                advance(world, min(left, dice.choice([0, 0, 60, 480])), 1.0)
        if dice.random() < 0.005:
            world.crash(dice.choice(world.routers))
        theirs = [router for router in world.routers if router.region == AWAY]
        if dice.random() < 0.002 and len(theirs) > 1:
            # It is gone for good, and nobody starts in its stead.
            world.routers.remove(dice.choice(theirs))
        advance(world, 1, 1.0)
    world.replicated, healed = True, world.now
    for n, one in enumerate(world.unsent):
        world.journal.append((healed + n * seconds / len(world.unsent), one))
    world.unsent = []


def history(seed: int, steps: int) -> None:
    world = World(seed)
    advance(world, steps)
    settle(world, 300)
    assert_whole(world)


@pytest.mark.promise("D5")
@given(st.integers(0, 2**32), st.integers(20, 250))
@settings(max_examples=60)
def test_every_message_that_was_routed_is_published_once_and_no_hole_stays(
    seed: int, steps: int
) -> None:
    history(seed, steps)


@pytest.mark.promise("D5")
@pytest.mark.parametrize("seed", [903, 2034, 2370, 3141, 3811])
def test_what_a_router_routed_that_began_just_before_us_is_looked_for(seed: int) -> None:
    history(seed, 20)


@pytest.mark.promise("D5")
def test_what_a_stranger_routed_is_looked_for_by_the_next_gateway_too() -> None:
    history(87539, 20)


@pytest.mark.promise("D1", "D5")
@given(st.integers(0, 2**32), st.integers(11, 40))
@settings(max_examples=10)
@example(0, 20)
def test_what_a_region_routed_while_it_was_cut_off_for_long_comes_when_its_rows_have_come(
    seed: int, minutes: int
) -> None:
    world = World(seed)
    settle(world, 60)
    cut_off(world, minutes * 60)
    settle(world, minutes * 60 + 900)
    assert_whole(world)


def assert_whole(world: World) -> None:
    missed = world.routed - set(world.delivered)
    assert missed == set()
    assert world.hub.streams.missing() == {}
    assert world.repair.open_gaps == 0
    assert world.repair.ready
    assert world.gave_up == []
    assert set(world.delivered.values()) <= {1}

"""The data plane's hub, outbox, identities and token bucket are tested against what ours do.

What ours answer to random operations is in ``gateway/dataplane/tests/vectors/hub.txt``, which
``gateway/dataplane/tests/hub.rs`` replays. Here it is checked that the file says what
they answer today; ``python tests/gateway/test_hub_vectors.py`` writes it anew.

A line is an operation, and behind `` : `` the answer. Clocks are multiples of 125 ms, so that
seconds as floats are exact.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.frames import Variant
from gateway.hub import Hub, HubLimits, Subscription
from gateway.identities import SeenIdentities
from gateway.logs import Logs
from gateway.memory import Selection
from gateway.outbox import Account, Outbox, OutboxLimits
from gateway.protocol import ReaderLimits, Session
from gateway.publication import Publication
from newsfabric.closing import CloseReason
from newsfabric.envelope import Envelope, id_of
from newsfabric.topics import SlowPolicy, TopicPolicy, TopicTable

FILE: Final = Path(__file__).parents[2] / "gateway/dataplane/tests/vectors/hub.txt"
START_MS: Final = 1_700_000_000_000
TICK_MS: Final = 125
ROUNDS: Final = 8
STEPS: Final = 60

SLOW: Final[tuple[SlowPolicy, ...]] = ("conflate", "drop_oldest", "disconnect")
TABLE: Final = TopicTable(
    [
        *(TopicPolicy(pattern=f"slow.{slow}", slow=slow) for slow in SLOW),
        TopicPolicy(pattern="few", keep=3, latest=True),
        TopicPolicy(pattern="none", keep=0, latest=True),
        TopicPolicy(pattern="more.*", keep=6),
    ]
)
TOPICS: Final = ("few", "none", "more.a", "more.b", "more.c")


class Reader:
    """Somebody to subscribe; nothing is delivered here."""

    transport = "websocket"
    variant = Variant.RAW

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        raise AssertionError(publication)

    def close(self, reason: CloseReason) -> None:
        raise AssertionError(reason)


def envelope(
    topic: str, ms: int, identity: int, key: str | None, version: int | None, expires: int | None
) -> Envelope:
    return Envelope(
        id=id_of(ms, identity),
        identity=identity,
        topic=topic,
        body=b"1",
        published_ms=ms,
        origin="eu",
        # A log of long ago that isn't known: what a store has of it is past.
        router="r",
        epoch=0,
        seq=0,
        key=key,
        version=version,
        expires_ms=expires,
    )


def text(one: Envelope) -> str:
    version = -1 if one.version is None else one.version
    return f"{one.id.replace('-', '')}/{version}/{one.key or '-'}/{one.expires_ms or 0}"


def ids(publications: list[Publication]) -> str:
    return " ".join(one.envelope.id.replace("-", "") for one in publications) or "-"


def frame(number: int, size: int) -> bytes:
    return (f"{number:04}" * size)[:size].encode()


def outbox_lines(dice: random.Random) -> Iterator[str]:
    yield "outbox 2500 1500 1000"
    box = Outbox(OutboxLimits(hard_bytes=2500, soft_bytes=1500, soft_seconds=1.0), Account())
    now = 0
    for number in range(STEPS):
        now += TICK_MS * dice.randrange(4)
        size, roll = dice.randrange(4, 500), dice.randrange(10)
        if roll < 6:
            slow, key, version = dice.choice(SLOW), dice.choice("ab-"), dice.randrange(-1, 5)
            one = envelope(
                f"slow.{slow}",
                START_MS,
                7,
                None if key == "-" else key,
                None if version < 0 else version,
                None,
            )
            policy = TABLE.find(one.topic)
            assert policy is not None
            publication = Publication(one, policy, None)
            fits = box.push(frame(number, size), publication, now / 1000)
            said = f"push {number} {size} {now} {slow} {text(one)}"
        elif roll < 7:
            fits = box.push_firm(frame(number, size), now / 1000)
            said = f"firm {number} {size} {now}"
        elif roll < 9:
            taken = box.take(size * 2)
            numbers = "".join(f" {int(one[:4])}" for one in taken)
            yield f"take {sum(map(len, taken))} :{numbers}"
            continue
        else:
            yield f"clear : {box.clear()}" if size < 100 else f"len : {len(box)}"
            continue
        dropped = box.take_dropped()
        counts = f"{dropped.get('conflate', 0)} {dropped.get('drop_oldest', 0)}"
        yield f"{said} : {int(fits)} {box.pending_bytes} {counts}"


def seen_lines(dice: random.Random) -> Iterator[str]:
    limit = dice.randrange(5, 40)
    yield f"seen 20000 {limit}"
    seen = SeenIdentities(seconds=20.0, limit=limit)
    now = START_MS
    for _ in range(STEPS):
        now += TICK_MS * dice.randrange(60)
        one, other = dice.randrange(50), dice.randrange(50)
        seen.add(one, now / 1000)
        yield f"add {id_of(0, one).replace('-', '')} {now} : {len(seen)}"
        yield f"has {id_of(0, other).replace('-', '')} : {int(other in seen)}"


def bucket_lines(dice: random.Random) -> Iterator[str]:
    verbs, rate, refusals = dice.randrange(1, 8), dice.randrange(1, 8), dice.randrange(4)
    yield f"bucket {verbs} {rate} {refusals}"
    limits = ReaderLimits(verbs=verbs, verbs_per_second=rate, refusals=refusals)
    session = Session(TABLE, limits, 0.0)
    now = 0
    for _ in range(STEPS):
        now += TICK_MS * dice.choice([0, 0, 0, 1, 4, 16])
        yield f"admit {now} : {session.admit(now / 1000).value}"


class HubLines:
    """A hub, what its readers have, and all it was told."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.now = START_MS
        limits = HubLimits(topics=4, keys=2, identities=12, identity_seconds=20.0)
        self.hub = Hub(TABLE, Logs(START_MS), limits)
        self.subscriptions: dict[tuple[int, str], Subscription] = {}
        self.published = 0

    def lines(self) -> Iterator[str]:
        yield "hub 4 2 12 20000"
        for topic in TOPICS:
            policy = TABLE.find(topic)
            assert policy is not None
            yield f"policy {topic} {policy.keep} {int(policy.latest)}"
        for _ in range(2 * STEPS):
            self.now += TICK_MS * self.dice.randrange(40)
            turn = self.dice.choice(
                [self.publish] * 4 + [self.toggle, self.seed] + [self.rewind] * 3
            )
            yield turn(self.dice.choice(TOPICS))
            yield f"count : {self.hub.topics} {self.hub.identities} {self.hub.copies}"

    def message(self, topic: str, age_ms: int) -> Envelope:
        dice = self.dice
        # One in three comes again.
        identity = dice.randrange(60)
        return envelope(
            topic,
            self.now - age_ms,
            identity,
            dice.choice([None, "a", "b", "c"]),
            dice.choice([None, 1, 2]),
            dice.choice([None, None, self.now + dice.randrange(100_000)]),
        )

    def publish(self, topic: str) -> str:
        # Each copy that the feed brings has a number of its own.
        self.published += 1
        one = dataclasses.replace(self.message(topic, 0), epoch=START_MS, seq=self.published)
        news = self.hub.offer(one, self.now / 1000) is not None
        return f"publish {topic} {self.now} {text(one)} : {int(news)}"

    def toggle(self, topic: str) -> str:
        reader = self.dice.randrange(2)
        subscription = self.subscriptions.pop((reader, topic), None)
        if subscription is not None:
            self.hub.unsubscribe(subscription)
            return f"unsubscribe {reader} {topic}"
        self.subscriptions[reader, topic] = self.hub.subscribe(topic, Reader())
        return f"subscribe {reader} {topic}"

    def seed(self, topic: str) -> str:
        # What was routed before the hub began is the past, whatever else the feed has brought.
        began = self.now - START_MS
        ages = range(self.dice.randrange(5), 0, -1)
        history = list(
            {
                one.identity: one
                for one in (self.message(topic, began + 50_000 * age) for age in ages)
            }.values()
        )
        latest = [self.message(topic, 900_000)] if self.dice.random() < 0.5 else []
        complete = self.dice.random() < 0.5
        self.hub.warm(topic, history, latest, complete=complete, now=self.now / 1000)
        lists = " ".join(",".join(map(text, some)) or "-" for some in (history, latest))
        return f"seed {topic} {self.now} {int(complete)} {lists}"

    def rewind(self, topic: str) -> str:
        kind, number = self.dice.choice(
            [
                ("none", 0),
                ("last", self.dice.randrange(1, 7)),
                ("since", self.now - self.dice.randrange(200_000)),
                ("since-and-latest", self.now - self.dice.randrange(200_000)),
            ]
        )
        covered = self.dice.random() < 0.5
        said = f"rewind {topic} {self.now} {kind} {number} {int(covered)}"
        return f"{said} : {self.rewound(topic, kind, number, covered)}"

    def rewound(self, topic: str, kind: str, number: int, covered: bool) -> str:
        """What the desk does for a subscribe."""
        if covered and not self.hub.is_warm(topic):
            return "cold"
        memory, now = self.hub.memory(topic), self.now / 1000
        found = {
            "none": lambda: Selection([], covered=True),
            "last": lambda: memory.last(number, now),
            "since": lambda: memory.since(number, now),
            "since-and-latest": lambda: memory.since(number, now),
        }[kind]()
        if covered and not found.covered:
            return "short"
        replay = found.publications
        latest = memory.policy.latest and kind in ("none", "since-and-latest")
        return ids(memory.with_latest(replay, now) if latest else replay)


def vectors() -> str:
    """All lines; the same ones every time."""
    dice = random.Random(1812)
    lines: list[str] = []
    for _ in range(ROUNDS):
        lines += outbox_lines(dice)
        lines += seen_lines(dice)
        lines += bucket_lines(dice)
        lines += HubLines(dice).lines()
    return "\n".join(lines) + "\n"


def test_the_data_planes_vectors_are_what_the_hub_answers_today() -> None:
    assert FILE.read_text() == vectors()


if __name__ == "__main__":
    FILE.write_text(vectors())

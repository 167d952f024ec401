"""Vectors for tests of the data plane's outbox, identities and token bucket against Python's.

``dataplane/tests/vectors/outbox.txt`` has the results of the Python code for random
operations, and ``dataplane/tests/outbox.rs`` replays them. This test checks that the file
has today's results; ``python tests/gateway/test_outbox_vectors.py`` writes it again.

A line is an operation, and after `` : `` its result. Clocks are multiples of 125 ms, so that
seconds are exact as floats.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.memory.identities import SeenIdentities
from gateway.wire.outbox import Account, Outbox, OutboxLimits
from gateway.wire.protocol import Bucket, ReaderLimits
from gateway.wire.publication import Publication
from newsfabric.messages.envelope import Envelope, id_of
from newsfabric.topics import SlowPolicy, TopicPolicy, TopicTable

FILE: Final = Path(__file__).parents[2] / "dataplane/tests/vectors/outbox.txt"
START_MS: Final = 1_700_000_000_000
TICK_MS: Final = 125
ROUNDS: Final = 16
STEPS: Final = 60

SLOW: Final[tuple[SlowPolicy, ...]] = ("conflate", "drop_oldest", "disconnect")
TABLE: Final = TopicTable([TopicPolicy(pattern=f"slow.{slow}", slow=slow) for slow in SLOW])


def envelope(slow: SlowPolicy, key: str | None, version: int | None) -> Envelope:
    return Envelope(
        id=id_of(START_MS, 7),
        identity=7,
        topic=f"slow.{slow}",
        body=b"1",
        published_ms=START_MS,
        origin="eu",
        router="r",
        epoch=0,
        seq=0,
        key=key,
        version=version,
    )


def text(one: Envelope) -> str:
    version = -1 if one.version is None else one.version
    return f"{one.id.replace('-', '')}/{version}/{one.key or '-'}"


def frame(number: int, size: int) -> bytes:
    return (f"{number:04}" * size)[:size].encode()


def outbox_lines(dice: random.Random) -> Iterator[str]:
    yield "outbox 2500 1500 1000"
    dropped: collections.Counter[str] = collections.Counter()
    account = Account(dropped=lambda policy: dropped.update([policy]))
    box = Outbox(OutboxLimits(hard_bytes=2500, soft_bytes=1500, soft_seconds=1.0), account)
    now = 0
    for number in range(STEPS):
        now += TICK_MS * dice.randrange(4)
        size, roll = dice.randrange(4, 500), dice.randrange(10)
        if roll < 6:
            slow, key, version = dice.choice(SLOW), dice.choice("ab-"), dice.randrange(-1, 5)
            one = envelope(slow, None if key == "-" else key, None if version < 0 else version)
            policy = TABLE.find(one.topic)
            assert policy is not None
            publication = Publication(one, policy, None)
            fits = box.push(frame(number, size), publication, now / 1000)
            line = f"push {number} {size} {now} {slow} {text(one)}"
        elif roll < 7:
            fits = box.push_firm(frame(number, size), now / 1000)
            line = f"firm {number} {size} {now}"
        elif roll < 9:
            taken = box.take_frames(size * 2)
            numbers = "".join(f" {int(one[:4])}" for one in taken)
            yield f"take {sum(map(len, taken))} :{numbers}"
            continue
        else:
            yield f"clear : {box.clear()}" if size < 100 else f"len : {len(box)}"
            continue
        counts = f"{dropped['conflate']} {dropped['drop_oldest']}"
        dropped.clear()
        yield f"{line} : {int(fits)} {box.pending_bytes} {counts}"


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
    bucket = Bucket(limits, 0.0)
    now = 0
    for _ in range(STEPS):
        now += TICK_MS * dice.choice([0, 0, 0, 1, 4, 16])
        yield f"admit {now} : {bucket.admit(now / 1000).value}"


def vectors() -> str:
    """Return all lines; the same ones every time."""
    dice = random.Random(1812)
    lines: list[str] = []
    for _ in range(ROUNDS):
        lines += outbox_lines(dice)
        lines += seen_lines(dice)
        lines += bucket_lines(dice)
    return "\n".join(lines) + "\n"


def test_the_data_planes_vectors_are_what_the_hub_answers_today() -> None:
    assert FILE.read_text() == vectors()


if __name__ == "__main__":
    FILE.write_text(vectors())

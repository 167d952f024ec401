"""``newsfabric.topics.matches`` decides as RabbitMQ's topic exchange does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from amqp_links import PATIENCE, Inbox, RabbitHandle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from newsfabric.amqp import Declare, Message
from newsfabric.topics import matches

pytestmark = pytest.mark.broker

PATTERNS = ["", "#", "*", "a", "a.b", "a.*", "*.b", "a.#", "#.b", "#.#", "*.#", "#.*", "*.*"]
PATTERNS += ["a.#.b", "#.a.#", "a.*.b", ".", "a.", ".a", "..", "*.", ".*", "#.", ".#", "a..b"]
PATTERNS += ["a.*.#.b", "*.*.*", "#.*.#", "A", "a#", "#a", "a*", "**", "##", "ä.*", "a.##.b"]
KEYS = ["", "a", "b", "A", "a.b", "a.c", "a.b.c", "a.c.b", "a.b.b", ".", "..", "a.", ".a", "a..b"]
KEYS += ["a...b", "*", "#", "a.*", "a.#", "a#", "#a", "ä.b", "a.c.d.b", "b.a", "x.a.y", ".b", "**"]

words = st.sampled_from(["a", "b", "", "*", "#"])
dotted = st.lists(words, min_size=1, max_size=6).map(".".join)
# RabbitMQ 4.3 takes at most two "#" in a binding's key.
bindable = dotted.filter(lambda pattern: pattern.split(".").count("#") <= 2)


EXAMPLES = itertools.count()


async def queues_by_key(
    rabbit: RabbitHandle, name: str, patterns: Sequence[str], keys: Sequence[str]
) -> dict[tuple[str, str], bool]:
    """Return for each pattern and key whether RabbitMQ routed the message."""
    link = await rabbit.link()
    exchange = f"{name}-topics"
    queues = [f"{name}-{number}" for number in range(len(patterns))]

    async def declare(broker: Declare) -> None:
        await broker.exchange(exchange, durable=False)
        for queue, pattern in zip(queues, patterns, strict=True):
            await broker.queue(queue, exclusive=True, durable=False)
            await broker.bind(queue, exchange, pattern)

    await link.on_connect(declare)
    publisher = await link.publisher()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(publisher.publish(exchange, Message(key, b"")) for key in keys))
        # Queues keep the order: this is the last message of each queue.
        await asyncio.gather(*(publisher.publish("", Message(q, b"end")) for q in queues))
    found: dict[tuple[str, str], bool] = {}
    for queue, pattern in zip(queues, patterns, strict=True):
        inbox = await Inbox().consume(link, queue)
        got = set()
        while (message := (await inbox.next()).message).body != b"end":
            got.add(message.topic)
        found.update({(pattern, key): key in got for key in keys})
    await link.close()
    return found


async def test_on_the_awkward_cases(rabbit: RabbitHandle, name: str) -> None:
    routed = await queues_by_key(rabbit, name, PATTERNS, KEYS)
    assert routed == {(p, k): matches(p, k) for p in PATTERNS for k in KEYS}


@settings(
    max_examples=5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    patterns=st.lists(bindable, min_size=20, max_size=20, unique=True),
    keys=st.lists(dotted, min_size=60, max_size=60, unique=True),
)
async def test_on_anything(
    rabbit: RabbitHandle, name: str, patterns: list[str], keys: list[str]
) -> None:
    # A broker deletes the last example's exclusive queues a little later.
    routed = await queues_by_key(rabbit, f"{name}-{next(EXAMPLES)}", patterns, keys)
    assert routed == {(p, k): matches(p, k) for p in patterns for k in keys}

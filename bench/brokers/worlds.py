"""The cost of messages for the brokers of a whole world, their latency, and the start of a world.

The world that carries the messages has one region with one broker of each kind. The cost of the
idle brokers (canaries, reports) is subtracted. A message to one user is gold to brokers, so it has
no figure of its own.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Final

from bench import latency
from bench.brokers.rabbitmqs import Rabbitmq
from bench.brokers.turns import Figure, Found
from bench.growth.worlds import cores_taken, roles
from bench.outages import TOPICS
from bench.programs import build
from bench.world import running_world

LOAD: Final = latency.Load(readers=20, rate=300.0, seconds=10.0)
IDLE_SECONDS: Final = 10.0
READY: Final = Figure("a world of two regions is ready after", "s")
_BROKERS: Final = {"client": "client broker", "core": "core broker", "retail": "box's broker"}


def starting(rabbitmq: Rabbitmq) -> Found:
    """Start a world of two regions, and stop it."""
    with running_world(*rabbitmq.options) as (_, took):
        return {READY: took}


def carrying(rabbitmq: Rabbitmq) -> Found:
    """Start a world of one region, publish messages of each class, and stop it."""
    build()
    found: dict[Figure, float] = {}
    with running_world("--regions", "oregon", *rabbitmq.options) as (status, _):
        region = status["regions"][0]
        brokers = {role: pids for role, pids in roles(region).items() if role in _BROKERS}

        def publish(topic: str) -> latency.Delays:
            return latency.between(region, region, LOAD, topic=topic)

        # Warm up: the rest of the start is done, and code that is used first is loaded.
        publish(next(iter(TOPICS)))
        _, (idle,) = cores_taken([brokers], lambda: time.sleep(IDLE_SECONDS))
        for topic, klass in TOPICS.items():
            began = time.monotonic()
            delays, (busy,) = cores_taken([brokers], functools.partial(publish, topic))
            took = time.monotonic() - began
            found |= _of_messages(klass, each_message(busy, idle, took), delays)
    return found


def each_message(
    busy: Mapping[str, float], idle: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """Return the µs for each message of :data:`LOAD`, by role.

    ``busy`` and ``idle`` are the shares of a core that a role takes, ``busy`` over ``seconds``.
    """
    messages = LOAD.rate * (latency.WARM_UP_SECONDS + LOAD.seconds)
    return {role: (taken - idle[role]) * seconds * 1e6 / messages for role, taken in busy.items()}


def _of_messages(
    klass: str, spent: Mapping[str, float], delays: latency.Delays
) -> dict[Figure, float]:
    of = f"{klass}, {LOAD.rate:.0f} messages/s"
    found = {
        Figure(f"{of}: CPU of the {name} for each", "µs", 0): spent[role]
        for role, name in _BROKERS.items()
    }
    found[Figure(f"{of}: publisher to reader, p50", "ms")] = delays.p50
    found[Figure(f"{of}: publisher to reader, p99", "ms")] = delays.p99
    missing = Figure(f"{of}: deliveries missing, most of a turn", "", 0, max, at_most=0)
    found[missing] = delays.expected - delays.count
    return found

"""The cost of a message for a whole world, as the world gets more boxes, and more regions.

Per message: the processor time of all processes while messages are published, minus that of the
idle world (with its canaries and reports). The class is silver. There are no readers: the work of
boxes for readers is measured by :mod:`bench.growth.gateway`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import uvloop

from bench.growth.table import Figure, Growth
from bench.latency import publish_steadily
from bench.meter import processor_seconds
from bench.router import TOPIC
from bench.world import running_world
from newsfabric.amqp import Message, Properties
from newsfabric.amqp.link import connect
from newsfabric.topology import PUBLISH

_RATE: Final = 50.0
# Caches fill, connections open, and the rest of the start is done.
_WARM_UP_SECONDS: Final = 10.0
# Time for the last messages, which are still on their way.
_AFTER_SECONDS: Final = 1.0
_REGIONS: Final = ("oregon", "dublin", "tokyo", "sydney")
_UNIT: Final = "CPU µs"
# As in production: each box then has two feeds, and receives each message from both.
_CORE_NODES: Final = ("--core-nodes", "3")

T = TypeVar("T")
#: Process ids by role, in a region.
Roles = Mapping[str, Sequence[int]]


def boxes(sizes: Sequence[int], seconds: float) -> Growth:
    """Measure one region with each number of boxes."""
    steps = []
    for size in sizes:
        (spent,) = _each_message(seconds, "--regions", _REGIONS[0], "--retail", str(size))
        core, routers, box = spent["core"], spent["routers"], spent["retail"] + spent["gateways"]
        steps.append((size, (sum(spent.values()), core, routers, box / size)))
    return Growth(
        "Boxes of one region, and a message",
        "boxes",
        (
            Figure("all", _UNIT, 0),
            Figure("core nodes", _UNIT, 0),
            Figure("routers", _UNIT, 0),
            Figure("each box", _UNIT, 0),
        ),
        tuple(steps),
    )


def regions(sizes: Sequence[int], seconds: float) -> Growth:
    """Measure each number of regions with one box; all messages are published in the first."""
    steps = []
    for size in sizes:
        here, *others = _each_message(seconds, "--regions", ",".join(_REGIONS[:size]))
        first, other = sum(here.values()), sum(sum(one.values()) for one in others)
        each = other / len(others) if others else 0.0
        steps.append((size, (first + other, first, here["core"], each)))
    return Growth(
        "Regions, and a message",
        "regions",
        (
            Figure("all", _UNIT, 0),
            Figure("first region", _UNIT, 0),
            Figure("… its core nodes", _UNIT, 0),
            Figure("each other region", _UNIT, 0),
        ),
        tuple(steps),
    )


def both(number: int, boxes_each: int, seconds: float) -> Growth:
    """Measure ``number`` regions of ``boxes_each``; all messages are published in the first.

    No other part measures such a world: :mod:`bench.growth.model` predicts it from those.
    """
    names = ",".join(_REGIONS[:number])
    spent = _each_message(seconds, "--regions", names, "--retail", str(boxes_each))
    whole = sum(sum(one.values()) for one in spent)
    return Growth(
        "Several regions of several boxes, and a message",
        "regions",
        (Figure("boxes of each", "", 0), Figure("all", _UNIT, 0)),
        ((number, (boxes_each, whole)),),
    )


def roles(region: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the living processes of a region of ``newsfabric status --json``."""
    found: dict[str, list[int]] = {
        name: [] for name in ("client", "core", "retail", "routers", "services", "gateways")
    }
    for broker in region["brokers"]:
        found[broker["role"]].append(broker["pid"])
    for service in region["services"]:
        name = "routers" if "-router-" in service["name"] else "services"
        found[name].append(service["pid"])
    for gateway in region["gateways"]:
        found["gateways"] += [gateway["pid"], gateway["dataplane_pid"]]
    return {name: [pid for pid in pids if pid is not None] for name, pids in found.items()}


def _each_message(seconds: float, *options: str) -> list[dict[str, float]]:
    """Return the µs that each role of each region spends on a message."""
    with running_world(*_CORE_NODES, *options) as (status, _):
        found = [roles(region) for region in status["regions"]]
        brokers = status["regions"][0]["brokers"]
        entrance = next(broker["amqp_url"] for broker in brokers if broker["role"] == "client")

        def publish() -> int:
            sent = uvloop.run(_publish(entrance, seconds))
            time.sleep(_AFTER_SECONDS)
            return sent

        uvloop.run(_publish(entrance, min(seconds, _WARM_UP_SECONDS)))
        _, idle = cores_taken(found, lambda: time.sleep(seconds + _AFTER_SECONDS))
        start = time.monotonic()
        sent, busy = cores_taken(found, publish)
        each = (time.monotonic() - start) * 1e6 / sent
    return [
        {role: (cores - less[role]) * each for role, cores in one.items()}
        for one, less in zip(busy, idle, strict=True)
    ]


def cores_taken(found: Sequence[Roles], work: Callable[[], T]) -> tuple[T, list[dict[str, float]]]:
    """Return the result of ``work``, and the share of a core that each role took meanwhile.

    ``found`` has the roles of each region, and the shares are in the same order.
    """
    start, before = time.monotonic(), [_spent(region) for region in found]
    done = work()
    took = time.monotonic() - start
    after = [_spent(region) for region in found]
    return done, [
        {role: (now - then[role]) / took for role, now in one.items()}
        for one, then in zip(after, before, strict=True)
    ]


def _spent(region: Roles) -> dict[str, float]:
    return {role: sum(map(processor_seconds, pids)) for role, pids in region.items()}


async def _publish(amqp_url: str, seconds: float) -> int:
    link = await connect([amqp_url], name="bench")
    try:
        publisher = await link.publisher()
        await publisher.ready()

        async def send(body: bytes) -> None:
            await publisher.publish(PUBLISH, Message(TOPIC, body, Properties(app_id="bench")))

        return await publish_steadily(send, rate=_RATE, seconds=seconds)
    finally:
        await link.close()

"""A router at rising message rates: the rate that it keeps up with, and the first bottleneck.

Router, broker, store and publisher share the machine, as in :mod:`bench.router`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

import psutil
import uvloop

from bench import router
from bench.growth.table import Figure, Growth
from bench.latency import publish_steadily
from bench.meter import processor_seconds
from bench.store import cassandra
from newsfabric import topology
from newsfabric.amqp import Message, Properties
from newsfabric.amqp.link import connect

# The router keeps up if routed messages are behind the offered ones by at most this share.
_BEHIND: Final = 0.05
_DRAINED_WITHIN: Final = 60.0
_WHO: Final = ("router", "broker", "store", "publisher")


def rate(store: str, sizes: Sequence[int], seconds: float) -> Growth:
    """Measure with ``memory`` or ``cassandra``; SetupError without Java or Cassandra."""
    where = contextlib.nullcontext("memory:") if store == "memory" else cassandra()
    steps = []
    with (
        where as url,
        router.running_core() as node,
        router.running_router(node, url) as process,
    ):
        # Warm up: caches fill, and Cassandra's node compiles.
        uvloop.run(router.fill(node.amqp_url, router.WARM_UP))
        _drained(process)
        pids = _pids(process.pid)
        for offered in sizes:
            found = uvloop.run(_offer(node.amqp_url, process, pids, offered, seconds))
            steps.append((offered, found))
            if not _drained(process):
                break
    return Growth(
        f"Messages a second to one router, {store} store",
        "offered",
        (
            Figure("sent", "messages/s", 0),
            Figure("routed", "messages/s", 0),
            *(Figure(who, "of a core") for who in _WHO),
        ),
        tuple(steps),
        saturation(steps),
    )


def saturation(steps: Sequence[tuple[int, Sequence[float]]]) -> str:
    """Return in words the rate that was kept up with, and the busiest process at the next rate.

    A step has the offered rate; the rates sent and routed; and for each of ``_WHO`` its share of a
    core.
    """
    most = kept(steps)
    for offered, (sent, routed, *cores) in steps:
        if not _keeps_up(offered, sent, routed):
            share, who = max(zip(cores, _WHO, strict=True))
            late = "the publisher isn't that fast" if sent <= routed else "messages wait"
            return (
                f"It kept up with {most:,.0f} messages a second. At {offered:,} {late}; "
                f"busiest was the {who}, {share:.2f} of a core."
            )
    return f"It kept up with all that was offered, {most:,.0f} messages a second."


def kept(steps: Sequence[tuple[int, Sequence[float]]]) -> float:
    """Return the messages routed in a second at the last step that was kept up with."""
    most = 0.0
    for offered, (sent, routed, *_) in steps:
        if not _keeps_up(offered, sent, routed):
            break
        most = routed
    return most


def _keeps_up(offered: float, sent: float, routed: float) -> bool:
    return min(sent, routed) >= offered * (1 - _BEHIND)


def _pids(router_pid: int) -> Mapping[str, list[int]]:
    def named(program: str) -> list[int]:
        children = psutil.Process().children(recursive=True)
        return [child.pid for child in children if child.name() == program]

    return {
        "router": [router_pid],
        "broker": named("beam.smp"),
        "store": named("java"),
        "publisher": [os.getpid()],
    }


async def _offer(
    amqp_url: str,
    process: router.BenchRouter,
    pids: Mapping[str, list[int]],
    offered: int,
    seconds: float,
) -> tuple[float, ...]:
    """Return a step's values; see :func:`saturation`."""

    def spent() -> list[float]:
        return [sum(map(processor_seconds, pids[who])) for who in _WHO]

    async def send(body: bytes) -> None:
        properties = Properties(content_type="application/json", app_id="bench")
        message = Message(router.TOPIC, body, properties)
        await publisher.publish(topology.INTAKE, message)

    link = await connect([amqp_url], name="bench")
    try:
        publisher = await link.publisher()
        await publisher.ready()
        routed, before, start = process.routed(), spent(), time.monotonic()
        sent = await publish_steadily(send, rate=offered, seconds=seconds)
        took = time.monotonic() - start
        routed = process.routed() - routed
        cores = [(after - was) / took for after, was in zip(spent(), before, strict=True)]
        return sent / took, routed / took, *cores
    finally:
        await link.close()


def _drained(process: router.BenchRouter) -> bool:
    """Wait until the router routes no more; return False after the time limit."""
    deadline = time.monotonic() + _DRAINED_WITHIN
    before = -1.0
    while (now := process.routed()) != before:
        if time.monotonic() > deadline:
            return False
        before = now
        time.sleep(1)
    return True

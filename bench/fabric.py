"""The fabric as a whole: a world's start, delays through it, a revocation, a router's rate."""

from __future__ import annotations

from typing import Any, Final

import uvloop

from bench import chain, latency, revocation, router
from bench.rows import Row
from bench.world import running_world

READERS: Final = 100
RATE: Final = 100.0
SECONDS: Final = 20.0


def measure() -> list[Row]:
    """Start a world, measure it, take it down; then a router alone."""
    with running_world() as (status, took):
        rows = [Row(figure="newsfabric up, ready", value=took, unit="s", at_most=45)]
        rows += _latency_rows(status)
        rows.append(revocation.measure(status))
    rate = router.messages_per_second()
    figure = "router, memory store"
    rows.append(Row(figure=figure, value=rate, unit="messages/s", digits=0, at_least=5_000))
    return rows


def _latency_rows(status: dict[str, Any]) -> list[Row]:
    """The bare chain has one reader, so one reader is compared with it.

    Of a hundred each waits for the sends to those before it, and all are one Python program.
    """
    here, there = status["regions"][:2]
    bare = uvloop.run(chain.measure(here, rate=RATE, seconds=SECONDS))
    one = _delays(here, here, 1)
    same = _delays(here, here, READERS)
    other = _delays(here, there, READERS)
    return [
        Row(figure="bare chain of brokers (the floor), p50", value=bare.p50, unit="ms"),
        Row(figure="bare chain of brokers (the floor), p99", value=bare.p99, unit="ms"),
        _delay("one reader, same region, p50", one.p50, 2.5, bare.p50),
        _delay("one reader, same region, p99", one.p99, 10, bare.p99),
        _delay(f"{READERS} readers, same region, p50", same.p50, 6),
        _delay(f"{READERS} readers, same region, p99", same.p99, 20),
        _delay("other region, p50 above the same", other.p50 - same.p50, 5),
        _delay("other region, p99 above the same", other.p99 - same.p99, 5),
        _deliveries("deliveries, same region", same),
        _deliveries("deliveries, other region", other),
    ]


def _delays(source: dict[str, Any], at: dict[str, Any], readers: int) -> latency.Delays:
    """From a publisher in ``source`` to readers of the first gateway of region ``at``."""
    return uvloop.run(
        latency.through_fabric(
            next(b["amqp_url"] for b in source["brokers"] if b["role"] == "client"),
            at["gateways"][0]["websocket_url"],
            readers=readers,
            rate=RATE,
            seconds=SECONDS,
        )
    )


def _delay(figure: str, ms: float, limit: float, floor: float | None = None) -> Row:
    return Row(figure=figure, value=ms, unit="ms", at_most=limit, floor=floor)


def _deliveries(figure: str, delays: latency.Delays) -> Row:
    count, expected = delays.count, delays.expected
    return Row(figure=figure, value=count, unit="", digits=0, at_least=expected)

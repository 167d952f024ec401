"""The fabric as a whole: a world's start, delays through it, a revocation, a router's rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Final

import uvloop

from bench import chain, latency, revocation, router
from bench.rows import Row
from bench.world import running_world

READERS: Final = 100
RATE: Final = 100.0
SECONDS: Final = 7.0
ROUNDS: Final = 3


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
    """Medians of three rounds, in each of which all take turns.

    The machine isn't equally fast at all times: measured one after the other, once each, the same
    fabric had 7.1 times the bare chain's delay in one run and 2.1 times in the next.
    """
    here, there = status["regions"][:2]
    bare, same, other = zip(*(_round(here, there) for _ in range(ROUNDS)), strict=True)
    p50 = {name: median(d.p50 for d in of) for name, of in _named(bare, same, other)}
    p99 = {name: median(d.p99 for d in of) for name, of in _named(bare, same, other)}
    return [
        Row(figure="bare chain of brokers (the floor), p50", value=p50["bare"], unit="ms"),
        Row(figure="bare chain of brokers (the floor), p99", value=p99["bare"], unit="ms"),
        _delay("same region, p50", p50["same"], 6, p50["bare"]),
        _delay("same region, p99", p99["same"], 20, p99["bare"]),
        _delay("other region, p50 above the same", p50["other"] - p50["same"], 5),
        _delay("other region, p99 above the same", p99["other"] - p99["same"], 5),
        _deliveries("deliveries, same region", same),
        _deliveries("deliveries, other region", other),
    ]


def _round(here: dict[str, Any], there: dict[str, Any]) -> tuple[latency.Delays, ...]:
    """The bare chain, readers in the publisher's region, and readers in the other one."""
    bare = uvloop.run(chain.measure(here, rate=RATE, seconds=SECONDS))
    return bare, _delays(here, here), _delays(here, there)


def _named(*of: tuple[latency.Delays, ...]) -> Iterator[tuple[str, tuple[latency.Delays, ...]]]:
    return zip(("bare", "same", "other"), of, strict=True)


def _delays(source: dict[str, Any], at: dict[str, Any]) -> latency.Delays:
    """From a publisher in ``source`` to readers of the first gateway of region ``at``."""
    return uvloop.run(
        latency.through_fabric(
            next(b["amqp_url"] for b in source["brokers"] if b["role"] == "client"),
            at["gateways"][0]["websocket_url"],
            readers=READERS,
            rate=RATE,
            seconds=SECONDS,
        )
    )


def _delay(figure: str, ms: float, limit: float, floor: float | None = None) -> Row:
    return Row(figure=figure, value=ms, unit="ms", at_most=limit, floor=floor)


def _deliveries(figure: str, delays: Sequence[latency.Delays]) -> Row:
    count, expected = (sum(d.count for d in delays), sum(d.expected for d in delays))
    return Row(figure=figure, value=count, unit="", digits=0, at_least=expected)

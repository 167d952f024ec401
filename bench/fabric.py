"""The fabric as a whole: a world's start, delays through it, a revocation."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

import uvloop

from bench import chain, latency, revocation
from bench.programs import build
from bench.rows import BenchRow
from bench.world import running_world

LOAD: Final = latency.Load(readers=100, rate=100.0, seconds=7.0)
ROUNDS: Final = 3


def measure() -> list[BenchRow]:
    """Start a world, measure it, stop it."""
    build()
    with running_world() as (status, took):
        rows = [BenchRow("newsfabric up, ready", took, "s", at_most=45)]
        rows += _latency_rows(status)
        rows.append(revocation.measure(status))
    return rows


def _latency_rows(status: dict[str, Any]) -> list[BenchRow]:
    """Return the medians of three rounds, in each of which all take turns.

    The machine isn't equally fast at all times: measured one after the other, once each, the
    fabric's p50 was 7.1 times the bare chain's; in turns, on the same day, 2.7 times.
    """
    here, there = status["regions"][:2]
    bare, same, other = zip(*(_round(here, there) for _ in range(ROUNDS)), strict=True)
    bare_p50, bare_p99 = _medians(bare)
    same_p50, same_p99 = _medians(same)
    other_p50, other_p99 = _medians(other)
    return [
        BenchRow("bare chain of brokers (the floor), p50", bare_p50, "ms"),
        BenchRow("bare chain of brokers (the floor), p99", bare_p99, "ms"),
        _delay("same region, p50", same_p50, 6, bare_p50),
        _delay("same region, p99", same_p99, 20, bare_p99),
        _delay("other region, p50 above the same", other_p50 - same_p50, 5),
        _delay("other region, p99 above the same", other_p99 - same_p99, 5),
        _deliveries("deliveries, same region", same),
        _deliveries("deliveries, other region", other),
    ]


def _round(here: dict[str, Any], there: dict[str, Any]) -> tuple[latency.Delays, ...]:
    """Measure the bare chain, readers in the publisher's region, and readers in the other one."""
    bare = uvloop.run(chain.measure(here, rate=LOAD.rate, seconds=LOAD.seconds))
    return (
        bare,
        latency.between(here, here, LOAD),
        latency.between(here, there, LOAD),
    )


def _medians(of: Sequence[latency.Delays]) -> tuple[float, float]:
    """Return the median of p50 and the median of p99, in ms."""
    return median(d.p50 for d in of), median(d.p99 for d in of)


def _delay(figure: str, ms: float, limit: float, floor: float | None = None) -> BenchRow:
    return BenchRow(figure, ms, "ms", at_most=limit, floor=floor)


def _deliveries(figure: str, delays: Sequence[latency.Delays]) -> BenchRow:
    count, expected = (sum(d.count for d in delays), sum(d.expected for d in delays))
    return BenchRow(figure, count, "", digits=0, at_least=expected)

"""``python -m bench``: measures everything and prints one table."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from bench import chain, latency, router
from bench.world import running_world

READERS = 100
RATE = 100.0
SECONDS = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One figure: what was measured, what was asked, and whether that was reached."""

    figure: str
    measured: str
    asked: str
    reached: bool | None = None


def _at_most(figure: str, measured: float, limit: float, unit: str) -> Row:
    return Row(figure, f"{measured:.1f} {unit}", f"≤ {limit:g} {unit}", measured <= limit)


def _latency_rows(status: dict[str, Any]) -> list[Row]:
    here, there = status["regions"][:2]
    source = next(b["amqp_url"] for b in here["brokers"] if b["role"] == "client")
    bare = uvloop.run(chain.measure(here, rate=RATE, seconds=SECONDS))
    same, other = (
        uvloop.run(
            latency.through_fabric(
                source,
                region["gateways"][0]["websocket_url"],
                readers=READERS,
                rate=RATE,
                seconds=SECONDS,
            )
        )
        for region in (here, there)
    )
    return [
        Row(
            "bare chain of brokers, p50 / p99",
            f"{bare.p50:.1f} / {bare.p99:.1f} ms",
            "(for comparison)",
        ),
        _at_most("same region, p50", same.p50, 6, "ms"),
        _at_most("same region, p99", same.p99, 20, "ms"),
        Row("same region, p50 over the bare chain", f"{same.p50 / bare.p50:.2f} ×", ""),
        _at_most("other region, p50 above the same", other.p50 - same.p50, 5, "ms"),
        _at_most("other region, p99 above the same", other.p99 - same.p99, 5, "ms"),
        _complete("deliveries, same region", same),
        _complete("deliveries, other region", other),
    ]


def _complete(figure: str, delays: latency.Delays) -> Row:
    return Row(figure, f"{delays.count:,}", f"{delays.expected:,}", delays.count == delays.expected)


def _router_row() -> Row:
    rate = router.messages_per_second()
    return Row("router, memory store", f"{rate:,.0f} messages/s", "≥ 5,000", rate >= 5000)


def _print(rows: list[Row]) -> None:
    table = Table(title=f"newsfabric on {os.cpu_count()} cores, Python {platform.python_version()}")
    for column in ("figure", "measured", "asked", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    marks = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}
    for row in rows:
        table.add_row(row.figure, row.measured, row.asked, marks[row.reached])
    Console().print(table)


def main() -> None:
    """Start a world, measure, print."""
    print("starting a world …", file=sys.stderr)
    with running_world() as (status, took):
        rows = [_at_most("newsfabric up, ready", took, 45, "s")]
        print("measuring delays …", file=sys.stderr)
        rows += _latency_rows(status)
    print("measuring the router …", file=sys.stderr)
    rows.append(_router_row())
    _print(rows)


if __name__ == "__main__":
    main()

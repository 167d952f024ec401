"""``python -m bench.brokers``: all comparisons, one after another (half an hour for three).

The installed RabbitMQ is the floor of all that `scripts/setup rabbitmq4 SUITE` has unpacked, and of
those in NEWSFABRIC_BENCH_RABBITMQ=DIR,DIR.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Final

from bench.brokers import node, shovel, worlds
from bench.brokers.rabbitmqs import VARIABLE, Rabbitmq, compared_rabbitmqs
from bench.brokers.turns import Found, in_turns, rows
from bench.programs import ROOT
from bench.rows import BenchRow, measured, print_table
from newsfabric.errors import SetupError

ROUNDS: Final = 3
COMPARISONS: Final[Mapping[str, Callable[[Rabbitmq], Found]]] = {
    "a node": node.measure,
    "a shovel": shovel.measure,
    "messages through a world": worlds.carrying,
    "the start of a world": worlds.starting,
}


def measure() -> list[BenchRow]:
    """Return the rows of each comparison; SetupError without two RabbitMQs to compare."""
    rabbitmqs = compared_rabbitmqs(ROOT, os.environ)
    if len(rabbitmqs) < 2:
        raise SetupError(
            "there are no two RabbitMQs to compare: `scripts/setup rabbitmq4` brings another one, "
            f"or name folders in {VARIABLE}"
        )
    found: list[BenchRow] = []
    for name, compared in COMPARISONS.items():
        print(f"  {name} …", file=sys.stderr)
        found += rows(in_turns(rabbitmqs, compared, ROUNDS))
    return found


if __name__ == "__main__":
    print_table([("brokers", measured(measure))])

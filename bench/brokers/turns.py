"""Measurements that each RabbitMQ gets in turns, and the rows made from them."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from bench.brokers.rabbitmqs import Rabbitmq
from bench.rows import BenchRow, NotMeasured, measured


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure in its ``unit``; ``of_turns`` makes one value of those of all turns."""

    name: str
    unit: str
    digits: int = 1
    of_turns: Callable[[Sequence[float]], float] = median
    at_most: float | None = None


#: The values of one turn.
Found = Mapping[Figure, float]


def in_turns(
    rabbitmqs: Sequence[Rabbitmq], measure: Callable[[Rabbitmq], Found], rounds: int
) -> dict[str, list[Found]]:
    """Return the values that ``measure`` found for each RabbitMQ, by name, in each of ``rounds``.

    For a failed turn the reason is printed to stderr, and the other turns continue.
    """
    turns: dict[str, list[Found]] = {each.name: [] for each in rabbitmqs}
    for number in range(1, rounds + 1):
        for each in rabbitmqs:
            print(f"    RabbitMQ {each.name}, turn {number} of {rounds} …", file=sys.stderr)
            found = measured(functools.partial(measure, each))
            if isinstance(found, NotMeasured):
                print(f"    not measured: RabbitMQ {each.name}: {found.why}", file=sys.stderr)
            else:
                turns[each.name].append(found)
    return turns


def rows(turns: Mapping[str, Sequence[Found]]) -> Iterator[BenchRow]:
    """Yield a row for each figure and RabbitMQ of ``turns``; the first is the others' floor."""
    figures = dict.fromkeys(figure for each in turns.values() for found in each for figure in found)
    first = next(iter(turns))
    for figure in figures:
        values = {
            name: figure.of_turns([found[figure] for found in each])
            for name, each in turns.items()
            if each
        }
        for name, value in values.items():
            yield BenchRow(
                f"{figure.name}, {name}",
                value,
                figure.unit,
                digits=figure.digits,
                at_most=figure.at_most,
                floor=None if name == first else values.get(first),
            )

"""``python -m bench.growth.model``: predictions for larger fabrics from a report of
``bench.growth``.

Straight lines through the measurements, and sums of them. Two measurements have no line,
``mixed-box`` and ``mixed-world``: the model predicts them and prints its error. Pure, but ``main``.

A worked example: if a message costs the core nodes 1,000 µs with one box and 1,300 µs with four,
the line is 900 + 100 * boxes. Forty boxes cost 4,900 µs, and three nodes of four cores, with seven
tenths of them used, carry 12 * 0.7 / 0.0049 = 1,714 messages a second.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from bench.growth.rate import kept
from newsfabric.errors import SetupError
from wholesale.scaler.capacity import capacity_for
from wholesale.scaler.drivers import MOST_BOXES
from wholesale.scaler.plan import ScalingPlan

BEGIN: Final = "<!-- bench.growth.model --write: from here -->\n"
END: Final = "<!-- to here -->\n"
#: A size, and the values of its columns in their order.
Step = tuple[int, tuple[float, ...]]

# As in deploy/terraform/prices.toml: the size of machines, and the arrival of readers.
_BOX_CORES: Final = 4
_PER_BOX: Final = 100_000
_REGIONS: Final = 2
_WITHIN: Final = 1_800.0
_CORE_NODES: Final = 3
#: Readers at the peak, and cores of each core node.
_SIZES: Final = ((50_000, 4), (500_000, 4), (5_000_000, 8))
# The rest is for bursts.
_USED: Final = 0.7
# In the kernel, for one end of a reader's connection (docs/reports/headlines.md).
_KERNEL_BYTES: Final = 4_400

_HELP: Final = """Print, as Markdown, what REPORT (a folder that bench.growth wrote) says of larger
fabrics.

\b
  python -m bench.growth.model docs/reports/2026-11-25-growth
  python -m bench.growth.model docs/reports/2026-11-25-growth --write docs/scaling.md
"""


@dataclasses.dataclass(frozen=True, slots=True)
class GrowthLine:
    """``base + slope * n``."""

    base: float
    slope: float

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> GrowthLine:
        """Fit with the least squares, through two sizes at least."""
        slope, base = statistics.linear_regression(*zip(*points, strict=True))
        return cls(base, slope)

    def at(self, n: float) -> float:
        """Return the value of the line at ``n``."""
        return self.base + self.slope * n

    def written(self, unit: str, each: str, *, digits: int = 0) -> str:
        """Return the line as text."""
        sign = "-" if self.slope < 0 else "+"
        slope = f"{abs(self.slope):,.{digits}f}"
        return f"{self.base:,.0f} {unit} {sign} {slope} {unit} for each {each}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """All costs: processor time in µs, memory in bytes."""

    #: A delivery, by readers of the gateway.
    delivery: tuple[tuple[int, float], ...]
    #: All idle readers: their cost for a second, and their memory; by their number.
    idle: GrowthLine
    memory: GrowthLine
    #: A message to a gateway, without its deliveries.
    arrival: float
    #: A message, by boxes of the region.
    core: GrowthLine
    router: float
    #: A message to a box without readers, both of its programs.
    box: float
    #: A message in the region that publishes it, by regions; and in each other one.
    first: GrowthLine
    other: float
    #: Messages a second that one router kept up with, storing in Cassandra.
    router_most: float

    @classmethod
    def of(cls, parts: Mapping[str, Sequence[Step]]) -> Model:
        """Return the model of the steps of each part."""
        readers, boxes, regions = parts["readers"], parts["boxes"], parts["regions"]
        delivery = tuple((size, values[0]) for size, values in readers)
        # A topic for each reader: a message is one delivery.
        _, (*_, control, data, count) = min(parts["topics"], key=lambda step: abs(step[1][-1] - 1))
        return cls(
            delivery=delivery,
            idle=GrowthLine.through([(size, size * values[3]) for size, values in readers]),
            memory=GrowthLine.through([(size, size * values[4]) for size, values in readers]),
            arrival=control + data - count * delivery[0][1],
            core=GrowthLine.through([(size, values[1]) for size, values in boxes]),
            router=statistics.median(values[2] for _, values in boxes),
            box=statistics.median(values[3] for _, values in boxes),
            first=GrowthLine.through([(size, values[1]) for size, values in regions]),
            other=statistics.median(values[3] for size, values in regions if size > 1),
            router_most=kept(parts["rate-cassandra"]),
        )

    def delivery_at(self, readers: float) -> float:
        """Return the µs of a delivery by a gateway with this many readers: interpolated between two
        sizes, and as at the last size beyond it."""
        before = self.delivery[0]
        for after in self.delivery:
            if readers <= after[0]:
                if after == before:
                    return after[1]
                share = (readers - before[0]) / (after[0] - before[0])
                return before[1] + share * (after[1] - before[1])
            before = after
        return before[1]

    def gateway(self, readers: int, messages: float, deliveries: float) -> float:
        """Return the cores that a gateway takes, for these messages and deliveries a second."""
        waiting = self.idle.at(readers)
        sent = messages * self.arrival + deliveries * self.delivery_at(readers)
        return (waiting + sent) / 1e6

    def world(self, regions: int, boxes: int) -> float:
        """Return a message's µs for all processes, with ``boxes`` in each region and no reader."""
        one_box = self.first.at(regions) + (regions - 1) * self.other
        return one_box + regions * (boxes - 1) * (self.core.slope + self.box)

    def core_most(self, boxes: int, cores: int) -> float:
        """Return the messages a second that core nodes with ``cores`` in total carry to ``boxes``,
        if the work is spread evenly over them."""
        return cores * _USED * 1e6 / self.core.at(boxes)

    def all_most(self, readers: int) -> float:
        """Return the messages a second that a box can deliver to each of its ``readers``."""
        free = _BOX_CORES * _USED * 1e6 - self.idle.at(readers)
        return free / (self.arrival + readers * self.delivery_at(readers))


def predictions(model: Model, parts: Mapping[str, Sequence[Step]]) -> str:
    """Return predictions beside the measurements, as a table in Markdown."""
    ((readers, (topics, rate, cores)),) = parts["mixed-box"]
    ((regions, (boxes, spent)),) = parts["mixed-world"]
    deliveries = rate * readers / topics
    rows = (
        (
            f"a gateway with {readers:,} readers on {topics:.0f} topics, {rate:.1f} messages "
            f"and {deliveries:,.0f} deliveries a second: cores",
            model.gateway(readers, rate, deliveries),
            cores,
            3,
        ),
        (
            f"a world of {regions} regions of {boxes:.0f} boxes, a message: µs of all programs",
            model.world(regions, round(boxes)),
            spent,
            0,
        ),
    )
    lines = ["| what | foretold | measured | off by |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {what} | {value:,.{digits}f} | {seen:,.{digits}f} | {(value - seen) / seen:+.0%} |"
        for what, value, seen, digits in rows
    ]
    return "\n".join(lines) + "\n"


def sizes(model: Model) -> str:
    """Return each size's cost, and the rates at which it reaches limits, as a Markdown table."""
    lines = [
        "| readers at the peak | boxes a region | readers on a box | their memory, with the "
        "kernel's | core nodes busy at 50 messages/s | messages/s: one router | … core nodes | "
        "… to all readers of a box |",
        "| ---: " * 8 + "|",
    ]
    for readers, cores in _SIZES:
        plan = ScalingPlan(per_box=_PER_BOX, zones=3, least=3, most=MOST_BOXES)
        found = capacity_for(readers // _REGIONS, 0, _WITHIN, plan)
        boxes = max(found.before.boxes, found.after.boxes)
        each = math.ceil(readers / _REGIONS / boxes)
        nodes = _CORE_NODES * cores
        memory = (model.memory.at(each) + each * _KERNEL_BYTES) / 1e6
        lines.append(
            f"| {readers:,} | {boxes} | {each:,} | {memory:,.0f} MB | "
            f"{50 * model.core.at(boxes) / 1e6:.2f} of {nodes} | {model.router_most:,.0f} | "
            f"{model.core_most(boxes, nodes):,.0f} | {model.all_most(each):,.1f} |"
        )
    return "\n".join(lines) + "\n"


def formulas(model: Model) -> str:
    """Return the lines and constants, as a table in Markdown."""
    small, large = model.delivery[0], model.delivery[-1]
    rows = (
        (
            "a delivery",
            f"{small[1]:.2f} µs at {small[0]:,} readers, {large[1]:.2f} at {large[0]:,}",
        ),
        ("readers who wait, a second", model.idle.written("µs", "reader", digits=2)),
        ("their memory, without the kernel's", model.memory.written("bytes", "reader")),
        ("a message to a gateway, without its deliveries", f"{model.arrival:,.0f} µs"),
        (
            "a message to the core nodes",
            model.core.written("µs", "box"),
        ),
        ("… to the routers", f"{model.router:,.0f} µs"),
        ("… to a box without readers, broker and gateway", f"{model.box:,.0f} µs"),
        (
            "… to the whole region that publishes it, with one box",
            model.first.written("µs", "region"),
        ),
        ("… to each other region, with one box", f"{model.other:,.0f} µs"),
    )
    lines = ["| what | processor time or memory |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {what} | {costs} |" for what, costs in rows)]) + "\n"


def model_text(report: Mapping[str, Any]) -> str:
    """Return all tables; SetupError if a part that is needed wasn't measured."""
    needed = "readers", "topics", "rate-cassandra", "boxes", "regions", "mixed-box", "mixed-world"
    missing = [name for name in needed if "rows" not in report["parts"].get(name, {})]
    if missing:
        raise SetupError(f"the report lacks {', '.join(missing)}: measure all parts")
    parts = {name: _steps(report["parts"][name]["rows"]) for name in needed}
    model = Model.of(parts)
    return "\n".join([formulas(model), predictions(model, parts), sizes(model)])


def _steps(rows: Sequence[Mapping[str, float]]) -> list[Step]:
    steps = []
    for row in rows:
        size, *values = row.values()
        steps.append((int(size), tuple(values)))
    return steps


def written(text: str, tables: str) -> str:
    """Return ``text`` with ``tables`` between its two marks; SetupError if a mark is missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SetupError(f"there is no {BEGIN.strip()} with {END.strip()} after it")
    return f"{head}{begin}\n{tables}\n{end}{tail}"


@click.command(help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("report", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--write",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Put the tables into this file, between its marks.",
)
def main(report: Path, write: Path | None) -> None:
    """Print the model of ``report``."""
    try:
        measured = json.loads((report / "report.json").read_text(encoding="utf-8"))
        tables = model_text(measured)
        if write is None:
            click.echo(tables, nl=False)
        else:
            text = write.read_text(encoding="utf-8")
            write.write_text(written(text, tables), encoding="utf-8")
    except (SetupError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m bench.growth.model")

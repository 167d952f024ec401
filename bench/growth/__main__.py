"""``python -m bench.growth``: measures at several sizes, prints tables, writes a report."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from bench.growth import gateway, worlds
from bench.growth.rate import rate
from bench.growth.stored import stored
from bench.growth.table import Growth, print_tables, write
from bench.meter import machine
from bench.programs import build, off_the_server_core
from bench.rows import NotMeasured, measured

_HELP: Final = """Measure how costs grow, and print tables; what is going on goes to stderr.

PARTS are readers and topics (of one gateway, beside its floor), rate and rate-cassandra (messages a
second to one router, until it doesn't keep up), boxes (of a region) and regions (what each further
one costs a message), mixed-box and mixed-world (what the model foretells from the others), store
and store-cassandra (messages held); all if none is named. A part that can't run says why; the
others go on. Nothing else should run on the machine.

\b
  python -m bench.growth                                     everything
  python -m bench.growth readers topics                      two parts
  python -m bench.growth --quick                             tiny sizes: whether it works
  python -m bench.growth --report docs/reports/2026-11-25-growth
  python -m bench.growth.model docs/reports/2026-11-25-growth     what it says of larger sizes
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part: the arguments of ``measure`` for all sizes, and for a quick check that it works."""

    measure: Callable[..., Growth]
    full: tuple[Any, ...]
    quick: tuple[Any, ...]

    def whole(self) -> Growth:
        """Measure at all sizes."""
        return self.measure(*self.full)

    def smallest(self) -> Growth:
        """Measure at tiny sizes, to check that the part works."""
        return self.measure(*self.quick)


def _on_a_box(measure: Callable[..., Coroutine[Any, Any, Growth]]) -> Callable[..., Growth]:
    def run(*arguments: Any) -> Growth:
        build()
        with off_the_server_core():
            return uvloop.run(measure(*arguments))

    return run


_RATES: Final = (500, 1_000, 2_000, 2_500, 3_000, 3_500, 4_000, 6_000, 8_000, 12_000)
_FEW_RATES: Final = (100, 200)
_STORED: Final = (10_000, 100_000, 1_000_000)
_FEW_STORED: Final = (500, 1_000)
PARTS: Final[Mapping[str, Part]] = {
    "readers": Part(
        _on_a_box(gateway.readers),
        full=((1_000, 3_000, 10_000, 30_000, 100_000), 4, 25),
        quick=((200, 400), 1, 0.5),
    ),
    "topics": Part(
        _on_a_box(gateway.topics), full=((1, 100, 10_000, 100_000), 10_000), quick=((1, 200), 100)
    ),
    "rate": Part(rate, full=("memory", _RATES, 15), quick=("memory", _FEW_RATES, 2)),
    "rate-cassandra": Part(
        rate, full=("cassandra", _RATES, 15), quick=("cassandra", _FEW_RATES, 2)
    ),
    "boxes": Part(worlds.boxes, full=((1, 2, 4, 8), 30), quick=((1, 2), 2)),
    "regions": Part(worlds.regions, full=((1, 2, 3, 4), 30), quick=((1, 2), 2)),
    "mixed-box": Part(_on_a_box(gateway.mixed), full=(50_000, 10, 10, 30), quick=(200, 10, 10, 2)),
    "mixed-world": Part(worlds.both, full=(3, 2, 30), quick=(2, 2, 2)),
    "store": Part(stored, full=("sqlite", _STORED), quick=("sqlite", _FEW_STORED)),
    "store-cassandra": Part(stored, full=("cassandra", _STORED), quick=("cassandra", _FEW_STORED)),
}


@click.command(help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)), metavar="[PARTS]...")
@click.option("--quick", is_flag=True, help="Tiny sizes, which tell whether it works.")
@click.option("--report", type=click.Path(file_okay=False, path_type=Path), help="A folder.")
def main(parts: tuple[str, ...], quick: bool, report: Path | None) -> None:
    """Measure ``parts``."""
    found: dict[str, Growth | NotMeasured] = {}
    command = shlex.join(["python", "-m", "bench.growth", *sys.argv[1:]])
    try:
        for name in parts or PARTS:
            print(f"measuring: {name} …", file=sys.stderr)
            found[name] = measured(PARTS[name].smallest if quick else PARTS[name].whole)
            if report is not None:
                # After each part, so that a run that is killed leaves its finished results.
                write(report, found, command, machine())
    finally:
        print_tables(found)


if __name__ == "__main__":
    main(prog_name="python -m bench.growth")

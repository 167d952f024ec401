"""``python -m bench``: measures, and prints one table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from bench import connect, crowd, delivery, fabric, idle, repair, resume
from bench.programs import build, off_the_server_core
from bench.rows import Row, print_table
from newsfabric.errors import SetupError

_HELP: Final = """Measure newsfabric and print a table; what is going on goes to stderr.

PARTS are fabric (delays through a whole world, and a router's rate), delivery, connect, idle and
crowd (the gateway beside its floor), resume and repair; all if none is named. A floor is measured
in the same run: compare ratios, not figures of different days.

\b
  python -m bench                       everything (12 minutes)
  python -m bench delivery connect      two parts
  python -m bench --json out.json       keep the figures too
"""


def _beside_the_floor(measure: Callable[[Path], Coroutine[Any, Any, list[Row]]]) -> list[Row]:
    programs = build()
    with off_the_server_core():
        return uvloop.run(measure(programs))


PARTS: Final[Mapping[str, Callable[[], list[Row]]]] = {
    "fabric": fabric.measure,
    "delivery": lambda: _beside_the_floor(delivery.measure),
    "connect": lambda: _beside_the_floor(connect.measure),
    "idle": lambda: _beside_the_floor(idle.measure),
    "crowd": lambda: _beside_the_floor(crowd.measure),
    "resume": resume.measure,
    "repair": repair.rows,
}


@click.command(help=_HELP)
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)), metavar="[PARTS]...")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the figures there.")
def main(parts: tuple[str, ...], file: Path | None) -> None:
    """Measure ``parts``."""
    sections = []
    for name in parts or PARTS:
        print(f"measuring: {name} …", file=sys.stderr)
        try:
            sections.append((name, PARTS[name]()))
        except SetupError as exc:
            raise click.ClickException(str(exc)) from exc
    print_table(sections)
    if file is not None:
        found = {name: [row.as_json() for row in rows] for name, rows in sections}
        file.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m bench")

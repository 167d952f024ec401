"""``python -m bench``: measures, and prints one table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from bench import (
    board,
    board_page,
    commit_log,
    connect,
    crowd,
    delivery,
    drain,
    fabric,
    failover,
    far,
    headlines,
    idle,
    login,
    losses,
    mailbox,
    outages,
    publishers,
    repair,
    resume,
    router,
    scaler,
    stalled,
    start,
    store,
    upgrade,
    watching,
)
from bench.programs import build, off_the_server_core
from bench.rows import BenchRow, Section, as_json, measured, print_table

_HELP: Final = """Measure newsfabric and print a table; what is going on goes to stderr.

PARTS are fabric (delays through a whole world, a revocation), router (its rate, and the delay it
adds), store (Cassandra, a router on it, bytes on its disk), commit-log (three nodes that sync
before they answer, beside three that don't), delivery, connect, login, idle and
crowd (the gateway beside its floor), stalled (10,000 readers who take nothing beside 1,000 who do),
upgrade (its processes replaced under load), drain (10,000 readers are sent away in a minute),
resume (a crowd comes back), mailbox (a crowd that is logged in does), repair (messages that were
lost on the way), start (of a gateway, with a million messages in the store), losses (a core node, a
router, a shovel, a store node is killed), outages (publishers wait while a broker is away),
failover (a web page whose gateway or region goes), publishers (the libraries in Java, PHP and
Python), board (what it costs those who report and a
frontdesk), board-page (the operations board in Chromium), scaler (its decision for a thousand
boxes), watching (metrics and reports with 10,000 readers), headlines (what others say of their
systems: docs/reports/headlines.md) and far (two regions with 80 ms between them); all if none is
named. A part that can't run says why; the others go on. A floor is measured in the same run:
compare ratios, not figures of different days.

`python -m bench.brokers` compares the RabbitMQs that are here, in turns.

\b
  python -m bench                       everything (25 to 40 minutes)
  python -m bench delivery connect      two parts
  python -m bench --json out.json       keep the figures too
"""


Measure = Callable[[], list[BenchRow]]


def _beside_the_floor(measure: Callable[[], Coroutine[Any, Any, list[BenchRow]]]) -> list[BenchRow]:
    build()
    with off_the_server_core():
        return uvloop.run(measure())


def _with_programs(measure: Measure) -> list[BenchRow]:
    build()
    return measure()


PARTS: Final[Mapping[str, Measure]] = {
    "fabric": fabric.measure,
    "router": router.measure,
    "store": store.measure,
    "commit-log": commit_log.measure,
    "delivery": lambda: _beside_the_floor(delivery.measure),
    "connect": lambda: _beside_the_floor(connect.measure),
    "login": lambda: _beside_the_floor(login.measure),
    "idle": lambda: _beside_the_floor(idle.measure),
    "crowd": lambda: _beside_the_floor(crowd.measure),
    "stalled": lambda: _with_programs(stalled.measure),
    "upgrade": lambda: _with_programs(lambda: uvloop.run(upgrade.measure())),
    "drain": lambda: _with_programs(lambda: uvloop.run(drain.measure())),
    "resume": lambda: _with_programs(resume.measure),
    "mailbox": lambda: _with_programs(mailbox.measure),
    "repair": lambda: _with_programs(repair.measure),
    "start": lambda: _with_programs(start.measure),
    "losses": lambda: _with_programs(losses.measure),
    "outages": outages.measure,
    "failover": failover.measure,
    "publishers": publishers.measure,
    "board": board.measure,
    "board-page": board_page.measure,
    "scaler": scaler.measure,
    "watching": lambda: _beside_the_floor(watching.measure),
    "headlines": lambda: _beside_the_floor(headlines.measure),
    "far": far.measure,
}


@click.command(help=_HELP)
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)), metavar="[PARTS]...")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the figures there.")
def main(parts: tuple[str, ...], file: Path | None) -> None:
    """Measure ``parts``."""
    sections: list[Section] = []
    try:
        for name in parts or PARTS:
            print(f"measuring: {name} …", file=sys.stderr)
            sections.append((name, measured(PARTS[name])))
    finally:
        # After an interrupt too: the finished measurements took their time.
        print_table(sections)
        if file is not None:
            text = json.dumps(as_json(sections), indent=2, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m bench")

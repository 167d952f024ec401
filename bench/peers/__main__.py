"""``python -m bench.peers``: compares, prints tables, writes a report."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import uvloop

from bench.peers.catalogue import PEERS, Peer
from bench.peers.play import Plan, Under, rounds
from bench.peers.report import Compared, print_tables, write
from bench.programs import build, off_the_server_core
from newsfabric.errors import SetupError

_HELP: Final = """Compare the gateway with its peers: the same readers and payloads, a core each.

PEERS are names of servers; all that are installed if none is given. One that is missing is named
and left out; `scripts/setup peers` installs them. Nothing else should run on the machine.

\b
  python -m bench.peers                                  eight cases, three rounds
  python -m bench.peers newsfabric ws nchan --rounds 1   three of them, once
  python -m bench.peers --case 1:200 --case 100:200      two cases: TOPICS:BYTES
  python -m bench.peers --case 1:1024:deflate            compressed; or stalled, or storm
  python -m bench.peers --report docs/reports/2026-11-23-peers
"""
_CASES: Final = (
    *("1:200", "10:200", "100:200", "1:1024", "1:16384"),
    *("1:1024:deflate", "1:16384:stalled", "1:200:storm"),
)
_HARDER: Final = [under.value for under in Under if under]
_CASE: Final = re.compile(
    rf"([1-9]\d{{0,3}}):([1-9]\d{{1,4}})(?::({'|'.join(_HARDER)}))?", re.ASCII
)
#: Bounds of a payload: its stamp needs the least, and there is prose up to the most.
_LEAST_BYTES: Final = 100
_MOST_BYTES: Final = 65_536
_NAMES: Final = [peer.name for peer in PEERS]


def _cases(
    _context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> list[tuple[int, int, Under]]:
    found = []
    for value in values:
        parts = _CASE.fullmatch(value)
        if parts is None or not _LEAST_BYTES <= int(parts[2]) <= _MOST_BYTES:
            text = (
                f"{value!r} isn't TOPICS:BYTES, as 10:200, nor with one of {', '.join(_HARDER)} "
                f"behind it, as 10:200:storm; {_LEAST_BYTES} to {_MOST_BYTES} bytes"
            )
            raise click.BadParameter(text, param=parameter)
        found.append((int(parts[1]), int(parts[2]), Under(parts[3] or "")))
    return found


@click.command(help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(_NAMES), metavar="[PEERS]...")
@click.option("--readers", type=click.IntRange(10, 18_000), default=5_000, show_default=True)
@click.option("--rounds", "count", type=click.IntRange(1, 99), default=3, show_default=True)
@click.option(
    "--messages",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    help="Messages for each reader in a run, within --seconds.",
)
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True)
@click.option(
    "--case",
    "cases",
    multiple=True,
    default=_CASES,
    show_default=True,
    callback=_cases,
    metavar="TOPICS:BYTES[:HARDER]",
    help="Topics that readers share, and bytes of payload; again for another case. HARDER: "
    "deflate (compressed), stalled (1 % read nothing), storm (90 % reconnect at once).",
)
@click.option("--report", type=click.Path(file_okay=False, path_type=Path), help="A folder.")
def main(
    names: tuple[str, ...],
    readers: int,
    count: int,
    messages: int,
    seconds: float,
    cases: list[tuple[int, int, Under]],
    report: Path | None,
) -> None:
    """Compare ``names``."""
    wanted = [peer for peer in PEERS if not names or peer.name in names]
    missing = {peer.name: why for peer in wanted if (why := peer.missing()) is not None}
    for name, why in missing.items():
        _print_line(f"left out: {name}: {why}")
    peers = [peer for peer in wanted if peer.name not in missing]
    try:
        build()
    except SetupError as exc:
        sys.exit(f"error: {exc}")
    results: list[Compared] = []
    command = shlex.join(["python", "-m", "bench.peers", *sys.argv[1:]])
    with off_the_server_core():
        for topics, size, under in cases:
            plan = Plan(
                readers=readers,
                topics=topics,
                size=size,
                messages=messages,
                seconds=seconds,
                under=under,
            )
            results.append(_compared(peers, plan, count, missing))
            if report is not None:
                # After each, so that an interrupted comparison leaves its finished results.
                write(report, results, command, count)
    print_tables(results)
    if report is not None:
        _print_line(f"the report is {report / 'report.md'}")


def _compared(peers: Sequence[Peer], plan: Plan, count: int, missing: dict[str, str]) -> Compared:
    found, failed = uvloop.run(rounds(peers, plan, count, _print_line))
    for name, why in failed.items():
        _print_line(f"failed: {name}: {why}")
    return Compared(plan, found, {**missing, **failed})


def _print_line(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main(prog_name="python -m bench.peers")

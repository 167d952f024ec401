"""``python -m bench.profile``: plays loads, profiles, prints a table, writes flame graphs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.profile.loads import LOADS
from bench.profile.recording import Profile, Recorder, as_json, require_tools
from bench.programs import ROOT
from bench.rows import NotMeasured, measured
from newsfabric.errors import SetupError

_HELP: Final = """Profile a gateway and a router under load; what is going on goes to stderr.

PARTS are delivery (a message to 10,000 readers, four times a second), connect (15,000 readers come,
subscribe and go, again and again) and router (a full queue is routed); all if none is named. Of
each process there is a flame graph, and the three functions that most of its samples were in.
py-spy looks at control planes and routers, perf at data planes; one that is missing or forbidden is
named, and the other goes on. Ctrl-C ends it with what there is.

\b
  python -m bench.profile                                 all three, ten seconds each
  python -m bench.profile delivery --seconds 30           one of them, longer
  python -m bench.profile router --json --out router-before
"""
_FOLDER: Final = ROOT / "dist" / "profile"


@click.command(help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("parts", nargs=-1, type=click.Choice(list(LOADS)), metavar="[PARTS]...")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 600),
    default=10.0,
    show_default=True,
    help="Seconds of each recording.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=_FOLDER,
    show_default="dist/profile",
    help="A folder for the flame graphs and costs.json.",
)
@click.option("--json", "as_text", is_flag=True, help="Print JSON instead of a table.")
def main(parts: tuple[str, ...], seconds: float, out: Path, as_text: bool) -> None:
    """Profile ``parts``."""
    try:
        require_tools()
    except SetupError as exc:
        sys.exit(f"error: {exc}")
    recorder = Recorder(out)
    interrupted = False
    try:
        for name in parts or LOADS:
            print(f"profiling: {name} …", file=sys.stderr)
            _play(name, recorder, seconds)
    except KeyboardInterrupt:
        interrupted = True
    if as_text:
        print(json.dumps(as_json(recorder.found), indent=2, ensure_ascii=False))
    else:
        _print_table(recorder.found)
    print(f"flame graphs are in {out}", file=sys.stderr)
    if interrupted:
        sys.exit(130)


def _play(name: str, recorder: Recorder, seconds: float) -> None:
    failed = measured(lambda: LOADS[name](recorder, seconds))
    if failed is not None:
        recorder.found[name] = failed


def _print_table(found: Mapping[str, Profile | NotMeasured]) -> None:
    table = Table(title="where processor time goes")
    table.add_column("process")
    for column in ("of a core", "samples", "share"):
        table.add_column(column, justify="right")
    table.add_column("highest costs", overflow="fold")
    for name, one in found.items():
        table.add_section()
        if isinstance(one, NotMeasured):
            table.add_row(name, "", "", "", escape(f"not measured: {one.why}"))
            continue
        first = name, f"{one.cores:.1%}", f"{one.costs.samples:,}"
        for cost in one.costs.highest:
            table.add_row(*first, f"{cost.share:.1%}", escape(cost.what))
            first = "", "", ""
        if one.note:
            table.add_row("", "", "", "", escape(one.note))
    Console(width=max(Console().width, 110)).print(table)


if __name__ == "__main__":
    main(prog_name="python -m bench.profile")

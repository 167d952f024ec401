"""``newsfabric logs list``, ``logs missing`` and ``logs void``: the numbers that each router has
routed, those that gateways lack, and those that an operator gives up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.table import Table

from newsfabric.console import console
from newsfabric.errors import ConfigError, NewsfabricError
from newsfabric.safe_output import confirm, echo, terminal_safe
from newsfabric.store import Store, open_store
from newsfabric.store.logs import DirectoryRow, Log, NumberState
from newsfabric.store.rules import MAX_SPAN
from newsfabric.topics import load_topics
from operations.cli.options import examples, json_option, state_option
from operations.worlds import running_world

T = TypeVar("T")
_RUN: Final = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
# Numbers of one log that one command may make void: a mistyped digit mustn't write for hours.
_MOST: Final = 100_000
_WIDE: Final = 200
_SECONDS: Final = 5.0


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        click.option(
            "--topics",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="NEWSFABRIC_TOPICS",
            help="topics.toml, with --store.",
        ),
        click.option(
            "--store",
            metavar="URL",
            envvar="NEWSFABRIC_STORE",
            show_envvar=True,
            help="The fabric's store.  [default: that of the world in --state]",
        ),
    ):
        command = option(command)
    return state_option(command)


@click.group()
def logs() -> None:
    """The logs: the messages of each life of each router, by number.

    A log is open while its router lives. If a log without an end stands still for a minute,
    another router of its region closes it.
    """


@logs.command(
    "list",
    epilog=examples(
        "newsfabric logs list",
        "newsfabric logs list --open --region oregon",
        "newsfabric logs list --json --store sqlite:news.db --topics topics.toml",
    ),
)
@_options
@click.option("--region", metavar="NAME", help="Of this region alone.")
@click.option("--open", "only_open", is_flag=True, help="Those that have not ended.")
def list_logs(
    region: str | None,
    only_open: bool,
    as_json: bool,
    **at: Any,
) -> None:
    """List all logs that the directory has, the oldest first."""

    async def read(store: Store) -> list[DirectoryRow]:
        found = []
        for its_region, day in await store.log_days():
            if region in (None, its_region):
                found += await store.directory(its_region, day)
        return [row for row in found if row.ended is None or not only_open]

    rows = sorted(_run(read, **at), key=lambda row: (row.log.region, row.log.epoch, row.log.router))
    if as_json:
        echo(json.dumps([_document(row) for row in rows], indent=2))
    elif not rows:
        echo("no logs")
    else:
        terminal = console()
        # Programs read the lines in a pipe: wide enough that no line is folded.
        (terminal if terminal.is_terminal else console(width=_WIDE)).print(_table(rows))


@logs.command(
    epilog=examples(
        "newsfabric logs missing",
        "newsfabric logs missing --gateway http://127.0.0.1:9090 --json",
    ),
)
@state_option
@click.option(
    "--gateway",
    "gateways",
    metavar="URL",
    multiple=True,
    help="A gateway's admin port; may be repeated.  [default: those of the world]",
)
@json_option
def missing(state: Path, gateways: tuple[str, ...], as_json: bool) -> None:
    """Ask gateways which numbers they lack.

    These exist, and no store has given them yet. Exits with 1 if a gateway can't be asked.
    """
    urls = dict(zip(gateways, gateways, strict=True)) or {
        each.name: each.url for each in running_world(state).processes if each.kind == "gateway"
    }
    answers = {name: _ask_gateway(url) for name, url in urls.items()}
    if as_json:
        echo(json.dumps(answers, indent=2))
    else:
        for name, answer in answers.items():
            _say_missing(name, answer)
    if any("error" in answer for answer in answers.values()):
        raise SystemExit(1)


def _ask_gateway(url: str) -> dict[str, Any]:
    """Return the reply of the gateway's ``/logs``, or ``{"error": reason}``."""
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter("write it as http://HOST:PORT", param_hint="'--gateway'")
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/logs", timeout=_SECONDS) as response:  # noqa: S310
            answer = json.load(response)
    except (OSError, ValueError) as exc:
        return {"error": str(exc)}
    if not isinstance(answer, dict) or not isinstance(answer.get("logs"), list):
        return {"error": "no gateway answers there"}
    return answer


def _say_missing(name: str, answer: dict[str, Any]) -> None:
    if "error" in answer:
        echo(f"{name}: can't be asked: {answer['error']}", err=True)
        return
    if not answer["logs"]:
        echo(f"{name}: nothing is missing")
    for log in answer["logs"]:
        runs = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in log["missing"])
        echo(f"{name}: {log['region']} {log['router']} {log['epoch']}: {runs}")
    if answer["more"]:
        echo(f"{name}: and of {answer['more']:,} more logs")
    # Gateways of the previous release don't report these.
    for log in answer.get("unlisted", ()):
        echo(f"{name}: {log['region']} {log['router']} {log['epoch']}: not in the directory")


@logs.command(
    epilog=examples(
        "newsfabric logs void oregon oregon-router-1 1735689600000 41-43",
        "newsfabric logs void oregon oregon-router-1 1735689600000 41 --yes",
    ),
)
@_options
@click.argument("region")
@click.argument("router")
@click.argument("epoch", type=click.IntRange(0))
@click.argument("numbers", metavar="A[-B]")
@click.option("--yes", is_flag=True, help="Don't ask.")
def void(
    region: str, router: str, epoch: int, numbers: str, yes: bool, as_json: bool, **at: Any
) -> None:
    """Declare numbers of a log as lost for good.

    No gateway looks for them any more. Use it for numbers that a quorum of disks has really lost.
    Messages that the log's own region can read whole stay, and so do numbers of an open log that
    aren't settled. The command can't be taken back.

    --store must be the store of the log's own region: with Cassandra, dc=REGION.
    """
    log = Log(region, router, epoch)
    first, last = _run_of(numbers)

    async def not_there(store: Store) -> list[int]:
        await _check(store, log, last)
        there: set[int] = set()
        for start in range(first, last + 1, MAX_SPAN):
            end = min(last, start + MAX_SPAN - 1)
            found = await store.numbers(log, first=start, last=end, limit=MAX_SPAN, at_home=True)
            there |= {number.seq for number in found if number.state is not NumberState.HALF}
        return [seq for seq in range(first, last + 1) if seq not in there]

    async def make_void(store: Store) -> list[int]:
        # Checked again: numbers may have arrived while the operator thought about it.
        still = await not_there(store)
        await store.void(log, still)
        return still

    lost = _run(not_there, region=region, **at)
    if lost and not yes:
        confirm(f"{len(lost)} numbers are lost for good, and their messages?")
    if lost:
        lost = _run(make_void, region=region, **at)
    if as_json:
        echo(json.dumps({"void": lost, "left_alone": last - first + 1 - len(lost)}))
    else:
        echo(f"{len(lost)} made void, {last - first + 1 - len(lost)} left alone")


async def _check(store: Store, log: Log, last: int) -> None:
    """Raise NewsfabricError unless all numbers of ``log`` up to ``last`` are settled, or up to its
    end."""
    rows = await store.directory(log.region, log.day, at_home=True)
    row = next((row for row in rows if row.log == log), None)
    if row is None:
        raise NewsfabricError(
            f"no log of router {log.router}, epoch {log.epoch} in region {log.region}:"
            " `newsfabric logs list` shows those that there are"
        )
    if row.ended is not None and last > row.ended:
        raise NewsfabricError(f"this log ended at {row.ended}: nobody looks beyond that")
    if row.ended is None and last > row.low:
        raise NewsfabricError(
            f"this log is open, and settled up to {row.low}: what comes after that is its router's"
        )


def _run_of(text: str) -> tuple[int, int]:
    found = _RUN.fullmatch(text)
    if found is None:
        raise click.BadParameter("write numbers as 41 or 41-43", param_hint="'A[-B]'")
    first, last = int(found[1]), int(found[2] or found[1])
    if not (1 <= first <= last < 2**63 and last - first < _MOST):
        text = f"from 1 on, the smaller one first, at most {_MOST:,} of them"
        raise click.BadParameter(terminal_safe(text), param_hint="'A[-B]'")
    return first, last


def _run(
    ask: Callable[[Store], Coroutine[Any, Any, T]],
    *,
    state: Path,
    store: str | None,
    topics: Path | None,
    region: str | None = None,
) -> T:
    async def run() -> T:
        async with _opened(state, store, topics, region) as opened:
            return await ask(opened)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def _opened(
    state: Path, url: str | None, topics: Path | None, region: str | None
) -> AsyncIterator[Store]:
    if url is None:
        world = running_world(state)
        url, topics = world.stores[world.region(region).name], world.topics
    if topics is None:
        raise ConfigError("--store takes --topics, too: how long things are kept is written there")
    store = open_store(url, load_topics(topics))
    try:
        yield store
    finally:
        await store.close()


def _table(rows: list[DirectoryRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("region", "router", "epoch", "began (UTC)", "settled", "ended", "void"):
        right = column in ("epoch", "settled", "ended", "void")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        ended = "open" if row.ended is None else f"{row.ended:,}"
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row.log.epoch / 1000))
        table.add_row(
            row.log.region,
            row.log.router,
            str(row.log.epoch),
            began,
            f"{row.low:,}",
            ended,
            f"{_voids(row):,}" if row.voids else "",
        )
    return table


def _voids(row: DirectoryRow) -> int:
    return sum(last - first + 1 for first, last in row.voids)


def _document(row: DirectoryRow) -> dict[str, Any]:
    return {
        "region": row.log.region,
        "router": row.log.router,
        "epoch": row.log.epoch,
        "low": row.low,
        "ended": row.ended,
        "voids": [list(run) for run in row.voids],
    }

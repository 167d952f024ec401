"""The mirror on the command line: links, signals, printed lines and the written report.

It links to the first of the original's core brokers that answers: each has the whole stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
from rich.table import Table

from newsfabric.amqp import Link
from newsfabric.amqp.link import connect
from newsfabric.console import console
from newsfabric.errors import ConfigError
from newsfabric.process import logs
from newsfabric.process.operators import OperatorsApplication
from newsfabric.process.service import Readiness, operators_routes, serving
from newsfabric.safe_output import echo
from operations.mirror.place import MirroredFabric
from operations.mirror.report import COLUMNS, closing_lines, failures, rows
from operations.mirror.run import Mirror, MirrorOptions, run_mirror

logger = logging.getLogger(__name__)

_NAME: Final = "newsfabric mirror"


def run_command(
    original: MirroredFabric,
    other: MirroredFabric,
    options: MirrorOptions,
    *,
    report: Path | None,
    as_json: bool,
    fail_on_loss: bool,
    fail_over_delay: float | None,
    admin_port: int | None,
    log_format: logs.LogFormat,
) -> bool:
    """Run the mirror, print and write the results; return whether the command shall fail.

    ConfigError if the folder for ``report`` doesn't exist.
    """
    if report is not None and not report.parent.is_dir():
        raise ConfigError(f"{report.parent} is no folder")
    if log_format == "json":
        logs.log_to(sys.stderr, "info", log_format, process="mirror", region=original.region)
    print_line = _print_line if log_format == "text" else logger.info
    document = uvloop.run(_run(original, other, options, admin_port, print_line))
    failed = failures(document, fail_on_loss=fail_on_loss, fail_over_delay=fail_over_delay)
    document["failed"] = failed
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    if report is not None:
        try:
            report.write_bytes(text + b"\n")
        except OSError as exc:
            raise ConfigError(f"{report}: {exc.strerror}") from exc
    if as_json:
        echo(text.decode())
    else:
        _show(document)
    for each in failed:
        echo(f"error: {each}", err=True)
    return bool(failed)


async def _run(
    original: MirroredFabric,
    other: MirroredFabric,
    options: MirrorOptions,
    admin_port: int | None,
    print_line: Callable[[str], None],
) -> dict[str, Any]:
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        # The first signal ends the mirroring, the second the wait for messages under way.
        (hurry if stop.is_set() else stop).set()

    with contextlib.ExitStack() as handled:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
            # uvloop's loop would keep the handler after it is closed.
            handled.callback(loop.remove_signal_handler, number)
        mirror = Mirror(original, other, options)
        here = await connect(original.core_urls, name=_NAME, credentials=original.credentials)
        try:
            there = await connect(other.client_urls, name=_NAME, credentials=other.credentials)
            try:
                async with _metrics(admin_port, here, there):
                    return await run_mirror(
                        mirror, here, there, stop=stop, hurry=hurry, print_line=print_line
                    )
            finally:
                await there.close()
        finally:
            await here.close()


@contextlib.asynccontextmanager
async def _metrics(port: int | None, here: Link, there: Link) -> AsyncIterator[None]:
    """Serve metrics and readiness on loopback until the end of the block; None: serve nothing."""
    if port is None:
        yield
        return

    def readiness() -> Readiness:
        return Readiness.of(original=here.established, other=there.established)

    pages = OperatorsApplication(operators_routes(readiness))
    async with serving(pages, host="127.0.0.1", port=port):
        yield


def _print_line(text: str) -> None:
    echo(text, err=True)


def _show(document: dict[str, Any]) -> None:
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows(document):
        table.add_row(*row)
    out = console()
    if table.row_count:
        out.print(table)
    for line in closing_lines(document):
        out.print(line, soft_wrap=True)

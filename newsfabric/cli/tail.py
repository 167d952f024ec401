"""``newsfabric tail``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import cast

import click

from newsfabric.cli.find_world import world_to_read
from newsfabric.cli.messages import message_line
from newsfabric.errors import NewsfabricError
from newsfabric.reader import Transport, follow
from newsfabric.world.processes import started_at


def run_tail(
    topics: Sequence[str],
    *,
    state: Path,
    region: str | None,
    count: int | None,
    seconds: float | None,
    transport: str,
    rewind: str | None,
    as_json: bool,
) -> None:
    """Print messages until there were ``count`` or ``seconds`` have passed."""
    layout = world_to_read(state, lambda text: click.echo(text, err=True))
    back = int(rewind) if rewind is not None and rewind.isdecimal() else rewind
    printer = _Printer(count, as_json=as_json)
    url = layout.region(region).endpoints_url
    try:
        asyncio.run(_print(printer, url, topics, cast(Transport, transport), back, seconds))
    except TimeoutError as exc:
        if count is not None:
            raise NewsfabricError(
                f"only {printer.printed} of {count} messages of {', '.join(topics)} "
                f"came within {seconds:g} s"
            ) from exc


async def _print(
    printer: _Printer,
    url: str,
    topics: Sequence[str],
    transport: Transport,
    rewind: int | str | None,
    seconds: float | None,
) -> None:
    async with (
        asyncio.timeout(seconds),
        aclosing(
            follow(
                url,
                topics,
                transport=transport,
                rewind=rewind,
                # Not since it has connected: "tail & publish" must print the message.
                since=started_at(os.getpid()),
                on_subscribed=_say_subscribed,
            )
        ) as pushes,
    ):
        async for push in pushes:
            if printer.is_last(push.text, push.fields):
                return


def _say_subscribed(topic: str) -> None:
    # Not for the eyes alone: a script that reads it knows that what it publishes now is shown.
    click.echo(f"subscribed to {topic}", err=True)


class _Printer:
    def __init__(self, count: int | None, *, as_json: bool) -> None:
        self._count = count
        self._as_json = as_json
        self.printed = 0

    def is_last(self, text: str, fields: dict[str, object]) -> bool:
        """Print one message; whether it was the last one wanted."""
        click.echo(text if self._as_json else message_line(fields))
        self.printed += 1
        return self.printed == self._count

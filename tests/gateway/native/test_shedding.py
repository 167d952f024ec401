"""``shed``: some readers are sent to other boxes, and the data plane serves the rest."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dataplanes import driven, subscribed

from gateway.native import commands
from newsfabric.closing import REBALANCE

READERS = 30


async def test_as_many_go_as_the_command_says_and_the_others_notice_nothing(
    tmp_path: Path,
) -> None:
    async with (
        driven(tmp_path, "--threads=3") as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        raws = [await stack.enter_async_context(plane.reader()) for _ in range(READERS)]
        for raw in raws:
            await subscribed(raw, "news.breaking")
        for gone in (7, 14, 21):
            control.send(commands.shed(REBALANCE, 7, 2_000))
            await control.until_counter("closes.rebalance", gone)
            left = READERS - gone
            await control.counted(closes__rebalance=gone, readers__websocket=left, draining=0)
        # More than there are: all are sent away, and new readers may come.
        control.send(commands.shed(REBALANCE, 1_000, 0))
        await control.until_counter("closes.rebalance", READERS)
        async with plane.reader() as late:
            await subscribed(late, "news.breaking")

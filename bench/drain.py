"""The evenness of a drain: a box sends away 10,000 readers in a minute.

All at once, the readers would reach the other boxes in the same second. The requirement is that no
second has more than twice the mean. The bench counts seconds by its own clock: when it is late, one
second has more readers and the next one fewer.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import urllib.request
from typing import Final

from bench.box import running_box, subscribe_verb
from bench.programs import running_crowd
from bench.rows import BenchRow

READERS: Final = 10_000
SECONDS: Final = 60
# The bench gives up when the drain is late by this much.
PATIENCE_SECONDS: Final = 60


async def measure() -> list[BenchRow]:
    """Drain a box with ``READERS`` readers, and return the rows."""
    options = ("--drain-seconds", str(SECONDS), "--drain-per-second", "2000")
    async with (
        running_box("native", options=options) as box,
        running_crowd(box.port, READERS, source="127.0.0.2", say=subscribe_verb()) as crowd,
    ):
        await crowd.next_reply()
        request = urllib.request.Request(box.gateway.url("/drain"), data=b"", method="POST")
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=10).close())
        began, gone = time.monotonic(), [0]
        while gone[-1] < READERS and len(gone) < SECONDS + PATIENCE_SECONDS:
            await asyncio.sleep(max(0.0, began + len(gone) - time.monotonic()))
            gone.append((await crowd.send_command("count"))["gone"])
        took = time.monotonic() - began
    each = [after - before for before, after in itertools.pairwise(gone)]
    what = f"drain of {READERS:,} readers in {SECONDS} s"
    return [
        BenchRow(f"{what}: gone", gone[-1], "", digits=0, at_least=READERS),
        # These readers don't hang up, so the gateway closes each some seconds after telling it.
        BenchRow("… the last one after", took, "s"),
        BenchRow(
            "… in the fullest second, beside the mean",
            max(each) / (READERS / SECONDS),
            "×",
            digits=2,
            at_most=2.0,
        ),
    ]

"""Code shared by the peers in Python. Each line of standard input is "TOPIC PAYLOAD", and is sent
to the readers of that topic."""

from __future__ import annotations

import asyncio
import collections
import sys
from collections.abc import Callable
from typing import Any

# Longer than any payload.
_LINE = 1 << 20


class Topics(collections.defaultdict[str, set[Any]]):
    """Readers by topic."""

    def __init__(self) -> None:
        super().__init__(set)

    def remove(self, reader: Any) -> None:
        """Remove a reader whose connection has ended."""
        for readers in self.values():
            readers.discard(reader)


async def each_line(publish: Callable[[str, str], None]) -> None:
    """Report that the server listens, and call ``publish(topic, payload)`` for each line."""
    lines = asyncio.StreamReader(limit=_LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    print("{}", flush=True)
    while line := await lines.readline():
        topic, _, payload = line.decode().rstrip("\n").partition(" ")
        publish(topic, payload)

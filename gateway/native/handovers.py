"""Requests that the data plane hands over, as descriptors, and how many of each address are open.

The data plane counts connections by address, so it is told when one ends, and a new attachment is
told of all that are open. It hands no more over than the settings allow (``handovers``).
"""

from __future__ import annotations

import asyncio
import collections
import functools
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from newsfabric.line_limits import LineLimit

logger = logging.getLogger(__name__)


class Serve(Protocol):
    """Serves one request."""

    def __call__(
        self, connection: socket.socket, address: str, closed: Callable[[], None], /
    ) -> None:
        """Call ``closed`` when the connection is. OSError: it was before, and nobody calls."""


class Handovers:
    """``ended`` is told the address of each that has ended."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._open: collections.Counter[str] = collections.Counter()
        self._losses = LineLimit(every=60.0)

    @property
    def open(self) -> Mapping[str, int]:
        """How many of each address are open."""
        return self._open

    def take(self, descriptor: int | None, address: str, serve: Serve) -> None:
        """Have a request served; ``descriptor`` is None if this process could have no more."""
        self._open[address] += 1
        if descriptor is None:
            self._close(address)
            unsaid = self._losses.may_log(asyncio.get_running_loop().time())
            if unsaid is not None:
                text = "a request is lost: out of descriptors (RLIMIT_NOFILE; and %d more)"
                logger.warning(text, unsaid)
            return
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            self._close(address)
            return
        try:
            serve(connection, address, functools.partial(self._close, address))
        except OSError as exc:
            # The reader was quicker to leave than we to look.
            logger.debug("a handed over connection is of no use: %s", exc)
            connection.close()
            self._close(address)

    def _close(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]
        self._ended(address)

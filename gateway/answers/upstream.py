"""User marks on their way up: from this gateway through the box's broker towards the core.

Nothing is kept here (docs/design/0016): while the broker is away, or too many marks (a bounded
number) are unconfirmed, the reader gets an error, and sends its verb again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher, Link
from newsfabric.errors import LinkBusy, LinkClosed
from newsfabric.messages.mailbox import UserMark, encode_mark

# Marks that may wait for the broker's confirm, and for how many seconds.
_IN_FLIGHT: Final = 1_000
_TIMEOUT: Final = 5.0


class Upstream:
    """A publisher to the box's exchange ``upstream``. Call :meth:`start` first."""

    _publisher: ConfirmingPublisher | None = None

    async def start(self, link: Link) -> None:
        """Publish over ``link``; the box's topology has been declared there."""
        self._publisher = await link.publisher(in_flight=_IN_FLIGHT)

    async def send(self, mark: UserMark) -> None:
        """Return when the broker has ``mark``. LinkError if it doesn't, or if that isn't known."""
        if self._publisher is None:
            raise LinkClosed("the gateway isn't connected yet")
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._publisher.publish_nowait(topology.UPSTREAM, encode_mark(mark))
        except TimeoutError as exc:
            raise LinkBusy("the broker doesn't confirm") from exc

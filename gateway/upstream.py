"""Marks on their way up: from this gateway through the box's broker towards the core.

A mark that the broker has confirmed is on its way; whether its message is there at all the mailbox
service finds out. Nothing is kept here: while the broker is away, or is behind by more than a
bounded number of marks, the reader is told to say it again.
"""

from __future__ import annotations

import asyncio

from gateway.settings import GatewaySettings
from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher, Link
from newsfabric.errors import LinkBusy, LinkClosed
from newsfabric.mailbox import UserMark, encode_mark


class Upstream:
    """Publishes to the box's exchange ``upstream``. :meth:`start` it."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._publisher: ConfirmingPublisher | None = None

    async def start(self, link: Link) -> None:
        """Publish over ``link``; the box's topology has been declared there."""
        self._publisher = await link.publisher(in_flight=self._settings.marks_in_flight)

    async def send(self, mark: UserMark) -> None:
        """Return when the broker has ``mark``. LinkError if it hasn't, or isn't known to have."""
        if self._publisher is None:
            raise LinkClosed("the gateway isn't connected yet")
        try:
            async with asyncio.timeout(self._settings.mark_timeout):
                await self._publisher.publish_nowait(topology.UPSTREAM, encode_mark(mark))
        except TimeoutError as exc:
            raise LinkBusy("the broker doesn't confirm") from exc

"""What the commands that publish have in common: who they are, and how they send again."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from newsfabric.amqp import Message
from newsfabric.errors import Returned
from newsfabric.messages.control import Receipt
from newsfabric.publish import AsyncPublisher
from newsfabric.topics import TopicTable
from newsfabric.topology import mask

APP_ID: Final = "newsfabric-cli"
_AFTER_RETURN: Final = 0.5


async def publisher_by(
    ways: Mapping[str, Sequence[str]], *, seconds: float | None
) -> AsyncPublisher:
    """A publisher by the first of ``ways``, and by the next ones while that is away.

    They are as :meth:`~operations.worlds.World.publishing_ways` has them; a message waits for an
    answer for ``seconds``, None: for ever.
    """
    regions = [",".join(urls) for urls in ways.values()]
    return await AsyncPublisher.open(regions, app_id=APP_ID, timeout=seconds)


def waiting_for_receipts(urls: Iterable[str], publishers: Iterable[AsyncPublisher]) -> str:
    """What is waited for, and what is known of why it doesn't come."""
    troubles = "; ".join(filter(None, (publisher.troubles() for publisher in publishers)))
    where = f"waiting for a receipt from {', '.join(map(mask, urls))}"
    return f"{where} ({troubles})" if troubles else where


def in_its_name(message: Message, topics: TopicTable) -> Message:
    """``message`` as an operator publishes it for its ``app_id``, where publishers have rights."""
    if not topics.publishers:
        return message
    properties = dataclasses.replace(message.properties, user_id=message.properties.app_id)
    return dataclasses.replace(message, properties=properties)


async def send_with_retry(
    publisher: AsyncPublisher, message: Message, seconds: float | None = None
) -> Receipt:
    """Send ``message``, which has a ``message_id``, until there is a receipt; return that.

    A broker that has just started returns messages until its shovels are back: here that is no
    error before ``seconds`` have passed.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + (float("inf") if seconds is None else seconds)
    while True:
        try:
            return await publisher.send(message)
        except Returned:
            if clock() >= until:
                raise
            await asyncio.sleep(_AFTER_RETURN)

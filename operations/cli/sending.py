"""Common parts of the commands that publish: their app id, and their retries."""

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
    """Open a publisher on the first of ``ways``, which uses the next ones while the first is away.

    ``ways`` is the value of :meth:`~operations.worlds.WorldPlaces.publishing_ways`. A message waits
    for an answer for ``seconds``, None: for ever.
    """
    regions = [",".join(urls) for urls in ways.values()]
    return await AsyncPublisher.open(regions, app_id=APP_ID, timeout=seconds)


def waiting_for_receipts(urls: Iterable[str], publishers: Iterable[AsyncPublisher]) -> str:
    """Return the brokers that a receipt is awaited from, and their known errors, as text."""
    troubles = "; ".join(filter(None, (publisher.troubles() for publisher in publishers)))
    where = f"waiting for a receipt from {', '.join(map(mask, urls))}"
    return f"{where} ({troubles})" if troubles else where


def in_its_name(message: Message, topics: TopicTable) -> Message:
    """Return ``message`` as published by an operator for ``app_id``, if publishers have rights."""
    if not topics.publishers:
        return message
    properties = dataclasses.replace(message.properties, user_id=message.properties.app_id)
    return dataclasses.replace(message, properties=properties)


async def send_with_retry(
    publisher: AsyncPublisher, message: Message, seconds: float | None = None
) -> Receipt:
    """Send ``message``, which has a ``message_id``, until there is a receipt; return the receipt.

    A broker that has just started returns messages until its shovels are back: here this is an
    error only after ``seconds``.
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

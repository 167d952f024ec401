"""A declaration that is cancelled leaves no channel open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from newsfabric.amqp import Declare
from newsfabric.amqp.connection import BrokerConnection
from newsfabric.amqp.declaring import declare_once


class SlowChannel:
    """A channel like pika's, of a broker that answers when the test tells it to."""

    channel_number = 1

    def __init__(self, on_open: Callable[[Any], None]) -> None:
        self.is_open = False
        self._on_open = on_open

    def add_on_close_callback(self, callback: object) -> None:
        pass

    def close(self) -> None:
        self.is_open = False

    def opens(self) -> None:
        self.is_open = True
        self._on_open(self)


class SlowConnection:
    is_open = True

    def __init__(self) -> None:
        self.channels: list[SlowChannel] = []

    def open_channel(self, on_open: Callable[[Any], None]) -> SlowChannel:
        self.channels.append(SlowChannel(on_open))
        return self.channels[-1]


async def test_a_channel_that_opens_when_nobody_waits_for_it_any_more_is_closed() -> None:
    connection = SlowConnection()

    async def declare(broker: Declare) -> None:
        await broker.queue("q")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await declare_once(cast("BrokerConnection", connection), declare)
    (channel,) = connection.channels
    channel.opens()
    assert not channel.is_open

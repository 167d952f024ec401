"""An AMQP channel whose requests are awaited: pika's channel, with futures for its callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pika.exceptions

from newsfabric.amqp.connection import BrokerConnection, link_error
from newsfabric.errors import LinkClosed, LinkError

# Seconds. A broker whose disk or metadata store hangs still sends heartbeats, so its connection
# would stay, and requests would wait for ever. A broker that is only busy takes less.
ANSWER_TIMEOUT: Final = 15.0


class Channel:
    """A channel of ``connection``. Made by :meth:`open`."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[LinkError] = loop.create_future()
        # Fails with the reason if the channel is closed before it is open.
        self.opened: asyncio.Future[None] = loop.create_future()
        self._waiting: set[asyncio.Future[Any]] = {self.opened}
        self._because: LinkError | None = None
        self._pika = connection.open_channel(self._on_open)
        # pika doesn't call back for requests that a close overtakes: this callback notifies us.
        self._pika.add_on_close_callback(self._on_close)

    @classmethod
    async def open(cls, connection: BrokerConnection) -> Channel:
        """Open a channel; LinkClosed if the connection is lost or the broker doesn't reply."""
        channel = cls(connection)
        await channel._answered("open", channel.opened)
        return channel

    @property
    def number(self) -> int:
        """The channel's number on its connection."""
        return int(self._pika.channel_number)

    @property
    def is_open(self) -> bool:
        """True if the channel can be used now."""
        return bool(self._pika.is_open)

    async def closed(self) -> LinkError:
        """Wait until the channel is closed, by either side; return the reason."""
        return await asyncio.shield(self._closed)

    async def request(self, method: str, **arguments: Any) -> Any:
        """Call pika's ``method`` and wait for the broker's reply, whose frame is returned.

        Raises LinkError with the broker's words if it closes the channel instead, as it does for
        each refusal. Raises LinkClosed if the connection is lost, or is dropped because the broker
        doesn't reply for :data:`ANSWER_TIMEOUT`.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            getattr(self._pika, method)(**arguments, callback=_setter(answer))
            return await self._answered(method, answer)
        except pika.exceptions.AMQPError as exc:
            raise link_error(exc) from exc
        finally:
            self._waiting.discard(answer)

    async def _answered(self, method: str, answer: asyncio.Future[Any]) -> Any:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await answer
        except TimeoutError:
            self.connection.abort()
            raise LinkClosed(f"no answer to {method} within {ANSWER_TIMEOUT:g} s") from None

    def on_cancel(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback(frame)`` when the broker cancels the channel's consumer."""
        self._pika.add_on_cancel_callback(callback)

    def close(self, because: LinkError | None = None) -> None:
        """Begin to close the channel, if it is open; :meth:`closed` returns ``because``."""
        if self.is_open and self.connection.is_open:
            self._because = because
            self._pika.close()

    def _on_open(self, _channel: Any) -> None:
        if self.opened.cancelled():
            # The caller was cancelled, and no other code would close it.
            self.close()
        else:
            self.opened.set_result(None)

    def _on_close(self, _channel: Any, reason: Exception) -> None:
        error = self._because or link_error(self.connection.why or reason)
        self._closed.set_result(error)
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)


def _setter(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """Return a callback that resolves ``future``, unless its waiter was cancelled."""

    def set_result(value: Any) -> None:
        if not future.done():
            future.set_result(value)

    return set_result

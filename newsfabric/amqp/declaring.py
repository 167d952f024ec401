"""Declarations of exchanges, queues and bindings on a link, once per connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from newsfabric.amqp import Declare
from newsfabric.amqp.channel import Channel
from newsfabric.amqp.connection import BrokerConnection
from newsfabric.amqp.retry import Retry
from newsfabric.errors import LinkClosed, LinkError

_Declared = TypeVar("_Declared")


class ChannelDeclare:
    """A :class:`newsfabric.amqp.Declare` on a connection.

    A broker refuses a declaration by closing the channel. The next declaration opens another
    channel, so a caller may catch the LinkError and continue.
    """

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._channel: Channel | None = None

    async def exchange(self, name: str, *, type: str = "topic", durable: bool = True) -> None:
        """See :meth:`newsfabric.amqp.Declare.exchange`."""
        await self._ask("exchange_declare", exchange=name, exchange_type=type, durable=durable)

    async def queue(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> str:
        """See :meth:`newsfabric.amqp.Declare.queue`."""
        answer = await self._ask(
            "queue_declare",
            queue=name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
        )
        return str(answer.method.queue)

    async def bind(self, queue: str, exchange: str, key: str) -> None:
        """See :meth:`newsfabric.amqp.Declare.bind`."""
        await self._ask("queue_bind", queue=queue, exchange=exchange, routing_key=key)

    async def delete_queue(self, name: str) -> None:
        """See :meth:`newsfabric.amqp.Declare.delete_queue`."""
        await self._ask("queue_delete", queue=name)

    async def _ask(self, method: str, **arguments: Any) -> Any:
        if self._channel is None or not self._channel.is_open:
            self._channel = await Channel.open(self._connection)
        return await self._channel.request(method, **arguments)

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.close()


class Declaration:
    """A ``declare`` that a link runs on each connection, until it succeeds there."""

    def __init__(self, name: str, declare: Callable[[Declare], Awaitable[None]]) -> None:
        self._name = name
        self._declare = declare
        #: True once it has succeeded on the last connection.
        self.established = False

    async def serve(self, connection: BrokerConnection, attempted: Callable[[], None]) -> None:
        """Declare on ``connection``; if the broker refuses, retry with backoff."""
        retry = Retry(f"{self._name}: declaration")
        self.established = False
        while not connection.closed.done():
            try:
                await declare_once(connection, self._declare)
                self.established = True
                return
            except LinkClosed:
                return
            except LinkError as exc:
                attempted()
                await retry.failed(exc)
        return


async def declare_once(
    connection: BrokerConnection, declare: Callable[[Declare], Awaitable[_Declared]]
) -> _Declared:
    """Run ``declare`` on a channel of its own. LinkError if the broker refuses or is gone."""
    channel = ChannelDeclare(connection)
    try:
        return await declare(channel)
    finally:
        channel.close()

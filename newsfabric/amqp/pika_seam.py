"""pika's connection as its socket sees it: the one module that uses undocumented parts of pika.

The socket is ours, since messages have to bypass pika: its decoder raises on bytes that publishers
may send (:mod:`newsfabric.amqp.wire`). pika's own transport also reads 4 KB and writes one frame
for each system call.

No documented part of pika works without pika's socket. But between a connection and its transport
pika has asyncio's own interface, a protocol and a transport. ``_StreamingProtocolShim`` is that
protocol, and the one private name of pika that we use. A subclass would need more private names
(the methods ``_proto_…`` and ``_adapter_…``), and its own names could collide with pika's.

tests/amqp/test_pika_seam.py lists each name that this module needs, in the required form, and the
remedy when one changes. pyproject.toml allows only one version of pika.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pika.exceptions
import pika.spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.base_connection import _StreamingProtocolShim


class PikaStream:
    """The stream between a connection of pika's and its socket. pika uses it as a transport."""

    #: Sends pika's frames, and ours; set once the socket is open. asyncio's transport gathers all
    #: writes of one turn of the loop into one system call.
    write: Callable[[bytes], None]

    def __init__(self, connection: AsyncioConnection) -> None:
        self._connection = connection
        self._protocol = _StreamingProtocolShim(connection)
        self._transport: asyncio.WriteTransport | None = None
        self._aborted = False
        #: The reason of the end; None as long as only pika knows it.
        self.why: BaseException | None = None
        connection.callbacks.add(0, pika.spec.Connection.Close, self._on_close)

    def start(self, transport: asyncio.WriteTransport) -> None:
        """Have pika begin the handshake; the socket is open."""
        self._transport = transport
        self.write = transport.write
        self._protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        """Hand ``data`` to pika, cut anywhere; raises all errors of pika at nonsense."""
        self._protocol.data_received(data)

    def count(self, size: int) -> None:
        """Count ``size`` received bytes for pika's check of the heartbeat, whoever reads them."""
        self._connection.bytes_received += size

    def abort(self) -> None:
        """End the connection; pika calls this, and notifies its own callbacks of the reason."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def drop(self, why: BaseException) -> None:
        """End the connection for ``why``; nothing happens if it has ended, or never began."""
        if self._transport is not None:
            self.why = self.why or why
            self._transport.abort()

    def lost(self, exc: Exception | None) -> None:
        """Note that the socket is closed, by either side."""
        self._transport = None
        if exc is None and self.why is None and not self._aborted:
            exc = ConnectionResetError("closed by the broker")
        self.why = exc or self.why
        self._protocol.connection_lost(self.why)

    def _on_close(self, frame: Any) -> None:
        # Before a connection is open pika guesses the reason, and the broker's words are lost.
        closed = frame.method
        self.why = pika.exceptions.ConnectionClosedByBroker(closed.reply_code, closed.reply_text)

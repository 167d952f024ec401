"""pika's connection as its socket sees it: the one module that uses what pika doesn't document.

The socket is ours, since messages have to go past pika: its decoder raises on what publishers
may send (:mod:`newsfabric.amqp.wire`). Its own transport also reads 4 KB and writes one frame for
each system call.

No documented part of pika works without pika's socket. But between a connection and its transport
pika has asyncio's own interface, a protocol and a transport; ``_StreamingProtocolShim`` is that
protocol, and the one private name of pika that we use. A subclass would need more of them (its
methods ``_proto_…`` and ``_adapter_…``), and its own names could meet pika's.

tests/amqp/test_pika_seam.py has each name that this module needs, in the form that it must
have, and says what to do when one changes. pyproject.toml allows one version of pika alone.
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
    """What goes between one connection of pika's and its socket. pika takes it for a transport."""

    #: Sends pika's frames, and ours; there once the socket is open. asyncio's transport gathers
    #: what is written in one turn of the loop into one system call.
    write: Callable[[bytes], None]

    def __init__(self, connection: AsyncioConnection) -> None:
        self._connection = connection
        self._protocol = _StreamingProtocolShim(connection)
        self._transport: asyncio.WriteTransport | None = None
        self._aborted = False
        #: Why the connection is gone; None as long as nobody but pika knows.
        self.why: BaseException | None = None
        connection.callbacks.add(0, pika.spec.Connection.Close, self._on_close)

    def start(self, transport: asyncio.WriteTransport) -> None:
        """The socket is open: pika begins to greet the broker."""
        self._transport = transport
        self.write = transport.write
        self._protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        """Hand pika what came, however it is cut; raises whatever pika does at nonsense."""
        self._protocol.data_received(data)

    def count(self, size: int) -> None:
        """So many bytes came, for pika's check of the heartbeat: it may be handed none of them."""
        self._connection.bytes_received += size

    def abort(self) -> None:
        """pika ends the connection, and tells its own callbacks why."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def drop(self, why: BaseException) -> None:
        """We end the connection; nothing happens if it has ended, or never began."""
        if self._transport is not None:
            self.why = self.why or why
            self._transport.abort()

    def lost(self, exc: Exception | None) -> None:
        """The socket is closed, by either side."""
        self._transport = None
        if exc is None and self.why is None and not self._aborted:
            exc = ConnectionResetError("closed by the broker")
        self.why = exc or self.why
        self._protocol.connection_lost(self.why)

    def _on_close(self, frame: Any) -> None:
        # Before a connection is open pika makes a guess of it, and the broker's words are lost.
        closed = frame.method
        self.why = pika.exceptions.ConnectionClosedByBroker(closed.reply_code, closed.reply_text)

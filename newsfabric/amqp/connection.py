"""An AMQP connection: pika's protocol, on the loop's transport; messages bypass pika.

pika does the handshake, heartbeats, channels and declarations (:mod:`newsfabric.amqp.pika_seam`).
Frames of messages are read and written by :mod:`newsfabric.amqp.wire`.

A connection is never reopened. :mod:`newsfabric.amqp.link` makes the next one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

import pika.exceptions
from pika.adapters.asyncio_connection import AsyncioConnection

from newsfabric.amqp.owners import Owners
from newsfabric.amqp.parameters import Parameters
from newsfabric.amqp.pika_seam import PikaStream
from newsfabric.amqp.wire import FrameReader, WireError
from newsfabric.errors import LinkClosed, LinkError, LinkRefused

logger = logging.getLogger(__name__)

# pika logs at ERROR, up to six times, each loss of a connection, as at any restart of a broker. The
# link logs the loss once, so only errors that pika can't explain pass.
logging.getLogger("pika").setLevel(logging.CRITICAL)

# Reply codes of AMQP 0-9-1: access-refused, and not-allowed, also for no such virtual host.
_REFUSALS: Final = (403, 530)
# The text of a 530 that may pass: others disconnect, or operators lift the limit.
_FULL: Final = "connection limit"
# Before a connection is open a broker sends some hundred bytes: its name and capabilities.
_MAX_GREETING: Final = 64 * 1024


async def open_connection(parameters: Parameters, *, within: float) -> BrokerConnection:
    """Connect, log in and open the virtual host ``within`` that many seconds, or raise LinkClosed.

    LinkRefused for a wrong login, no such virtual host, or a certificate that can't be trusted.
    """
    loop = asyncio.get_running_loop()
    connection = BrokerConnection(parameters)
    tls = parameters.tls
    try:
        async with asyncio.timeout(within):
            # asyncio and uvloop both set TCP_NODELAY by themselves.
            await loop.create_connection(
                lambda: connection,
                parameters.host,
                parameters.port,
                ssl=tls.context() if tls else None,
                server_hostname=parameters.host if tls else None,
            )
            await connection.opened
    except TimeoutError as exc:
        connection.abort()
        raise LinkClosed(f"no answer within {within:g} s") from exc
    except ssl.SSLCertVerificationError as exc:
        raise LinkRefused(f"certificate verify failed: {exc.verify_message}") from exc
    except (OSError, UnicodeError) as exc:
        # UnicodeError is raised for a host name with a label of more than 63 letters.
        raise LinkClosed(str(exc)) from exc
    except BaseException:
        connection.abort()
        raise
    return connection


class BrokerConnection(asyncio.Protocol):
    """A connection that is being opened, open, or gone; a connection that is gone stays so."""

    def __init__(self, parameters: Parameters) -> None:
        loop = asyncio.get_running_loop()
        self.parameters = parameters
        self.opened: asyncio.Future[None] = loop.create_future()
        # Resolves with the reason, never fails.
        self.closed: asyncio.Future[LinkError] = loop.create_future()
        self.blocked = False
        # Bytes received before the connection was open, and the reader of later ones.
        self._greeting = 0
        self._reader: FrameReader | None = None
        self._pika = AsyncioConnection(
            parameters.for_pika,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_gone,
            on_close_callback=self._on_gone,
            custom_ioloop=loop,
            internal_connection_workflow=False,
        )
        self._pika.add_on_connection_blocked_callback(self._on_blocked)
        self._pika.add_on_connection_unblocked_callback(self._on_unblocked)
        self._stream = PikaStream(self._pika)
        self.owners = Owners(self._stream.receive)

    @property
    def name(self) -> str:
        """The connection's name, as the broker's management shows it."""
        return self.parameters.name

    @property
    def is_open(self) -> bool:
        """True if the connection can be used now."""
        return bool(self._pika.is_open)

    @property
    def why(self) -> BaseException | None:
        """The reason of the end, where pika knows less of it than we; else None."""
        return self._stream.why

    @property
    def frame_max(self) -> int:
        """The largest size of a frame, as negotiated with the broker."""
        return int(self._pika.params.frame_max)

    def open_channel(self, on_open: Callable[[Any], None]) -> Any:
        """Return a new channel of pika's, which calls ``on_open``; LinkClosed if that fails."""
        try:
            channel = self._pika.channel(on_open_callback=on_open)
        except pika.exceptions.AMQPError as exc:
            raise link_error(exc) from exc
        self.owners.opened(channel.channel_number)
        channel.add_on_close_callback(lambda *_: self.owners.closed(channel.channel_number))
        return channel

    def send(self, frames: bytes) -> None:
        """Queue whole ``frames``; LinkClosed if the connection isn't open."""
        if not self._pika.is_open:
            raise LinkClosed("the connection is closed")
        self._stream.write(frames)

    async def shut(self, *, within: float) -> None:
        """Close gracefully ``within`` that many seconds, else abruptly."""
        if self.is_open:
            self._pika.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await asyncio.shield(self.closed)
        self.abort()

    def abort(self) -> None:
        """Drop the socket. :attr:`closed` resolves soon after, unless it has resolved."""
        self._stream.drop(pika.exceptions.ConnectionOpenAborted("dropped"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the AMQP handshake; asyncio calls this once there is a socket."""
        # uvloop's transports are no subclasses of asyncio's.
        self._stream.start(cast(asyncio.WriteTransport, transport))

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket. Any error in these ends the connection."""
        try:
            if self._reader is None:
                self._greet(data)
            else:
                self._stream.count(len(data))
                self._reader.feed(data)
        except WireError as exc:
            self._stream.drop(exc)
        except Exception as exc:
            # A bug of ours: a connection that stays up would handle no more frames.
            if self._reader is not None:
                logger.exception(
                    "%s: dropping the connection: unexpected error while reading", self.name
                )
            self._stream.drop(WireError(f"this is no AMQP: {exc!r}"))

    def _greet(self, data: bytes) -> None:
        # pika cuts the handshake into frames, and would wait for a frame of any length. No content
        # frame can arrive before a channel was opened.
        self._greeting += len(data)
        if self._greeting > _MAX_GREETING:
            raise WireError(f"more than {_MAX_GREETING} bytes before the connection is open")
        self._stream.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end; asyncio calls this, with None at end of file or after our own abort."""
        self._stream.lost(exc)

    def _on_open(self, _connection: Any) -> None:
        self._reader = FrameReader(self.owners, self.frame_max)
        if not self.opened.done():
            self.opened.set_result(None)

    def _on_gone(self, _connection: Any, reason: BaseException) -> None:
        error = link_error(self.why or reason)
        if not self.closed.done():
            self.closed.set_result(error)
        if not self.opened.done():
            self.opened.set_exception(error)
            # The waiting task may have been cancelled: no "never retrieved" then.
            self.opened.exception()

    def _on_blocked(self, _connection: Any, frame: Any) -> None:
        self.blocked = True
        logger.warning("%s: the broker takes no publications: %s", self.name, frame.method.reason)

    def _on_unblocked(self, _connection: Any, _frame: Any) -> None:
        self.blocked = False
        logger.info("%s: the broker takes publications again", self.name)
        self.owners.unblocked()


def link_error(reason: BaseException) -> LinkError:
    """Return our own error for ``reason``: its words, and whether a retry may help."""
    if _refuses(reason):
        error: LinkError = LinkRefused(_text(reason))
    elif isinstance(reason, pika.exceptions.ChannelClosedByBroker):
        error = LinkError(_text(reason))
    else:
        error = LinkClosed(_text(reason))
    error.__cause__ = reason
    return error


def _refuses(reason: BaseException) -> bool:
    closed = (pika.exceptions.ConnectionClosedByBroker, pika.exceptions.ChannelClosedByBroker)
    return (
        isinstance(reason, closed)
        and reason.reply_code in _REFUSALS
        and _FULL not in reason.reply_text
    )


def _text(reason: BaseException) -> str:
    """Return one line for a person: pika's exceptions print as tuples, or as nothing."""
    if isinstance(reason, pika.exceptions.ConnectionClosed | pika.exceptions.ChannelClosed):
        return f"{reason.reply_code} {reason.reply_text}"
    return str(reason) or type(reason).__name__

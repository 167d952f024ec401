"""One AMQP connection and its channels: pika's protocol, on the loop's transport, awaited.

pika does the handshake, heartbeats, channels and declarations. Two of its layers are
not used:

- its transport, which reads 4 KB and writes one frame per system call. pika's ``Connection`` asks
  nothing of a transport that asyncio's doesn't have (``write``, ``abort``), so
  :class:`_Stream` links the two;
- its decoding of messages and confirms, for the reasons in :mod:`newsfabric.amqp.wire`.

The seams are methods with an underscore that every adapter of pika overrides or calls; tests run
each of them against a real broker.

A connection lives once. :mod:`newsfabric.amqp.link` makes the next one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import pika
import pika.exceptions
import pika.frame
from pika.adapters.asyncio_connection import AsyncioConnection

from newsfabric.amqp.message import Message
from newsfabric.amqp.wire import FrameReader, Returned, WireError
from newsfabric.errors import ConfigError, LinkClosed, LinkError, LinkRefused
from newsfabric.settings import Credentials, TlsFiles
from newsfabric.tls import ClientTls

logger = logging.getLogger(__name__)

# pika calls at ERROR what a link lives through each time that a broker restarts, and says
# so up to six times. The link says it once, so only what pika can't explain comes through.
logging.getLogger("pika").setLevel(logging.CRITICAL)

# Seconds. pika looks each interval and five seconds whether anything came since it last
# looked, so a silent peer is noticed after 15 to 30 s. A closed socket is noticed at once.
HEARTBEAT: Final = 10
# AMQP 0-9-1's reply codes access-refused and not-allowed; the latter also for no such virtual host.
_REFUSALS: Final = (403, 530)
# What a broker says before a connection is open is some hundred bytes, its name and what it can.
_MAX_GREETING: Final = 64 * 1024
# A broker that has stopped reading for so long is left; another node may do better.
BLOCKED_TIMEOUT: Final = 300.0


class ChannelOwner(Protocol):
    """Who is told what happens on one channel."""

    def on_deliver(self, tag: int, redelivered: bool, message: Message) -> None:
        """A message for the channel's consumer."""

    def on_return(self, reason: Returned, message: Message) -> None:
        """A mandatory message came back."""

    def on_confirm(self, tag: int, multiple: bool, taken: bool) -> None:
        """The broker took (or refused) publications."""

    def on_unblocked(self) -> None:
        """The broker reads publications again."""


def parameters_of(url: str, *, name: str, credentials: Credentials | None) -> Any:
    """pika's parameters for ``url``; ConfigError if it isn't an AMQP URL.

    ``name`` is what operators see the connection as. Without ``credentials`` those in the URL
    hold, and else ``guest``. A broker at ``amqps://`` must show a certificate for its host's name,
    by an authority of ``credentials``, or of the PEM file ``?cacertfile=``. It knows us by our
    certificate if ``credentials`` have one, or the URL has ``certfile``, ``keyfile`` and
    ``auth_mechanism=external``.
    """
    shown = url.rsplit("@", 1)[-1]
    if not url.startswith(("amqp://", "amqps://")):
        raise ConfigError(f"not an AMQP URL (amqp:// or amqps://): {shown!r}")
    files = credentials.tls if credentials else TlsFiles()
    try:
        parameters = _Parameters(credentials.in_url(url) if credentials else url, files)
    except (ValueError, TypeError) as exc:
        raise ConfigError(f"not an AMQP URL: {shown!r}: {exc}") from exc
    parameters.heartbeat = HEARTBEAT
    parameters.blocked_connection_timeout = BLOCKED_TIMEOUT
    parameters.client_properties = {"connection_name": name, "product": "newsfabric"}
    return parameters


class _Parameters(pika.URLParameters):  # type: ignore[misc] # pika is untyped
    """Those in an AMQP URL. What it doesn't say of TLS is as ``files`` say.

    pika looks for a method for each parameter of the URL. RabbitMQ has them in its shovels' URLs.
    """

    def __init__(self, url: str, files: TlsFiles) -> None:
        self._in_url: dict[str, str] = {}
        super().__init__(url)
        #: None for amqp://.
        self.tls: ClientTls | None = None
        told = self._in_url
        # Of a certificate in the URL RabbitMQ's own client says how it is used; so must who asks.
        ours = files.certificate is not None
        if self.ssl_options is None:
            if told:
                raise ValueError(f"{min(told)} is for amqps://")
            return
        if "cacertfile" in told:
            files = dataclasses.replace(files, authorities=Path(told["cacertfile"]))
        if "certfile" in told:
            key = Path(told.get("keyfile", told["certfile"]))
            files = dataclasses.replace(files, certificate=Path(told["certfile"]), key=key)
        self.tls = ClientTls(files)
        mechanism = told.get("auth_mechanism", "external" if ours else "plain")
        if mechanism == "external":
            if files.certificate is None:
                raise ValueError("auth_mechanism=external needs certfile and keyfile")
            self.credentials = pika.credentials.ExternalCredentials()
        elif mechanism != "plain":
            raise ValueError("auth_mechanism is plain or external")

    def _set_url_cacertfile(self, value: str) -> None:
        self._in_url["cacertfile"] = value

    def _set_url_certfile(self, value: str) -> None:
        self._in_url["certfile"] = value

    def _set_url_keyfile(self, value: str) -> None:
        self._in_url["keyfile"] = value

    def _set_url_auth_mechanism(self, value: str) -> None:
        self._in_url["auth_mechanism"] = value

    def _set_url_verify(self, value: str) -> None:
        if value != "verify_peer":
            raise ValueError("certificates are always verified (verify_peer)")
        self._in_url["verify"] = value

    def _set_url_ssl_options(self, _value: str) -> None:
        raise ValueError("ssl_options could turn verification off: there is cacertfile")


async def open_connection(parameters: Any, *, within: float) -> Connection:
    """Connect, log in and open the virtual host ``within`` that many seconds, or LinkClosed.

    LinkRefused for a wrong login, no such virtual host, or a certificate that can't be trusted.
    """
    loop = asyncio.get_running_loop()
    connection = Connection(parameters)
    tls: ClientTls | None = parameters.tls
    try:
        async with asyncio.timeout(within):
            # asyncio and uvloop both set TCP_NODELAY by themselves.
            await loop.create_connection(
                lambda: _Stream(connection),
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
        # UnicodeError is what a host name with a part of 64 letters gives.
        raise LinkClosed(str(exc)) from exc
    except BaseException:
        connection.abort()
        raise
    return connection


class _Stream(asyncio.Protocol):
    """Hands pika its transport, and what arrives on it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection._proto_connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(exc)


class Connection(AsyncioConnection):  # type: ignore[misc] # pika is untyped
    """A connection being opened, open, or gone; never again open once gone."""

    def __init__(self, parameters: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        # Resolves, never fails, with the reason.
        self.closed: asyncio.Future[LinkError] = self._loop.create_future()
        self.blocked = False
        self._why: BaseException | None = None
        self._reader: FrameReader | None = None
        self._owners: dict[int, ChannelOwner] = {}
        super().__init__(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_gone,
            on_close_callback=self._on_gone,
            custom_ioloop=self._loop,
            internal_connection_workflow=False,
        )
        self.add_on_connection_blocked_callback(self._on_blocked)
        self.add_on_connection_unblocked_callback(self._on_unblocked)

    def attach(self, channel: int, owner: ChannelOwner) -> None:
        """What arrives on ``channel`` is for ``owner`` until :meth:`detach`."""
        self._owners[channel] = owner

    def detach(self, channel: int, owner: ChannelOwner) -> None:
        """Forget ``owner``, unless the channel number is another's by now."""
        if self._owners.get(channel) is owner:
            del self._owners[channel]

    def send(self, frames: bytes) -> None:
        """Queue whole ``frames``; LinkClosed if the connection isn't open."""
        if not self.is_open:
            raise LinkClosed("the connection is closed")
        # The transport gathers what is written in one turn of the loop into one system call.
        self._adapter_emit_data(frames)

    async def shut(self, *, within: float) -> None:
        """Close in good order ``within`` that many seconds, else abruptly."""
        if self.is_open:
            self.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await asyncio.shield(self.closed)
        self.abort()

    def abort(self) -> None:
        """Drop the socket. :attr:`closed` resolves soon after; nothing happens if it has."""
        if self._transport is not None:
            self._terminate_stream(pika.exceptions.ConnectionOpenAborted("dropped"))

    def receive(self, data: bytes) -> None:
        """Take bytes from the socket. Whatever goes wrong with them ends the connection."""
        try:
            if self._reader is None:
                self._greet(data)
            else:
                # Counted for pika's check of the heartbeat.
                self.bytes_received += len(data)
                self._reader.feed(data)
        except WireError as exc:
            self._terminate_stream(exc)
        except Exception as exc:
            # A bug of ours: a connection that stays up would be deaf.
            if self._reader is not None:
                logger.exception("%s: can't handle what came; dropping the connection", self.name)
            self._terminate_stream(WireError(f"this is no AMQP: {exc!r}"))

    def _greet(self, data: bytes) -> None:
        # pika cuts the handshake into frames, and would wait for the end of one of any length.
        # No content frame can come before a channel was opened.
        if self.bytes_received + len(self._frame_buffer) + len(data) > _MAX_GREETING:
            raise WireError(f"more than {_MAX_GREETING} bytes before the connection is open")
        self._on_data_available(data)

    def lost(self, exc: Exception | None) -> None:
        """The socket is closed, by either side."""
        self._transport = None
        if exc is None and self._error is None:
            exc = pika.exceptions.StreamLostError("closed by the broker")
        # pika makes a guess of it.
        self._why = exc or self._error
        self._on_stream_terminated(exc)

    def on_deliver(
        self, channel: int, consumer: str, tag: int, redelivered: bool, message: Message
    ) -> None:
        """See :class:`newsfabric.amqp.wire.Sink`. A channel of ours has one consumer."""
        if owner := self._owners.get(channel):
            owner.on_deliver(tag, redelivered, message)

    def on_return(self, channel: int, reason: Returned, message: Message) -> None:
        """See :class:`newsfabric.amqp.wire.Sink`."""
        if owner := self._owners.get(channel):
            owner.on_return(reason, message)

    def on_confirm(self, channel: int, tag: int, multiple: bool, taken: bool) -> None:
        """See :class:`newsfabric.amqp.wire.Sink`."""
        if owner := self._owners.get(channel):
            owner.on_confirm(tag, multiple, taken)

    def on_frame(self, frame: bytes) -> None:
        """See :class:`newsfabric.amqp.wire.Sink`: pika's business."""
        # pika logs each of them, and goes on.
        if (channel := int.from_bytes(frame[1:3], "big")) and channel not in self._channels:
            raise WireError(f"a frame for channel {channel}, which isn't open")
        try:
            _, value = pika.frame.decode_frame(frame)
            self._process_frame(value)
        except Exception as exc:
            # It raises whatever its parts do at a frame that makes no sense, or none now.
            raise WireError(f"a frame that can't be followed: {exc!r:.200}") from exc

    def _on_open(self, _connection: Any) -> None:
        self._reader = FrameReader(self, self.params.frame_max)
        if not self.opened.done():
            self.opened.set_result(None)

    def _on_gone(self, _connection: Any, reason: BaseException) -> None:
        error = _refusal(self._why or reason)
        if not self.closed.done():
            self.closed.set_result(error)
        if not self.opened.done():
            self.opened.set_exception(error)
            # It may be that nobody waits any more.
            self.opened.exception()

    def _on_blocked(self, _connection: Any, frame: Any) -> None:
        self.blocked = True
        logger.warning("%s: the broker takes no publications: %s", self.name, frame.method.reason)

    def _on_unblocked(self, _connection: Any, _frame: Any) -> None:
        self.blocked = False
        logger.info("%s: the broker takes publications again", self.name)
        for owner in list(self._owners.values()):
            owner.on_unblocked()

    @property
    def name(self) -> str:
        """The connection's name, as the broker's management shows it."""
        return str(self.params.client_properties["connection_name"])


class Channel:
    """A channel whose requests are awaited. Made by :meth:`open`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[LinkError] = loop.create_future()
        self._opened: asyncio.Future[Any] = loop.create_future()
        self._waiting: set[asyncio.Future[Any]] = {self._opened}
        self._because: LinkError | None = None
        self._pika: Any = None

    @classmethod
    async def open(cls, connection: Connection) -> Channel:
        """Open a channel; LinkClosed if the connection goes first."""
        channel = cls(connection)
        try:
            channel._pika = connection.channel(on_open_callback=channel._on_open)
        except pika.exceptions.AMQPError as exc:
            raise LinkClosed(_text(exc)) from exc
        # pika calls nobody back for requests that a close overtakes: this is how we know.
        channel._pika.add_on_close_callback(channel._on_close)
        await channel._opened
        return channel

    @property
    def number(self) -> int:
        """The channel's number on its connection."""
        return int(self._pika.channel_number)

    @property
    def is_open(self) -> bool:
        """Whether it can be used now."""
        return bool(self._pika.is_open)

    async def closed(self) -> LinkError:
        """Wait until it is closed, by anyone; returns the reason."""
        return await asyncio.shield(self._closed)

    async def request(self, method: str, **arguments: Any) -> Any:
        """Call pika's ``method`` and wait for the broker's answer, whose frame is returned.

        Raises LinkError with the broker's words if it closes the channel instead, as it does
        for each refusal; LinkClosed if the connection went.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            getattr(self._pika, method)(**arguments, callback=_setter(answer))
            return await answer
        except pika.exceptions.AMQPError as exc:
            raise LinkClosed(_text(exc)) from exc
        finally:
            self._waiting.discard(answer)

    def on_cancel(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback(frame)`` when the broker cancels the channel's consumer."""
        self._pika.add_on_cancel_callback(callback)

    def close(self, because: LinkError | None = None) -> None:
        """Begin to close it, if it is open; ``because`` is what :meth:`closed` shall say."""
        if self.is_open and self.connection.is_open:
            self._because = because
            self._pika.close()

    def _on_open(self, _channel: Any) -> None:
        _setter(self._opened)(None)

    def _on_close(self, _channel: Any, reason: Exception) -> None:
        error = self._because or _refusal(reason)
        self._closed.set_result(error)
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)


def _setter(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """A callback that resolves ``future``, unless whoever waited has gone."""

    def set_result(value: Any) -> None:
        if not future.done():
            future.set_result(value)

    return set_result


def _refusal(reason: BaseException) -> LinkError:
    """``reason`` as an error of ours: whose words it is, and whether waiting may help."""
    closed = (pika.exceptions.ConnectionClosedByBroker, pika.exceptions.ChannelClosedByBroker)
    if isinstance(reason, closed) and reason.reply_code in _REFUSALS:
        error: LinkError = LinkRefused(_text(reason))
    elif isinstance(reason, pika.exceptions.ChannelClosedByBroker):
        error = LinkError(_text(reason))
    else:
        error = LinkClosed(_text(reason))
    error.__cause__ = reason
    return error


def _text(reason: BaseException) -> str:
    """One line for a person. pika's exceptions print as tuples, or as nothing."""
    if isinstance(reason, pika.exceptions.ConnectionClosed | pika.exceptions.ChannelClosed):
        return f"{reason.reply_code} {reason.reply_text}"
    return str(reason) or type(reason).__name__

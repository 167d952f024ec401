"""A publisher that sends AMQP which no library would send, and the bytes of such messages."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from newsfabric.amqp.channel import Channel
from newsfabric.amqp.connection import BrokerConnection, open_connection
from newsfabric.amqp.fields import encode_short
from newsfabric.amqp.parameters import parameters_of
from newsfabric.settings import Credentials

HAS_HEADERS, HAS_MESSAGE_ID, HAS_TIMESTAMP = 1 << 13, 1 << 7, 1 << 6
HAS_CORRELATION_ID, HAS_REPLY_TO, HAS_EXPIRATION = 1 << 10, 1 << 9, 1 << 8


def field(kind: bytes, payload: bytes, name: bytes = b"key") -> bytes:
    return bytes((len(name),)) + name + kind + payload


def long(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def nested(depth: int) -> bytes:
    raw = field(b"V", b"")
    for _ in range(depth):
        raw = field(b"F", long(raw))
    return raw


def headers(raw: bytes) -> bytes:
    """Encode properties with this header table and nothing else."""
    return struct.pack(">H", HAS_HEADERS) + long(raw)


def asking(raw: bytes, reply_to: str, message_id: str) -> bytes:
    """Encode properties with this header table, of a message that wants a receipt."""
    flags = HAS_HEADERS | HAS_CORRELATION_ID | HAS_REPLY_TO | HAS_MESSAGE_ID
    texts = b"".join(map(encode_short, (message_id, reply_to, message_id)))
    return struct.pack(">H", flags) + long(raw) + texts


def filling(frame_max: int, reply_to: str, message_id: str) -> bytes:
    """Encode the same, with one header that fills a frame of ``frame_max`` bytes."""
    taken = 8 + 12 + len(asking(field(b"S", long(b"")), reply_to, message_id))
    return asking(field(b"S", long(b"x" * (frame_max - taken))), reply_to, message_id)


class Hostile:
    """A publisher that breaks the rules."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    @classmethod
    async def at(cls, url: str) -> Hostile:
        parameters = parameters_of(url, name="hostile", credentials=Credentials())
        return cls(await open_connection(parameters, within=10))

    @property
    def frame_max(self) -> int:
        """The broker's limit of bytes in a frame."""
        return self._connection.frame_max

    async def publish(
        self, exchange: bytes, key: bytes, *properties: bytes, body: bytes = b"{}"
    ) -> bool:
        """Send a message with each of ``properties`` at once; return whether all were taken."""
        channel = await Channel.open(self._connection)
        self._connection.send(
            b"".join(_frames(channel.number, exchange, key, each, body) for each in properties)
        )
        try:
            # The broker answers in order: when it does, the publications have been processed.
            await channel.request("exchange_declare", exchange="amq.topic", passive=True)
        except Exception:
            return False
        channel.close()
        return True

    async def close(self) -> None:
        await self._connection.shut(within=2)


def _frames(channel: int, exchange: bytes, key: bytes, properties: bytes, body: bytes) -> bytes:
    frames: Sequence[tuple[int, bytes]] = (
        (1, struct.pack(">HHH", 60, 40, 0) + _short(exchange) + _short(key) + b"\0"),
        (2, struct.pack(">HHQ", 60, 0, len(body)) + properties),
        (3, body),
    )
    return b"".join(
        struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"
        for kind, payload in frames
    )


def _short(raw: bytes) -> bytes:
    return bytes((len(raw),)) + raw

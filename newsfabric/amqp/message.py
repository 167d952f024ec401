"""An AMQP message as values, between the adapters and the services.

Text that a publisher sent in another encoding than UTF-8 arrives with surrogate escapes (PEP 383):
so nothing is lost on the way to ``rejected``, and no byte is decoded twice. Validation refuses such
text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from newsfabric.fixed import fixed

# AMQP 0-9-1: 1 is transient, 2 persistent. The fabric persists nothing in a broker.
TRANSIENT: Final = 1

# The header in which shovels write their names; see newsfabric.messages.hops.
SHOVELLED: Final = "x-shovelled"


class Undecodable(bytes):
    """A header value that is no AMQP value, as the bytes received. Validation refuses it.

    Published again, it is a plain byte array, so that it can do no harm.
    """


class Undecoded(bytes):
    """An array header as the bytes received, not decoded: few consumers need its values.

    Published again, it is a plain byte array, as :class:`Undecodable` is.
    """


@fixed(frozen=True, slots=True, kw_only=True)
class Properties:
    """The basic properties (AMQP 0-9-1 section 1.8) that the fabric uses.

    ``timestamp`` is in seconds, ``expiration`` milliseconds as text, both as in the protocol.
    ``user_id``, if present, is the name that the publisher logged in with: a broker accepts no
    other. ``headers`` values have their types of the wire: str, int, float, bool, bytes, None,
    datetime, Decimal, lists and dicts of these; :class:`Undecodable` for any other, and
    :class:`Undecoded` for :data:`SHOVELLED`.
    """

    content_type: str | None = None
    headers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    delivery_mode: int = TRANSIENT
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None


@fixed(frozen=True, slots=True)
class Message:
    """A message: its address (``topic`` is its routing key) and its content."""

    topic: str
    body: bytes
    properties: Properties = Properties()


@fixed(frozen=True, slots=True)
class Delivery:
    """A message that was delivered to a consumer, which owes an ack for it.

    Give it to the consumer's ``ack``; ``tag`` and ``generation`` (of the channel) are the
    consumer's own bookkeeping: an ack for a closed channel is dropped, since the broker delivers
    the message again by itself.
    """

    message: Message
    redelivered: bool
    tag: int
    generation: int

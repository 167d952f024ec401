"""An AMQP message as values: what the adapters hand up and take down.

Text that a publisher sent as something other than UTF-8 arrives with surrogate
escapes (PEP 383), so nothing is lost on the way to ``rejected`` and
nothing has to be decoded twice. Whoever validates refuses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from newsfabric.fixed import fixed

# AMQP 0-9-1: 1 is transient, 2 persistent. The fabric persists nothing in a broker.
TRANSIENT: Final = 1

# Where shovels write their names; see newsfabric.messages.hops.
SHOVELLED: Final = "x-shovelled"


class Undecodable(bytes):
    """A header value that is no AMQP value, as the bytes it came in. Validation refuses it.

    Published again it is a plain byte array, so that it can do no harm.
    """


class Undecoded(bytes):
    """An array header that is taken as it came, because few who get it want to know.

    Published again it is a plain byte array, as :class:`Undecodable` is.
    """


@fixed(frozen=True, slots=True, kw_only=True)
class Properties:
    """The basic properties (AMQP 0-9-1 section 1.8) that the fabric uses.

    ``timestamp`` is in seconds, ``expiration`` milliseconds as text, both as
    the protocol has them. ``user_id``, where it is said, is the name that the publisher logged in
    with: a broker lets no other through. ``headers`` values are what the wire had: str, int,
    float, bool, bytes, None, datetime, Decimal, lists and dicts of these,
    :class:`Undecodable` where the wire had something else, and :class:`Undecoded` for
    :data:`SHOVELLED`.
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
    """One message: where it is addressed (``topic`` is its routing key), what it says."""

    topic: str
    body: bytes
    properties: Properties = Properties()


@fixed(frozen=True, slots=True)
class Delivery:
    """A message that a consumer was given and owes an ack for.

    Hand it back to the consumer's ``ack``; ``tag`` and ``generation`` (of the
    channel) are the consumer's own bookkeeping: an ack for a channel that is
    gone is dropped, since the broker delivers again by itself.
    """

    message: Message
    redelivered: bool
    tag: int
    generation: int

"""The reasons for closing readers' connections, and the codes of errors to readers: one table.

The wire, the logs, the metrics (label ``reason``) and the docs all use it, so they can't differ.
The *range* of a code tells any reader's library whether to reconnect, even if the library doesn't
know the code:

========== =====================================================
1000–1015  RFC 6455 section 7.4.1 and the IANA registry
4000–4099  do not reconnect
4100–4199  back off, then reconnect
4200–4299  reconnect at once
========== =====================================================
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class CloseReason:
    """A reason for which a connection ends.

    ``name`` is the metric label. ``code`` and ``text`` are sent in the close frame (``text`` ≤ 123
    bytes, RFC 6455 section 5.5), ``reconnect`` and ``retry_after_ms`` in the ``disconnect`` push
    before it.
    """

    name: str
    code: int
    text: str
    reconnect: bool = True
    retry_after_ms: int = 0


PROTOCOL_ERROR: Final = CloseReason("protocol_error", 1002, "broken framing", reconnect=False)
INVALID_PAYLOAD: Final = CloseReason("invalid_payload", 1007, "text is not UTF-8", reconnect=False)
UNFINISHED: Final = CloseReason("unfinished", 1008, "message left unfinished", retry_after_ms=2_000)
TOO_BIG: Final = CloseReason("too_big", 1009, "frame too large", reconnect=False)
DRAIN: Final = CloseReason("drain", 1012, "this box is being drained", retry_after_ms=1_000)
OVERLOAD: Final = CloseReason("overload", 1013, "this box is full", retry_after_ms=10_000)
INVALID_TOKEN: Final = CloseReason("invalid_token", 4001, "invalid token", reconnect=False)
INTERNAL: Final = CloseReason("internal", 4100, "internal error", retry_after_ms=5_000)
SLOW_READER: Final = CloseReason("slow_reader", 4101, "too slow to read", retry_after_ms=2_000)
TOO_MANY_REQUESTS: Final = CloseReason(
    "too_many_requests", 4102, "too many requests", retry_after_ms=10_000
)
# Connections of the address that are gone have made room by then.
ADDRESS_FULL: Final = CloseReason(
    "address_full", 4103, "too many connections of your address", retry_after_ms=5_000
)
REBALANCE: Final = CloseReason("rebalance", 4200, "another box serves you better")
TOKEN_EXPIRED: Final = CloseReason("token_expired", 4202, "token expired")
NO_PONG: Final = CloseReason("no_pong", 4203, "no sign of life")

# The data plane is sent this table, and the numbers of errors below, in its settings. A new reason
# needs its code in docs/protocol.md. One that the data plane uses needs a row in
# dataplane/src/closing.rs and its name in docs/dataplane-protocol.md, below the settings.
CLOSE_REASONS: Final[tuple[CloseReason, ...]] = (
    PROTOCOL_ERROR,
    INVALID_PAYLOAD,
    UNFINISHED,
    TOO_BIG,
    DRAIN,
    OVERLOAD,
    INVALID_TOKEN,
    INTERNAL,
    SLOW_READER,
    TOO_MANY_REQUESTS,
    ADDRESS_FULL,
    REBALANCE,
    TOKEN_EXPIRED,
    NO_PONG,
)


class ErrorCode(enum.IntEnum):
    """``code`` of an ``error`` push (numbers shared with other fan-out servers)."""

    INTERNAL = 100
    UNAUTHORIZED = 101
    UNKNOWN_TOPIC = 102
    PERMISSION_DENIED = 103
    ALREADY_SUBSCRIBED = 105
    LIMIT_EXCEEDED = 106
    BAD_REQUEST = 107
    TOKEN_EXPIRED = 109
    TOO_MANY_REQUESTS = 111
    UNRECOVERABLE_POSITION = 112

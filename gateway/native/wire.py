"""Definitions for both directions of the control protocol (docs/dataplane-protocol.md)."""

from __future__ import annotations

import enum
import struct
from typing import Final

VERSION: Final = 9
# The longest message, without its length field.
MAX_MESSAGE: Final = 16 << 20
# The longest blob that the data plane keeps for us, marks included.
MAX_BLOB: Final = 1 << 20

# Of each thread u16, slot u32, generation u32: only the data plane knows their meaning.
Connections = bytes
CONNECTION_BYTES: Final = 10

U8: Final = struct.Struct("<B")
U16: Final = struct.Struct("<H")
U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")


class CommandKind(enum.IntEnum):
    """Types of commands to a data plane; two of them are sent by another data plane alone."""

    HELLO = 1
    SETTINGS = 2
    PUBLISH = 3
    SUBSCRIBE = 5
    UNSUBSCRIBE = 6
    REPLY = 7
    CLOSE = 9
    REMEMBER = 10
    DRAIN = 11
    COUNT = 12
    TAKE_OVER = 13
    COMMIT = 14
    BATCH = 15
    AUTH = 16
    EVICT = 17
    SHED = 20
    GONE = 21
    KEPT = 22
    STAMP = 23
    MARK = 24


class EventKind(enum.IntEnum):
    """Types of events from a data plane; three of them are sent to another data plane alone."""

    ATTACHED = 129
    VERBS = 130
    PUBLISHED = 132
    HANDOVER = 133
    COUNTERS = 134
    REFUSED = 135
    OFFER = 136
    LANE = 137
    YOURS = 138
    FULL = 139


class WireError(ValueError):
    """Error: bytes received, or about to be sent, break the protocol."""

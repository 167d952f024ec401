"""The messages of the control protocol: one table for both ends and for the document.

``scripts/protocol`` makes ``dataplane/src/control/table.rs``, the tables of
docs/dataplane-protocol.md and the example's version from it. A new message is a row here, its
sender, its receiver, its meaning on that page, and a test of its effect.
A command whose body begins with ``connections`` answers a verb: its receiver is
``dataplane/src/readers/answers.rs``. That of other commands is
``dataplane/src/control_thread/commands.rs``.

A body is written as its fields, ``name form``; the form alone where both are the same word.
"""

from __future__ import annotations

import enum
from typing import Final, Self

# Both ends speak the same version. The first change of this table or of the settings after a
# release raises it.
VERSION: Final = 10
MAGIC: Final = b"nfdp"
# The longest message, without its length field.
MAX_MESSAGE: Final = 16 << 20
# The longest blob that the data plane keeps for us, marks included.
MAX_BLOB: Final = 1 << 20

#: Forms that are made of simpler ones: a record of fields, or a list of items (``[item]`` and the
#: bits of its count). Another name for a form stands for a bound or a reader of its own.
FORMS: Final = {
    "connection": "thread u16, slot u32, generation u32",
    "connections": "[connection]16",
    "name8": "text8",
    "topic": "name name8, slow u8",
    "message": "id, version i64, key text16, push bytes32",
    "messages": "[message]32",
    "acceptance": "topic, batch u64, seen flag, reference bytes16, push bytes32, messages",
    "auth": "bytes16",
    "blob": "bytes32",
    "series": "text8",
    "address": "text8",
    "user": "name text8, until_ms u64",
    "users": "[user]32",
    "origin": "address, count u32",
    "kept": "[origin]32",
    "ports": "[u16]8",
    "verb": "connections, auth, text bytes32",
    "verbs": "[verb]32",
    "counter": "name text8, value u64",
    "counters": "[counter]16",
    "offer": "bytes32",
}


class _Kind(enum.IntEnum):
    """A type of message: its number, and its ``body``."""

    body: str

    def __new__(cls, number: int, body: str) -> Self:
        kind = int.__new__(cls, number)
        kind._value_ = number
        kind.body = body
        return kind


class CommandKind(_Kind):
    """Types of commands to a data plane; two of them are sent by another data plane alone."""

    HELLO = 1, "magic, version u16"
    SETTINGS = 2, "json bytes32"
    PUBLISH = 3, "number u64, topic, message"
    SUBSCRIBE = 5, "connections, acceptance"
    UNSUBSCRIBE = 6, "connections, topic name8, push bytes32"
    REPLY = 7, "connections, push bytes32"
    CLOSE = 9, "connections, reason text8, retry_after_ms u32"
    REMEMBER = 10, "blob"
    DRAIN = 11, "spread_ms u32, per_second u32"
    COUNT = 12, ""
    TAKE_OVER = 13, "magic, version u16, format u16"
    COMMIT = 14, ""
    BATCH = 15, "number u64, topic, messages"
    AUTH = 16, "connections, user text8, issued_ms u64, ends_ms u64, auth, push bytes32"
    EVICT = 17, "reason text8, users"
    SHED = 20, "reason text8, count u32, retry_ms u32"
    GONE = 21, "address"
    KEPT = 22, "kept"
    STAMP = 23, "taken_ms u64, series"
    MARK = 24, "mark bytes16"


class EventKind(_Kind):
    """Types of events from a data plane; three of them are sent to another data plane alone."""

    ATTACHED = 129, "version u16, pid u32, attachment u32, readers u32, ports, blob"
    VERBS = 130, "verbs"
    PUBLISHED = 132, "number u64"
    HANDOVER = 133, "address"
    COUNTERS = 134, "counters"
    REFUSED = 135, "why text8"
    OFFER = 136, "offer"
    STATE_SOCKET = 137, "thread u16"
    YOURS = 138, ""
    FULL = 139, "address"

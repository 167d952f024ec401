"""Drives a data plane by its protocol alone: no import from this project, nothing to install.

Start ``newsfabric-dataplane --control /tmp/dp.sock --port 9000``, then this with the same path. A
reader that subscribes to ``news.example`` at ``ws://127.0.0.1:9000/websocket`` gets a message each
second. A reader that sends ``{"action": "login", "token": "anything"}`` is logged in with the token
as its user name, also for the next driver.
"""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator

VERSION = 10  # of gateway/native/table.py
HELLO, SETTINGS, PUBLISH, SUBSCRIBE, REPLY, AUTH = 1, 2, 3, 5, 7, 16
VERBS, COUNTERS = 130, 134
REASONS = {
    "protocol_error": 1002, "invalid_payload": 1007, "too_big": 1009, "too_many_requests": 4102,
    "drain": 1012, "overload": 1013, "internal": 4100, "slow_reader": 4101, "no_pong": 4203,
    "token_expired": 4202, "unfinished": 1008,
}  # fmt: skip
LIMITS = {
    "capacity": 100_000, "heartbeat_ms": 25_000, "linger_ms": 5_000, "retry_after_ms": 2_000,
    "head_bytes": 16_384, "unfinished_ms": 10_000, "message_bytes": 16_384, "topics": 128,
    "verbs": 256, "verbs_per_second": 10, "refusals": 20, "waiting": 256, "hard_bytes": 4 << 20,
    "soft_bytes": 1 << 20, "soft_ms": 10_000, "stalled_ms": 30_000, "outbox_bytes": 256 << 20,
    "fanout_chunk": 512, "identities": 1_550_000, "identity_ms": 900_000, "alone_ms": 60_000,
    "drain_ms": 10_000, "drain_per_second": 2_000, "websocket": True,
    "errors": {"already_subscribed": 105, "limit_exceeded": 106, "too_many_requests": 111},
}  # fmt: skip


def send(plane: socket.socket, kind: int, body: bytes) -> None:
    """Send a message: length, type, body."""
    plane.sendall(struct.pack("<IB", len(body) + 1, kind) + body)


def attach(plane: socket.socket) -> None:
    """Send the hello and the limits."""
    send(plane, HELLO, b"nfdp" + struct.pack("<H", VERSION))
    like = {"reconnect": True, "retry_after_ms": 1_000}
    reasons = [{"name": name, "code": code, "text": name} | like for name, code in REASONS.items()]
    send(plane, SETTINGS, json32(LIMITS | {"reasons": reasons}))


def publish(plane: socket.socket, number: int, name: str, body: object) -> None:
    """Send ``body`` to all subscribers of ``name``; ``number`` increases."""
    id_ = int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10)
    push = {"type": "message", "topic": name, "id": id_.hex(), "body": body}
    message = topic(name) + id_ + struct.pack("<qH", -1, 0) + json32(push)
    send(plane, PUBLISH, struct.pack("<Q", number) + message)


def answer(plane: socket.socket, readers: bytes, auth: bytes, verb: dict[str, str]) -> None:
    """Reply to a verb: ``subscribe``, ``login``, ``ping``, and an error for all others."""
    if verb.get("action") == "subscribe":
        push = json32({"type": "subscribed", "topic": verb["topic"]})
        # No batch, no number seen, no ref, no earlier messages.
        command = readers + topic(verb["topic"]) + struct.pack("<QBH", 0, 0, 0) + push + bytes(4)
        send(plane, SUBSCRIBE, command)
    elif verb.get("action") == "login":
        # Accepted for an hour; a real control plane verifies the token.
        user, now_ms = verb.get("token", "")[:64], int(time.time() * 1000)
        times = struct.pack("<QQ", now_ms, now_ms + 3_600_000)
        push = json32({"type": "logged_in", "user": user})
        state = struct.pack("<H", len(blob := user.encode())) + blob
        send(plane, AUTH, readers + text8(user) + times + state + push)
    elif verb.get("action") == "ping":
        send(plane, REPLY, readers + json32({"type": "pong", "user": auth.decode() or None}))
    else:
        error = {"type": "error", "code": 107, "reason": "no such verb here", "temporary": False}
        send(plane, REPLY, readers + json32(error))


def events(plane: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield types and bodies of events, until the data plane closes the connection."""
    stream = plane.makefile("rb")
    while head := stream.read(5):
        length, kind = struct.unpack("<IB", head)
        yield kind, stream.read(length - 1)


def verbs(body: bytes) -> Iterator[tuple[bytes, bytes, dict[str, str]]]:
    """Yield an event's verbs: the list of readers, their auth (empty for none), and the verb."""
    at = 4
    for _ in range(int.from_bytes(body[:4], "little")):
        (count,) = struct.unpack_from("<H", body, at)
        readers = body[at : at + 2 + 10 * count]
        at += len(readers)
        (size,) = struct.unpack_from("<H", body, at)
        auth = body[at + 2 : at + 2 + size]
        at += 2 + size
        (size,) = struct.unpack_from("<I", body, at)
        yield readers, auth, json.loads(body[at + 4 : at + 4 + size])
        at += 4 + size


def text8(text: str) -> bytes:
    """Return a short text with its length."""
    return bytes([len(data := text.encode())]) + data


def json32(value: object) -> bytes:
    """Return a value as JSON, with its length."""
    return struct.pack("<I", len(data := json.dumps(value).encode())) + data


def topic(name: str) -> bytes:
    """Return a topic record: for slow readers the oldest messages are dropped."""
    return text8(name) + bytes([2])


if __name__ == "__main__":
    plane = socket.socket(socket.AF_UNIX)
    plane.connect(sys.argv[1])
    attach(plane)
    for number, (kind, body) in enumerate(events(plane), 1):
        if kind == VERBS:
            for readers, auth, verb in verbs(body):
                answer(plane, readers, auth, verb)
        elif kind == COUNTERS:  # sent once a second
            publish(plane, number, "news.example", {"headline": "It is " + time.ctime()})

"""Drives a data plane by its protocol alone: no import from this project, nothing to install.

Start ``newsfabric-dataplane --control /tmp/dp.sock --port 9000``, then this, and connect readers to
``ws://127.0.0.1:9000/websocket``. Everyone who subscribes gets a message each second. What the
bytes mean is in ``docs/dataplane-protocol.md``.
"""

import argparse
import json
import os
import socket
import struct
import time
from collections.abc import Iterator

REASONS = {
    "protocol_error": 1002,
    "invalid_payload": 1007,
    "too_big": 1009,
    "drain": 1012,
    "overload": 1013,
    "internal": 4100,
    "slow_reader": 4101,
    "too_many_requests": 4102,
    "no_pong": 4203,
}
# In the order of the protocol's table of settings; hub_bytes is the one that has eight bytes.
SETTINGS = struct.Struct("<20IQ6I")
LIMITS = (100_000, 25_000, 5_000, 2_000, 16_384, 10_000, 16_384, 128, 256, 10, 20, 256)
OUTBOX = (4 << 20, 1 << 20, 10_000, 1 << 20, 512, 0, 0)
HUB = (20_000, 256 << 20, 1_000, 500_000, 600_000, 60_000, 10_000, 2_000)


class Driver:
    """A control plane that lets everyone subscribe to everything."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.buffer = b""
        self.number = 0

    def send(self, kind: int, body: bytes) -> None:
        """One message: length, type, body."""
        self.socket.sendall(struct.pack("<IB", len(body) + 1, kind) + body)

    def attach(self) -> None:
        """Say hello, and what the limits are."""
        self.send(1, b"nfdp" + struct.pack("<H", 1))
        reasons = b"".join(
            text8(name) + struct.pack("<H", code) + text8(name) + struct.pack("<BI", 1, 1_000)
            for name, code in REASONS.items()
        )
        body = SETTINGS.pack(*LIMITS, *OUTBOX, *HUB)
        self.send(2, body + struct.pack("<HB", 0, len(REASONS)) + reasons)

    def publish(self, name: str, body: object) -> None:
        """Send ``body`` to all who are subscribed to ``name``."""
        self.number += 1
        id_ = int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10)
        push = json.dumps({"type": "message", "topic": name, "id": id_.hex(), "body": body})
        message = id_ + struct.pack("<QqH", 0, -1, 0) + bytes32(push.encode())
        self.send(3, struct.pack("<Q", self.number) + topic(name) + message)

    def events(self) -> Iterator[tuple[int, bytes]]:
        """What has come: types and bodies. Waits for at least some bytes."""
        self.buffer += self.socket.recv(1 << 20)
        while len(self.buffer) >= 4:
            end = 4 + int.from_bytes(self.buffer[:4], "little")
            if len(self.buffer) < end:
                return
            kind, body, self.buffer = self.buffer[4], self.buffer[5:end], self.buffer[end:]
            yield kind, body

    def answer(self, body: bytes) -> None:
        """Answer a batch of verbs: ``subscribe``, and an error for everything else."""
        at = 4
        for _ in range(int.from_bytes(body[:4], "little")):
            connection, size = body[at : at + 10], int.from_bytes(body[at + 10 : at + 14], "little")
            verb = json.loads(body[at + 14 : at + 14 + size])
            at += 14 + size
            push = {"type": "subscribed", "topic": verb.get("topic")}
            if verb.get("action") != "subscribe":
                push = {
                    "type": "error",
                    "code": 107,
                    "reason": "only subscribe",
                    "temporary": False,
                }
                self.send(7, connection + bytes32(json.dumps(push).encode()))
                continue
            command = (
                connection + bytes(4) + topic(verb["topic"]) + struct.pack("<BBQH", 0, 0, 0, 0)
            )
            self.send(5, command + bytes32(json.dumps(push).encode()) + bytes(4))


def text8(text: str) -> bytes:
    """A short text with its length."""
    return bytes([len(text)]) + text.encode()


def bytes32(data: bytes) -> bytes:
    """Bytes with their length."""
    return struct.pack("<I", len(data)) + data


def topic(name: str) -> bytes:
    """A topic record: keep ten messages, drop the oldest for slow readers, no latest."""
    return text8(name) + struct.pack("<IBB", 10, 2, 0)


def main() -> None:
    """Attach, answer verbs, publish each second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="what the data plane was given as --control")
    parser.add_argument("--topic", default="news.example")
    options = parser.parse_args()
    driver = Driver(options.path)
    driver.attach()
    while True:
        for kind, body in driver.events():
            if kind == 130:
                driver.answer(body)
            elif kind == 134:  # counters come once a second
                driver.publish(options.topic, {"headline": "It is " + time.ctime()})


if __name__ == "__main__":
    main()

"""The protocol as one table: the reply of the gateway's own code to each verb that pages send.

Each verb is sent to a whole gateway without transports, in every situation that changes the reply.
The simulation of clients/js plays against the table. Run as a program, it prints the table::

    PYTHONPATH=. python tests/support/answers.py > clients/js/test/simulation/protocol.json
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import orjson
from signing import AUDIENCE, ISSUER, ed25519, keys_file, token

from gateway.core.core import Core
from gateway.process.settings import GatewaySettings, TokenSettings
from gateway.readers.connection import Connection
from gateway.wire.frames import Framing
from gateway.wire.protocol import ReaderLimits
from newsfabric.closing import CLOSE_REASONS, CloseReason
from newsfabric.messages.mailbox import MARK_KINDS, UserMark
from newsfabric.store.memory import MemoryStore
from newsfabric.store.rules import clock_ms
from newsfabric.topics import TopicPolicy, TopicTable

TABLE: Final = TopicTable(
    [
        TopicPolicy(pattern="news.*", topic_class="gold", keep=10),
        TopicPolicy(pattern="desk.*", access="registered"),
        TopicPolicy(pattern="user.*", access="owner"),
    ]
)
#: The topics of verbs, named by their relation to user 42. "malformed" is no valid topic.
TOPICS: Final = {
    "public": "news.world",
    "registered": "desk.rates",
    "own": "user.42",
    "other's": "user.7",
    "unknown": "weather.oregon",
    "malformed": "no topic",
}
WHO: Final = ("nobody", "42")
_ID: Final = "00000000-0000-7000-8000-000000000001"
_PATIENCE: Final = 2_000


class _CollectingReader(Connection):
    """A reader that keeps every push it is sent."""

    transport = "websocket"
    framing = Framing.RAW

    def __init__(self, core: Core) -> None:
        super().__init__(core.readers)
        self.sent: list[dict[str, Any]] = []

    def _write(self, frames: list[bytes]) -> None:
        self.sent += [orjson.loads(frame) for frame in frames]

    def _heartbeat(self) -> None:
        pass

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        self._write([push])
        self.lost()


class _Upstream:
    """A mailbox service that accepts every user mark."""

    async def send(self, mark: UserMark) -> None:
        pass


def _tokens() -> dict[str, Any]:
    return {
        "good": token("42"),
        "newer": token("42", issued=time.time() - 1),
        "other's": token("7"),
        "expired": token("42", ttl=-60.0),
        "broken": "not a token",
        "no string": None,
    }


def _situations() -> list[tuple[str, dict[str, Any], bool]]:
    """Return each row's name and verb, and whether the reader is subscribed to its topic."""
    rows: list[tuple[str, dict[str, Any], bool]] = [
        ("ping", {"action": "ping"}, False),
        ("ping limits", {"action": "ping", "limits": True}, False),
        ("unknown verb", {"action": "dance"}, False),
    ]
    for action, (name, text) in itertools.product(("login", "refresh"), _tokens().items()):
        rows.append((f"{action} {name}", {"action": action, "token": text}, False))
    options: dict[str, dict[str, Any]] = {
        "": {},
        " rewind": {"rewind": 5},
        " position": {"position": "P"},
    }
    options |= {" bad rewind": {"rewind": 0}, " bad position": {"position": "nonsense"}}
    for name, topic in TOPICS.items():
        for option, fields in options.items():
            verb = {"action": "subscribe", "topic": topic, **fields}
            rows.append((f"subscribe {name}{option}", verb, False))
            rows.append((f"subscribe {name}{option} again", verb, True))
        marks: dict[str, dict[str, Any]] = {kind: {"id": _ID} for kind in MARK_KINDS}
        for action, fields in {"history": dict[str, Any](), **marks}.items():
            rows.append((f"{action} {name}", {"action": action, "topic": topic, **fields}, False))
        rows.append((f"unsubscribe {name}", {"action": "unsubscribe", "topic": topic}, False))
        rows.append((f"unsubscribe {name} again", {"action": "unsubscribe", "topic": topic}, True))
    return rows


async def _settled(reader: _CollectingReader, count: int) -> None:
    for _ in range(_PATIENCE):
        if len(reader.sent) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"no answer: {reader.sent}")


def _shape(push: dict[str, Any]) -> dict[str, Any]:
    """Return ``push`` without fields that differ each time, or with only whether they are set."""
    shape = {name: value for name, value in push.items() if name not in ("ref", "topic", "id")}
    for field in ("position", "expires_at"):
        if field in shape:
            shape[field] = shape[field] is not None
    return shape


async def _answer(core: Core, who: str, verb: dict[str, Any], has_topic: bool) -> Any:
    reader = _CollectingReader(core)
    seen: list[dict[str, Any]] = []
    if who != "nobody":
        seen.append({"action": "login", "token": token(who)})
    if has_topic:
        seen.append({"action": "subscribe", "topic": verb["topic"], "rewind": 1})
    if verb.get("position") == "P":
        verb = {**verb, "position": core.hub.position(time.time())}
    for each in [*seen, {**verb, "ref": "asked"}]:
        reader.received(json.dumps(each))
    await _settled(reader, len(seen) + 1)
    reader.lost()
    if has_topic and reader.sent[-2]["type"] != "subscribed":
        return None
    assert reader.sent[-1].get("ref") == "asked"
    return _shape(reader.sent[-1])


async def _bad_tokens(core: Core) -> dict[str, Any]:
    """Return the number of bad tokens that end a connection, and the push that ends it."""
    reader = _CollectingReader(core)
    while reader.is_open:
        reader.received('{"action": "login", "token": "not a token"}')
    return {"after": len(reader.sent) - 1, "push": reader.sent[-1]}


async def protocol(folder: Path) -> dict[str, Any]:
    """Return the table: closes, limits, topics, and the reply to each row for each reader."""
    keys = keys_file(folder, ed25519())
    tokens = TokenSettings(keys=keys, audience=AUDIENCE, issuer=ISSUER)
    core = Core(
        GatewaySettings(name="box", region="oregon", tokens=tokens), TABLE, MemoryStore(TABLE)
    )
    core.dispatcher.upstream = _Upstream()  # type: ignore[assignment]
    core.hub.logs.directory_read(clock_ms(), now=core.clock())
    core.follower.begun.set()
    await core.authenticator.start()
    answers: dict[str, Any] = {}
    for who, (name, verb, has_topic) in itertools.product(WHO, _situations()):
        answer = await _answer(core, who, verb, has_topic)
        if answer is not None:
            answers[f"{who}: {name}"] = answer
    bad_tokens = await _bad_tokens(core)
    await core.close()
    # A gateway that is starting hasn't read the directory of logs or the revocations yet.
    starting = Core(core.settings, TABLE, MemoryStore(TABLE))
    for name, verb, has_topic in _situations():
        answer = None if has_topic else await _answer(starting, "nobody", verb, has_topic)
        if answer is not None and answer.get("temporary"):
            answers[f"starting: {name}"] = answer
    await starting.close()
    return {
        "closes": {one.name: _close(one) for one in CLOSE_REASONS},
        "limits": dataclasses.asdict(ReaderLimits()),
        "topics": TOPICS,
        "bad tokens": bad_tokens,
        "answers": answers,
    }


def _close(reason: CloseReason) -> dict[str, Any]:
    return {
        "type": "disconnect",
        "code": reason.code,
        "reason": reason.text,
        "reconnect": reason.reconnect,
        "retry_after_ms": reason.retry_after_ms,
    }


def as_text(table: dict[str, Any]) -> str:
    """Return ``table`` as JSON, one row on each line."""
    parts = []
    for name, rows in table.items():
        lines = [f"    {json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
        parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.stdout.write(as_text(asyncio.run(protocol(Path(scratch)))))

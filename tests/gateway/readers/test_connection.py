"""A reader's connection without a transport, when one event leads to another."""

from __future__ import annotations

import orjson
from envelopes import envelope
from gateways import TABLE

from gateway.core.core import Core
from gateway.past.replay import Replay
from gateway.process.settings import GatewaySettings
from gateway.readers.connection import Connection
from gateway.wire.frames import Framing
from gateway.wire.outbox import OutboxLimits
from gateway.wire.protocol import Subscribed
from gateway.wire.publication import Publication
from newsfabric.closing import TOO_BIG, CloseReason
from newsfabric.store.memory import MemoryStore


class Stuck(Connection):
    """A connection whose transport accepts nothing."""

    transport = "websocket"
    framing = Framing.RAW

    def __init__(self, core: Core) -> None:
        super().__init__(core.readers)
        self.blocked = True
        self.goodbyes: list[str] = []

    def _write(self, frames: list[bytes]) -> None:
        raise AssertionError("it is blocked")

    def _heartbeat(self) -> None:
        pass

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        self.goodbyes.append(reason.name)


class Taking(Stuck):
    """A connection whose transport accepts everything."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self.blocked = False
        self.taken: list[bytes] = []

    def _write(self, frames: list[bytes]) -> None:
        self.taken += frames

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        super()._say_goodbye(push, reason)
        self._firm(push)

    def _all_sent(self) -> None:
        self.goodbyes.append("all sent")


async def test_a_replay_that_is_too_much_ends_once_its_goodbye_was_taken() -> None:
    """No part of the replay is sent, and the reader can resume from the position it has."""
    limits = OutboxLimits(hard_bytes=1_000, soft_bytes=1_000)
    core = Core(
        GatewaySettings(name="box", region="oregon", outbox=limits), TABLE, MemoryStore(TABLE)
    )
    reader = Taking(core)
    topic = "news.breaking"
    policy = TABLE.known(topic)
    missed = [Publication(envelope(n, topic=topic), policy, f"after {n}") for n in range(1, 6)]
    reader.subscribe(Subscribed(topic, None, "before", True), Replay(missed))
    pushes = [orjson.loads(push) for push in reader.taken]
    assert [(push["type"], push.get("position")) for push in pushes] == [
        ("subscribed", "before"),
        ("disconnect", None),
    ]
    assert reader.goodbyes == ["slow_reader", "all sent"]
    reader.lost()
    await core.close()


async def test_too_long_a_verb_of_a_reader_who_is_too_slow_to_hear_so_ends_it_once() -> None:
    limits = OutboxLimits(hard_bytes=1_000, soft_bytes=1_000)
    core = Core(
        GatewaySettings(name="box", region="oregon", outbox=limits), TABLE, MemoryStore(TABLE)
    )
    reader = Stuck(core)
    reader.outbox.push_firm(bytes(700), 0.0)
    reader.close(TOO_BIG)
    assert reader.goodbyes == ["slow_reader"]
    assert core.readers.closing == {reader}
    reader.lost()
    await core.close()

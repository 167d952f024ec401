"""A reader's connection without a transport: what it does when one thing leads to another."""

from __future__ import annotations

from gateways import TABLE

from gateway.connection import Connection
from gateway.core import Core
from gateway.frames import Variant
from gateway.outbox import OutboxLimits
from gateway.settings import GatewaySettings
from newsfabric.closing import TOO_BIG, CloseReason
from newsfabric.store.memory import MemoryStore


class Stuck(Connection):
    """Its transport takes nothing."""

    transport = "websocket"
    variant = Variant.RAW

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

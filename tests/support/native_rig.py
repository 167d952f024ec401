"""A gateway attached to a fake data plane, which sends verbs as its readers would."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from envelopes import START_MS, envelope
from fake_dataplane import (
    READER,
    FakeDataplane,
    ReceivedCommand,
    Visit,
    fake_dataplane,
    verbs,
)
from gateways import until
from signing import AUDIENCE, ISSUER, keys_file
from tornado.httpserver import HTTPServer
from tornado.web import Application

from gateway.answers.access import AuthState
from gateway.answers.verbs import Intent, VerbParser
from gateway.core.core import Core
from gateway.logs.logs import LogsSnapshot
from gateway.native.plane import Plane, PlaneState
from gateway.native.serving import DataplaneService
from gateway.process.settings import GatewaySettings, NativeSettings, TokenSettings
from gateway.wire.protocol import ReaderLimits
from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope
from newsfabric.store.memory import MemoryStore
from newsfabric.tokens import Login
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.latest", keep=3, latest=True, slow="conflate"),
        TopicPolicy(pattern="news.*", keep=3, slow="drop_oldest"),
        TopicPolicy(pattern="user.*", access="owner"),
        TopicPolicy(pattern="rig.*", access="registered"),
    ]
)

OTHER = struct.pack("<HII", 0, 8, 1)
THIRD = struct.pack("<HII", 0, 9, 1)
FOREVER_MS = 2**53
FORTY_TWO = AuthState(
    Login(user="42", topics=(), issued_ms=1, expires_ms=FOREVER_MS, ends_ms=FOREVER_MS)
)


class CountingStore(MemoryStore):
    """A store that counts reads of histories and of resumes; it can be made to fail or to wait."""

    def __init__(self) -> None:
        super().__init__(TABLE, now_ms=lambda: START_MS)
        self.reads = 0
        self.resumes = 0
        self.corrupt = False
        self.released = asyncio.Event()
        self.released.set()

    async def since(self, *args: Any, **kwargs: Any) -> list[Envelope]:
        self.resumes += 1
        return await super().since(*args, **kwargs)

    async def history(self, *args: Any, **kwargs: Any) -> list[Envelope]:
        self.reads += 1
        await self.released.wait()
        if self.corrupt:
            raise StoreError("corrupt")
        return await super().history(*args, **kwargs)


class NativeRig:
    """A gateway attached to a fake data plane, which sends verbs as its readers would."""

    def __init__(
        self,
        core: Core,
        plane: Plane,
        serving: DataplaneService,
        store: CountingStore,
        fake: FakeDataplane,
        visit: Visit,
    ) -> None:
        self.core, self.plane, self.serving = core, plane, serving
        self.store, self.fake, self.visit = store, fake, visit
        self.young_ms = int(time.time() * 1000)
        # All replies are made with this clock.
        self.now = self.young_ms / 1000 + 1
        self.texts_read: list[bytes] = []

    def news(self, number: int, **fields: Any) -> Envelope:
        """Return number ``number`` of a log younger than the gateway, routed in the last second.

        Only the numbers of it that the gateway saw are past.
        """
        at = self.young_ms + number - START_MS
        return envelope(number, at=at, epoch=self.young_ms, **fields)

    async def send_text(self, text: bytes, *, auth: bytes = b"", by: bytes = READER) -> None:
        await self.visit.send_events(verbs(text, connections=by, auth=auth))

    async def command_for(
        self, *, auth: bytes = b"", by: bytes = READER, **verb: Any
    ) -> ReceivedCommand:
        """Send ``verb``; return the command that follows."""
        await self.send_text(json.dumps(verb).encode(), auth=auth, by=by)
        return await self.visit.hear()

    async def subscribed(self, **verb: Any) -> dict[str, Any]:
        """Return the fields of the reply to a ``subscribe``, which is sent at once."""
        command = await self.command_for(action="subscribe", **verb)
        assert command.name == "subscribe", command
        return command.fields

    async def replied(self, **verb: Any) -> dict[str, Any]:
        """Return the push that answers ``verb``; no other command may come."""
        command = await self.command_for(**verb)
        who = verb.get("by", READER)
        assert (command.name, command.fields["connections"]) == ("reply", who)
        return dict(json.loads(command.fields["push"]))

    async def leaves(self) -> None:
        """Close the data plane, with no successor that listens yet."""
        self.visit.leave()
        await until(lambda: self.plane.state is PlaneState.AWAY)
        self.fake.close()


async def attached(fake: FakeDataplane, plane: Plane, attachment: int = 1) -> Visit:
    attaching = asyncio.create_task(plane.attach())
    visit = await fake.visited()
    await visit.greet(attachment=attachment)
    await asyncio.wait_for(attaching, 60)
    return visit


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NativeRig]:
    path = tmp_path / "control"
    store = CountingStore()
    settings = GatewaySettings(
        name="b",
        region="oregon",
        native=NativeSettings(socket=path),
        store_timeout=30.0,
        replay_bytes=10_000,
        reader=ReaderLimits(bad_tokens=2),
        tokens=TokenSettings(keys=keys_file(tmp_path), audience=AUDIENCE, issuer=ISSUER),
    )
    async with fake_dataplane(path) as fake:
        plane = Plane(settings, Path("/nowhere"), path)
        core = Core(settings, TABLE, store, plane)
        serving = DataplaneService(core, plane, HTTPServer(Application()), asyncio.Event())
        # The authenticator reads the revocations from the store.
        await core.authenticator.start()
        store.reads = 0
        visit = await attached(fake, plane)
        core.follower.begin(LogsSnapshot((), 0))
        rig = NativeRig(core, plane, serving, store, fake, visit)
        monkeypatch.setattr(core.dispatcher, "now", lambda: rig.now)
        monkeypatch.setattr(core.dispatcher.rewinds, "now", lambda: rig.now)
        monkeypatch.setattr(core.resumes, "now", lambda: rig.now)
        parse = VerbParser.parse

        def counted(verbs: VerbParser, text: bytes) -> Intent:
            rig.texts_read.append(text)
            return parse(verbs, text)

        monkeypatch.setattr(VerbParser, "parse", counted)
        yield rig
        await core.close()


def past(*numbers: int, topic: str = "news.a", **fields: Any) -> list[Envelope]:
    """Return messages of a log that ended long before the gateway began."""
    return [envelope(number, topic=topic, at=number, **fields) for number in numbers]


def seqs(messages: list[dict[str, Any]]) -> list[int]:
    return [int(json.loads(message["push"])["body"]["headline"]) for message in messages]

"""``python -m gateway --engine native`` on a real RabbitMQ node, killed in the middle of a feed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import websockets
from gateways import Reader, settle

from bench.soak.messages import NumberingRouter
from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher
from newsfabric.amqp.link import connect
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.messages.envelope import Envelope, encode
from newsfabric.settings import Node
from newsfabric.store import Store, open_store
from newsfabric.store.logs import Log
from newsfabric.topics import load_topics

# The box's queue has one name, and all workers share the broker.
pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("box-topology")]

ROOT = Path(__file__).resolve().parents[3]
TOPIC = "news.breaking"


class ControlProcess:
    """The control plane's process; its data plane lives on when it is killed."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            # Not asyncio's: killing an asyncio process needs an await.
            self.process = subprocess.Popen(  # noqa: ASYNC220
                [
                    sys.executable, "-m", "gateway", "--engine=native",
                    "--name=box-1", "--region=oregon", f"--broker={self.node.amqp_url}",
                    f"--topics={ROOT / 'topics.toml'}",
                    f"--store=sqlite:{self.folder / 'store.sqlite'}",
                    f"--dataplane-socket={self.folder / 'control'}", "--dataplane-threads=2",
                    "--port=0", "--admin-port=0", "--drain-seconds=0",
                ],
                cwd=ROOT,
                stderr=log,
            )  # fmt: skip
        pattern = rb"readers on port (\d+), admin on port"
        starts = len(re.findall(pattern, self._log()))
        async with asyncio.timeout(30):
            while len(found := re.findall(pattern, self._log())) == starts:
                assert self.process.poll() is None, self._log().decode()
                await asyncio.sleep(0.02)
        self.port = int(found[-1])

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await asyncio.to_thread(self.process.wait)

    async def drain(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(self.process.wait, 20) == 0

    def end_everything(self) -> None:
        """Leave no process behind, whatever happened."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for pid in set(re.findall(rb"attached to data plane (\d+)", self._log())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def _log(self) -> bytes:
        return (self.folder / "log").read_bytes() if (self.folder / "log").exists() else b""


class Feed:
    """A router on the box's broker, whose queue outlives gateways."""

    def __init__(self, store: Store, publisher: ConfirmingPublisher) -> None:
        self.store, self._publisher = store, publisher
        self._router = NumberingRouter()

    async def begin(self) -> None:
        """List the router's log, and tick."""
        await self.store.list_log(Log("oregon", "soak", self._router.epoch))
        await self.tick()

    async def publish(self, *bodies: int) -> None:
        """Store, publish and settle messages."""
        for body in bodies:
            made = await self._stored(body)
            await self._publisher.publish(topology.POSTOFFICE, encode(made, low=made.seq - 1))
            await settle(self.store, made)

    async def lose(self, body: int) -> None:
        """Settle a message that no queue ever gets."""
        await settle(self.store, await self._stored(body))

    async def tick(self) -> None:
        """Send the router's tick: everything is settled."""
        last, now_ms = self._router.seq, int(time.time() * 1000)
        tick = Tick(
            origin="oregon", router="soak", epoch=self._router.epoch,
            seq=last, low=last, sent_ms=now_ms,
        )  # fmt: skip
        await self._publisher.publish(topology.POSTOFFICE, encode_tick(tick))

    async def _stored(self, body: int) -> Envelope:
        made = self._router.message(TOPIC, body)
        await self.store.write([made])
        return made


@contextlib.asynccontextmanager
async def feed(node: Node, folder: Path) -> AsyncIterator[Feed]:
    store = open_store(f"sqlite:{folder / 'store.sqlite'}", load_topics(ROOT / "topics.toml"))
    link = await connect([node.amqp_url], name="test")
    try:
        await link.on_connect(topology.declare_retail)
        publisher = await link.publisher()
        await publisher.ready()
        made = Feed(store, publisher)
        await made.begin()
        yield made
    finally:
        await link.close()
        await store.close()


async def test_killed_in_the_middle_of_a_feed_nothing_is_lost_or_doubled(
    rabbitmq: Node, tmp_path: Path
) -> None:
    gateway = ControlProcess(rabbitmq, tmp_path)
    bodies = iter(range(1, 601))
    try:
        async with feed(rabbitmq, tmp_path) as router:
            await gateway.start()
            url = f"ws://127.0.0.1:{gateway.port}/websocket"
            async with websockets.connect(url) as connection:
                reader = Reader(connection)
                await reader.subscribe(TOPIC)
                for _ in range(2):
                    await router.publish(*itertools.islice(bodies, 100))
                    await gateway.kill()
                    # These wait in the box's queue, and in the store.
                    await router.publish(*itertools.islice(bodies, 100))
                    await router.tick()
                    await gateway.start()
                    await router.publish(*itertools.islice(bodies, 100))
                heard = await reader.hear_bodies(600)
                assert sorted(heard) == list(range(1, 601))
                await reader.is_up_to_date()
                await gateway.drain()
                code, pushes = await reader.hear_close()
                assert (code, pushes[-1]["code"]) == (1012, 1012)
            assert b"panicked" not in (tmp_path / "log").read_bytes()
    finally:
        gateway.end_everything()


async def test_what_is_purged_from_the_boxs_queue_is_delivered_all_the_same(
    rabbitmq: Node, tmp_path: Path
) -> None:
    gateway = ControlProcess(rabbitmq, tmp_path)
    try:
        async with feed(rabbitmq, tmp_path) as router:
            await gateway.start()
            url = f"ws://127.0.0.1:{gateway.port}/websocket"
            async with websockets.connect(url) as connection:
                reader = Reader(connection)
                await reader.subscribe(TOPIC)
                await router.publish(1)
                assert await reader.hear_bodies(1) == [1]
                # While no gateway consumes the queue, it is purged; readers stay.
                await gateway.kill()
                await router.publish(2)
                purge(rabbitmq, topology.GATEWAY_QUEUE)
                await router.tick()
                await gateway.start()
                async with asyncio.timeout(60):
                    assert await reader.hear_bodies(1) == [2]
                await router.lose(3)
                await router.publish(4)
                # On a slow machine the silent log is read before number 4 arrives.
                async with asyncio.timeout(60):
                    assert sorted(await reader.hear_bodies(2)) == [3, 4]
                await reader.is_up_to_date()
                await gateway.drain()
    finally:
        gateway.end_everything()


def purge(node: Node, queue: str) -> None:
    url = f"{node.management_url}/api/queues/%2F/{queue}/contents"
    request = urllib.request.Request(url, method="DELETE")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request, timeout=10):
        """Purged."""

"""``python -m gateway`` as a real process, on a real RabbitMQ node."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import websockets
from envelopes import envelope
from gateways import ENGINES

from newsfabric import topology
from newsfabric.amqp.link import connect
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.messages.envelope import encode, id_of
from newsfabric.settings import Node

# The box's queue has one name, and all workers share the broker.
pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("box-topology")]

ROOT = Path(__file__).resolve().parents[2]


@contextlib.asynccontextmanager
async def gateway(
    node: Node, engine: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, int]]:
    """Run a gateway process; yield it with its readers' and admin ports; at the end kill it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway",
        "--name=box-1", "--region=oregon", f"--broker={node.amqp_url}",
        f"--topics={ROOT / 'topics.toml'}", "--store=memory:",
        "--port=0", "--admin-port=0", "--drain-seconds=0.2", f"--engine={engine}",
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while not (found := re.search(rb"readers on port (\d+), admin on port (\d+)",
                                          line := await process.stderr.readline())):  # fmt: skip
                assert line, "the gateway ended"
        yield process, int(found[1]), int(found[2])
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_message_crosses_the_broker_and_sigterm_drains(rabbitmq: Node, engine: str) -> None:
    link = await connect([rabbitmq.amqp_url], name="test")
    try:
        async with (
            gateway(rabbitmq, engine) as (process, port, _),
            websockets.connect(f"ws://127.0.0.1:{port}/websocket") as reader,
        ):
            await link.on_connect(topology.declare_retail)
            publisher = await link.publisher()
            await publisher.ready()
            # The copies of older messages are looked up in the store before readers get them.
            now_ms = int(time.time() * 1000)
            sent = envelope(1, epoch=now_ms)
            sent = dataclasses.replace(sent, id=id_of(now_ms, sent.identity))
            tick = Tick(
                origin="oregon", router=sent.router, epoch=sent.epoch, seq=0, sent_ms=now_ms
            )
            await publisher.publish(topology.POSTOFFICE, encode_tick(tick))
            await reader.send('{"action":"subscribe","topic":"news.breaking"}')
            assert json.loads(await asyncio.wait_for(reader.recv(), 60))["type"] == "subscribed"
            await publisher.publish(topology.POSTOFFICE, encode(sent))
            push = json.loads(await asyncio.wait_for(reader.recv(), 60))
            assert (push["id"], push["body"]) == (sent.id, {"headline": 1})
            process.send_signal(signal.SIGTERM)
            goodbye = json.loads(await asyncio.wait_for(reader.recv(), 60))
            assert (goodbye["type"], goodbye["code"]) == ("disconnect", 1012)
            with pytest.raises(websockets.ConnectionClosed):
                await asyncio.wait_for(reader.recv(), 60)
            assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        await link.close()

"""A control plane in a process of its own, over a broker in its memory: made to be killed.

``python -m bench.soak.control_plane SETTINGS`` attaches to a data plane; SETTINGS is JSON::

    {"store": "/path/of.sqlite", "gateway": {fields of GatewaySettings},
     "native": {fields of NativeSettings}}

Each line on its standard input is a message or a tick for its feed (:mod:`bench.soak.messages`). It
prints ``ready READERS_PORT ADMIN_PORT`` and serves until SIGTERM, which drains the data plane as
usual. Messages on lines that a killed process didn't read are in the store, as in the fabric.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson

from bench.soak.messages import TABLE
from gateway.process.settings import GatewaySettings, NativeSettings
from gateway.run.native_app import running
from newsfabric import topology
from newsfabric.amqp.message import Message, Properties
from newsfabric.amqp.stub import StubBroker
from newsfabric.process.service import run
from newsfabric.store.sqlite import SqliteStore


def settings_from(text: str) -> tuple[GatewaySettings, Path]:
    """Return the settings in the argument of the command line, and the store's file."""
    settings: dict[str, Any] = orjson.loads(text)
    native = dict(settings["native"])
    native["socket"] = Path(native["socket"])
    gateway = {"name": "box-1", "region": "oregon", **settings["gateway"]}
    return GatewaySettings(native=NativeSettings(**native), **gateway), Path(settings["store"])


async def _feed(broker: StubBroker) -> None:
    reader = asyncio.StreamReader(limit=1 << 22)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        broker.publish(topology.POSTOFFICE, _message(line))


def _message(line: bytes) -> Message:
    fields = orjson.loads(line)
    properties = Properties(
        content_type=fields["content_type"],
        headers=fields["headers"],
        message_id=fields["message_id"],
        type=fields["type"],
    )
    return Message(fields["topic"], fields["body"].encode(), properties)


def main() -> None:
    """Serve until SIGTERM, or until another control plane has taken over."""
    settings, path = settings_from(sys.argv[1])

    async def serve(stop: asyncio.Event) -> None:
        broker = StubBroker()
        store = SqliteStore(path, TABLE)
        async with running(settings, TABLE, store, broker.connect(), stop) as gateway:
            feeding = asyncio.create_task(_feed(broker))
            print("ready", gateway.port, gateway.admin_port, flush=True)
            await stop.wait()
            feeding.cancel()

    run(serve, name="control-plane", log_level="info")


if __name__ == "__main__":
    main()

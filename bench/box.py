"""One retail box for the bench: a broker and a gateway, fed as a router would feed it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import orjson
import psutil

from bench.meter import processor_seconds, resident_bytes
from bench.programs import ROOT, on_server_core
from newsfabric import control, topology
from newsfabric.amqp import Publisher
from newsfabric.amqp.link import connect
from newsfabric.envelope import Envelope, encode, id_of, identity_of
from newsfabric.world.broker import LocalNode, free_ports
from newsfabric.world.rabbitmq_home import find_rabbitmq

TOPIC: Final = "metrics.bench"
# With everything else in a push this makes a frame of about 256 bytes.
BODY_BYTES: Final = 64
_TICK_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds of both processes; with the Tornado engine there is only the first."""

    control: float
    data: float

    @property
    def total(self) -> float:
        """Of both together."""
        return self.control + self.data

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.control - other.control, self.data - other.data)


class Box:
    """A running gateway, and a publisher on its broker."""

    def __init__(self, port: int, pid: int, publisher: Publisher) -> None:
        self.port = port
        self._pid = pid
        children = psutil.Process(pid).children(recursive=True)
        self._data = [child.pid for child in children]
        self._publisher = publisher
        self._epoch = int(time.time() * 1000)
        self._seq = 0

    def spent(self) -> Spent:
        """Processor time since the start."""
        return Spent(processor_seconds(self._pid), sum(map(processor_seconds, self._data)))

    def resident(self) -> int:
        """Bytes in RAM of both processes."""
        return sum(map(resident_bytes, [self._pid, *self._data]))

    async def publish(self, topic: str = TOPIC, *, count: int = 1, first: int = 0) -> None:
        """``count`` messages at once into the box's postoffice, numbered from ``first`` on.

        Returns when the broker has them.
        """
        confirms = []
        for number in range(first, first + count):
            self._seq += 1
            message = encode(_envelope(topic, self._epoch, self._seq, number))
            confirms.append(self._publisher.publish_nowait(topology.POSTOFFICE, message))
        for confirm in confirms:
            await confirm

    async def tick_forever(self) -> None:
        """What a router says each second."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            tick = control.Tick(
                origin="bench",
                router="bench",
                epoch=self._epoch,
                seq=self._seq,
                sent_ms=int(time.time() * 1000),
            )
            await self._publisher.publish(topology.POSTOFFICE, control.encode_tick(tick))


@contextlib.asynccontextmanager
async def running_box(engine: str, *, threads: int = 0) -> AsyncIterator[Box]:
    """A fresh box with ``engine``; ``threads`` I/O threads (0: as many as it has cores)."""
    with _running_gateway(engine, threads) as (amqp_url, process, port):
        link = await connect([amqp_url], name="bench")
        await link.on_connect(topology.declare_retail)
        publisher = await link.publisher()
        await publisher.ready()
        box = Box(port, process.pid, publisher)
        ticking = asyncio.create_task(box.tick_forever())
        try:
            yield box
        finally:
            ticking.cancel()
            await asyncio.wait([ticking])
            await link.close()


@contextlib.contextmanager
def _running_gateway(
    engine: str, threads: int
) -> Iterator[tuple[str, subprocess.Popen[bytes], int]]:
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        node = LocalNode(Path(folder) / "node", find_rabbitmq(ROOT, os.environ))
        node.start()
        port, admin = free_ports(2)
        command = [
            *(sys.executable, "-m", "gateway", "--name", "bench", "--region", "bench"),
            *("--store", "memory:", "--broker", node.amqp_url),
            *("--topics", str(ROOT / "topics.toml"), "--port", str(port)),
            *("--admin-port", str(admin), "--engine", engine),
            *("--dataplane-threads", str(threads), "--log-level", "warning"),
            # Some more than the largest crowd.
            *("--capacity", "110000"),
            # Readers need not be sent away: nobody is there who would mind.
            *("--drain-seconds", "0", "--drain-per-second", "100000"),
        ]
        process = subprocess.Popen(on_server_core(command), cwd=ROOT)
        try:
            _wait_until_it_answers(f"http://127.0.0.1:{port}/healthz/live", process)
            yield node.amqp_url, process, port
        finally:
            # Not killed: its data plane would live on for a minute, as it should.
            process.terminate()
            process.wait(timeout=30)
            node.close()


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the gateway didn't start")
        time.sleep(0.05)


def _envelope(topic: str, epoch: int, seq: int, number: int) -> Envelope:
    now_ms = int(time.time() * 1000)
    identity = identity_of(
        app_id="bench", message_id=f"{epoch}-{seq}", topic=topic, published_ms=None, body=b""
    )
    stamped = {"sent_ns": time.monotonic_ns(), "n": number, "text": "x" * (BODY_BYTES - 46)}
    return Envelope(
        id=id_of(now_ms, identity),
        identity=identity,
        topic=topic,
        body=orjson.dumps(stamped),
        published_ms=now_ms,
        origin="bench",
        router="bench",
        epoch=epoch,
        seq=seq,
    )


def subscribe_verb(topic: str = TOPIC) -> str:
    """What a reader says."""
    return json.dumps({"action": "subscribe", "topic": topic}, separators=(",", ":"))

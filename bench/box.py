"""A retail box for the bench: a broker and a gateway, fed as a router would feed it."""

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
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

import orjson
import psutil

from bench.meter import processor_seconds, resident_bytes
from bench.programs import ROOT, on_server_core
from bench.prose import prose
from localfabric.nodes.ports import free_ports
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import find_rabbitmq
from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher
from newsfabric.amqp.link import connect
from newsfabric.errors import SetupError
from newsfabric.messages import control
from newsfabric.messages.envelope import Envelope, encode, id_of, identity_of

TOPIC: Final = "metrics.bench"
# With the other fields of a push, a frame has about 256 bytes.
BODY_BYTES: Final = 64
_TICK_SECONDS: Final = 1.0
_PATIENCE: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds of both planes; with the Tornado engine only ``control`` is used."""

    control: float
    data: float

    @property
    def total(self) -> float:
        """The sum of both."""
        return self.control + self.data

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.control - other.control, self.data - other.data)


class BenchGateway:
    """The gateway's processes: a control plane, and with the native engine a data plane."""

    def __init__(self, command: list[str], port: int, admin: int) -> None:
        self._command = command
        self.port = port
        self._admin = admin
        self._process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """The process id of the control plane."""
        return self._process.pid

    def start(self) -> None:
        """Start a control plane; return when its health check succeeds."""
        self._process = subprocess.Popen(self._command, cwd=ROOT)
        deadline = time.monotonic() + _PATIENCE
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(self.url("/healthz/live"), timeout=5).close()
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SetupError("the gateway didn't start")
            time.sleep(0.01)

    def kill_control_plane(self) -> None:
        """Kill it with ``kill -9``; the data plane lives on for a minute."""
        self._process.kill()
        self._process.wait()

    def take_over(self) -> None:
        """Replace the running data plane by a new one, as an operator does."""
        request = urllib.request.Request(self.url("/take-over"), data=b"", method="POST")
        urllib.request.urlopen(request, timeout=_PATIENCE).close()

    def metric(self, sample: str) -> float:
        """Return the value of one line of ``/metrics``; 0 if there is no such line."""
        with urllib.request.urlopen(self.url("/metrics"), timeout=5) as page:
            for line in page.read().decode().splitlines():
                name, _, value = line.rpartition(" ")
                if name == sample:
                    return float(value)
        return 0.0

    def stop(self) -> None:
        """Terminate both planes. After a kill the data plane would live on, as intended."""
        self._process.terminate()
        self._process.wait(timeout=_PATIENCE)

    def url(self, path: str) -> str:
        """Return the URL of ``path`` on the admin port."""
        return f"http://127.0.0.1:{self._admin}{path}"


class BenchBox:
    """A running gateway, and a publisher on its broker."""

    def __init__(self, gateway: BenchGateway, publisher: ConfirmingPublisher) -> None:
        self.gateway = gateway
        self.port = gateway.port
        children = psutil.Process(gateway.pid).children(recursive=True)
        self._pids = gateway.pid, [child.pid for child in children]
        self._publisher = publisher
        self._epoch = int(time.time() * 1000)
        self._seq = 0

    @property
    def pids(self) -> list[int]:
        """The ids of the processes with which the box started."""
        control_plane, data = self._pids
        return [control_plane, *data]

    def spent(self) -> Spent:
        """Return the processor time since the start, of the processes that the box started with."""
        control_plane, data = self._pids
        return Spent(processor_seconds(control_plane), sum(map(processor_seconds, data)))

    def resident(self) -> int:
        """Return the bytes in RAM of the processes with which the box started."""
        return sum(map(resident_bytes, self.pids))

    async def publish(
        self,
        topic: str = TOPIC,
        *,
        count: int = 1,
        first: int = 0,
        text_bytes: int = BODY_BYTES,
        due_ns: int | None = None,
    ) -> None:
        """Publish ``count`` messages at once to the box's postoffice, numbered from ``first`` on.

        The send time in their bodies is ``due_ns`` (of the monotonic clock), or now. Return when
        the broker has confirmed them.
        """
        confirms = []
        for number in range(first, first + count):
            self._seq += 1
            message = encode(envelope(topic, self._epoch, self._seq, number, text_bytes, due_ns))
            confirms.append(self._publisher.publish_nowait(topology.POSTOFFICE, message))
        for confirm in confirms:
            await confirm

    async def tick_forever(self) -> None:
        """Publish a router's tick each second."""
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
async def running_box(
    engine: str, *, threads: int = 0, own_core: bool = True, options: Sequence[str] = ()
) -> AsyncIterator[BenchBox]:
    """Start a fresh box with ``engine`` and ``threads`` I/O threads (0: one for each core).

    The gateway has a core of its own if ``own_core``; otherwise it shares all cores with the other
    processes. ``options`` are added to its usual command line.
    """
    with (
        _running_broker() as amqp_url,
        _running_gateway(amqp_url, engine, threads, own_core, options) as gateway,
    ):
        link = await connect([amqp_url], name="bench")
        await link.on_connect(topology.declare_retail)
        publisher = await link.publisher()
        await publisher.ready()
        box = BenchBox(gateway, publisher)
        ticking = asyncio.create_task(box.tick_forever())
        try:
            yield box
        finally:
            ticking.cancel()
            await asyncio.wait([ticking])
            await link.close()


@contextlib.contextmanager
def _running_broker() -> Iterator[str]:
    home = find_rabbitmq(ROOT, os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder,
        LocalNode(Path(folder) / "node", home) as node,
    ):
        yield node.amqp_url


@contextlib.contextmanager
def _running_gateway(
    amqp_url: str, engine: str, threads: int, own_core: bool, options: Sequence[str]
) -> Iterator[BenchGateway]:
    port, admin = free_ports(2)
    command = [
        *(sys.executable, "-m", "gateway", "--name", "bench", "--region", "bench"),
        *("--store", "memory:", "--broker", amqp_url),
        *("--topics", str(ROOT / "topics.toml"), "--port", str(port)),
        *("--admin-port", str(admin), "--engine", engine),
        *("--dataplane-threads", str(threads), "--log-level", "warning"),
        # A few more than the largest crowd.
        *("--capacity", "110000"),
        # No need to send readers away gently: no user is there.
        *("--drain-seconds", "0", "--drain-per-second", "100000"),
        *options,
    ]
    gateway = BenchGateway(on_server_core(command) if own_core else command, port, admin)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.stop()


def envelope(
    topic: str, epoch: int, seq: int, number: int, text_bytes: int, due_ns: int | None = None
) -> Envelope:
    """Return an envelope as a router would make it now. Its body has the send time (``due_ns``, or
    now) and ``number``."""
    now_ms = int(time.time() * 1000)
    identity = identity_of(
        app_id="bench", message_id=f"{epoch}-{seq}", topic=topic, published_ms=None, body=b""
    )
    stamped = {
        "sent_ns": due_ns or time.monotonic_ns(),
        "n": number,
        "text": prose(text_bytes - 46, number),
    }
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
    """Return the verb ``subscribe``."""
    return json.dumps({"action": "subscribe", "topic": topic}, separators=(",", ":"))

"""What readers feel when a gateway's processes are replaced under load. They should feel nothing.

One broker, one gateway, one topic, some messages a second; each reader notes which messages it got
(``fanout-census``). Meanwhile the control plane is killed and another one started, or a new data
plane takes over from the old one.

``python -m bench.upgrade [READERS [MESSAGES_PER_SECOND]]`` prints a table.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table

from newsfabric import control, topology
from newsfabric.amqp.link import connect
from newsfabric.envelope import Envelope, encode, id_of, identity_of
from newsfabric.world.broker import LocalNode, free_ports
from newsfabric.world.rabbitmq_home import find_rabbitmq

ROOT: Final = Path(__file__).parent.parent
TOPIC: Final = "metrics.bench"
# Before and after the upgrade.
SECONDS: Final = 4.0
# So long a control plane is dead before the next one is started.
DEAD_SECONDS: Final = 1.0
_PATIENCE: Final = 60.0
# RLIMIT_NOFILE is 20,000 in many places.
_READERS_OF_A_PROCESS: Final = 15_000
# The ports of one address are not free at once after so many readers have left it.
_sources: Final = itertools.count(31)


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """How many readers there are, and messages a second."""

    readers: int = 15_000
    per_second: int = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What ``readers`` readers felt.

    Of ``deliveries`` that were due, how many were ``lost`` or ``doubled``, or came ``late``
    (behind a later message). Seconds: what the upgrade took (until the new process serves); from
    the start of the new process to the first message that came after it; and the longest time
    that a reader waited between two messages, where ``1 / per_second`` is usual.
    """

    readers: int
    disconnects: int
    deliveries: int
    lost: int
    doubled: int
    late: int
    seconds: float
    feed_back_seconds: float
    longest_wait_seconds: float


async def control_plane_killed(programs: Path, told: Load) -> Upgrade:
    """``kill -9`` of the control plane; another one is started ``DEAD_SECONDS`` later."""
    with _running_box(told) as box:

        async def replace() -> None:
            box.process.kill()
            await asyncio.to_thread(box.process.wait)
            await asyncio.sleep(DEAD_SECONDS)
            await box.timed(box.start)

        return await _under_load(programs, box, told, replace)


async def data_plane_taken_over(programs: Path, told: Load) -> Upgrade:
    """``POST /take-over``, as an operator does who has put a new program in its place."""
    with _running_box(told) as box:

        async def replace() -> None:
            await box.timed(lambda: box.post("/take-over"))

        return await _under_load(programs, box, told, replace)


async def _under_load(
    programs: Path, box: _Box, told: Load, replace: Callable[[], Awaitable[None]]
) -> Upgrade:
    async with (
        _census(programs, box.port, told.readers) as parts,
        _publishing(box.amqp_url, told.per_second) as sent,
    ):
        await asyncio.sleep(SECONDS)
        await replace()
        await asyncio.sleep(SECONDS)
        sent.stop()
        await sent.stopped
        # What is on its way comes.
        await asyncio.sleep(2.0)
        heard = [await _end(part, sent.count) for part in parts]
    firsts = (first for part in heard for first, _ in part["arrivals"])
    after = min((first for first in firsts if first > box.began_ns), default=sys.maxsize)

    def total(name: str) -> int:
        return sum(part[name] for part in heard)

    return Upgrade(
        readers=told.readers,
        disconnects=total("disconnects"),
        deliveries=told.readers * sent.count,
        lost=total("lost"),
        doubled=total("doubled"),
        late=total("late"),
        seconds=box.seconds,
        feed_back_seconds=(after - box.began_ns) / 1e9,
        longest_wait_seconds=max(part["longest_wait_ns"] for part in heard) / 1e9,
    )


@contextlib.asynccontextmanager
async def _census(
    programs: Path, port: int, readers: int
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Readers in as many processes as it takes; all are subscribed."""
    say = json.dumps({"action": "subscribe", "topic": TOPIC}, separators=(",", ":"))
    parts = []
    try:
        for start in range(0, readers, _READERS_OF_A_PROCESS):
            count = min(_READERS_OF_A_PROCESS, readers - start)
            part = await asyncio.create_subprocess_exec(
                str(programs / "fanout-census"),
                *("--port", str(port), "--connections", str(count), "--say", say),
                *("--source", f"127.0.0.{next(_sources)}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 24,
            )
            parts.append(part)
            ready = (await _line(part))["ready"]
            if ready != count:
                raise SystemExit(f"only {ready} of {count} readers came in")
        yield parts
    finally:
        for part in parts:
            with contextlib.suppress(ProcessLookupError):
                part.kill()
            await part.wait()


async def _end(part: asyncio.subprocess.Process, messages: int) -> dict[str, Any]:
    assert part.stdin is not None
    part.stdin.write(str(messages).encode())
    part.stdin.close()
    return await _line(part)


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(_PATIENCE):
        found: dict[str, Any] = json.loads(await process.stdout.readline())
    return found


class _Sending:
    """Messages on their way into the box's postoffice, as a router sends them."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self.count = 0
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._goes_on = True

    def stop(self) -> None:
        self._goes_on = False

    async def send(self, amqp_url: str) -> None:
        link = await connect([amqp_url], name="bench")
        await link.on_connect(topology.declare_retail)
        publisher = await link.publisher()
        await publisher.ready()
        epoch, start = int(time.time() * 1000), time.monotonic()
        while self._goes_on:
            await publisher.publish(topology.POSTOFFICE, encode(_envelope(epoch, self.count)))
            self.count += 1
            if self.count % self._per_second == 0:
                await publisher.publish(topology.POSTOFFICE, _tick(epoch, self.count))
            pause = start + self.count / self._per_second - time.monotonic()
            await asyncio.sleep(max(0.0, pause))
        await publisher.publish(topology.POSTOFFICE, _tick(epoch, self.count))
        await link.close()
        self.stopped.set_result(None)


@contextlib.asynccontextmanager
async def _publishing(amqp_url: str, per_second: int) -> AsyncIterator[_Sending]:
    sending = _Sending(per_second)
    task = asyncio.create_task(sending.send(amqp_url))
    try:
        yield sending
    finally:
        task.cancel()
        await asyncio.wait([task])


def _envelope(epoch: int, number: int) -> Envelope:
    now_ms = int(time.time() * 1000)
    identity = identity_of(
        app_id="bench", message_id=f"{epoch}-{number}", topic=TOPIC, published_ms=None, body=b""
    )
    return Envelope(
        id=id_of(now_ms, identity),
        identity=identity,
        topic=TOPIC,
        body=orjson.dumps({"n": number}),
        published_ms=now_ms,
        origin="bench",
        router="bench",
        epoch=epoch,
        seq=number + 1,
    )


def _tick(epoch: int, seq: int) -> Any:
    return control.encode_tick(
        control.Tick(
            origin="bench", router="bench", epoch=epoch, seq=seq, sent_ms=int(time.time() * 1000)
        )
    )


@contextlib.contextmanager
def _broker() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        node = LocalNode(Path(folder) / "node", find_rabbitmq(ROOT, os.environ))
        node.start()
        try:
            yield node.amqp_url
        finally:
            node.close()


@contextlib.contextmanager
def _running_box(told: Load) -> Iterator[_Box]:
    with _broker() as amqp_url:
        box = _Box(amqp_url, told.readers)
        box.start()
        try:
            yield box
        finally:
            box.close()


class _Box:
    """A gateway with the native engine, whose processes can be replaced."""

    def __init__(self, amqp_url: str, readers: int) -> None:
        self.amqp_url = amqp_url
        self._readers = readers
        # When the replacement began (CLOCK_MONOTONIC), and how long it took.
        self.began_ns = 0
        self.seconds = 0.0
        self.port, self._admin = free_ports(2)
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        """Start a control plane; return when it is ready for readers' requests."""
        command = [
            *(sys.executable, "-m", "gateway", "--name", "bench", "--region", "bench"),
            *("--store", "memory:", "--broker", self.amqp_url, "--engine", "native"),
            *("--topics", str(ROOT / "topics.toml"), "--log-level", "warning"),
            *("--port", str(self.port), "--admin-port", str(self._admin)),
            *("--drain-seconds", "0", "--drain-per-second", "100000"),
            *("--capacity", str(self._readers + 1_000)),
            # Each has a descriptor table of its own.
            *("--dataplane-threads", str(max(2, -(-self._readers // _READERS_OF_A_PROCESS) + 1))),
        ]
        self.process = subprocess.Popen(command, cwd=ROOT)
        deadline = time.monotonic() + _PATIENCE
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                self.get("/healthz/live")
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the gateway didn't start")
            time.sleep(0.01)

    async def timed(self, replace: Callable[[], None]) -> None:
        """Replace a process with ``replace``, and note when and how long."""
        self.began_ns = time.monotonic_ns()
        await asyncio.to_thread(replace)
        self.seconds = (time.monotonic_ns() - self.began_ns) / 1e9

    def get(self, path: str) -> None:
        """Ask the admin port."""
        urllib.request.urlopen(f"http://127.0.0.1:{self._admin}{path}", timeout=5).close()

    def post(self, path: str) -> None:
        """Tell the admin port."""
        url = f"http://127.0.0.1:{self._admin}{path}"
        request = urllib.request.Request(url, data=b"", method="POST")
        urllib.request.urlopen(request, timeout=_PATIENCE).close()

    def close(self) -> None:
        """End both planes."""
        # Not killed: its data plane would live on for a minute, as it should.
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


def main() -> None:
    """Measure both under the load that the command line names."""
    told = Load(*(int(word) for word in sys.argv[1:]))
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--package", "newsfabric-fanout"],
        check=True,
        cwd=ROOT,
    )
    programs = ROOT / "target" / "release"
    found = {
        "control plane killed": asyncio.run(control_plane_killed(programs, told)),
        "data plane taken over": asyncio.run(data_plane_taken_over(programs, told)),
    }
    table = Table(title=f"{told.readers:,} readers, {told.per_second} messages a second")
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right")
    for field in dataclasses.fields(Upgrade):
        values = (getattr(upgrade, field.name) for upgrade in found.values())
        texts = (f"{one:.3f}" if isinstance(one, float) else f"{one:,}" for one in values)
        table.add_row(field.name.replace("_", " "), *texts)
    Console().print(table)


if __name__ == "__main__":
    main()

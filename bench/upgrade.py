"""What readers feel when a gateway's processes are replaced under load. They should feel nothing.

One broker, one gateway, one topic, 20 messages a second; each reader notes which messages it got
(``fanout-census``). Meanwhile the control plane is killed and another one started, or a new data
plane takes over from the old one.

``python -m bench.upgrade [READERS]`` prints a table.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
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
READERS: Final = 15_000
PER_SECOND: Final = 20
# Before and after the upgrade.
SECONDS: Final = 4.0
# So long a control plane is dead before the next one is started.
DEAD_SECONDS: Final = 1.0
_PATIENCE: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What ``readers`` readers felt.

    Of ``deliveries`` that were due, how many were ``lost`` or ``doubled``, or came ``late``
    (behind a later message). Seconds: what the upgrade took (until the new process serves), from the start of
    the new process to the first message that came after it, and the longest time that a reader
    waited between two messages, of which ``1 / PER_SECOND`` is usual.
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


async def control_plane_killed(programs: Path, *, readers: int = READERS) -> Upgrade:
    """``kill -9`` of the control plane; another one is started ``DEAD_SECONDS`` later."""
    with _broker() as amqp_url, contextlib.ExitStack() as stack:
        box = _Box(amqp_url)
        stack.callback(box.close)
        box.start()

        async def replace() -> tuple[int, float]:
            box.process.kill()
            await asyncio.to_thread(box.process.wait)
            await asyncio.sleep(DEAD_SECONDS)
            started = time.monotonic_ns()
            await asyncio.to_thread(box.start)
            return started, (time.monotonic_ns() - started) / 1e9

        return await _under_load(programs, box, readers, replace)


async def data_plane_taken_over(programs: Path, *, readers: int = READERS) -> Upgrade:
    """``POST /take-over``, as an operator does who has put a new program in its place."""
    with _broker() as amqp_url, contextlib.ExitStack() as stack:
        box = _Box(amqp_url)
        stack.callback(box.close)
        box.start()

        async def replace() -> tuple[int, float]:
            started = time.monotonic_ns()
            await asyncio.to_thread(box.post, "/take-over")
            return started, (time.monotonic_ns() - started) / 1e9

        return await _under_load(programs, box, readers, replace)


async def _under_load(
    programs: Path, box: _Box, readers: int, replace: Callable[[], Any]
) -> Upgrade:
    async with _census(programs, box.port, readers) as census, _publishing(box.amqp_url) as sent:
        await asyncio.sleep(SECONDS)
        started, seconds = await replace()
        await asyncio.sleep(SECONDS)
        sent.stop()
        await sent.stopped
        # What is on its way comes.
        await asyncio.sleep(2.0)
        assert census.stdin is not None
        census.stdin.write(str(sent.count).encode())
        census.stdin.close()
        heard = await _line(census)
    after = [first for first, _ in heard["arrivals"] if first > started]
    return Upgrade(
        readers=readers,
        disconnects=heard["disconnects"],
        deliveries=readers * sent.count,
        lost=heard["lost"],
        doubled=heard["doubled"],
        late=heard["late"],
        seconds=seconds,
        feed_back_seconds=(min(after) - started) / 1e9 if after else float("inf"),
        longest_wait_seconds=heard["longest_wait_ns"] / 1e9,
    )


@contextlib.asynccontextmanager
async def _census(
    programs: Path, port: int, readers: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    say = json.dumps({"action": "subscribe", "topic": TOPIC}, separators=(",", ":"))
    process = await asyncio.create_subprocess_exec(
        str(programs / "fanout-census"),
        *("--port", str(port), "--connections", str(readers), "--say", say),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        ready = (await _line(process))["ready"]
        if ready != readers:
            raise SystemExit(f"only {ready} of {readers} readers came in")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(_PATIENCE):
        found: dict[str, Any] = json.loads(await process.stdout.readline())
    return found


class _Sending:
    """Messages on their way into the box's postoffice, PER_SECOND of them, as a router sends."""

    def __init__(self) -> None:
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
            if self.count % PER_SECOND == 0:
                await publisher.publish(topology.POSTOFFICE, _tick(epoch, self.count))
            pause = start + self.count / PER_SECOND - time.monotonic()
            await asyncio.sleep(max(0.0, pause))
        await publisher.publish(topology.POSTOFFICE, _tick(epoch, self.count))
        await link.close()
        self.stopped.set_result(None)


@contextlib.asynccontextmanager
async def _publishing(amqp_url: str) -> AsyncIterator[_Sending]:
    sending = _Sending()
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


class _Box:
    """A gateway with the native engine, whose control plane can be started again."""

    def __init__(self, amqp_url: str) -> None:
        self.amqp_url = amqp_url
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
    """Measure both with as many readers as the command line says."""
    readers = int(sys.argv[1]) if len(sys.argv) > 1 else READERS
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--package", "newsfabric-fanout"],
        check=True,
        cwd=ROOT,
    )
    programs = ROOT / "target" / "release"
    found = {
        "control plane killed": asyncio.run(control_plane_killed(programs, readers=readers)),
        "data plane taken over": asyncio.run(data_plane_taken_over(programs, readers=readers)),
    }
    table = Table(title=f"{readers:,} readers, {PER_SECOND} messages a second")
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

"""What one delivery costs a gateway in processor time, beside the floor measured in the same run.

The floor is a loop of bare ``send()`` calls, which no server can beat; the crowd of readers is a
program of its own (``bench/fanout``, Rust). One broker, one gateway, one topic; core 0 serves and
core 1 reads where there are two.

``python -m bench.delivery [ENGINE…]`` prints a table.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
from rich.console import Console
from rich.table import Table

from newsfabric import control, topology
from newsfabric.amqp import Link
from newsfabric.amqp.link import connect
from newsfabric.envelope import Envelope, encode, id_of, identity_of
from newsfabric.errors import SetupError
from newsfabric.world.broker import LocalNode, free_ports
from newsfabric.world.rabbitmq_home import find_rabbitmq

ROOT = Path(__file__).parent.parent
TOPIC = "metrics.bench"
READERS = 10_000
MESSAGES = 20
GAP_SECONDS = 0.25
# With everything else in a push this makes a frame of about 256 bytes on the floor's side.
BODY_BYTES = 64
FRAME_BYTES = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Processor time of one delivery in µs, over ``deliveries`` of ``expected``."""

    microseconds: float
    deliveries: int
    expected: int


def build() -> Path:
    """Build floor and crowd; returns their folder. SetupError without a Rust toolchain."""
    if shutil.which("cargo") is None:
        raise SetupError("cargo is missing: the floor and the crowd are written in Rust")
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--package", "newsfabric-fanout"],
        check=True,
        cwd=ROOT,
    )
    return ROOT / "target" / "release"


def floor(programs: Path, *, readers: int = READERS, frames: int = 1) -> Cost:
    """The least that ``readers`` × MESSAGES × ``frames`` deliveries can cost."""
    (port,) = free_ports(1)
    serve = subprocess.Popen(
        _on_core(0, programs / "fanout-floor")
        + _pairs(port=port, connections=readers, messages=MESSAGES, frames=frames)
        + _pairs(bytes=FRAME_BYTES, gap_ms=int(GAP_SECONDS * 1000)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert serve.stdout is not None
    with serve:
        serve.stdout.readline()  # "listening"
        expected = readers * MESSAGES * frames
        crowd = _on_core(1, programs / "fanout-crowd") + _pairs(
            port=port, connections=readers, expect=expected, seconds=120
        )
        heard = _last_line(subprocess.run(crowd, check=True, stdout=subprocess.PIPE).stdout)
        spent = json.loads(serve.stdout.readline())
    return Cost(spent["us_per_delivery"], heard["frames"], expected)


def gateway(programs: Path, engine: str, *, readers: int = READERS) -> Cost:
    """What the same costs a gateway with ``engine``, control and data plane together."""
    with _running_gateway(engine) as (node, process, port):
        verb = json.dumps({"action": "subscribe", "topic": TOPIC})
        crowd = subprocess.Popen(
            _on_core(1, programs / "fanout-crowd")
            + _pairs(port=port, connections=readers, say=verb, until_eof=1, seconds=300),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        with crowd:
            crowd.stdout.readline()  # "ready"
            asyncio.run(_publish(node.amqp_url, 2))
            before = _processor_seconds(process)
            asyncio.run(_publish(node.amqp_url, MESSAGES))
            spent = _processor_seconds(process) - before
            crowd.stdin.close()
            heard = _last_line(crowd.stdout.read())
    expected = readers * MESSAGES
    return Cost(spent * 1e6 / expected, heard["frames"] - readers * 2, expected)


@contextlib.contextmanager
def _running_gateway(engine: str) -> Iterator[tuple[LocalNode, psutil.Process, int]]:
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        node = LocalNode(Path(folder) / "node", find_rabbitmq(ROOT, os.environ))
        node.start()
        port, admin = free_ports(2)
        command = [
            *_on_core(0, Path(sys.executable)),
            *("-m", "gateway", "--name", "bench", "--region", "bench", "--store", "memory:"),
            *("--broker", node.amqp_url, "--topics", str(ROOT / "topics.toml")),
            *("--port", str(port), "--admin-port", str(admin), "--engine", engine),
            *("--log-level", "warning"),
        ]
        process = subprocess.Popen(command, cwd=ROOT)
        try:
            _wait_until_it_answers(f"http://127.0.0.1:{port}/healthz/live", process)
            yield node, psutil.Process(process.pid), port
        finally:
            # Not killed: its data plane would live on for a minute, as it should.
            process.terminate()
            process.wait(timeout=30)
            node.close()


async def _publish(amqp_url: str, count: int) -> None:
    """``count`` envelopes into the box's postoffice, GAP_SECONDS apart, as a router would."""
    link: Link = await connect([amqp_url], name="bench")
    await link.on_connect(topology.declare_retail)
    publisher = await link.publisher()
    await publisher.ready()
    epoch = int(time.time() * 1000)
    for seq in range(1, count + 1):
        await publisher.publish(topology.POSTOFFICE, encode(_envelope(epoch, seq)))
        await asyncio.sleep(GAP_SECONDS)
    tick = control.Tick(
        origin="bench", router="bench", epoch=epoch, seq=count, sent_ms=int(time.time() * 1000)
    )
    await publisher.publish(topology.POSTOFFICE, control.encode_tick(tick))
    await link.close()


def _envelope(epoch: int, seq: int) -> Envelope:
    now_ms = int(time.time() * 1000)
    identity = identity_of(
        app_id="bench", message_id=f"{epoch}-{seq}", topic=TOPIC, published_ms=None, body=b""
    )
    stamped = {"sent_ns": time.monotonic_ns(), "text": "x" * (BODY_BYTES - 40)}
    return Envelope(
        id=id_of(now_ms, identity),
        identity=identity,
        topic=TOPIC,
        body=orjson.dumps(stamped),
        published_ms=now_ms,
        origin="bench",
        router="bench",
        epoch=epoch,
        seq=seq,
    )


def _processor_seconds(process: psutil.Process) -> float:
    family = [process, *process.children(recursive=True)]
    return sum(sum(member.cpu_times()[:2]) for member in family)


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the gateway didn't start")
        time.sleep(0.05)


def _on_core(core: int, program: Path) -> list[str]:
    pin = ["taskset", "--cpu-list", str(core)] if (os.cpu_count() or 1) > 1 else []
    return [*pin, str(program)]


def _pairs(**options: Any) -> list[str]:
    names = ((f"--{name.replace('_', '-')}", str(value)) for name, value in options.items())
    return [word for pair in names for word in pair]


def _last_line(output: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    """Measure the engines named on the command line (tornado if none is)."""
    programs = build()
    bare = floor(programs)
    table = Table(title=f"{READERS:,} readers, {FRAME_BYTES} bytes, one message at a time")
    for column in ("server", "µs per delivery", "× floor", "deliveries"):
        table.add_column(column, justify="left" if column == "server" else "right")
    rows = {"floor": bare} | {name: gateway(programs, name) for name in sys.argv[1:] or ["tornado"]}
    for name, cost in rows.items():
        ratio = f"{cost.microseconds / bare.microseconds:.2f}"
        table.add_row(
            name, f"{cost.microseconds:.2f}", ratio, f"{cost.deliveries:,} of {cost.expected:,}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()

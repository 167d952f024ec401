"""The floor and the crowd (``bench/fanout``, Rust): built, started, commanded and read from here.

Core 0 is the server's; everything else (crowds, broker, the bench itself) is on the others. With
one core all share it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from newsfabric.errors import SetupError

ROOT: Final = Path(__file__).resolve().parents[1]
CROWD: Final = "newsfabric-crowd"
#: The folder of the programs; :func:`build` makes them.
PROGRAMS: Final = ROOT / "target" / "release"
SERVER_CORE: Final = 0
# The length of a push of ``newsfabric`` with a body of box.BODY_BYTES.
FRAME_BYTES: Final = 256
_PATIENCE: Final = 120.0
# Longest line of output, in bytes: the records of 20,000 readers that all differ.
_LINE_LIMIT: Final = 1 << 26


def build(*, dataplane: bool = True) -> None:
    """Build floor, crowd and ``dataplane``. SetupError without cargo."""
    if shutil.which("cargo") is None:
        raise SetupError("cargo is missing: data plane, floor and crowd are written in Rust")
    packages = ["--package", "newsfabric-fanout"]
    packages += ["--package", "newsfabric-dataplane"] if dataplane else []
    subprocess.run(["cargo", "build", "--quiet", "--release", *packages], check=True, cwd=ROOT)


@contextlib.contextmanager
def off_the_server_core() -> Iterator[None]:
    """Keep this process, and all that it starts, off the server's core."""
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, cores - {SERVER_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def on_server_core(command: Sequence[str]) -> list[str]:
    """Return ``command``, pinned to the server's core."""
    pin = ["taskset", "--cpu-list", str(SERVER_CORE)] if (os.cpu_count() or 1) > 1 else []
    return [*pin, *command]


class Program:
    """A started program that replies to each command line with a line of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def next_reply(self) -> dict[str, Any]:
        """Return the next line of its output."""
        assert self._process.stdout is not None
        async with asyncio.timeout(_PATIENCE):
            line = await self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line)
        return found

    async def send(self, line: str) -> None:
        """Send a ``line`` to which there is no reply."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def send_command(self, line: str) -> dict[str, Any]:
        """Send ``line``; return the reply."""
        await self.send(line)
        return await self.next_reply()


class BareCrowd(Program):
    """Bare readers in one process (``bare.rs``)."""

    def step_back(self) -> None:
        """Give the crowd its core only while no other process wants it, from now on."""
        os.sched_setscheduler(self.pid, os.SCHED_IDLE, os.sched_param(0))

    async def has_got(self, frames: int) -> bool:
        """Wait for ``frames`` since the last report; return False when none has arrived for 3 s."""
        before, quiet = -1, 0
        while quiet < 30:
            came = (await self.send_command("count"))["frames"]
            if came >= frames:
                return True
            quiet = 0 if came > before else quiet + 1
            before = came
            await asyncio.sleep(0.1)
        return False


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    log: IO[bytes] | None = None,
    *,
    own_session: bool = False,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a program with pipes for input and output; it is killed at the end. Its standard error
    is written to ``log``, or shown. Linux shares its cores among sessions."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
        env=environment,
        limit=_LINE_LIMIT,
        start_new_session=own_session,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def running_floor(
    *, port: int, connections: int, frame_bytes: int = FRAME_BYTES
) -> AsyncIterator[Program]:
    """Start the floor, listening for ``connections``; it prints a line when all are connected."""
    command = [str(PROGRAMS / "fanout-floor"), *_pairs(port=port, connections=connections)]
    async with started(on_server_core([*command, *_pairs(bytes=frame_bytes)])) as process:
        floor = Program(process)
        await floor.next_reply()
        yield floor


@contextlib.asynccontextmanager
async def running_crowd(port: int, connections: int, **options: Any) -> AsyncIterator[BareCrowd]:
    """Start a crowd; it prints a line when all are connected (and subscribed)."""
    command = [str(PROGRAMS / CROWD), *_pairs(port=port, connections=connections)]
    async with started([*command, *_pairs(**options)]) as process:
        yield BareCrowd(process)


def pages_command(
    *, frontdesks: Sequence[str], topics: Sequence[str], source: str, own: bool, seed: int | None
) -> list[str]:
    """Return the command line of a crowd that behaves as pages do (``newsfabric-crowd --help``).

    ``own``: its targets need not be on loopback.
    """
    pairs = _pairs(frontdesks=",".join(frontdesks), topics=",".join(topics), source=source)
    pairs += [] if seed is None else _pairs(seed=seed)
    return [str(PROGRAMS / CROWD), *pairs, *(["--i-own-this-target"] if own else [])]


def _pairs(**options: Any) -> list[str]:
    names = ((f"--{name.replace('_', '-')}", str(value)) for name, value in options.items())
    return [word for pair in names for word in pair]

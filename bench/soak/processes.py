"""The two processes under test, and what the kernel says of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.native.program import find_program

_PATIENCE: Final = 30.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """What a process held at ``at`` (seconds since the start of the soak)."""

    at: float
    rss: int
    descriptors: int


def look_at(pid: int, at: float) -> Sample:
    """Memory and open descriptors of ``pid``, of all its threads' tables.

    Threads that share a table are counted several times; that doesn't matter where only changes do.
    """
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    descriptors = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while we look.
        with contextlib.suppress(OSError):
            descriptors += len(os.listdir(task / "fd"))
    return Sample(at, resident, descriptors)


class Dataplane:
    """A data plane that outlives its control planes."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.path, self.log = folder / "control", folder / "dataplane.log"
        with self.log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [find_program(), "--control", self.path, *options], stderr=stderr
            )
        deadline = time.monotonic() + _PATIENCE
        # The line may come in pieces; it ends in what each thread may open.
        while not self.path.exists() or "descriptors" not in self.log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the data plane doesn't start: {self.log.read_text()}")
            time.sleep(0.01)

    @property
    def port(self) -> int:
        """Where readers come in."""
        return int(self.log.read_text().partition("readers on port ")[2].split(":")[0])

    @property
    def trouble(self) -> str | None:
        """What went wrong, if it isn't running as it should."""
        if "panicked" in self.log.read_text():
            return "it has panicked"
        code = self.process.poll()
        return None if code is None else f"it has ended with code {code}"


class ControlPlane:
    """One control plane's process; see :mod:`bench.soak.control_plane`."""

    # Not asyncio's: a loop of uvloop never closes when a child was killed with bytes on their way.
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.admin_port = 0

    @classmethod
    async def start(cls, settings: dict[str, Any], log: Path) -> ControlPlane:
        """A process that has just been started; see :meth:`ready`."""
        with log.open("ab") as stderr:
            process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "bench.soak.control_plane", orjson.dumps(settings).decode()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, bufsize=0,
            )  # fmt: skip
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return cls(process)

    async def ready(self) -> None:
        """Return when it is attached and serves."""
        assert self._process.stdout is not None
        async with asyncio.timeout(_PATIENCE):
            line = await asyncio.to_thread(self._process.stdout.readline)
        if not line.startswith(b"ready "):
            raise RuntimeError("a control plane has ended before it was ready")
        self.admin_port = int(line.split()[2])

    def feed(self, line: bytes) -> None:
        """Give it a line for its feed; a dead one loses it, and so does one whose pipe is full."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            self._process.stdin.write(line)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, when it has ended."""
        async with asyncio.timeout(_PATIENCE):
            while (code := self._process.poll()) is None:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code

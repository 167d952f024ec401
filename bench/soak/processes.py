"""The two processes under test, and their memory and descriptors according to the kernel."""

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
class ProcessSample:
    """Memory and descriptors of a process at ``at`` (seconds since the start of the soak)."""

    at: float
    rss: int
    descriptors: int


def sample_of(pid: int, at: float) -> ProcessSample:
    """Measure memory and open descriptors of ``pid``, of all its threads' tables.

    Threads that share a table are counted several times; this is harmless, as only changes matter.
    """
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    descriptors = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            descriptors += len(os.listdir(task / "fd"))
    return ProcessSample(at, resident, descriptors)


class Dataplane:
    """A data plane that outlives its control planes."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.path, self.log = folder / "control", folder / "dataplane.log"
        with self.log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [find_program(), "--control", self.path, *options], stderr=stderr
            )
        deadline = time.monotonic() + _PATIENCE
        # The line may arrive in pieces; it ends with the descriptors that each thread may open.
        while not self.path.exists() or "descriptors" not in self.log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the data plane doesn't start: {self.log.read_text()}")
            time.sleep(0.01)

    @property
    def port(self) -> int:
        """The port for readers."""
        return int(self.log.read_text().partition("readers on port ")[2].split(":")[0])

    @property
    def trouble(self) -> str | None:
        """The failure of the data plane, if there is one."""
        if "panicked" in self.log.read_text():
            return "it has panicked"
        code = self.process.poll()
        return None if code is None else f"it has ended with code {code}"


class ControlPlane:
    """The process of a control plane; see :mod:`bench.soak.control_plane`."""

    # Not asyncio's: a loop of uvloop never closes when a child was killed with unread bytes.
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.admin_port = 0

    @classmethod
    async def start(cls, settings: dict[str, Any], log: Path) -> ControlPlane:
        """Start a process and return at once; see :meth:`ready`."""
        with log.open("ab") as stderr:
            process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "bench.soak.control_plane", orjson.dumps(settings).decode()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, bufsize=0,
            )  # fmt: skip
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return cls(process)

    async def ready(self) -> None:
        """Return when the control plane is attached and serves."""
        assert self._process.stdout is not None
        async with asyncio.timeout(_PATIENCE):
            line = await asyncio.to_thread(self._process.stdout.readline)
        if not line.startswith(b"ready "):
            raise RuntimeError("a control plane has ended before it was ready")
        self.admin_port = int(line.split()[2])

    def feed(self, line: bytes) -> None:
        """Write a line for its feed; a dead process or a full pipe loses the line."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            self._process.stdin.write(line)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; do nothing if the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process; return its exit code."""
        async with asyncio.timeout(_PATIENCE):
            while (code := self._process.poll()) is None:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code

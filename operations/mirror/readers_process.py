"""Starts the readers' process, sends it the target of the crowd, and keeps its last report."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import orjson

from newsfabric.process.environment import without_secrets
from operations.mirror.crowd import Wanted

_MODULE: Final = "operations.mirror.readers"
_ENDS_WITHIN: Final = 10.0
NO_REPORT: Final[dict[str, Any]] = {
    "readers": 0, "wanted": None, "opened": 0, "failed": 0, "turned_away": 0, "left": 0,
    "cut_off": 0, "messages": 0, "trouble": "", "connect_p50_ms": None, "connect_p99_ms": None,
}  # fmt: skip


class ReadersProcess:
    """The readers' process. ``last_report`` is its last line; after its death it has no readers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.last_report = dict(NO_REPORT)
        self._process = process

    @classmethod
    @asynccontextmanager
    async def start(
        cls, endpoints: Sequence[str], *, ramp: float, seed: int
    ) -> AsyncIterator[ReadersProcess]:
        """Start the process, which runs until the context ends; then all readers leave."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=without_secrets(os.environ),
            # Ctrl-C is for the mirror to handle.
            start_new_session=True,
        )
        found = cls(process)
        listening = asyncio.create_task(found._listen())
        try:
            found._write({"endpoints": list(endpoints), "ramp": ramp, "seed": seed})
            yield found
        finally:
            assert process.stdin is not None
            process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDS_WITHIN):
                    await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            await listening

    def send_wanted(self, wanted: Wanted) -> None:
        """Send the target of the crowd from now on."""
        self._write(wanted)

    def _write(self, value: Any) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        # The process reads all the time; a dropped line is repeated by a later one.
        if not stdin.is_closing() and stdin.transport.get_write_buffer_size() < 1 << 20:
            stdin.write(orjson.dumps(value) + b"\n")

    async def _listen(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            with suppress(ValueError):
                self.last_report = {**NO_REPORT, **orjson.loads(line)}
        self.last_report = {
            **self.last_report,
            "readers": 0,
            "trouble": "the readers' process has ended",
        }

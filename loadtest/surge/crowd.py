"""The crowds of a surge: processes of ``surge-crowd`` (Rust), told and asked together.

One process may have only so many descriptors, so a large crowd is several. What each says is
added up here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from newsfabric.errors import SetupError

_ROOT: Final = Path(__file__).resolve().parents[2]
#: Readers of one process: below the descriptors that a process usually may have, and few enough
#: that a message to all of them doesn't keep those waiting who connect meanwhile.
MOST_EACH: Final = 5000
_PATIENCE: Final = 60.0
_LINE_LIMIT: Final = 1 << 22


def build() -> Path:
    """Build the crowd; returns where it is. SetupError without cargo."""
    if shutil.which("cargo") is None:
        raise SetupError("cargo is missing: the crowd is written in Rust")
    command = ("cargo", "build", "--quiet", "--release", "--package", "newsfabric-fanout")
    subprocess.run(command, check=True, cwd=_ROOT)
    return _ROOT / "target" / "release" / "surge-crowd"


class Crowds:
    """All readers, in as few processes as can be. Made by :func:`running`."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes
        # An answer belongs to the question before it.
        self._asking = asyncio.Lock()

    async def arrive(self, count: int, per_second: float) -> None:
        """From now on ``count`` readers come, evenly."""
        await self._pace("arrive", count, per_second)

    async def leave(self, count: int, per_second: float) -> None:
        """From now on ``count`` readers go, evenly, the oldest first."""
        await self._pace("leave", count, per_second)

    async def report(self) -> dict[str, Any]:
        """What happened since the last one: numbers added up, lists one after the other."""
        return await self._all("report")

    async def census(self, messages: Path, *, grace: float) -> dict[str, Any]:
        """What readers were owed of the ``messages`` (a line each), and what they had."""
        found = await self._all(f"census {messages} {round(grace * 1e9)}")
        return found | {"messages": found["messages"] // len(self._processes)}

    async def _pace(self, verb: str, count: int, per_second: float) -> None:
        share, more = divmod(count, len(self._processes))
        async with self._asking:
            for n, process in enumerate(self._processes):
                if part := share + (n < more):
                    await self._ask(process, f"{verb} {part} {per_second * part / count:.6f}")

    async def _all(self, line: str) -> dict[str, Any]:
        async with self._asking:
            answers = await asyncio.gather(*(self._ask(each, line) for each in self._processes))
        return {key: sum((a[key] for a in answers[1:]), answers[0][key]) for key in answers[0]}

    async def _ask(self, process: asyncio.subprocess.Process, line: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(_PATIENCE):
            found: dict[str, Any] = json.loads(await process.stdout.readline())
        return found


@contextlib.asynccontextmanager
async def running(
    program: Path, *, desk_port: int, topic: str, run: str, readers: int, seed: int = 1
) -> AsyncIterator[Crowds]:
    """Crowds for ``readers`` of ``topic``, who ask the frontdesk at ``desk_port``; nobody yet."""
    processes = []
    async with contextlib.AsyncExitStack() as stack:
        for n in range(-(-readers // MOST_EACH)):
            options = {
                "desk-port": desk_port,
                "topic": topic,
                "run": run,
                "source": f"127.0.0.{10 + n}",
                "seed": seed + n,
            }
            words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
            process = await asyncio.create_subprocess_exec(
                str(program),
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_LIMIT,
                # Linux shares its cores among sessions, and readers have computers of their own.
                start_new_session=True,
            )
            stack.push_async_callback(_ended, process)
            processes.append(process)
        yield Crowds(processes)


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()

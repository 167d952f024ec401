"""The crowds of a surge: processes of ``newsfabric-crowd``, commanded together.

One process may have only so many descriptors, so a large crowd is several processes. Their reports
are added here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from loadtest.crowd import LINE_LIMIT, command
from loadtest.times import added, of_counts

#: Readers of one process: below the usual limit of descriptors, and few enough that a message to
#: all of them doesn't delay readers who connect meanwhile.
MOST_EACH: Final = 5000
_PATIENCE: Final = 60.0
_TIMES: Final = ("arrive", "connect", "receive", "resume")


class Crowds:
    """All readers, in as few processes as possible. Made by :func:`running`."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes
        # Replies are matched to questions by their order.
        self._asking = asyncio.Lock()

    async def readers(self, count: int, per_second: float) -> None:
        """Set the number of readers; they arrive or leave evenly, the oldest leave first."""
        share, more = divmod(count, len(self._processes))
        rate = per_second / len(self._processes)
        async with self._asking:
            for n, process in enumerate(self._processes):
                await _ask(process, f"readers {share + (n < more)} {rate:.6f}")

    async def report(self) -> dict[str, Any]:
        """Return the events since the last report: counts, and times in ms (``loadtest.times``)."""
        answers = await self._all("report")
        found: dict[str, Any] = {
            name: sum(answer[name] for answer in answers)
            for name in answers[0]
            if name not in _TIMES
        }
        for name in _TIMES:
            found[name] = added(of_counts(answer[name]["counts"]) for answer in answers)
        return found

    async def records(self) -> list[dict[str, Any]]:
        """Return each reader's record, in the form of the census."""
        answers = await self._all("records")
        return [{"kind": "reader", **one} for answer in answers for one in answer["entries"]]

    async def _all(self, line: str) -> list[dict[str, Any]]:
        async with self._asking:
            return await asyncio.gather(*(_ask(each, line) for each in self._processes))


async def _ask(process: asyncio.subprocess.Process, line: str) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line.encode() + b"\n")
    async with asyncio.timeout(_PATIENCE):
        found: dict[str, Any] = json.loads(await process.stdout.readline())
    return found


@contextlib.asynccontextmanager
async def running(
    *, frontdesk: str, topic: str, readers: int, seed: int = 1
) -> AsyncIterator[Crowds]:
    """Yield crowds for ``readers`` of ``topic`` at ``frontdesk`` (a URL), without readers yet."""
    processes = []
    async with contextlib.AsyncExitStack() as stack:
        for n in range(-(-readers // MOST_EACH)):
            arguments = command(
                frontdesks=[frontdesk],
                topics=[topic],
                source=f"127.0.0.{10 + n}",
                own=False,
                seed=seed + n,
            )
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_LIMIT,
                # Linux shares its cores among sessions; real readers have their own computers.
                start_new_session=True,
            )
            stack.push_async_callback(_ended, process)
            processes.append(process)
        yield Crowds(processes)


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()

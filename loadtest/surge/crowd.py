"""The crowds of a surge: processes of ``newsfabric-crowd``, commanded together.

One process may have only so many descriptors, so a large crowd is several processes. Their reports
are added here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from bench.programs import Program, pages_command, started
from loadtest.times import added, of_counts

#: Readers of one process: below the usual limit of descriptors, and few enough that a message to
#: all of them doesn't delay readers who connect meanwhile.
MOST_EACH: Final = 5000
_TIMES: Final = ("arrive", "connect", "receive", "resume")


class Crowds:
    """All readers, in as few processes as possible. Made by :func:`running`."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = programs
        # Replies are matched to questions by their order.
        self._asking = asyncio.Lock()

    async def readers(self, count: int, per_second: float) -> None:
        """Set the number of readers; they arrive or leave evenly, the oldest leave first."""
        share, more = divmod(count, len(self._programs))
        rate = per_second / len(self._programs)
        async with self._asking:
            for n, program in enumerate(self._programs):
                await program.send_command(f"readers {share + (n < more)} {rate:.6f}")

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
            return await asyncio.gather(*(each.send_command(line) for each in self._programs))


@contextlib.asynccontextmanager
async def running(
    *, frontdesk: str, topic: str, readers: int, seed: int = 1
) -> AsyncIterator[Crowds]:
    """Yield crowds for ``readers`` of ``topic`` at ``frontdesk`` (a URL), without readers yet."""
    async with contextlib.AsyncExitStack() as stack:
        programs = []
        for n in range(-(-readers // MOST_EACH)):
            source = f"127.0.0.{10 + n}"
            command = pages_command(
                frontdesks=[frontdesk], topics=[topic], source=source, own=False, seed=seed + n
            )
            # Real readers have their own computers.
            process = await stack.enter_async_context(started(command, own_session=True))
            programs.append(Program(process))
        yield Crowds(programs)

"""A check whether a world is whole: reads its boards, and waits until they show nothing wrong.

A board takes some seconds to notice a missing process. So a world is whole when nothing was wrong
on any region's board for :data:`SURE` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from newsfabric.errors import NewsfabricError, WorldError
from operations.board_document import Board
from operations.top.frontdesks import fetch_once

#: Longer than a frontdesk takes to call a silent process gone.
SURE: Final = 4.0
_CHECK_EVERY: Final = 0.5
# Canaries arrive each second.
_LATE_MS: Final = 3_000

Check = Callable[[], Awaitable[Sequence[str]]]


def wrong_on(board: Board) -> Iterator[str]:
    """Yield the errors on the board of one region: of all regions, and of its own shovels. Pure."""
    for region in board.regions:
        if region.state != "well":
            yield f"{region.name}: {next(iter(region.why), region.state)}"
    for shovel in (shovel for region in board.regions[:1] for shovel in region.shovels):
        late = shovel.canary_age is None or shovel.canary_age > _LATE_MS
        if shovel.state != "running" or late:
            yield f"{shovel.runs_on}/{shovel.name} brings no canary yet"


async def errors_on_boards(urls: Sequence[str]) -> list[str]:
    """Return everything wrong on the boards at ``urls``, each once."""
    found: dict[str, None] = {}
    for answer in await asyncio.gather(*(_errors_on(url) for url in urls)):
        found |= dict.fromkeys(answer)
    return list(found)


async def _errors_on(url: str) -> list[str]:
    try:
        board, _ = await fetch_once([url], lambda: None)
    except NewsfabricError as exc:
        return [str(exc)]
    return list(wrong_on(board))


async def await_whole(check: Check, print_line: Callable[[str], None], *, seconds: float) -> None:
    """Return when ``check`` has found nothing for :data:`SURE` seconds; report the faults.

    WorldError after ``seconds``, with the list of wrong things.
    """
    deadline = time.monotonic() + seconds
    well_since: float | None = None
    shown = ""
    while True:
        wrong = await check()
        now = time.monotonic()
        if not wrong:
            well_since = well_since or now
            if now - well_since >= SURE:
                return
        else:
            well_since = None
            if wrong[0] != shown:
                shown = wrong[0]
                print_line(f"waiting: {shown}{_more(wrong)}")
        if now >= deadline:
            raise WorldError(f"not whole after {seconds:g} s: {'; '.join(wrong) or 'just now'}")
        await asyncio.sleep(_CHECK_EVERY)


def _more(wrong: Sequence[str]) -> str:
    return f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""

"""A box without a feed sends its readers to boxes that have one.

After ``stranded_seconds`` it asks what a reader asks, ``endpoints.json`` of its own region and of
the others, and if a gateway is listed that isn't itself it tells its readers to go, at the pace of
a drain. docs/design/0018 says why.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gateway.drain import Spread
from newsfabric.backoff import Backoff
from newsfabric.errors import Disconnected
from newsfabric.reader import fetch_endpoints

if TYPE_CHECKING:
    from gateway.core import Core

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_STEP: Final = 0.1
# Who is ready may have changed by then: what a frontdesk says is good for so long.
_ASK_AGAIN: Final = 5.0
# More regions than a fabric has.
_MOST_ASKED: Final = 16


async def rebalance(core: Core, own: str) -> None:
    """Send readers, who come to ``own``, a WebSocket URL, away whenever they are better served
    elsewhere; never returns."""
    backoff, said = Backoff(base=1.0, cap=10.0), False
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if not core.stranded:
            said = False
            continue
        await core.look()
        if not core.reader_count:
            continue
        if await _others_are_ready(core, own):
            backoff.succeeded(core.clock())
            await _leave(core, own)
        elif core.stranded:
            if not said:
                logger.warning("no feed here nor elsewhere: %d readers stay", core.reader_count)
            said = True
            await asyncio.sleep(backoff.failed(core.clock()))


async def _leave(core: Core, own: str) -> None:
    """Tell all who are here now, unless the feed comes back or nobody else is ready."""
    told, settings = 0, core.settings
    pace = Spread(core.reader_count, settings.drain_seconds, settings.drain_per_second)
    logger.warning("no feed: %d readers are sent to other boxes", pace.readers)
    started = asked = core.clock()
    while told < pace.readers and core.stranded:
        if core.clock() - asked > _ASK_AGAIN:
            if not await _others_are_ready(core, own):
                return
            asked = core.clock()
        due = pace.due(core.clock() - started)
        if due > told:
            core.send_away(due - told)
        told = due
        await asyncio.sleep(_STEP)


async def _others_are_ready(core: Core, own: str) -> bool:
    """Whether a reader who asks would be sent to another gateway than this."""
    to_ask = list(core.settings.endpoints)
    for url in to_ask:
        try:
            endpoints = await fetch_endpoints(url)
        except Disconnected as exc:
            logger.debug("no endpoints: %s", exc)
            continue
        if any(gateway.websocket_url != own for gateway in endpoints.gateways):
            return True
        to_ask += [url for url in endpoints.alternates if url not in to_ask]
        del to_ask[_MOST_ASKED:]
    return False

"""The choice of a store's messages that readers can be given: those whose bodies are JSON.

Replies and frames are spliced from bodies, and a body that isn't JSON would break the whole reply.
Routers accept only JSON, so this concerns rows of other writers, and unreadable rows, which have no
body. Such a message is left out, reported as missing, and counted.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import orjson

from newsfabric.messages.envelope import Envelope
from newsfabric.store._unreadable import UNREADABLE

# Bytes of bodies that are parsed before other tasks get a turn.
_CHECKED_BYTES: Final = 1 << 20
# If some messages are left out, more rows of the topic are read: up to this number of rows, or this
# multiple of the limit. A hundred bad rows in sequence must not hide the rows behind them, and a
# request for the newest message must not read a whole topic.
_MOST_ROWS: Final = 256
_BEYOND: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Sound:
    """Messages that readers can be given, and the ids of unreadable ones between and behind them;
    both oldest first. ``cut``: so many were unreadable that the search ended, and there may be
    older messages. ``reach_ms``: of a read of a time, none is left out from here on."""

    envelopes: list[Envelope]
    missing: tuple[str, ...] = ()
    cut: bool = False
    reach_ms: int = 0


async def newest_sound(read: Callable[[int], Awaitable[list[Envelope]]], limit: int) -> Sound:
    """Return the newest ``limit`` messages of ``read(limit)`` whose bodies are JSON.

    Fewer if too many bodies are no JSON. Errors of ``read`` are raised.
    """
    most = max(_MOST_ROWS, _BEYOND * limit)
    asked = limit
    while True:
        found = await read(asked)
        sound = await only_sound(found)
        if len(found) < asked or len(sound) >= limit:
            return _newest(found, sound[max(0, len(sound) - limit) :], full=len(sound) >= limit)
        if asked >= most:
            return _newest(found, sound, cut=True)
        asked = min(2 * asked, most)


def _newest(
    found: list[Envelope], sound: list[Envelope], *, full: bool = False, cut: bool = False
) -> Sound:
    known = {id(envelope) for envelope in sound}
    # Older ids than the oldest message are reported to readers that page back.
    oldest = sound[0].id if full and sound else ""
    left = (one.id for one in found if id(one) not in known and one.id > oldest)
    return Sound(sound, tuple(left), cut)


async def only_sound(found: Iterable[Envelope]) -> list[Envelope]:
    """Return the envelopes of ``found`` whose bodies are JSON."""
    sound: list[Envelope] = []
    size = 0
    for envelope in found:
        size += len(envelope.body)
        if size > _CHECKED_BYTES:
            await asyncio.sleep(0)
            size = 0
        if is_sound(envelope):
            sound.append(envelope)
    return sound


def is_sound(envelope: Envelope) -> bool:
    """Return whether readers can be given ``envelope``; if not, count it."""
    try:
        orjson.loads(envelope.body)
    except ValueError:
        UNREADABLE.inc()
        return False
    return True

"""Which messages of a store readers can be given: those whose bodies are JSON.

Answers and frames are spliced from bodies, and one that isn't JSON would break the whole of one.
Routers let nothing else in, so this is about what others wrote, and rows that can't be read: those
have no body. It is left out, named as missing, and counted.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import orjson

from newsfabric.messages.envelope import Envelope
from newsfabric.store._unreadable import UNREADABLE

# Bodies are looked through for so long that nobody else waits.
_CHECKED_BYTES: Final = 1 << 20
# Where some are left out, it is read on: so many rows of a topic at most, or so many times what was
# asked for. A hundred bad ones in a row must not hide what is behind them, nor may one who asks for
# the newest message have a whole topic read.
_MOST_ROWS: Final = 256
_BEYOND: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Sound:
    """Messages that readers can be given, and the ids of those between and behind them that they
    can't; both oldest first. ``cut``: so many can't that no more was read, and there may be older
    messages."""

    envelopes: list[Envelope]
    missing: tuple[str, ...] = ()
    cut: bool = False


async def newest_sound(read: Callable[[int], Awaitable[list[Envelope]]], limit: int) -> Sound:
    """The newest ``limit`` of what ``read(limit)`` brings without what is no JSON.

    Fewer where too much of it is none. It raises whatever ``read`` raises.
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
    # What is older than all of them is for who asks for older ones.
    oldest = sound[0].id if full and sound else ""
    left = (one.id for one in found if id(one) not in known and one.id > oldest)
    return Sound(sound, tuple(left), cut)


async def only_sound(found: Iterable[Envelope]) -> list[Envelope]:
    """``found`` without what is no JSON."""
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
    """Whether readers can be given it; what they can't is counted."""
    try:
        orjson.loads(envelope.body)
    except ValueError:
        UNREADABLE.inc()
        return False
    return True

"""Messages so late that this gateway may have forgotten that it gave a copy of them.

A gateway knows for 15 minutes which messages it gave to readers. Copies of one message get their
numbers up to 750 s apart (docs/guarantees.md, S4), by clocks that are up to 30 s from right. So
when a copy is older than two minutes, another one may have been given so long ago that nobody here
remembers. Before it is offered its other copies are looked up, in every region: where any of them
was given here, or was past when this gateway began, it is one more copy.
(docs/design/0012 has an example.)

Copies are found by their times, and these are apart by more where clocks are wrong, or were: by the
**spread** (:meth:`.LogTimes.spread_ms`). What lies so far away is read up to a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final

from gateway.log_times import QUEUES_MS
from gateway.logs import CLOCKS_MS, Logs
from gateway.position import copy_of
from gateway.settings import GatewaySettings
from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.store import Store

# So far apart copies of one message get their numbers.
APART_MS: Final = 750_000
# How far the times in two copies may be apart: one router may be ahead, and the other one behind.
MARGIN_MS: Final = APART_MS + 2 * CLOCKS_MS
# The identity window of 15 minutes, less by how much the other copy may be older, and by how much
# the time in this one may be ahead of all that is known here.
LATE_MS: Final = 900_000 - APART_MS - CLOCKS_MS
# Of a region that was silent for so long nothing is asked any more: a repeat is better than a
# message that nobody gets.
_SILENT_SECONDS: Final = 3_600.0
# Copies are read so many at a time.
_PAGE: Final = 5_000
_MOST_PAGES: Final = 400
# Of what is further away no more is read: a clock that is a day ahead would else have a busy topic
# read for minutes, and its messages stay missing.
_FAR_PAGES: Final = 10


class _TooMany(StoreError):
    """There are more copies than are looked through."""


def is_late(envelope: Envelope, time_ms: int) -> bool:
    """Whether its copies must be looked up before it is offered, at the latest of all times
    (:mod:`gateway.log_times`)."""
    return time_ms - ms_of_id(envelope.id) > LATE_MS


def is_ahead(routed_ms: int, reached_ms: int) -> bool:
    """Whether a message was routed at a time of its region's that nobody has told yet: before that
    isn't known how old it is. ``reached_ms``: what was told (:meth:`.LogTimes.reached_ms`)."""
    return routed_ms > reached_ms + 2 * CLOCKS_MS


def span_of(times: Iterable[int], spread_ms: int) -> tuple[int, int]:
    """First and last time that copies of the messages routed at these ``times`` can have, in ms."""
    routed = list(times)
    margin_ms = MARGIN_MS + spread_ms
    return max(0, min(routed) - margin_ms), max(routed) + margin_ms


def clusters(messages: Iterable[Envelope], spread_ms: int) -> Iterator[list[Envelope]]:
    """These messages, in order of time, in groups whose copies lie near to each other.

    A page of a quiet log can span hours: what lies between needn't be read.
    """
    margin_ms = MARGIN_MS + spread_ms
    group: list[Envelope] = []
    for one in sorted(messages, key=lambda one: one.id):
        if group and ms_of_id(one.id) - ms_of_id(group[-1].id) > 2 * margin_ms:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def given(late: Iterable[Envelope], copies: Iterable[Envelope], logs: Logs) -> set[int]:
    """The identities of those ``late`` ones of which another one of ``copies`` was given here."""
    places = {one.identity: copy_of(one)[:2] for one in late}
    return {
        one.identity
        for one in copies
        if one.identity in places
        and places[one.identity] != (place := copy_of(one)[:2])
        and logs.gave(*place)
    }


@dataclasses.dataclass(eq=False, repr=False)
class LateCopies:
    """Looks up whether late messages were given here before. ``clock`` only goes on."""

    store: Store
    logs: Logs
    settings: GatewaySettings
    clock: Callable[[], float]
    # When each region was heard last.
    _heard_at: dict[str, float] = dataclasses.field(default_factory=dict)

    def heard(self, region: str, now: float) -> None:
        """A message or a tick of a log of ``region`` has come."""
        self._heard_at[region] = now

    async def given(self, topic: str, messages: Sequence[Envelope], spread_ms: int) -> set[int]:
        """The identities of those of ``messages`` that were given here.

        StoreError or TimeoutError if that can't be known now.
        """
        times = [ms_of_id(one.id) for one in messages]
        near = first, last = span_of(times, min(spread_ms, QUEUES_MS))
        begin, end = span_of(times, spread_ms)
        found: set[int] = set()
        for region in self._regions():
            async for page in self._pages(topic, region, near, _MOST_PAGES):
                found |= given(messages, page, self.logs)
            for far in ((begin, first), (last, end)):
                # A repeat is better than a message that nobody gets.
                with contextlib.suppress(_TooMany):
                    async for page in self._pages(topic, region, far, _FAR_PAGES):
                        found |= given(messages, page, self.logs)
        return found

    async def _pages(
        self, topic: str, region: str, span: tuple[int, int], most: int
    ) -> AsyncIterator[list[Envelope]]:
        """All copies in ``span``, the newest page first; _TooMany after ``most`` of them."""
        begin, end = span
        for _ in range(most if begin < end else 0):
            async with asyncio.timeout(self.settings.store_timeout):
                page = await self.store.since(
                    topic, from_ms=begin, to_ms=end, limit=_PAGE, region=region
                )
            yield page
            if len(page) < _PAGE:
                return
            # The oldest millisecond may not be whole, and comes again.
            end = ms_of_id(page[0].id) + 1
        if begin < end:
            raise _TooMany(f"too many copies on {topic}")

    def _regions(self) -> list[str]:
        now = self.clock()
        # Of one that has no log of which more may come everything was seen here.
        for known in self.logs.unfinished():
            self._heard_at.setdefault(known.log.region, now)
        lives = (
            region
            for region, heard_at in self._heard_at.items()
            if region != self.settings.region and now - heard_at < _SILENT_SECONDS
        )
        return [self.settings.region, *sorted(lives)]

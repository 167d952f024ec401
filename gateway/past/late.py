"""The lookup of late messages: they may be duplicates of a copy that this gateway has forgotten.

A gateway remembers for 15 minutes which messages it gave to readers. The copies of one message are
numbered up to 750 s apart (docs/guarantees.md, S4), by clocks that are up to 30 s from right. So
when a message is older than two minutes (:attr:`.Times.late_ms`), another copy may have been given
here so long ago that it is forgotten. Before such a message is offered, its other copies are looked
up in every region. If one of them was given here, or was past when this gateway began, the message
is a duplicate. (docs/design/0012 has an example.)

Copies are found by their times. Where clocks are or were wrong, these times differ by more: by the
**spread** (:meth:`.LogTimes.spread_ms`). The pages that are read at such distances are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final

from gateway.logs.logs import Logs
from gateway.process.settings import GatewaySettings
from gateway.wire.position import copy_of
from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.store import Store
from newsfabric.topology.times import TIMES

# A region that sent nothing for this long isn't asked: a duplicate is better than a lost message.
_SILENT_SECONDS: Final = 3_600.0
# Copies in one page, and the limit of pages.
_PAGE: Final = 5_000
_MOST_PAGES: Final = 400
# Limit of pages further away: after a clock that was a day ahead, a busy topic would otherwise be
# read for minutes, and its messages would stay missing.
_FAR_PAGES: Final = 10


class _TooMany(StoreError):
    """Error: there are more copies than are looked through."""


def is_late(envelope: Envelope, time_ms: int) -> bool:
    """Return whether the copies of ``envelope`` must be looked up before it is offered. ``time_ms``
    is the latest of all known times (:mod:`gateway.logs.log_times`)."""
    return time_ms - ms_of_id(envelope.id) > TIMES.late_ms


def is_ahead(routed_ms: int, reached_ms: int) -> bool:
    """Return whether a message was routed later than ``reached_ms``, the time that its region has
    reported (:meth:`.LogTimes.reported_ms`). Until a later report, its age is unknown."""
    return routed_ms > reached_ms + 2 * TIMES.clock_ms


def span_of(times: Iterable[int], spread_ms: int) -> tuple[int, int]:
    """Return the first and last time, in ms, of possible copies of messages routed at ``times``."""
    routed = list(times)
    margin_ms = TIMES.margin_ms + spread_ms
    return max(0, min(routed) - margin_ms), max(routed) + margin_ms


def clusters(messages: Iterable[Envelope], spread_ms: int) -> Iterator[list[Envelope]]:
    """Yield the messages in order of time, in groups whose copies have times near each other.

    A page of a quiet log can span hours: the time between two groups needn't be read.
    """
    margin_ms = TIMES.margin_ms + spread_ms
    group: list[Envelope] = []
    for one in sorted(messages, key=lambda one: one.id):
        if group and ms_of_id(one.id) - ms_of_id(group[-1].id) > 2 * margin_ms:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def given(late: Iterable[Envelope], copies: Iterable[Envelope], logs: Logs) -> set[int]:
    """Return the identities of ``late`` messages if another one of ``copies`` was given here."""
    places = {one.identity: copy_of(one)[:2] for one in late}
    return {
        one.identity
        for one in copies
        if one.identity in places
        and places[one.identity] != (place := copy_of(one)[:2])
        and logs.was_given(*place)
    }


@dataclasses.dataclass(eq=False, repr=False)
class LateCopies:
    """A lookup of whether late messages were given here before. ``clock`` is monotonic."""

    store: Store
    logs: Logs
    settings: GatewaySettings
    clock: Callable[[], float]
    # By region, the time of its last message or tick.
    _last_report_at: dict[str, float] = dataclasses.field(default_factory=dict)

    def note_feed(self, region: str, now: float) -> None:
        """Note a message or a tick of a log of ``region``."""
        self._last_report_at[region] = now

    async def already_given(
        self, topic: str, messages: Sequence[Envelope], spread_ms: int
    ) -> set[int]:
        """Return the identities of ``messages`` that were given here before.

        Raise StoreError or TimeoutError if the store can't answer now.
        """
        times = [ms_of_id(one.id) for one in messages]
        near = first, last = span_of(times, min(spread_ms, TIMES.queues_ms))
        begin, end = span_of(times, spread_ms)
        found: set[int] = set()
        for region in self._regions():
            async for page in self._pages(topic, region, near, _MOST_PAGES):
                found |= given(messages, page, self.logs)
            for far in ((begin, first), (last, end)):
                # A duplicate is better than a lost message.
                with contextlib.suppress(_TooMany):
                    async for page in self._pages(topic, region, far, _FAR_PAGES):
                        found |= given(messages, page, self.logs)
        return found

    async def _pages(
        self, topic: str, region: str, span: tuple[int, int], most: int
    ) -> AsyncIterator[list[Envelope]]:
        """Yield all copies in ``span``, the newest page first; _TooMany after ``most`` pages."""
        begin, end = span
        for _ in range(most if begin < end else 0):
            async with asyncio.timeout(self.settings.store_timeout):
                page = await self.store.since(
                    topic, from_ms=begin, to_ms=end, limit=_PAGE, region=region
                )
            yield page
            if len(page) < _PAGE:
                return
            # The page may have only a part of its oldest millisecond, which is read again.
            end = ms_of_id(page[0].id) + 1
        if begin < end:
            raise _TooMany(f"too many copies on {topic}")

    def _regions(self) -> list[str]:
        now = self.clock()
        # All numbers of a region without an unfinished log were seen here.
        for known in self.logs.unfinished():
            self._last_report_at.setdefault(known.log.region, now)
        lives = (
            region
            for region, last_report_at in self._last_report_at.items()
            if region != self.settings.region and now - last_report_at < _SILENT_SECONDS
        )
        return [self.settings.region, *sorted(lives)]

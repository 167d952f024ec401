"""Messages so late that this gateway may have forgotten that it gave a copy of them.

A gateway knows for 15 minutes which messages it gave to readers. Copies of one message get their
numbers up to 750 s apart (docs/guarantees.md, S4), by clocks that differ by up to 30 s. So when a
copy is older than two minutes, another one may have been given so long ago that nobody here
remembers. Before it is offered its other copies are looked up, in every region: where any of them
was given here, or was past when this gateway began, it is one more copy.
(docs/design/0012 has an example.)
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from gateway.logs import CLOCKS_MS, Logs
from gateway.position import copy_of
from gateway.settings import GatewaySettings
from newsfabric.envelope import Envelope, ms_of_id
from newsfabric.errors import StoreError
from newsfabric.store import Store

# How far the times of two copies of one message may be apart.
_MARGIN_MS: Final = 750_000 + CLOCKS_MS
# The identity window of 15 minutes, less that.
LATE_MS: Final = 900_000 - _MARGIN_MS
# Of a region that was silent for so long nothing is asked any more: a repeat is better than a
# message that nobody gets.
_SILENT_SECONDS: Final = 3_600.0
# Copies are read so many at a time.
_PAGE: Final = 5_000
_MOST_PAGES: Final = 400


def is_late(envelope: Envelope, time_ms: int) -> bool:
    """Whether its copies must be looked up before it is offered, at the latest of all times
    (:mod:`gateway.log_times`)."""
    return time_ms - ms_of_id(envelope.id) > LATE_MS


def span_of(envelopes: Iterable[Envelope]) -> tuple[int, int]:
    """First and last time, in ms, at which copies of these messages can have been routed."""
    times = [ms_of_id(envelope.id) for envelope in envelopes]
    return max(0, min(times) - _MARGIN_MS), max(times) + _MARGIN_MS


def clusters(messages: Iterable[Envelope]) -> Iterator[list[Envelope]]:
    """These messages, in order of time, in groups whose copies lie near to each other.

    A page of a quiet log can span hours: what lies between needn't be read.
    """
    group: list[Envelope] = []
    for one in sorted(messages, key=lambda one: one.id):
        if group and ms_of_id(one.id) - ms_of_id(group[-1].id) > 2 * _MARGIN_MS:
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

    async def given(self, topic: str, messages: Sequence[Envelope]) -> set[int]:
        """The identities of those of ``messages`` that were given here.

        StoreError or TimeoutError if that can't be known now.
        """
        from_ms, to_ms = span_of(messages)
        found: set[int] = set()
        for region in self._regions():
            end = to_ms
            for _ in range(_MOST_PAGES):
                async with asyncio.timeout(self.settings.store_timeout):
                    page = await self.store.since(
                        topic, from_ms=from_ms, to_ms=end, limit=_PAGE, region=region
                    )
                found |= given(messages, page, self.logs)
                if len(page) < _PAGE:
                    break
                # The oldest millisecond may not be whole, and comes again.
                end = ms_of_id(page[0].id) + 1
            else:
                raise StoreError(f"too many copies on {topic}")
        return found

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

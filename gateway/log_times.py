"""What time it is, as far as a gateway can be certain: by its own clock and by what the routers of
each region have told. Pure.

A log of a region begins later than all that the region's routers had told before, whatever their
clocks say (:mod:`wholesale.router.log_clock`). So what "began well before now" is decided by the
earliest of all these times: then no clock that is ahead makes a log seem old that is new, be it
ours, a router's, or those of a whole region. And how old a message is goes by the latest of them:
then no clock that is behind makes it seem young. And how far the times of two copies of one
message may be apart goes by all that was ever told: a region whose clocks were wrong gives times of
its own for hours after they were set right.

A region that falls silent is taken to go on: it may be cut off. One of which nothing but old rows
was found has told nothing: it may have been dead for days.

A time that is more than a day from our clock is of no clock that is wrong, since a router that is
more than 30 s from its store routes nothing: a bit has flipped, or somebody lies. One such tick
would make every message old until we end, so that each is looked up in the store before readers
have it. So it isn't believed while any region tells a time within a day of ours. If none does, our
own clock is years behind, and all are believed.

Example. Our clock reads 12:00, routers of Oregon told 12:00:02 a second ago, and Dublin, which has
its clocks five hours ahead, 17:00:00. Then 12:00 is certain, and a message that was routed at
11:57 in Oregon is five hours old: it is looked up before it is offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from newsfabric.topology.times import TIMES

# No spread is larger: a topic would be read for days to look up one message.
_MOST_SPREAD_MS: Final = 86_400_000
# While a region isn't heard its lead may shrink: its routers wait for their clocks, or are all
# dead, and go on from the last row. One that is silent for longer isn't asked (gateway/late.py).
_UNHEARD_MS: Final = 3_600_000
# Far more than a fabric has. Who invents others costs no more than these.
_MOST_REGIONS: Final = 64


class _Told:
    """Times that routers tell, by region."""

    def __init__(self) -> None:
        # The latest that was told, or found in a row at the start.
        self.known: dict[str, int] = {}
        # Of those that told one, by how many ms that was ahead of ``now`` at most. A backlog that
        # comes after a cut tells old times, and takes nothing back.
        self.leads: dict[str, int] = {}

    def find(self, region: str, ms: int) -> None:
        if region in self.known or len(self.known) < _MOST_REGIONS:
            self.known[region] = max(ms, self.known.get(region, 0))

    def tell(self, region: str, ms: int, lead_ms: int) -> None:
        self.find(region, ms)
        if region in self.known:
            self.leads[region] = max(lead_ms, self.leads.get(region, lead_ms))


class LogTimes:
    """``wall_ms`` is our clock, ``now`` one in seconds that only goes on."""

    #: By so much no router's clock is wrong.
    apart_ms: ClassVar[int] = 86_400_000

    def __init__(self) -> None:
        # Those that aren't too far ahead of what our clock read last, and those that are.
        self._near, self._far = _Told(), _Told()
        self._wall_ms: int | None = None
        # The highest lead of a predecessor.
        self._left_ms: int | None = None
        #: How many times were told that are too far ahead.
        self.too_far = 0
        #: The lowest lead that the feed has told, to a predecessor too. Rows of the directory don't
        #: count here: they come hours late.
        self.least_ms: int | None = None

    @property
    def known(self) -> tuple[tuple[str, int], ...]:
        """Of each region the latest time that was told or found, for a successor to find."""
        return tuple(sorted(self._known().items()))

    @property
    def lead_ms(self) -> int | None:
        """By how many ms the latest time is ahead of ``now``, for a successor; None if nobody told
        anything."""
        return max([*self._left(), *(self._near.leads or self._far.leads).values()], default=None)

    def take(
        self, lead_ms: int | None, known: Iterable[tuple[str, int]], least_ms: int | None
    ) -> None:
        """Go on from :attr:`lead_ms`, :attr:`known` and :attr:`least_ms` of a predecessor."""
        self._left_ms, self.least_ms = lead_ms, least_ms
        for region, ms in known:
            self.found(region, ms)

    def found(self, region: str, ms: int) -> None:
        """A row that was found at the start tells the time ``ms``, nobody knows how long ago."""
        self._told_by(ms).find(region, ms)

    def told(self, region: str, ms: int, now: float) -> None:
        """A message, a tick or a row that has moved tells the time ``ms``."""
        told = self._told_by(ms)
        self.too_far += told is self._far
        told.tell(region, ms, _lead_ms(ms, now))

    def heard(self, region: str, ms: int, now: float) -> None:
        """The feed has brought a message or a tick that tells the time ``ms``: minutes ago at most,
        since no queue holds it for longer."""
        self.told(region, ms, now)
        if self._wall_ms is not None and abs(ms - self._wall_ms) > self.apart_ms:
            return
        lead_ms = _lead_ms(ms, now)
        self.least_ms = lead_ms if self.least_ms is None else min(self.least_ms, lead_ms)

    def spread_ms(self, wall_ms: int, now: float) -> int:
        """By how much the times of two routers may have differed at one moment, as far as is known:
        by all that was told and is believed, and by our own clock. A day at most.

        Example. Oregon's clocks were an hour ahead and were set back: its times lose that hour in
        ten hours. Dublin's were right. So of a message that both have routed one copy's time may be
        an hour later than the other's, and by one more if we hadn't heard of it then: two hours,
        until this gateway ends.
        """
        times = [wall_ms, *self._believed(wall_ms, now, self._left())]
        if self.least_ms is not None:
            times.append(self.least_ms + int(now * 1000))
        spread_ms = max(times) - min(times)
        return min(spread_ms + (_UNHEARD_MS if spread_ms > TIMES.queues_ms else 0), _MOST_SPREAD_MS)

    def certain_ms(self, wall_ms: int, now: float) -> int:
        """The earliest of all, and none later than the latest that was told or found.

        While no router at all tells anything, time stands still: whoever starts then goes on from
        the last row.
        """
        known_ms = max(self._known().values(), default=wall_ms)
        return min([wall_ms, known_ms, *self._believed(wall_ms, now, [])])

    def passed_ms(self, region: str, certain_ms: int) -> int:
        """Logs of ``region`` that begin from now on begin later than this, at ``certain_ms``."""
        return min(certain_ms, self._known().get(region, certain_ms))

    def latest_ms(self, wall_ms: int, now: float) -> int:
        """The latest of all: it never goes back, though a region's routers, all dead for a while
        and behind, go on from where they were."""
        return max([wall_ms, *self._believed(wall_ms, now, self._left())])

    def reached_ms(self, region: str, wall_ms: int, now: float) -> int:
        """The latest time that routers of ``region`` can give now, as far as anybody has told."""
        return max(self.latest_ms(wall_ms, now), self._known().get(region, 0))

    def _known(self) -> dict[str, int]:
        return self._near.known or self._far.known

    def _left(self) -> list[int]:
        return [] if self._left_ms is None else [self._left_ms]

    def _believed(self, wall_ms: int, now: float, left: list[int]) -> list[int]:
        """What time it is now by those whom we believe at our clock, and those whose leads are
        ``left``."""
        self._wall_ms, now_ms = wall_ms, int(now * 1000)

        def is_near(lead: int) -> bool:
            return abs(lead + now_ms - wall_ms) <= self.apart_ms

        leads = list(filter(is_near, self._near.leads.values()))
        if leads:
            leads += filter(is_near, left)
        else:
            leads = [*self._near.leads.values(), *self._far.leads.values(), *left]
        return [lead + now_ms for lead in leads]

    def _told_by(self, ms: int) -> _Told:
        is_far = self._wall_ms is not None and ms > self._wall_ms + self.apart_ms
        return self._far if is_far else self._near


def _lead_ms(ms: int, now: float) -> int:
    """By how much the time ``ms`` is ahead of the clock that only goes on."""
    return ms - int(now * 1000)

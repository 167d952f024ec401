"""The current time, as certain as possible: by our own clock and by each region's routers. Pure.

A log of a region begins later than all times that the region's routers had reported before,
whatever their clocks read (:mod:`wholesale.router.log_clock`).

* Whether a log began well before now is decided by the earliest of all these times. So no clock
  that is ahead, be it ours, a router's or a whole region's, makes a new log seem old.
* The age of a message is decided by the latest time: no clock that is behind makes it seem young.
* The possible distance between the times of two copies is decided by all times ever reported. A
  region whose clocks were wrong gives such times for hours after they were set right.

A silent region's time is assumed to go on: the region may be cut off. A region of which only old
rows were found has reported nothing: it may have been dead for days.

A time more than a day from ours isn't from a clock that is merely wrong, since a router more than
30 s from its store routes nothing. A bit has flipped, or somebody lies. One such tick would make
each message look old until this process ends, so that each is looked up in the store. So it isn't
believed while any region reports a time within a day of ours. If none does, our own clock is wrong,
and all times are believed.

Example. Our clock reads 12:00. Oregon's routers reported 12:00:02 a second ago, and Dublin's, whose
clocks are five hours ahead, 17:00:00. Then 12:00 is certain, and a message routed at 11:57 in
Oregon is five hours old: its copies are looked up before it is offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from newsfabric.topology.times import TIMES

# Limit of a spread: beyond it, one lookup would read days of a topic.
_MOST_SPREAD_MS: Final = 86_400_000
# The lead that a region may lose unheard: its routers wait for their clocks, or are all dead and
# continue from the last row. A region silent for longer isn't asked (gateway/past/late.py).
_UNHEARD_MS: Final = 3_600_000
# Far more than a fabric has: a bound on the memory that invented regions cost.
_MOST_REGIONS: Final = 64


class _ReportedTimes:
    """Times that routers have reported, by region."""

    def __init__(self) -> None:
        # The latest time that was reported, or found in a row at the start.
        self.known: dict[str, int] = {}
        # The largest lead over ``now`` of each region's reported times, in ms. A backlog that
        # arrives after a cut reports old times, and lowers no lead.
        self.leads: dict[str, int] = {}

    def add_row(self, region: str, ms: int) -> None:
        if region in self.known or len(self.known) < _MOST_REGIONS:
            self.known[region] = max(ms, self.known.get(region, 0))

    def add_report(self, region: str, ms: int, lead_ms: int) -> None:
        self.add_row(region, ms)
        if region in self.known:
            self.leads[region] = max(lead_ms, self.leads.get(region, lead_ms))


class LogTimes:
    """The times of all regions. ``wall_ms`` is our clock, ``now`` a monotonic clock in seconds."""

    #: By more than this no router's clock is wrong.
    max_clock_error_ms: ClassVar[int] = 86_400_000

    def __init__(self) -> None:
        # Times that aren't too far ahead of our clock's last reading, and times that are.
        self._near, self._far = _ReportedTimes(), _ReportedTimes()
        self._wall_ms: int | None = None
        # The largest lead that a predecessor has left.
        self._left_ms: int | None = None
        #: Number of reported times that were too far ahead.
        self.disbelieved = 0
        #: The smallest lead of a time on the feed, a predecessor's included. Rows of the directory
        #: don't count here: they arrive hours late.
        self.min_lead_ms: int | None = None

    @property
    def known(self) -> tuple[tuple[str, int], ...]:
        """The latest time of each region, reported or found in a row, for a successor to find."""
        return tuple(sorted(self._known().items()))

    @property
    def max_lead_ms(self) -> int | None:
        """The lead of the latest time over ``now`` in ms, for a successor; None if no time was
        reported."""
        return max([*self._left(), *(self._near.leads or self._far.leads).values()], default=None)

    def restore(
        self, max_lead_ms: int | None, known: Iterable[tuple[str, int]], min_lead_ms: int | None
    ) -> None:
        """Continue from a predecessor's :attr:`max_lead_ms`, :attr:`known` and
        :attr:`min_lead_ms`."""
        self._left_ms, self.min_lead_ms = max_lead_ms, min_lead_ms
        for region, ms in known:
            self.note_row(region, ms)

    def note_row(self, region: str, ms: int) -> None:
        """Note the time ``ms`` of a row found at the start; the age of the row is unknown."""
        self._times_for(ms).add_row(region, ms)

    def note_report(self, region: str, ms: int, now: float) -> None:
        """Note the time ``ms`` that a message, a tick or a moved row reports."""
        reported = self._times_for(ms)
        self.disbelieved += reported is self._far
        reported.add_report(region, ms, _lead_ms(ms, now))

    def note_feed(self, region: str, ms: int, now: float) -> None:
        """Note the time ``ms`` of a message or a tick on the feed. It was sent minutes ago at most,
        since no queue holds it for longer."""
        self.note_report(region, ms, now)
        if self._wall_ms is not None and abs(ms - self._wall_ms) > self.max_clock_error_ms:
            return
        lead_ms = _lead_ms(ms, now)
        self.min_lead_ms = lead_ms if self.min_lead_ms is None else min(self.min_lead_ms, lead_ms)

    def spread_ms(self, wall_ms: int, now: float) -> int:
        """Return by how many ms the times of two routers may have differed at one moment, as far as
        is known; a day at most. All believed times count, and our own clock.

        Example. Oregon's clocks were an hour ahead and were set back: its times lose that hour in
        ten hours. Dublin's were right. So the two copies of a message that both have routed may be
        an hour apart. Another hour is added for a lead that was lost unheard: two hours, until this
        gateway ends.
        """
        times = [wall_ms, *self._believed(wall_ms, now, self._left())]
        if self.min_lead_ms is not None:
            times.append(self.min_lead_ms + int(now * 1000))
        spread_ms = max(times) - min(times)
        return min(spread_ms + (_UNHEARD_MS if spread_ms > TIMES.queues_ms else 0), _MOST_SPREAD_MS)

    def certain_ms(self, wall_ms: int, now: float) -> int:
        """Return the earliest of all times, but none later than the latest one reported or found.

        While no router reports anything, this time doesn't move: a router that starts then
        continues from the last row.
        """
        known_ms = max(self._known().values(), default=wall_ms)
        return min([wall_ms, known_ms, *self._believed(wall_ms, now, [])])

    def earliest_begin_ms(self, region: str, certain_ms: int) -> int:
        """Return ``certain_ms`` or an earlier time: all future logs of ``region`` begin later."""
        return min(certain_ms, self._known().get(region, certain_ms))

    def latest_ms(self, wall_ms: int, now: float) -> int:
        """Return the latest of all times. It never decreases, even if a region's routers were all
        dead for a while and continue with earlier times."""
        return max([wall_ms, *self._believed(wall_ms, now, self._left())])

    def reported_ms(self, region: str, wall_ms: int, now: float) -> int:
        """Return the latest time that routers of ``region`` can give now, as far as reported."""
        return max(self.latest_ms(wall_ms, now), self._known().get(region, 0))

    def _known(self) -> dict[str, int]:
        return self._near.known or self._far.known

    def _left(self) -> list[int]:
        return [] if self._left_ms is None else [self._left_ms]

    def _believed(self, wall_ms: int, now: float, left: list[int]) -> list[int]:
        """Return the current time by each lead that is believed at our clock: the leads of regions,
        and the leads in ``left``."""
        self._wall_ms, now_ms = wall_ms, int(now * 1000)

        def is_near(lead: int) -> bool:
            return abs(lead + now_ms - wall_ms) <= self.max_clock_error_ms

        leads = list(filter(is_near, self._near.leads.values()))
        if leads:
            leads += filter(is_near, left)
        else:
            leads = [*self._near.leads.values(), *self._far.leads.values(), *left]
        return [lead + now_ms for lead in leads]

    def _times_for(self, ms: int) -> _ReportedTimes:
        is_far = self._wall_ms is not None and ms > self._wall_ms + self.max_clock_error_ms
        return self._far if is_far else self._near


def _lead_ms(ms: int, now: float) -> int:
    """Return by how many ms the time ``ms`` is ahead of the monotonic clock."""
    return ms - int(now * 1000)

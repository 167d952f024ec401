"""What to reread from the journal, when, and when to stop: holes, silent routers, deaf times. Pure.

Nothing here reads or publishes; :mod:`gateway.mender` does. It asks :meth:`Repair.plan` what to
read, offers what :meth:`Repair.wants` to the hub, and tells :meth:`Repair.finished` how it went.

* A **gap** is a run of numbers that were given out and have been missing for half a second
  (:mod:`gateway.gaps`).
* The **tail** of a stream is what its router may have numbered after the last we heard of it. It
  is read when the router was silent for two seconds (it ticks each second), and again until it must
  be dead (:mod:`gateway.routers`): it may have stored what it never routed, or only be cut off from
  us.
* A router's **start** is a reason to look at the time before it, for streams that it may have
  begun before this one and that nobody heard of here. So is the first we hear of an old one.
* A region's **silence** of half a minute or more is swept when it is heard again
  (:mod:`gateway.sweep`), up to six hours of it: for the tails of routers that died meanwhile, for
  those that nobody heard of, and for what is too long for a gap to be searched in one go.
* A **catch-up** is for the time before we began, or in which we were deaf: everything in it that is
  news, of streams never heard of too. Until it is over the gateway isn't ready.

A gap ends in one of three ways. Its numbers were found, or came late. Or they are **void**: a tick
says so, or the router is dead and its journal was read to the end without them. A router
writes before it routes, so what isn't in the journal by then was never routed, nobody has a
receipt for it, and the broker gives it to another router, which numbers it anew. Or they are
**given up** after eight minutes and one last wide read: a bounded time, lest one number hold the
marks for ever.

The decision that one would question: what is dead can't be known. A router counts as dead after
thirty seconds of silence while others of its region are heard; then neither we nor its region is
cut off, and a store that isn't thirty seconds behind has all that it wrote. Where that is wrong
(the router was stopped, and goes on) nothing is lost to those who are connected: what comes
after all is published, since that goes by identity and not by number.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from typing import Final

from gateway.gaps import Closed, Ending, Gap, Gaps, StreamName
from gateway.routers import Life, Routers
from gateway.streams import SKEW_MS, Streams
from gateway.sweep import LATE_MS, Phase, Span, Sweep
from newsfabric.envelope import Envelope, ms_of_id
from newsfabric.store.rules import JOURNAL_MS

# Between two looks while something is missing, and while nothing is.
LOOK_SECONDS: Final = 0.1
CALM_SECONDS: Final = 1.0
# Times that are to be looked at again; beyond, the oldest is forgotten.
_LOOKS: Final = 64
# Regions whose silence is noticed.
_ORIGINS: Final = 64
# So long what a stranger routed before we heard it may be found, in seconds: looked for twice.
_STRANGE_SECONDS: Final = 2 * LATE_MS / 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RepairLimits:
    """When something is a hole, overdue, dead, or given up; seconds throughout.

    A router's tail is read after ``tail_seconds`` without a sign of it. We are deaf after
    ``silent_seconds`` without one of our own region, which costs a longer read.

    ``margins`` are added to both ends of what is searched for a gap, one for each try. A stream has
    ``gaps`` at most; beyond, the two oldest are searched as one. ``start_seconds`` of the journal
    are read by a gateway that begins with nothing. Of a region that was silent ``reach_seconds`` at
    most are swept.
    """

    hole_seconds: float = 0.5
    tail_seconds: float = 2.0
    silent_seconds: float = 3.0
    dead_seconds: float = 30.0
    patience_seconds: float = 480.0
    start_seconds: float = 600.0
    reach_seconds: float = 21_600.0
    margins: tuple[float, ...] = (1.0, 5.0, 25.0, 60.0)
    gaps: int = 64


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Everything routed in ``span`` is to be looked at once, when it is ``due``."""

    span: Span
    due: float

    def after(self, ms: int) -> _Look | None:
        """What of it is left when it was looked at until ``ms``."""
        if ms <= self.span.from_ms:
            return self
        return _Look(Span(ms, self.span.to_ms), self.due) if ms < self.span.to_ms else None


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Read ``spans`` of the journal, one after the other. The rest is for :meth:`finished`."""

    spans: tuple[Span, ...]
    began: float
    gaps: tuple[Gap, ...]
    # Those of ``gaps`` that are void, and those that are given up, if they aren't found.
    void: frozenset[Gap]
    last_try: frozenset[Gap]
    # Stream → up to which time its tail is read.
    tails: tuple[tuple[StreamName, int], ...]
    # Those whose routers are dead.
    ended: frozenset[StreamName]
    looks: tuple[_Look, ...]
    # Since when everything is to be looked at, and until when that is done with this plan.
    catch_up: Span | None
    # Of this, the next part is to be read after the spans.
    sweep: Sweep | None


class Repair:
    """What one gateway lacks. ``now`` is monotonic, in seconds; ``wall_ms`` our clock's time.

    Call :meth:`look` after :meth:`rest` at the latest, and at once when a stream gets a hole;
    :meth:`plan` whenever nothing is being read.
    """

    def __init__(
        self,
        streams: Streams,
        limits: RepairLimits | None = None,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self.limits = limits or RepairLimits()
        self._streams = streams
        self._rng = rng
        self._gaps = Gaps(streams, self.limits, self._sweep_around)
        self._routers = Routers(streams, self.limits)
        # The same, at hand for each delivery.
        self._lives = self._routers.lives
        self._looks: list[_Look] = []
        # When something of a region was heard, and what it routed while nothing was.
        self._origins: dict[str, float] = {}
        self._sweeps: dict[str, Sweep] = {}
        self._took_over = False
        # Until then the past of some stranger is looked for.
        self._strange_until = 0.0
        # What streams never heard of have routed since then (our clock) is news; None: not begun.
        self._since_ms: int | None = None
        # Since when everything is to be looked at before we are ready.
        self._catch_up_ms: int | None = None
        # Until when it was read, by a read that wasn't completed.
        self._caught_ms = 0
        # Since when nothing of our own region came (our clock), and when that was noticed.
        self._deaf_ms: int | None = None
        self._deaf_noticed = 0.0
        self._looked: tuple[float, int] | None = None

    @property
    def ready(self) -> bool:
        """Whether nothing is missing but what single gaps are: see a catch-up, above."""
        return self._since_ms is not None and self._catch_up_ms is None and self._deaf_ms is None

    def tells_all(self, now: float) -> bool:
        """Whether the streams' marks say all that is missing.

        They don't while the past of a stranger is looked for: it counts as seen, so whoever goes
        on from them wouldn't look for it any more.
        """
        return self.ready and now >= self._strange_until

    @property
    def open_gaps(self) -> int:
        """How many gaps are open now."""
        return len(self._gaps)

    def rest(self, now: float) -> float:
        """How many seconds :meth:`look` and :meth:`plan` have nothing to do, if no hole opens.

        A tenth of a second while anything is missing. Else until the tail of a router that is heard
        no more would be due, but a second at most: that is how a stopped process is noticed.
        """
        deaf = self._deaf_ms is not None or self._catch_up_ms is not None
        if deaf or self._gaps or any(self._streams.holed()):
            return LOOK_SECONDS
        tail, patience = self.limits.tail_seconds, self.limits.patience_seconds
        due = [look.due for look in self._looks]
        due += [sweep.due for sweep in self._sweeps.values()]
        for life in self._lives.values():
            if not life.over and now - life.heard <= patience:
                due.append(max(life.heard + tail, life.next_try))
        return min(CALM_SECONDS, max(LOOK_SECONDS, min(due, default=now + CALM_SECONDS) - now))

    def begin(self, wall_ms: int) -> None:
        """We start with nothing: what was routed lately is to be looked at."""
        self._since_ms = wall_ms - int(self.limits.start_seconds * 1000)
        self._catch_up_since(self._since_ms, wall_ms)

    def go_on(self, at_ms: int, wall_ms: int) -> None:
        """We take over from a gateway that had followed the streams until ``at_ms``."""
        self._took_over = True
        self._since_ms = max(at_ms, wall_ms - JOURNAL_MS) - LATE_MS
        self._catch_up_since(self._since_ms, wall_ms)

    def heard(self, origin: str, router: str, epoch: int, now: float) -> None:
        """The feed has brought something of this stream."""
        self._note_silence(origin, router, now)
        life = self._lives.get((router, epoch))
        if life is None:
            life = self._lives[router, epoch] = Life(origin, now)
            self._note_start(router, epoch, life)
        else:
            life.origin, life.heard, life.over = origin, now, False

    def look(self, now: float, wall_ms: int, fed_at: float | None) -> list[Closed]:
        """Notice what is missing and what isn't any more; returns the gaps that were closed.

        ``fed_at`` is when something of our own region came, None if nothing ever did.
        """
        self._note_deafness(now, wall_ms, fed_at)
        return self._gaps.look(now, wall_ms)

    def plan(self, now: float, wall_ms: int) -> Plan | None:
        """What to read now; None if nothing is due."""
        due = self._gaps.due(now)
        tails = self._routers.due_tails(now, wall_ms)
        looks = [look for look in self._looks if look.due <= now]
        sweep = next((one for one in self._sweeps.values() if one.due <= now), None)
        if not (due or tails or looks or sweep) and self._catch_up_ms is None:
            return None
        swept = [gap for gap in due if not self._may_be_swept(gap)]
        last_try = {gap for gap in swept if now - gap.opened >= self.limits.patience_seconds}
        void = {gap for gap in swept if self._routers.dead(gap.stream, now)}
        spans = [
            span for gap in due for span in self._gaps.spans(gap, widest=gap in last_try | void)
        ]
        spans += [span for _, span in tails]
        spans += [look.span for look in looks]
        catch_up = None
        if self._catch_up_ms is not None:
            catch_up = Span(self._catch_up_ms, wall_ms + SKEW_MS)
            spans.append(Span(max(self._catch_up_ms, self._caught_ms), catch_up.to_ms))
        return Plan(
            spans=merged(spans),
            began=now,
            gaps=tuple(due),
            void=frozenset(void),
            last_try=frozenset(last_try),
            tails=tuple((name, span.to_ms) for name, span in tails),
            ended=frozenset(name for name, _ in tails if self._routers.dead(name, now)),
            looks=tuple(looks),
            catch_up=catch_up,
            sweep=sweep,
        )

    def wants(self, envelope: Envelope, now: float, *, sweep: Sweep | None = None) -> bool:
        """Whether what a planned read has found, or ``sweep``, is to be offered to the hub.

        What may still be on its way to us is not: it would be early, and its copy for nothing. And
        what is to be swept isn't by any other read, which wouldn't look for its copies.
        """
        if sweep is not None and envelope.identity not in sweep.missing:
            return False
        if sweep is None and self._is_for_a_sweep(envelope):
            return False
        wanted = self._lacks(envelope, now)
        name = (envelope.router, envelope.epoch)
        if wanted or self._streams.find(name) is not None:
            # What is swept is no sign of life: the next number is wanted too.
            heard = now if sweep is None else now - self.limits.tail_seconds
            self._lives.setdefault(name, Life(envelope.origin, heard))
        return wanted

    def note(self, sweep: Sweep, rows: Iterable[Envelope], now: float) -> None:
        """``rows`` of what ``sweep`` looks at before it publishes anything."""
        if sweep.phase is Phase.MISSING:
            sweep.missing.update(one.identity for one in rows if self._lacks(one, now))
        else:
            lost = (one for one in rows if one.identity in sweep.missing)
            sweep.copies.update(one.identity for one in lost if self._had(one))

    def _is_for_a_sweep(self, envelope: Envelope) -> bool:
        sweep = self._sweeps.get(envelope.origin)
        routed_ms = ms_of_id(envelope.id)
        if sweep is None or not sweep.span.from_ms <= routed_ms < sweep.span.to_ms:
            return False
        # Readiness waits for a catch-up.
        return self._catch_up_ms is None or routed_ms < self._catch_up_ms

    def _had(self, envelope: Envelope) -> bool:
        stream = self._streams.find((envelope.router, envelope.epoch))
        return stream is not None and stream.had(envelope.seq)

    def _lacks(self, envelope: Envelope, now: float) -> bool:
        name = (envelope.router, envelope.epoch)
        stream = self._streams.find(name)
        life = self._lives.get(name)
        if stream is None:
            # Too many streams: one that was known, and its holes were given up with it.
            known = life is not None or name in self._routers.forgotten
            since_ms = self._since_ms
            return (
                not known and since_ms is not None and ms_of_id(envelope.id) >= since_ms - SKEW_MS
            )
        if stream.seen(envelope.seq):
            # Of a stranger we know nothing before the first that we heard.
            stranger = life is not None and now < life.stranger_until
            return stranger and envelope.seq <= stream.start
        overdue = self._gaps.overdue(name, envelope.seq)
        return overdue or self._catch_up_ms is not None or self._routers.silent(name, now)

    def finished(
        self, plan: Plan, now: float, *, complete: bool, reached_ms: int = 0
    ) -> list[Closed]:
        """The spans of ``plan`` were read; returns the gaps that nobody will fill.

        If not ``complete``, then only until ``reached_ms``.
        """
        if plan.sweep is not None and plan.sweep.done:
            self._sweeps = {o: one for o, one in self._sweeps.items() if one is not plan.sweep}
        if not complete:
            if plan.catch_up is not None and plan.catch_up.from_ms == self._catch_up_ms:
                self._caught_ms = max(self._caught_ms, reached_ms)
            # Spans are read in their order, so that of each look only what comes later is left.
            # Or a read that always fails somewhere would begin anew with them, and never end.
            self._looks = [
                left
                for look in self._looks
                if (left := look.after(reached_ms) if look in plan.looks else look)
            ]
            return []
        self._looks = [look for look in self._looks if look not in plan.looks]
        if plan.catch_up is not None and plan.catch_up.from_ms == self._catch_up_ms:
            self._catch_up_ms = None
            self._look_later(_Look(plan.catch_up, now + LATE_MS / 1000))
        for name, to_ms in plan.tails:
            life = self._lives.get(name)
            if life is None:
                continue
            life.read_ms = max(life.read_ms, to_ms - int(self.limits.dead_seconds * 1000))
            life.over = name in plan.ended and life.heard < plan.began
            life.next_try = now + life.backoff.failed(now, self._rng)
        closed: list[Closed] = []
        at_ms = self._looked[1] if self._looked else None
        for gap in plan.gaps:
            gap.tries += 1
            gap.next_try = now + gap.backoff.failed(now, self._rng)
            if gap in plan.void and self._lives[gap.stream].heard < plan.began:
                closed += self._gaps.abandon(gap, Ending.VOID, now, at_ms)
            elif gap in plan.last_try:
                closed += self._gaps.abandon(gap, Ending.GIVEN_UP, now, at_ms)
        return closed

    # Silent regions.

    def _note_silence(self, origin: str, router: str, now: float) -> None:
        """``origin`` is heard: sweep what it routed while it wasn't, if that was for long."""
        heard = self._origins.get(origin)
        if heard is None and len(self._origins) == _ORIGINS:
            return
        self._origins[origin] = now
        if self._looked is None:
            return
        wall_ms = self._looked[1] + int((now - self._looked[0]) * 1000)
        if heard is not None:
            silent_ms = int((now - heard) * 1000)
        elif self._took_over:
            # The gateway before us knew how long: its routers' last signs tell.
            known = (
                self._streams.find(name) for name in self._streams.names() if name[0] == router
            )
            silent_ms = wall_ms - max((one.routed_ms for one in known if one), default=wall_ms)
        else:
            return
        if silent_ms >= self.limits.dead_seconds * 1000:
            self._sweep(origin, Span(wall_ms - silent_ms - LATE_MS, wall_ms + SKEW_MS), now)

    def _may_be_swept(self, gap: Gap) -> bool:
        """Whether a sweep may find it yet: until then nothing is concluded about it."""
        life = self._lives.get(gap.stream)
        its = self._sweeps.get(life.origin) if life and life.origin else None
        sweeps = self._sweeps.values() if not (life and life.origin) else (its,)
        return any(one is not None and one.overlaps(gap.routed) for one in sweeps)

    def _sweep_around(self, name: StreamName, span: Span, now: float) -> None:
        life = self._lives.get(name)
        self._sweep(life.origin if life else "", span, now)

    def _sweep(self, origin: str, span: Span, now: float) -> None:
        reach_ms = int(self.limits.reach_seconds * 1000)
        known = self._sweeps.get(origin)
        if known is not None:
            if known.holds(span):
                return
            both = (*span, *known.span)
            span = Span(min(both), max(both))
        span = Span(max(0, span.from_ms, span.to_ms - reach_ms), span.to_ms)
        self._sweeps[origin] = Sweep(span, now)

    # Deaf times.

    def _catch_up_since(self, from_ms: int, wall_ms: int) -> None:
        from_ms = max(from_ms, wall_ms - JOURNAL_MS)
        if self._catch_up_ms is not None:
            # One that isn't over: this one does for both, and is another than is being read.
            from_ms = min(from_ms, self._catch_up_ms - 1)
        self._catch_up_ms, self._caught_ms = from_ms, 0

    def _note_deafness(self, now: float, wall_ms: int, fed_at: float | None) -> None:
        silent = self.limits.silent_seconds
        if self._looked is not None:
            looked, looked_ms = self._looked
            # The process was stopped, or with it the whole machine: then only the wall clock ran.
            if max(now - looked, (wall_ms - looked_ms) / 1000) > silent:
                self._became_deaf(looked_ms, now)
        if fed_at is not None:
            since = now - fed_at
            if since > silent:
                self._became_deaf(wall_ms - int(since * 1000), now)
            if self._deaf_ms is not None and fed_at >= self._deaf_noticed:
                self._catch_up_since(self._deaf_ms - LATE_MS, wall_ms)
                self._deaf_ms = None
        self._looked = (now, wall_ms)

    def _became_deaf(self, since_ms: int, now: float) -> None:
        if self._deaf_ms is None:
            self._deaf_ms = since_ms
        self._deaf_noticed = now

    # Silent routers.

    def _note_start(self, router: str, epoch: int, life: Life) -> None:
        if self._since_ms is None or self._looked is None or self._streams.find((router, epoch)):
            return
        if not self._streams.is_young(epoch):
            # It was cut off from us, and its store with it; or it had nothing to say. What it
            # routed before we heard it is no gap: only here it is looked for.
            self._strange_until = life.stranger_until = life.heard + _STRANGE_SECONDS
            now_ms = self._looked[1]
            span = Span(now_ms - JOURNAL_MS, now_ms + SKEW_MS)
        else:
            before = [name for name in self._lives if name[0] == router and name[1] < epoch]
            known = [stream.routed_ms for name in before if (stream := self._streams.find(name))]
            from_ms = max(self._since_ms, epoch - JOURNAL_MS, *known)
            span = Span(min(from_ms, epoch) - SKEW_MS, epoch + SKEW_MS)
        # Again when a store that is behind must have it.
        for seconds in (1.0, LATE_MS / 1000):
            self._look_later(_Look(span, life.heard + seconds))

    def _look_later(self, look: _Look) -> None:
        self._looks = [*self._looks, look][-_LOOKS:]


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """``spans`` in ascending order, with those that touch or overlap made one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.from_ms <= found[-1].to_ms:
            found[-1] = Span(found[-1].from_ms, max(found[-1].to_ms, span.to_ms))
        else:
            found.append(span)
    return tuple(found)

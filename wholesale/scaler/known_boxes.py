"""A scaler's knowledge of its region's boxes, from load reports and a driver's list. Pure.

A report is only one box's claim. The capacity of a box is the median of the boxes' claims, within a
factor of two of the plan's value. The claim of a single box is bounded: its readers count for at
most two such capacities, and its arrivals for three until a new box is ready. So a false report
costs a few boxes, not a fleet.

**Silence is not emptiness.** A box that falls silent is remembered with its last number of readers.
Its readers return on other boxes, so the boxes wanted for them now are bounded by the highest
recent number of readers. The number of boxes that would be enough is computed as if they all were
still there.

Times are seconds of one monotonic clock. A box's own clock only tells which of two reports is
newer, and after a silence not even that.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from newsfabric.messages.control import BoxState, LoadReport
from wholesale.scaler.drivers import MOST_BOXES, Instance
from wholesale.scaler.plan import ScalingPlan
from wholesale.scaler.requirement import Demand

# A report is due each second.
SILENT_AFTER: Final = 10.0
# An agent that restarts reports within this; until then its box counts as before.
DOUBT_AFTER: Final = 60.0
# Readers of a box that is gone return on other boxes within this.
REFUGE: Final = 120.0
# A silent box of which no driver knows is remembered for so long.
FORGET: Final = 3600.0
# Growth is measured over SLOPE seconds, lasting arrivals over LASTING.
SLOPE: Final = 20.0
LASTING: Final = 120.0
_SHORTEST_SLOPE: Final = 5.0
# Growth by less than this share of all readers within SLOPE is noise.
NOISE: Final = 0.02
PEAK: Final = 600.0
# If two checks are further apart, this process or its machine was stopped.
PAUSED: Final = 30.0
# One box's claim counts for at most so many boxes.
_MOST_CARRIED: Final = 2.0
_MOST_COMING: Final = 3.0
# Boxes' claims of their capacity count within this factor of the plan's value.
_CLAIM_FACTOR: Final = 2.0

Kind = Literal["ready", "booting", "unready", "leaving", "silent", "unknown", "failed"]


@dataclasses.dataclass(slots=True)
class _Reported:
    """A box by its reports; ``readers`` is the last number from its gateway."""

    state: BoxState
    readers: int
    capacity: int
    connects: float
    sent_ms: int
    first: float
    seen: float
    # Since when it is ready, or isn't.
    since: float
    ready_once: bool
    # Since when it drains without readers, by its own report.
    empty_since: float | None
    # Whether a driver ever listed it.
    listed: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownBox:
    """A box as a scaler sees it.

    ``unready``: it was ready once and reports that it isn't; ``silent``: no reports for a while;
    ``unknown``: on the driver's list, without any report since this scaler listens; ``failed``: it
    never became ready, and has no known readers. ``silent_for`` is infinite for a box that never
    reported. ``listed``: it is on the driver's list.
    """

    name: str
    kind: Kind
    readers: float
    capacity: int
    silent_for: float | None
    empty_for: float | None
    listed: bool
    zone: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoxesView:
    """All boxes at one time. ``listed`` is the length of the driver's list, None if it has none.

    ``now_needed``: the demand that may request more boxes; ``kept_for``: the demand that keeps
    boxes.
    """

    boxes: tuple[KnownBox, ...]
    now_needed: Demand
    kept_for: Demand
    listed: int | None
    listening_for: float

    def of(self, *kinds: Kind) -> list[KnownBox]:
        """Return the boxes of these kinds."""
        return [box for box in self.boxes if box.kind in kinds]


class KnownBoxes:
    """Boxes of ``region``."""

    def __init__(self, region: str, plan: ScalingPlan) -> None:
        self._region = region
        self._plan = plan
        self._reported: dict[str, _Reported] = {}
        self._born: dict[str, tuple[float, str]] | None = None
        # Boxes that existed when this scaler began to listen; their ages are by another clock.
        self._preexisting: set[str] = set()
        self._lists_preexisting = True
        self._listening_since: float | None = None
        self._looked = -math.inf
        self._per_box = plan.per_box
        self._history: collections.deque[_Moment] = collections.deque()
        self._peaks = Highest(PEAK)

    def note_report(self, report: LoadReport, *, now: float) -> bool:
        """Note ``report``; False if of another region, older than the last, or one too many."""
        known = self._reported.get(report.box)
        if report.region != self._region:
            return False
        if known is None:
            if len(self._reported) >= MOST_BOXES and not self._forget_one(now):
                return False
            known = self._reported[report.box] = _Reported(
                report.state, 0, 0, 0.0, 0, now, now, now, False, None
            )
        elif report.sent_ms < known.sent_ms and now - known.seen <= SILENT_AFTER:
            return False
        _note(known, report, now)
        return True

    def listed(self, instances: Sequence[Instance] | None, *, now: float) -> None:
        """Note the driver's newest list; None if it has none."""
        if instances is None:
            self._born = None
            self._lists_preexisting = True
            return
        self._born = {
            each.name: (now - each.age_seconds, each.zone) for each in instances[:MOST_BOXES]
        }
        if self._lists_preexisting:
            self._preexisting.update(self._born)
            self._lists_preexisting = False
        self._preexisting &= self._born.keys()
        for name in self._born.keys() & self._reported.keys():
            self._reported[name].listed = True

    def disconnected(self) -> None:
        """Note that no reports can arrive now: their absence proves nothing."""
        self._listening_since = None

    def view_at(self, *, now: float) -> BoxesView:
        """Return the boxes as known now.

        After :meth:`disconnected` or a pause, listening begins anew.
        """
        if self._listening_since is None or now - self._looked > PAUSED:
            self._listening_since = now
            self._history.clear()
            self._peaks.clear()
            self._preexisting.update(self._born or ())
            for known in self._reported.values():
                # Their reports meanwhile are unknown: an empty box may have readers again.
                known.seen = max(known.seen, now - SILENT_AFTER)
                if known.empty_since is not None:
                    known.empty_since = now
        self._looked = now
        self._forget_gone(now)
        claimed = self._boxes(now)
        self._per_box = self._carried_by_one(claimed)
        boxes = tuple(map(self._bounded_claim, claimed))
        return BoxesView(
            boxes=boxes,
            now_needed=self._needed(boxes, now),
            kept_for=self._kept(boxes),
            listed=None if self._born is None else len(self._born),
            listening_for=now - self._listening_since,
        )

    # --- boxes ----------------------------------------------------------------------------

    def _boxes(self, now: float) -> list[KnownBox]:
        born = self._born or {}
        names = dict.fromkeys([*self._reported, *born])
        return [self._box(name, now, born) for name in sorted(names)]

    def _box(self, name: str, now: float, born: Mapping[str, tuple[float, str]]) -> KnownBox:
        known = self._reported.get(name)
        at, zone = born.get(name, (None, ""))
        silent = math.inf if known is None else max(0.0, now - known.seen)
        empty = None if known is None or known.empty_since is None else now - known.empty_since
        kind = self._unheard(name, at, now) if known is None else self._kind(name, known, at, now)
        return KnownBox(
            name=name,
            kind=kind,
            readers=0 if known is None else known.readers,
            capacity=0 if known is None else known.capacity,
            silent_for=silent if silent > SILENT_AFTER else None,
            empty_for=empty,
            listed=name in born,
            zone=zone,
        )

    def _kind(self, name: str, known: _Reported, born: float | None, now: float) -> Kind:
        if known.state == "draining":
            return "leaving"
        silent = now - known.seen > SILENT_AFTER
        if known.ready_once:
            if silent:
                return "silent"
            if known.state == "ready":
                return "ready"
            by_its_word = known.readers == 0 and known.capacity > 0
            hopeless = by_its_word and now - known.since > self._plan.overdue
            return "failed" if hopeless else "unready"
        # It was never ready while this scaler listened.
        at = known.first if born is None else born
        if now - at <= self._plan.overdue:
            return "booting"
        by_its_word = not silent and known.readers == 0 and known.capacity > 0
        if by_its_word or self._all_reported(name, at):
            return "failed" if known.readers == 0 else "unready"
        return "silent" if silent else "unready"

    def _unheard(self, name: str, born: float | None, now: float) -> Kind:
        assert born is not None
        if now - born <= self._plan.overdue:
            return "booting"
        return "failed" if self._all_reported(name, born) else "unknown"

    def _all_reported(self, name: str, born: float) -> bool:
        """Return whether this scaler has listened ever since ``born``: then silence is a fact."""
        if self._listening_since is None or name in self._preexisting:
            return False
        return born >= self._listening_since

    def _bounded_claim(self, box: KnownBox) -> KnownBox:
        most = int(self._per_box * _MOST_CARRIED)
        return dataclasses.replace(
            box, readers=min(box.readers, most), capacity=min(box.capacity, most)
        )

    def _carried_by_one(self, boxes: Iterable[KnownBox]) -> int:
        claimed = [box.capacity for box in boxes if box.kind == "ready" and box.capacity > 0]
        if not claimed:
            return self._per_box
        planned = self._plan.per_box
        # A single box is its own median, and may be wrong.
        return int(
            min(
                max(statistics.median_low(claimed), planned / _CLAIM_FACTOR, 1),
                planned * _CLAIM_FACTOR,
            )
        )

    # --- demand ---------------------------------------------------------------------------

    def _needed(self, boxes: Sequence[KnownBox], now: float) -> Demand:
        here = sum(box.readers for box in boxes if box.silent_for is None)
        lost = sum(box.readers for box in boxes if box.silent_for is not None)
        self._peaks.add(here, now=now)
        missing = min(lost, max(0.0, self._peaks.highest(now=now) - here))
        connects = self._connects(boxes)
        self._history.append(_Moment(now, here + missing, connects))
        while self._history[0].at < now - LASTING:
            self._history.popleft()
        lasting = statistics.fmean(moment.connects for moment in self._history)
        enough = now - self._history[0].at >= SLOPE
        return Demand(
            readers=here,
            missing=missing,
            growth=self._growth(now),
            # A new box would be ready only after a storm that is shorter than a boot.
            connects=lasting if enough else 0.0,
            per_box=self._per_box,
        )

    def _kept(self, boxes: Sequence[KnownBox]) -> Demand:
        here = sum(box.readers for box in boxes if box.silent_for is None)
        lost = sum(box.readers for box in boxes if box.silent_for is not None)
        # A box that never reported may be full.
        unknown = sum(self._per_box for box in boxes if box.kind == "unknown")
        return Demand(readers=here, missing=lost + unknown, per_box=self._per_box)

    def _connects(self, boxes: Iterable[KnownBox]) -> float:
        most = min(self._plan.connects_per_box, _MOST_COMING * self._per_box / self._plan.lead)
        return sum(
            min(self._reported[box.name].connects, most)
            for box in boxes
            if box.silent_for is None and box.name in self._reported
        )

    def _growth(self, now: float) -> float:
        """Return the growth in readers a second, never above the arrivals.

        A box that returns brings its readers back, but no arrivals.
        """
        then = next(m for m in self._history if m.at >= now - SLOPE)
        last = self._history[-1]
        seconds = now - then.at
        if seconds < _SHORTEST_SLOPE:
            return 0.0
        more = last.readers - then.readers
        if more <= NOISE * last.readers:
            return 0.0
        arrived = [m.connects for m in self._history if m.at >= then.at]
        return min(more / seconds, statistics.fmean(arrived))

    # --- forgetting -----------------------------------------------------------------------

    def _forget_gone(self, now: float) -> None:
        known = self._reported
        for name in [each for each in known if self._is_gone(each, known[each], now)]:
            del self._reported[name]

    def _is_gone(self, name: str, known: _Reported, now: float) -> bool:
        if self._born is not None and name in self._born:
            return False
        # Nobody waits for a report of a box that its driver has ended.
        ended = self._born is not None and known.listed
        return now - known.seen > (REFUGE if ended else FORGET)

    def _forget_one(self, now: float) -> bool:
        """Make room for one more: drop the longest silent one of the boxes without readers."""
        found = [
            (known.seen, name)
            for name, known in self._reported.items()
            if now - known.seen > SILENT_AFTER and known.readers == 0
        ]
        if found:
            del self._reported[min(found)[1]]
        return bool(found)


@dataclasses.dataclass(frozen=True, slots=True)
class _Moment:
    at: float
    readers: float
    connects: float


class Highest:
    """The highest of the numbers of the last ``seconds``, kept in a bounded number of steps."""

    _STEPS: Final = 60

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._steps: collections.deque[tuple[float, float]] = collections.deque()

    def add(self, value: float, *, now: float) -> None:
        """Add ``value``, measured at ``now``."""
        if self._steps and now - self._steps[-1][0] < self._seconds / self._STEPS:
            since, highest = self._steps[-1]
            self._steps[-1] = (since, max(highest, value))
        else:
            self._steps.append((now, value))
        # A step counts until its last value is too old.
        oldest = now - self._seconds * (1 + 1 / self._STEPS)
        while self._steps[0][0] < oldest:
            self._steps.popleft()

    def highest(self, *, now: float) -> float:
        """Return the highest number; 0 if there is none."""
        return max((value for at, value in self._steps if at <= now), default=0.0)

    def clear(self) -> None:
        """Forget all."""
        self._steps.clear()


def _note(known: _Reported, report: LoadReport, now: float) -> None:
    if (report.state == "ready") != (known.state == "ready"):
        known.since = now
    known.state = report.state
    known.seen = now
    known.sent_ms = report.sent_ms
    known.ready_once = known.ready_once or report.state == "ready"
    known.connects = report.connects_per_second
    # An agent reports capacity 0 for a gateway that doesn't reply. Its readers may well be there:
    # the data plane outlives the control plane.
    if report.capacity > 0:
        known.readers = report.connections
        known.capacity = report.capacity
    empty = report.state == "draining" and report.connections == 0 and report.capacity > 0
    if report.state != "draining" or (report.capacity > 0 and report.connections > 0):
        known.empty_since = None
    elif empty and known.empty_since is None:
        known.empty_since = now

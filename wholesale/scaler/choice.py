"""The number of boxes to request, to drain and to end. Pure; its only state are the cool-downs.

The wanted number rises at once and falls slowly. It rises as soon as it must. It falls at most once
in ``plan.patience`` seconds, to the highest number needed in all that time. So after a wave there
is one step down, and a scaler that has just started removes nothing.

A box is removed in three steps, each of which waits for the box's own report. It is ordered to
drain; it reports that it drains and has no readers; then the driver ends it. A box that had readers
and fell silent is never ended. A box that never reported is ended, since a machine may be dead from
the start. But missing reports prove little. So this scaler must receive nearly all other boxes'
reports, and the box is ordered to drain all the same, and given the time for it.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

from wholesale.scaler.known_boxes import DOUBT_AFTER, BoxesView, Highest, KnownBox
from wholesale.scaler.plan import ScalingPlan
from wholesale.scaler.requirement import Demand, Requirement, requirement

# Seconds of listening before any action: all boxes have reported by then.
LISTEN: Final = 10.0
# Fewer boxes must be enough even for so many times the present readers.
MARGIN: Final = 1.05
# A step at most doubles the boxes, or adds so many.
STEP_EVERY: Final = 30.0
STEP: Final = 10
# Seconds between two drains, and the share of boxes that may leave at a time.
DRAIN_EVERY: Final = 30.0
LEAVING_AT_ONCE: Final = 0.1
# An order is repeated until the box obeys; after OBEY seconds the box is left alone.
REPEAT: Final = 5.0
OBEY: Final = 60.0
# A drained box is ended after so many seconds without readers. A box that another party drained may
# be about to return: an upgrade does that.
ENDED_AFTER: Final = 10.0
OTHERS_ENDED_AFTER: Final = 300.0
# So many boxes that never became ready are replaced in an hour; more failures have a common cause.
REPLACE_EVERY: Final = 30.0
REPLACED: Final = 3
REPLACED_SHARE: Final = 0.25
MISSED_SHARE: Final = 0.1
_HOUR: Final = 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The actions of one second, and their reasons.

    ``wanted``: the boxes that shall serve. ``want``: the total to tell the driver, with boxes that
    leave or failed; None if there are enough. ``drain``: boxes to be ordered to drain now; ``end``:
    boxes that the driver may end. ``notes`` are for people. ``refused``: boxes needed above the
    bounds.
    """

    wanted: int
    requirement: Requirement
    supply: int = 0
    want: int | None = None
    drain: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: int = 0

    @property
    def limited(self) -> bool:
        """True if more boxes are needed than are allowed."""
        return self.refused > 0


class BoxChooser:
    """The choices of one scaler."""

    def __init__(self, plan: ScalingPlan) -> None:
        self._plan = plan
        self._level = _Level(plan)
        self._growth = _Steps()
        self._ordered: dict[str, float] = {}
        self._order_sent: dict[str, float] = {}
        self._obeyed: set[str] = set()
        self._disobedient: dict[str, float] = {}
        self._drained_at = -math.inf
        # Silent boxes that are to be ended → since when they are ordered to drain.
        self._dismissed: dict[str, float] = {}
        self._replaced: collections.deque[float] = collections.deque()

    def decide(self, view: BoxesView, *, now: float, driver_well: bool = True) -> Decision:
        """Return the decision at ``now``. ``driver_well``: as :attr:`Acting.well`."""
        plan = self._plan
        self._follow_orders(view, now)
        found = requirement(view.now_needed, plan)
        supply = self._supply(view)
        wanted = self._level.follow(found.boxes, _kept(view, plan), supply, view.listening_for, now)
        decision = Decision(
            wanted=wanted, requirement=found, supply=supply, notes=self._notes(view)
        )
        if view.listening_for < LISTEN:
            return dataclasses.replace(decision, notes=("it has just begun to listen",))
        decision = self._more(decision, view, now)
        if not driver_well or view.listed is None:
            # No orders are sent now, so a later order gives the full time again.
            self._dismissed.clear()
            return decision
        drain = self._fewer(decision, view, now)
        done, replaced = self._done(view, now), self._replace(view, now)
        self._forget_dismissals(view)
        return dataclasses.replace(
            decision,
            drain=(*drain, *self._due_orders(self._dismissed, now, OBEY)),
            end=(*done, *replaced),
        )

    def restart(self, now: float) -> None:
        """Forget the past after a time without reports: earlier numbers prove nothing."""
        self._level.restart(now)
        # A drained box may have been started again.
        self._obeyed.clear()
        self._dismissed.clear()

    # --- more -----------------------------------------------------------------------------

    def _supply(self, view: BoxesView) -> int:
        """Return the number of boxes that serve or soon will, without those that leave.

        Boxes in an unknown state count as lost up to the size of one zone, and as present beyond
        that: so many at once are more likely a failure on the way of the reports.
        """
        leaving = self._ordered.keys()
        serving = [box for box in view.of("ready", "booting") if box.name not in leaving]
        doubtful = view.of("silent", "unready", "unknown")
        brief = [box for box in doubtful if 0 < (box.silent_for or 0) <= DOUBT_AFTER]
        lost = len(doubtful) - len(brief)
        zone = math.ceil((len(serving) + len(doubtful)) / self._plan.zones)
        return len(serving) + len(brief) + max(0, lost - zone)

    def _more(self, decision: Decision, view: BoxesView, now: float) -> Decision:
        plan = self._plan
        there = len(view.boxes) if view.listed is None else view.listed
        short = decision.wanted - decision.supply
        refused = max(0, decision.requirement.unbounded - plan.most)
        if short <= 0:
            return dataclasses.replace(decision, refused=refused)
        asked = min(there + short, plan.most)
        refused = max(refused, there + short - max(asked, there))
        want = self._growth.bounded(there, asked, now)
        return dataclasses.replace(
            decision, want=want if want > there or view.listed is None else None, refused=refused
        )

    # --- fewer ----------------------------------------------------------------------------

    def _fewer(self, decision: Decision, view: BoxesView, now: float) -> tuple[str, ...]:
        ready = [box for box in view.of("ready") if box.name not in self._ordered]
        surplus = decision.supply - decision.wanted
        # A box that its driver has ended is kept for its readers, and doesn't delay others.
        still = [box for box in view.of("leaving") if box.listed or box.silent_for is None]
        leaving = len(still) + len(self._ordered)
        at_once = max(1, int(len(ready) * LEAVING_AT_ONCE)) - leaving
        quiet = now - self._drained_at >= DRAIN_EVERY
        patient = view.listening_for >= self._plan.patience
        if quiet and patient and not view.of("booting"):
            surplus = min(surplus, len(ready) - decision.wanted, at_once)
            for box in self._who_goes(ready, view, surplus):
                self._ordered[box.name] = now
                self._drained_at = now
        return self._due_orders(self._ordered, now, math.inf)

    def _who_goes(self, ready: Sequence[KnownBox], view: BoxesView, count: int) -> list[KnownBox]:
        """Return up to ``count`` of ``ready``: of the fullest zone, with the fewest readers."""
        readers = view.kept_for.readers + view.kept_for.missing
        room = sum(box.capacity for box in ready) * (1.0 - self._plan.headroom)
        crowd = collections.Counter(box.zone for box in ready)
        able: dict[str, list[KnownBox]] = {}
        # The last of each zone is the next to leave.
        for box in sorted(ready, key=lambda box: (box.readers, box.name), reverse=True):
            if box.listed and box.name not in self._disobedient:
                able.setdefault(box.zone, []).append(box)
        going: list[KnownBox] = []
        while len(going) < count and able:
            zone = min(
                able, key=lambda zone: (-crowd[zone], able[zone][-1].readers, able[zone][-1].name)
            )
            goes = able[zone].pop()
            room -= goes.capacity * (1.0 - self._plan.headroom)
            if readers > room:
                break
            going.append(goes)
            crowd[zone] -= 1
            if not able[zone]:
                del able[zone]
        return going

    def _due_orders(self, orders: Mapping[str, float], now: float, most: float) -> tuple[str, ...]:
        """Return the boxes to tell now, of ``orders`` that are at most ``most`` seconds old."""
        due = [
            name
            for name, since in orders.items()
            if now - since <= most and now - self._order_sent.get(name, -math.inf) >= REPEAT
        ]
        self._order_sent.update(dict.fromkeys(due, now))
        return tuple(due)

    def _follow_orders(self, view: BoxesView, now: float) -> None:
        kinds = {box.name: box.kind for box in view.boxes}
        for name, since in list(self._ordered.items()):
            if kinds.get(name) not in ("ready", "unready"):
                self._forget_order(name)
                # A box that falls silent hasn't obeyed.
                if kinds.get(name) == "leaving":
                    self._obeyed.add(name)
            elif now - since > OBEY:
                self._forget_order(name)
                self._disobedient[name] = now
        # A box that returned may leave another time on another party's order.
        self._obeyed = {name for name in self._obeyed if kinds.get(name) == "leaving"}
        for name, since in list(self._disobedient.items()):
            if name not in kinds or now - since > self._plan.patience:
                del self._disobedient[name]

    def _forget_order(self, name: str) -> None:
        del self._ordered[name]
        self._order_sent.pop(name, None)

    # --- gone -----------------------------------------------------------------------------

    def _done(self, view: BoxesView, now: float) -> tuple[str, ...]:
        receives = self._receives_nearly_all(view)
        return tuple(box.name for box in _empty(view) if self._is_done(box, now, receives=receives))

    def _is_done(self, box: KnownBox, now: float, *, receives: bool) -> bool:
        assert box.empty_for is not None
        if box.name in self._obeyed:
            return box.empty_for >= ENDED_AFTER
        if box.empty_for < OTHERS_ENDED_AFTER:
            return False
        # The box may be back, and its reports lost: an upgrade does that.
        return box.silent_for is None or (receives and self._was_dismissed(box, now))

    def _replace(self, view: BoxesView, now: float) -> tuple[str, ...]:
        while self._replaced and now - self._replaced[0] > _HOUR:
            self._replaced.popleft()
        failed = [box for box in view.of("failed") if box.listed]
        soon = self._replaced and now - self._replaced[-1] < REPLACE_EVERY
        if soon or len(self._replaced) >= self._replaceable(view):
            return ()
        receives = self._receives_nearly_all(view)
        for box in failed:
            if box.silent_for is not None:
                if not receives or not self._was_dismissed(box, now):
                    continue
                del self._dismissed[box.name]
            self._replaced.append(now)
            return (box.name,)
        return ()

    def _was_dismissed(self, box: KnownBox, now: float) -> bool:
        """Return whether a silent box has had the time to send away its readers, if any."""
        since = self._dismissed.setdefault(box.name, now)
        return now - since >= OBEY + self._plan.drain

    def _forget_dismissals(self, view: BoxesView) -> None:
        names = {box.name for box in (*view.of("failed"), *_empty(view)) if box.listed}
        for name in [name for name in self._dismissed if name not in names]:
            del self._dismissed[name]
            self._order_sent.pop(name, None)

    def _receives_nearly_all(self, view: BoxesView) -> bool:
        lost = len(view.of("silent", "unknown"))
        return lost <= MISSED_SHARE * len(view.boxes)

    def _replaceable(self, view: BoxesView) -> int:
        return max(REPLACED, int((view.listed or 0) * REPLACED_SHARE))

    def _notes(self, view: BoxesView) -> tuple[str, ...]:
        notes = []
        for kind, text in (
            ("silent", "silent: check them; no silent box is ended"),
            ("unknown", "no report since this scaler listens"),
            ("failed", "never became ready"),
        ):
            if names := [box.name for box in view.boxes if box.kind == kind]:
                notes.append(f"{_few(names)}: {text}")
        stuck = [b.name for b in view.of("leaving") if b.silent_for and b.empty_for is None]
        if stuck:
            notes.append(f"{_few(stuck)}: fell silent in its drain, with readers; not ended")
        if self._disobedient:
            notes.append(f"{_few(list(self._disobedient))}: was ordered to drain and doesn't")
        if len(self._replaced) >= self._replaceable(view):
            notes.append("too many boxes never became ready: no more are replaced within an hour")
        return tuple(notes)


class _Level:
    """The wanted number: up at once, down in one step after long enough."""

    def __init__(self, plan: ScalingPlan) -> None:
        self._plan = plan
        self._wanted: int | None = None
        self._changed = -math.inf
        self._highest = Highest(plan.patience)

    def restart(self, now: float) -> None:
        self._highest.clear()
        self._changed = now

    def follow(self, needed: int, kept: int, supply: int, listening_for: float, now: float) -> int:
        self._highest.add(max(needed, kept), now=now)
        if self._wanted is None:
            # Boxes that exist at the start stay until fewer are known to be enough.
            self._wanted = min(max(needed, supply), self._plan.most)
            self._changed = now
        if needed > self._wanted:
            self._wanted, self._changed = needed, now
        patience = self._plan.patience
        if listening_for >= patience and now - self._changed >= patience:
            highest = int(self._highest.highest(now=now))
            if highest < self._wanted:
                self._wanted, self._changed = highest, now
        return self._wanted


class _Steps:
    """A bound on the growth of the number that is sent to the driver."""

    def __init__(self) -> None:
        self._at = -math.inf
        self._base = 0

    def bounded(self, there: int, asked: int, now: float) -> int:
        if now - self._at >= STEP_EVERY:
            self._at, self._base = now, there
        return min(asked, max(2 * self._base, self._base + STEP))


def _kept(view: BoxesView, plan: ScalingPlan) -> int:
    kept: Demand = view.kept_for
    more = dataclasses.replace(kept, readers=kept.readers * MARGIN, missing=kept.missing * MARGIN)
    return requirement(more, plan).boxes


def _empty(view: BoxesView) -> list[KnownBox]:
    """Return boxes of the driver that were drained and reported that they are empty."""
    return [box for box in view.of("leaving") if box.listed and box.empty_for is not None]


def _few(names: Sequence[str]) -> str:
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")

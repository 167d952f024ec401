"""The processes of a region, by their last reports and the times of these. Pure.

A process that is silent for :data:`GONE_AFTER` is gone. It is forgotten ten minutes after its last
report, or half a minute if that reported a drain, since nobody has to look for it. Times are of
this frontdesk's monotonic clock. A process's own clock only tells an old report from a new one; if
two reports in a row seem old, that clock was set back, and the second one counts.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Final

from newsfabric.messages.control import LoadReport
from newsfabric.messages.reports import KINDS, Report
from newsfabric.settings import is_name
from newsfabric.topology.roles import user_name

GONE_AFTER: Final = 2.5
FORGOTTEN_AFTER: Final = 600.0
LEFT_FORGOTTEN_AFTER: Final = 30.0
# Bounds, because reports come from outside. Those of boxes are Boxes' own.
MAX_BOXES: Final = 1000
MAX_SERVICES: Final = 200
# All services of a kind have one login, with which one of them could invent names.
MAX_OF_KIND: Final = MAX_SERVICES // (len(KINDS) - 1)
# Reports in a row with an older time, after which a clock counts as set back.
_OLD_ONES: Final = 2

#: The states that a process may report.
STATES: Final = ("starting", "ready", "draining")
Key = tuple[str, str]
BOX: Final = "box"


@dataclasses.dataclass(slots=True)
class Known:
    """A process. ``report`` or ``load`` may be missing: older releases send only one of them."""

    kind: str
    name: str
    heard: float
    report: Report | None = None
    load: LoadReport | None = None
    gone: bool = False
    #: The state at the last check for events, and the start of the process at that time.
    state: str | None = None
    started_ms: int | None = None
    old_ones: int = 0

    def reported_state(self) -> str:
        """Return the state that it reports: ``starting``, ``ready`` or ``draining``."""
        if self.report is not None:
            return self.report.state
        return self.load.state if self.load is not None else "starting"

    @property
    def left(self) -> bool:
        """True if the process is gone after an order to drain."""
        return self.gone and self.reported_state() == "draining"


def login_of(report: Report) -> str:
    """Return the user that the sender of ``report`` must have logged in as."""
    if report.kind == BOX:
        return user_name("box", report.name)
    return f"{report.kind}.{report.region}"


class Presence:
    """The processes of ``region``."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._known: dict[Key, Known] = {}
        self._counts: collections.Counter[str] = collections.Counter()

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known.values())

    def report(self, report: Report, now: float) -> bool:
        """Note ``report``; False if it is of another region, old, or of one process too many."""
        if report.region != self._region or not is_name(report.name) or report.state not in STATES:
            return False
        known = self._place((report.kind, report.name), now)
        if known is None:
            return False
        last = known.report
        if last is not None and report.sent_ms < last.sent_ms:
            known.old_ones += 1
            if known.old_ones < _OLD_ONES:
                return False
        known.old_ones = 0
        known.report, known.heard = report, now
        return True

    def load(self, load: LoadReport, now: float) -> bool:
        """Note a box's load report, which the frontdesk has accepted already."""
        if load.region != self._region or not is_name(load.box):
            return False
        known = self._place((BOX, load.box), now)
        if known is None:
            return False
        known.load, known.heard = load, now
        return True

    def forget(self, now: float) -> None:
        """Forget processes that have been gone for long."""
        for key, known in list(self._known.items()):
            after = LEFT_FORGOTTEN_AFTER if known.left else FORGOTTEN_AFTER
            if known.gone and now - known.heard > after:
                self._drop(key)

    def _place(self, key: Key, now: float) -> Known | None:
        known = self._known.get(key)
        if known is not None:
            return known
        kind = key[0]
        most = MAX_BOXES if kind == BOX else MAX_OF_KIND
        if self._counts[kind] >= most:
            self._make_room(kind)
        if self._counts[kind] >= most:
            return None
        self._counts[kind] += 1
        self._known[key] = Known(*key, heard=now)
        return self._known[key]

    def _make_room(self, kind: str) -> None:
        """Drop the process of ``kind`` that has been gone for the longest time, if any."""
        gone = [
            (known.heard, key)
            for key, known in self._known.items()
            if known.gone and key[0] == kind
        ]
        if gone:
            self._drop(min(gone)[1])

    def _drop(self, key: Key) -> None:
        del self._known[key]
        self._counts[key[0]] -= 1

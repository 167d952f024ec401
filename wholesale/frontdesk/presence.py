"""Who is there: the processes of a region by what they said last, and when that was. Pure.

A process that is silent for :data:`GONE_AFTER` is gone; ten minutes later it is forgotten, or half
a minute later if it had said that it drains: nobody has to look where it is. Times are of this
frontdesk's monotonic clock alone: what a process says of its own clock is used only to tell an old
report from a new one, and not even for that when two of them say otherwise.
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
# All services of a kind have one login, by which one of them could make up names.
MAX_OF_KIND: Final = MAX_SERVICES // (len(KINDS) - 1)
# Reports that look old before it is believed that a clock was set back.
_OLD_ONES: Final = 2

#: What a process may say that it is.
STATES: Final = ("starting", "ready", "draining")
Key = tuple[str, str]
BOX: Final = "box"


@dataclasses.dataclass(slots=True)
class Known:
    """A process. ``report`` or ``load`` may be missing: an older release says only one of them."""

    kind: str
    name: str
    heard: float
    report: Report | None = None
    load: LoadReport | None = None
    gone: bool = False
    #: The state it was in when events were last made of it, and when it had started then.
    state: str | None = None
    started_ms: int | None = None
    old_ones: int = 0

    def says(self) -> str:
        """The state that it claims: ``starting``, ``ready`` or ``draining``."""
        if self.report is not None:
            return self.report.state
        return self.load.state if self.load is not None else "starting"

    @property
    def left(self) -> bool:
        """Whether it is gone because it was told to go."""
        return self.gone and self.says() == "draining"


def login_of(report: Report) -> str:
    """Whom the sender of ``report`` must have logged in as."""
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
        """Note what a box says of its load, which frontdesks have believed already."""
        if load.region != self._region or not is_name(load.box):
            return False
        known = self._place((BOX, load.box), now)
        if known is None:
            return False
        known.load, known.heard = load, now
        return True

    def forget(self, now: float) -> None:
        """Forget those who have been gone for long."""
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
        """One of that kind who is gone, the longest of them, has to go."""
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

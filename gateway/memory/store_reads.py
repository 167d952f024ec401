"""Reads of topics' past, kept for a minute, so that a returning crowd needs one read. Pure.

A topic's memory notifies its reads of further copies of their messages: the store may have got
them later. ``now`` is in seconds, of a monotonic clock.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Final

from gateway.wire.position import Copy
from gateway.wire.publication import Publication

KEPT_SECONDS: Final = 60.0
# A read that didn't reach as far back as was asked isn't repeated within this time.
_SHORT_SECONDS: Final = 5.0
# Limit of copies that a read may lack: a cut's backlog, which arrives at 100 a second, during a
# read and the short time until its use.
_MOST_MISSING: Final = 1_024
_numbers = itertools.count()


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False)
class StoreRead:
    """The messages of a topic that ``region`` had from ``asked_ms`` on, read when ``arrived``
    messages had arrived in the topic's memory.

    It has all ``messages`` from ``reach_ms`` on, except those of ``missing_copies`` (identity and
    copy): the store has them by now. If ``damaged``, something in the store is no message.
    ``number`` is unique among reads.
    """

    region: str
    asked_ms: int
    arrived: int
    messages: dict[int, Publication] = dataclasses.field(default_factory=dict)
    reach_ms: int = 0
    damaged: bool = False
    read_at: float = 0.0
    missing_copies: list[tuple[int, Copy]] = dataclasses.field(default_factory=list)
    number: int = dataclasses.field(default_factory=_numbers.__next__)
    # Copies that arrive during the read; None after it.
    _noted: list[tuple[int, Copy]] | None = dataclasses.field(default_factory=list)
    _misses_too_many: bool = False

    def was_read(
        self, messages: dict[int, Publication], reach_ms: int, now: float, *, damaged: bool
    ) -> None:
        """Take the result of the read."""
        self.messages, self.reach_ms, self.damaged, self.read_at = messages, reach_ms, damaged, now
        noted, self._noted = self._noted or (), None
        for identity, copy in noted:
            self.note_copy(identity, copy, 0)

    def note_copy(self, identity: int, copy: Copy, arrival: int) -> None:
        """Note a further copy of the message that was the ``arrival``-th to arrive in memory; 0 if
        memory doesn't have it, or has it from the store."""
        # Messages that arrived since the read was begun needn't be here: memory has them.
        if arrival > self.arrived or self._misses_too_many:
            return
        if self._noted is not None:
            self._noted.append((identity, copy))
        elif identity in self.messages:
            self.messages[identity].add_copy(copy)
        elif copy.log.region == self.region and copy.routed_ms >= self.reach_ms:
            self.missing_copies.append((identity, copy))
        self._misses_too_many = len(self._noted or self.missing_copies) > _MOST_MISSING

    def is_usable(self, lost: int, now: float) -> bool:
        """Return whether this read, its memory without the first ``lost`` messages, and other
        reads for the ``missing_copies`` messages leave nothing out."""
        is_young = self._noted is None and now < self.read_at + KEPT_SECONDS
        return is_young and lost <= self.arrived and not self._misses_too_many

    def answers(self, from_ms: int, now: float) -> bool:
        """Return whether all from ``from_ms`` on is here, or a new read would find no more."""
        lately = self.asked_ms <= from_ms and now < self.read_at + _SHORT_SECONDS
        return self.reach_ms <= from_ms or lately


def usable_reads(store_reads: Iterable[StoreRead], lost: int, now: float) -> dict[str, StoreRead]:
    """Return by region the reads of a topic that leave nothing out, together with its memory.

    Only a region's newest read counts, also for ``missing_copies`` messages of other reads.
    """
    usable = (one for one in store_reads if one.is_usable(lost, now))
    by_age = sorted(usable, key=lambda one: one.number)
    found = list({one.region: one for one in by_age}.values())
    while incomplete := [
        one
        for one in found
        if {missing for missing, _ in one.missing_copies}.difference(*(o.messages for o in found))
    ]:
        found = [one for one in found if one not in incomplete]
    return {one.region: one for one in found}

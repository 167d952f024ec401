"""Which routers are heard, silent or dead; and the tails of their streams. Pure.

A router ticks each second. The tail of a stream is what it may have numbered after the last we
heard of it, so it is read while the router is silent, less and less often.
What counts as dead, and what follows from it, is said in :mod:`gateway.repair`.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Final

from gateway.gaps import StreamName
from gateway.streams import SKEW_MS, Streams
from gateway.sweep import Span
from newsfabric.backoff import Backoff
from newsfabric.store.rules import JOURNAL_MS

if TYPE_CHECKING:
    from gateway.repair import RepairLimits

# Streams that are known to have been forgotten.
_FORGOTTEN: Final = 4_096


@dataclasses.dataclass(slots=True)
class Life:
    """When a stream was heard on the feed, and how its tail is read while it isn't."""

    origin: str
    heard: float
    # Older than we are, and unheard of until now: what it routed before is news until then.
    stranger_until: float = 0.0
    # The tail was read up to here, by the router's clock.
    read_ms: int = 0
    # It was read to its end, after the router's death.
    over: bool = False
    next_try: float = 0.0
    backoff: Backoff = dataclasses.field(default_factory=lambda: Backoff(base=1.0, cap=15.0))


class Routers:
    """When each stream was heard. ``now`` is monotonic, in seconds."""

    def __init__(self, streams: Streams, limits: RepairLimits) -> None:
        self._streams = streams
        self._limits = limits
        # Who hears a stream writes it here.
        self.lives: dict[StreamName, Life] = {}
        # Those that were heard and are none of our streams any more, oldest first.
        self.forgotten: collections.OrderedDict[StreamName, None] = collections.OrderedDict()

    def silent(self, name: StreamName, now: float) -> bool:
        """Whether nothing of the stream came for so long that its tail is to be read."""
        life = self.lives.get(name)
        return life is None or now - life.heard >= self._limits.tail_seconds

    def dead(self, name: StreamName, now: float) -> bool:
        """Whether its router counts as dead: silent for long, and others of its region aren't."""
        life = self.lives.get(name)
        if life is None or now - life.heard < self._limits.dead_seconds:
            return False
        lives = self.lives
        # One that the gateway before us had heard says where it lived when it starts again.
        theirs = (lives[other].origin for other in lives if other[0] == name[0])
        origin = life.origin or next(filter(None, theirs), "")
        # Another one of its region is heard: neither are we deaf nor is the region cut off.
        return bool(origin) and any(
            other.origin == origin and now - other.heard < self._limits.silent_seconds
            for other in lives.values()
        )

    def due_tails(self, now: float, wall_ms: int) -> list[tuple[StreamName, Span]]:
        """The tails that are to be read now, each with when it was routed."""
        found = []
        for name in self._streams.names():
            life = self.lives.get(name)
            if life is None:
                # Known from the journal alone, or from the gateway before us.
                life = self.lives[name] = Life("", now)
            silent = now - life.heard
            if silent < self._limits.tail_seconds:
                continue
            waiting = not life.over and silent <= self._limits.patience_seconds
            if waiting and life.next_try <= now:
                found.append((name, self._tail(name, life, silent, wall_ms)))
        if len(self.lives) > len(self._streams):
            self._forget()
        return found

    def _tail(self, name: StreamName, life: Life, silent: float, wall_ms: int) -> Span:
        stream = self._streams.find(name)
        assert stream is not None
        to_ms = max(wall_ms, stream.routed_ms + int(silent * 1000)) + SKEW_MS
        from_ms = max(stream.routed_ms, life.read_ms, to_ms - JOURNAL_MS)
        return Span(from_ms - SKEW_MS, to_ms)

    def _forget(self) -> None:
        for name in [name for name in self.lives if self._streams.find(name) is None]:
            del self.lives[name]
            self.forgotten[name] = None
        while len(self.forgotten) > _FORGOTTEN:
            self.forgotten.popitem(last=False)

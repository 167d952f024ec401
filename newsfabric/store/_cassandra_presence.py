"""Which nodes a read is asked of: those of its own region, or of another one when they are away,
silent, or have just come back.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from cassandra.policies import HostStateListener

from newsfabric.store._cassandra_cluster import REQUEST_S

# So long after this region's nodes have come back from being all away others are asked first: what
# those wrote meanwhile comes to them by hints (measured: within ten seconds).
_CATCHING_UP_S: Final = 30.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadWait:
    """How long a read waits for its own region before another one is asked, and for how long the
    next such reads begin there then: each would wait for a node that hangs. In seconds."""

    here: float
    elsewhere: float


LONG_WAIT: Final = ReadWait(here=REQUEST_S, elsewhere=30.0)
# For what is asked again until it is found. What another region lacks yet does no harm there.
SHORT_WAIT: Final = ReadWait(here=1.5, elsewhere=5.0)


class Silence:
    """Which reads had better begin in another region, because this one was silent, and whether the
    others are. Pure."""

    def __init__(self) -> None:
        self._until = {LONG_WAIT: float("-inf"), SHORT_WAIT: float("-inf")}
        self._elsewhere_until = float("-inf")

    def begins_here(self, wait: ReadWait, now: float) -> bool:
        """Whether a read of such ``wait`` begins in this region at ``now``."""
        return now >= self._until[wait]

    def note_silence(self, wait: ReadWait, now: float) -> bool:
        """Such a read has waited in vain; whether that is news. It proves nothing to those
        that wait for longer."""
        news = now > self._until[wait] + wait.elsewhere
        for each in self._until:
            if each.here <= wait.here:
                self._until[each] = now + each.elsewhere
        return news

    def answers_elsewhere(self, now: float) -> bool:
        """Whether no read has lately waited for the other regions in vain."""
        return now >= self._elsewhere_until

    def note_silence_elsewhere(self, now: float) -> None:
        """One has: until further notice reads begin here, whatever is missing here."""
        self._elsewhere_until = now + LONG_WAIT.elsewhere


class Presence(HostStateListener):  # type: ignore[misc]
    """Whether this region's nodes are all away, and when they came back from that. The driver's
    threads tell it, and requests get through a little before they do.

    Which nodes are up the driver is asked each time (``hosts``). What it tells can't be added up: a
    node of the store's URL is told of before the driver knows its region, and not again.
    """

    def __init__(self, centre: str, hosts: Callable[[], Iterable[Any]]) -> None:
        self._centre = centre
        self._hosts = hosts
        self._all_away = False
        self._came_back = float("-inf")
        #: Whether there are nodes of other regions, up or not.
        self.has_others = False

    def is_whole(self, now: float) -> bool:
        """Whether the nodes that are here were here for long enough to have what others wrote."""
        return not self._all_away and now >= self._came_back + _CATCHING_UP_S

    def look(self) -> None:
        """Note it if all nodes are away, and whether other regions have any."""
        hosts = list(self._hosts())
        # Of a node of the store's URL the region may not be known yet.
        self.has_others = bool({host.datacenter for host in hosts} - {self._centre, None})
        ours = [host for host in hosts if host.datacenter == self._centre]
        # That one is up now is no return: it is told of by on_up, from another thread.
        if ours and not any(host.is_up for host in ours):
            self._all_away = True

    def on_up(self, host: Any) -> None:
        """The driver's word for a node that answers again."""
        if host.datacenter == self._centre and self._all_away:
            self._came_back = time.monotonic()
            self._all_away = False

    def on_add(self, host: Any) -> None:
        """And for one that it has just heard of."""
        self.on_up(host)
        self.look()

    def on_down(self, host: Any) -> None:
        """It doesn't answer any more."""
        self.look()

    def on_remove(self, host: Any) -> None:
        """It isn't of the cluster any more."""
        self.look()

"""The choice of a read's region: our own, or another one while our nodes are away, silent, or have
just come back.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from cassandra.policies import HostStateListener

from newsfabric.store._cassandra_cluster import REQUEST_S

# For so long after all our region's nodes were away, other regions are asked first: rows written
# there meanwhile arrive here by hints (measured: within ten seconds).
_CATCHING_UP_S: Final = 30.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadWait:
    """Seconds that a read waits for its own region before it asks another one (``here``). For
    ``elsewhere`` seconds such reads begin there then: each would wait for a node that hangs."""

    here: float
    elsewhere: float


LONG_WAIT: Final = ReadWait(here=REQUEST_S, elsewhere=30.0)
# For reads that are repeated until the row is found, so rows that another region lacks do no harm.
SHORT_WAIT: Final = ReadWait(here=1.5, elsewhere=5.0)


class Silence:
    """Memory of which regions were silent: our own, for each kind of wait, and the others. Pure."""

    def __init__(self) -> None:
        self._until = {LONG_WAIT: float("-inf"), SHORT_WAIT: float("-inf")}
        self._elsewhere_until = float("-inf")

    def begins_here(self, wait: ReadWait, now: float) -> bool:
        """Return whether a read of such ``wait`` begins in this region at ``now``."""
        return now >= self._until[wait]

    def note_silence(self, wait: ReadWait, now: float) -> bool:
        """Note that a read of such ``wait`` timed out; return whether that is news. Reads that
        wait for longer are not affected."""
        news = now > self._until[wait] + wait.elsewhere
        for each in self._until:
            if each.here <= wait.here:
                self._until[each] = now + each.elsewhere
        return news

    def answers_elsewhere(self, now: float) -> bool:
        """Return whether no read of the other regions has lately timed out."""
        return now >= self._elsewhere_until

    def note_silence_elsewhere(self, now: float) -> None:
        """Note that a read of the other regions timed out: for a while reads begin here."""
        self._elsewhere_until = now + LONG_WAIT.elsewhere


class Presence(HostStateListener):  # type: ignore[misc]
    """A listener of the driver: whether this region's nodes are all away, and when they came back.
    The driver's threads call it; requests succeed a little before the notification.

    The nodes that are up are read from the driver each time (``hosts``). Notifications can't be
    added up: a node of the store's URL is notified once, before the driver knows its region.
    """

    def __init__(self, centre: str, hosts: Callable[[], Iterable[Any]]) -> None:
        self._centre = centre
        self._hosts = hosts
        self._all_away = False
        self._came_back = float("-inf")
        #: Nodes of other regions are known, up or not.
        self.has_others = False

    def is_whole(self, now: float) -> bool:
        """Return whether our nodes have been up for long enough to have others' writes."""
        return not self._all_away and now >= self._came_back + _CATCHING_UP_S

    def note_nodes(self) -> None:
        """Note whether all nodes are away, and whether other regions have any."""
        hosts = list(self._hosts())
        # The region of a node of the store's URL may not be known yet.
        self.has_others = bool({host.datacenter for host in hosts} - {self._centre, None})
        ours = [host for host in hosts if host.datacenter == self._centre]
        # A node that is up now is no return: on_up notifies that, from another thread.
        if ours and not any(host.is_up for host in ours):
            self._all_away = True

    def on_up(self, host: Any) -> None:
        """Note a node that answers again."""
        if host.datacenter == self._centre and self._all_away:
            self._came_back = time.monotonic()
            self._all_away = False

    def on_add(self, host: Any) -> None:
        """Note a node that is new to the driver."""
        self.on_up(host)
        self.note_nodes()

    def on_down(self, host: Any) -> None:
        """Note a node that doesn't answer any more."""
        self.note_nodes()

    def on_remove(self, host: Any) -> None:
        """Note a node that has left the cluster."""
        self.note_nodes()

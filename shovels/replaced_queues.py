"""The queues that a keeper has replaced lately, so that two keepers don't do it by turns.

A queue's bounds can't be changed: it is deleted and made again, and its messages are lost. While a
fabric is upgraded, keepers of two releases may want different bounds for one queue. Each would undo
the other's change, every few seconds, until the last host is upgraded. So a keeper replaces a queue
at most once in :data:`PAUSE` seconds, and until then accepts it as it is.

Example. Release 2 wants 100,000 messages, release 1 wanted 50,000. The keeper of the first upgraded
host replaces the queue at 0 s. The keeper of another host replaces it with one of 50,000 at 5 s.
Now both wait, and log it. Then the other host is upgraded. Its new keeper, which has replaced
nothing yet, replaces the queue with one of 100,000: all agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from newsfabric.topology import Broker
from shovels.apply import TriedAction
from shovels.plan import Action

#: Longer than the upgrade of a host, and than the restart of a broker.
PAUSE: Final = 600.0


class ReplacedQueues:
    """The queues that this keeper has replaced in the last :data:`PAUSE` seconds."""

    def __init__(self) -> None:
        self._again_at: dict[tuple[Broker, str], float] = {}

    def may(self, actions: Iterable[Action], now: float) -> tuple[Action, ...]:
        """Return ``actions`` without those that would replace such a queue again."""
        self._again_at = {key: at for key, at in self._again_at.items() if at > now}
        return tuple(each for each in actions if _queue_of(each) not in self._again_at)

    def waiting(self, actions: Iterable[Action], now: float) -> list[tuple[Broker, str]]:
        """Return the queues that ``actions`` would replace, and that must wait."""
        keys = [key for each in actions if (key := _queue_of(each)) is not None]
        return [key for key in keys if self._again_at.get(key, now) > now]

    def did(self, done: Iterable[TriedAction], now: float) -> None:
        """Remember the actions done. A failed one may be tried again: it undid nobody's work."""
        for each in done:
            if not each.error and (key := _queue_of(each.action)) is not None:
                self._again_at[key] = now + PAUSE


def _queue_of(action: Action) -> tuple[Broker, str] | None:
    """Return the queue that ``action`` replaces, if any."""
    replaces = (action.verb, action.kind) == ("update", "queue")
    return (action.broker, action.name) if replaces else None

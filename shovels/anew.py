"""Which queues a keeper has made anew lately, so that two keepers don't do it by turns.

A queue's bounds can't be changed: it is deleted and made anew, with what is in it. While a fabric
is upgraded, keepers of two releases may want other bounds for one queue. Each would undo what the
other has just done, every few seconds, until the last host is upgraded. So a keeper makes a queue
anew once in :data:`PAUSE` seconds at most, and until then takes it as it is.

Example. Release 2 wants 100,000 messages, release 1 wanted 50,000. The keeper of the first host
that is upgraded makes the queue anew at 0 s. That of another host makes it anew with 50,000 at 5 s.
Now both wait, and say so. That other host is upgraded, and its keeper, which has made nothing yet,
makes the queue anew with 100,000: all agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from newsfabric.topology import Broker
from shovels.apply import Done
from shovels.plan import Action

#: Longer than a host's upgrade, and than a broker's way back after a restart.
PAUSE: Final = 600.0


class MadeAnew:
    """The queues that were made anew in the last :data:`PAUSE` seconds, by this keeper."""

    def __init__(self) -> None:
        self._again_at: dict[tuple[Broker, str], float] = {}

    def may(self, actions: Iterable[Action], now: float) -> tuple[Action, ...]:
        """``actions`` without those that would make such a queue anew."""
        self._again_at = {key: at for key, at in self._again_at.items() if at > now}
        return tuple(each for each in actions if _queue_of(each) not in self._again_at)

    def waiting(self, actions: Iterable[Action], now: float) -> list[tuple[Broker, str]]:
        """The queues that ``actions`` would make anew, and may not yet."""
        keys = [key for each in actions if (key := _queue_of(each)) is not None]
        return [key for key in keys if self._again_at.get(key, now) > now]

    def did(self, done: Iterable[Done], now: float) -> None:
        """Remember what was done. A step that failed is tried again: it undid nobody's work."""
        for each in done:
            if not each.error and (key := _queue_of(each.action)) is not None:
                self._again_at[key] = now + PAUSE


def _queue_of(action: Action) -> tuple[Broker, str] | None:
    """The queue that ``action`` makes anew."""
    anew = (action.verb, action.kind) == ("update", "queue")
    return (action.broker, action.name) if anew else None

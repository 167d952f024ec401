"""Marks that wait: for their turn, or until their message may be in the store. Pure.

A reader may be faster than the store. A message of another region is in that region's store at
once, and in this one a moment later. So a mark whose message isn't found is looked up again a few
times.

The number of such marks is bounded, in all and for each user: a reader can invent ids, and must not
delay other users' marks by that.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Callable
from typing import Final

from newsfabric.amqp.message import Delivery
from newsfabric.messages.mailbox import UserMark
from wholesale.common.source import QueueSource

# Seconds between look-ups, six in all: far more than a region's lag, unless it is cut off.
DELAYS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
# Half of the prefetch of one queue.
MOST_LATER: Final = 250
MOST_LATER_OF_A_USER: Final = 16


@dataclasses.dataclass(slots=True, eq=False)
class MarkJob:
    """A mark to carry out, and the delivery that is acknowledged then.

    ``started`` is monotonic; ``tries`` counts look-ups that found no message.
    """

    mark: UserMark
    delivery: Delivery
    source: QueueSource
    started: float
    tries: int = 0

    @property
    def is_stale(self) -> bool:
        """True if the delivery is stale: the broker delivers it again."""
        return self.source.is_stale(self.delivery)


class WaitingMarks:
    """Jobs in the order of their turns. ``now`` is monotonic, in seconds."""

    def __init__(
        self, *, later: int = MOST_LATER, later_of_a_user: int = MOST_LATER_OF_A_USER
    ) -> None:
        self._most_later = later
        self._most_of_a_user = later_of_a_user
        self._users: collections.Counter[str] = collections.Counter()
        self._ready: collections.deque[MarkJob] = collections.deque()
        self._later: list[tuple[float, int, MarkJob]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._ready) + len(self._later)

    def add_job(self, job: MarkJob) -> None:
        """Add ``job`` at the end of the queue."""
        self._ready.append(job)

    def retry_later(self, job: MarkJob, now: float) -> bool:
        """Schedule another look-up of ``job``. Return False if one of the bounds is met."""
        if (
            job.tries >= len(DELAYS)
            or len(self._later) >= self._most_later
            or self._users[job.mark.topic] >= self._most_of_a_user
        ):
            return False
        self._users[job.mark.topic] += 1
        due = now + DELAYS[job.tries]
        job.tries += 1
        heapq.heappush(self._later, (due, next(self._numbers), job))
        return True

    def take_jobs(self, most: int, now: float) -> list[MarkJob]:
        """Return the next jobs whose turn has come, at most ``most``."""
        while self._later and self._later[0][0] <= now:
            job = heapq.heappop(self._later)[2]
            self._left(job)
            self._ready.append(job)
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def due_in(self, now: float) -> float | None:
        """Return the seconds until a delayed job is due; None if no job is delayed."""
        return max(0.0, self._later[0][0] - now) if self._later else None

    def remove_if(self, condition: Callable[[MarkJob], bool]) -> int:
        """Remove the jobs that meet ``condition``; return their number."""
        before = len(self)
        self._ready = collections.deque(job for job in self._ready if not condition(job))
        for _, _, job in (gone := [entry for entry in self._later if condition(entry[2])]):
            self._left(job)
        self._later = [entry for entry in self._later if entry not in gone]
        heapq.heapify(self._later)
        return before - len(self)

    def _left(self, job: MarkJob) -> None:
        self._users[job.mark.topic] -= 1
        if not self._users[job.mark.topic]:
            del self._users[job.mark.topic]

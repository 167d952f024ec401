"""Jobs that wait for the store, by class: gold leaves first, bronze last. Pure.

Gold and silver are never dropped here: what a router has no room for waits in its broker's
queues. Bronze goes as soon as a router has much under way. That point is below the
prefetch, so that bronze flows in and is dropped where it is counted, instead of
filling the queue that it shares with silver.
"""

from __future__ import annotations

import collections
from typing import Final

from newsfabric.topics import TopicClass
from wholesale.router.jobs import Job

# A quarter of a second of one router's work: a burst passes, a flood doesn't.
BRONZE_ROOM: Final = 750
_CLASSES: Final[tuple[TopicClass, ...]] = ("gold", "silver", "bronze")


class Waiting:
    """Jobs in the order in which they are stored; bronze while ``bronze_room`` are under way.

    ValueError for a room below 1.
    """

    def __init__(self, *, bronze_room: int) -> None:
        if bronze_room < 1:
            raise ValueError("bronze_room must be at least 1")
        self._bronze_room = bronze_room
        self._jobs: dict[TopicClass, collections.deque[Job]] = {
            topic_class: collections.deque() for topic_class in _CLASSES
        }

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def queue_job(self, job: Job, *, under_way: int) -> Job | None:
        """Add ``job``; returns the one that has to go for it, the oldest bronze one.

        ``under_way`` is how many the router has in hand, waiting or not, this one included.
        """
        self._jobs[job.topic_class].append(job)
        bronze = self._jobs["bronze"]
        return bronze.popleft() if bronze and under_way > self._bronze_room else None

    def take(self, most: int) -> list[Job]:
        """The next ``most`` jobs or fewer: gold first, within a class the oldest first."""
        taken: list[Job] = []
        for jobs in self._jobs.values():
            count = min(len(jobs), most - len(taken))
            taken += [jobs.popleft() for _ in range(count)]
        return taken

    def remove_old(self, now: float) -> list[Job]:
        """Take out the jobs that have waited for too long (:attr:`Job.until`)."""
        old = []
        for jobs in self._jobs.values():
            while jobs and jobs[0].until <= now:
                old.append(jobs.popleft())
        return old

    def remove_unclaimed(self) -> list[Job]:
        """Take out the jobs that wait for nobody."""
        unclaimed = [job for jobs in self._jobs.values() for job in jobs if not job.claims]
        for topic_class, jobs in self._jobs.items():
            self._jobs[topic_class] = collections.deque(job for job in jobs if job.claims)
        return unclaimed

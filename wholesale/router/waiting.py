"""Jobs that wait for the store, by class, in the order of :data:`newsfabric.topics.CLASSES`. Pure.

A class that may not be dropped waits in the broker's queues beyond the prefetch. Bronze is dropped
when the router has many jobs under way. That bound is below the prefetch, so that bronze flows in
and is dropped where it is counted, and doesn't fill the queue that it shares with silver.
"""

from __future__ import annotations

import collections
from typing import Final

from newsfabric.topics import CLASSES, TopicClass
from wholesale.router.jobs import RoutingJob

# A quarter of a second of one router's work: a burst passes, a flood doesn't.
BRONZE_ROOM: Final = 750


class WaitingJobs:
    """Jobs in the order of storing. Bronze waits only while ``bronze_room`` or fewer are under way.

    Raise ValueError for a room below 1.
    """

    def __init__(self, *, bronze_room: int) -> None:
        if bronze_room < 1:
            raise ValueError("bronze_room must be at least 1")
        self._bronze_room = bronze_room
        self._jobs: dict[TopicClass, collections.deque[RoutingJob]] = {
            topic_class: collections.deque() for topic_class in CLASSES
        }

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def queue_job(self, job: RoutingJob, *, under_way: int) -> RoutingJob | None:
        """Add ``job``; return the job to drop for it, the oldest bronze one, or None.

        ``under_way`` is the number of jobs that the router has, waiting or not, this one included.
        """
        self._jobs[job.topic_class].append(job)
        if under_way <= self._bronze_room:
            return None
        droppable = (jobs for name, jobs in self._jobs.items() if CLASSES[name].may_be_dropped)
        return next((jobs.popleft() for jobs in droppable if jobs), None)

    def take_jobs(self, most: int) -> list[RoutingJob]:
        """Return the next jobs, at most ``most``: class by class, the oldest first."""
        taken: list[RoutingJob] = []
        for jobs in self._jobs.values():
            count = min(len(jobs), most - len(taken))
            taken += [jobs.popleft() for _ in range(count)]
        return taken

    def remove_old(self, now: float) -> list[RoutingJob]:
        """Remove and return the jobs that have waited for too long (:attr:`RoutingJob.until`)."""
        old = []
        for jobs in self._jobs.values():
            while jobs and jobs[0].until <= now:
                old.append(jobs.popleft())
        return old

    def remove_unclaimed(self) -> list[RoutingJob]:
        """Remove and return the jobs that have no claims."""
        unclaimed = [job for jobs in self._jobs.values() for job in jobs if not job.claims]
        for topic_class, jobs in self._jobs.items():
            self._jobs[topic_class] = collections.deque(job for job in jobs if job.claims)
        return unclaimed

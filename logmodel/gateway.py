"""A gateway, simulated: it follows every log by number, and offers each message once to its hub.

Its knowledge and decisions are in the project's ``gateway.logs`` and in ``late``, ``memory``,
``positions`` and ``resuming``. This module has its feed, its reads of missing numbers, the
replacement of its control plane, and its deaf times; ``resumes`` answers readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.logs.known_log import KnownLog, LogSnapshot
from gateway.logs.logs import Logs, LogsSnapshot, ReturningReader
from gateway.wire.position import Listed
from logmodel.directory import as_in_store
from logmodel.memory import TopicMemory
from logmodel.positions import ModelPosition
from logmodel.protocols import AnyWorld
from logmodel.readers import Ghost, ModelReader
from logmodel.resumes import Answers
from logmodel.resuming import Resuming
from logmodel.rows import VOID, Copy, ModelPublished, ModelRow, Tick
from logmodel.settings import IDENTITY_WINDOW, TOPICS
from newsfabric.store.logs import Log

# Seconds by which a gateway's clock is wrong at most.
CLOCK_ERROR = 2.0


class ModelGateway:
    """A gateway from its start to its end."""

    def __init__(self, world: AnyWorld, region: str) -> None:
        self.world = world
        self.region = region
        self.is_alive, self.is_listening = True, False
        self.deaf_until = 0.0
        self.clock_error = world.rng.uniform(-CLOCK_ERROR, CLOCK_ERROR)
        self.logs = self._new_logs()
        self.memory: dict[str, TopicMemory] = {}
        self.readers: dict[str, list[ModelReader]] = {topic: [] for topic in TOPICS}
        #: All numbers that were offered to the hub; for the checks.
        self.offered: dict[Copy, None] = {}
        self.late = world.parts.late()
        self.resuming: Resuming = world.parts.resuming(region)
        self.answers = Answers(world, self, self.resuming)
        #: The time at which each message was given to readers; the hub drops its later copies.
        self._given_at: dict[int, float] = {}
        self._came_early: list[ModelPublished | Tick] = []
        self._left: dict[Log, LogSnapshot] = {}
        self._left_whole: set[Log] = set()
        self._left_directory_ms = 0
        self._left_times: tuple[Any, ...] = ()
        self._given_since: list[Copy] = []
        self._leave_at = 0.0
        #: The number of the directory's changes that were read.
        self._directory_read = 0
        world.at(world.now + world.rng.uniform(0, 2), self._begin)

    def clock(self) -> float:
        return self.world.now + self.clock_error

    def latest(self, *, was_read: bool) -> float:
        """Return the time by which messages age. A message read from a store may be older than it
        looks, by as much as clocks have been apart."""
        latest_ms = self.logs.times.latest_ms(int(self.clock() * 1000), self.world.now)
        return (latest_ms + (self.spread_ms() if was_read else 0)) / 1000

    def reached(self, region: str) -> float:
        """Return the latest time that this region's routers have reported."""
        wall_ms = int(self.clock() * 1000)
        return self.logs.times.reported_ms(region, wall_ms, self.world.now) / 1000

    def spread_ms(self) -> int:
        """Return how far clocks have been apart, in ms."""
        return self.logs.times.spread_ms(int(self.clock() * 1000), self.world.now)

    # The start of the gateway, and of a new control plane.

    def _begin(self) -> None:
        """Read the whole directory, then listen: all before each log's start is past."""
        world = self.world
        if not self.is_alive:
            return
        if world.stores.is_down(self.region):
            world.at(world.now + 3, self._begin)
            return
        directory = world.stores[self.region].directory
        self.logs = self._new_logs()
        rows = (as_in_store(row, log) for log, row in directory.items())
        self.logs.begin(rows, now=world.now)
        self._read_directory()
        self.memory = {topic: world.parts.memory(self.logs.highest_numbers) for topic in TOPICS}
        self.is_listening = True
        self._leave()
        for topic in TOPICS:
            ghost = Ghost(world, topic)
            ghost.begin(self)
            world.ghosts.append(ghost)
        for item in self._came_early:
            self.receive(item)
        self._came_early = []
        self._poll()

    def _leave(self) -> None:
        """Leave the control plane's knowledge to a successor."""
        for known in self.logs:
            # A log that was whole when its state was left never changes again.
            if known.log not in self._left_whole:
                self._left[known.log] = known.snapshot()
                if known.is_whole:
                    self._left_whole.add(known.log)
        self._left_directory_ms = self.logs.directory_ms
        times = self.logs.times
        self._left_times = times.max_lead_ms, times.known, times.min_lead_ms
        self._given_since = []

    def replace(self) -> None:
        """Start a new control plane from the state that was left and the data plane's report."""
        if not self.is_listening:
            return
        self.logs = self._new_logs()
        left = LogsSnapshot(
            tuple(self._left.values()), self._left_directory_ms, 0, *self._left_times
        )
        self.logs.restore(left, now=self.world.now)
        self._directory_read = 0
        for log, number in self.reported():
            self.logs.mark_seen(log, number)
            known = self.logs.find(log)
            assert known is not None
            known.note_may_end_void(number)

    def reported(self) -> list[Copy]:
        """Return the copies that the data plane was given since state was last left."""
        return self._given_since

    def forget_topic(self, topic: str) -> None:
        """Lose the memory of a topic."""
        if self.is_listening:
            self.memory[topic] = self.world.parts.memory(self.logs.highest_numbers)

    def stop(self) -> None:
        self.is_alive = False
        for topic in TOPICS:
            for reader in list(self.readers[topic]):
                reader.leave()

    # Logs.

    def _new_logs(self) -> Logs:
        """Return the project's own code, with this world's sizes and no knowledge yet."""
        world = self.world
        logs: Logs = world.parts.logs()
        logs.known_log = world.known_log
        logs.times = world.parts.times()
        logs.reach_ms = world.parts.position.reach_ms
        return logs

    def _read_directory(self) -> None:
        store = self.world.stores[self.region]
        for log in dict.fromkeys(store.changes[self._directory_read :]):
            self.logs.learn(as_in_store(store.directory[log], log), now=self.world.now)
        self._directory_read = len(store.changes)
        self.logs.directory_read(int(self.clock() * 1000), self.world.now)

    # The feed, and offers to the hub.

    def receive(self, item: ModelPublished | Tick) -> None:
        """Receive a message or a tick."""
        world = self.world
        if not self.is_alive:
            return
        if not self.is_listening:
            self._came_early.append(item)
            return
        if world.now < self.deaf_until:
            # A part of the feed waits in the queue, the rest is lost.
            if world.rng.random() < 0.4:
                world.at(self.deaf_until + world.rng.random(), self.receive, item)
            return
        at = item.at if isinstance(item, Tick) else item.row.routed_at
        sent_ms = int(at * 1000)
        self.logs.note_report(item.log, item.number, item.low, sent_ms=sent_ms, now=world.now)
        if isinstance(item, ModelPublished):
            self.offer((item.log, item.number), item.row)

    def offer(self, copy: Copy, row: ModelRow, *, was_read: bool = False) -> None:
        """Process a number that was received or read; until that is possible, it stays missing."""
        log, number = copy
        if self.logs.is_done(log, number):
            return
        if row is VOID:
            self.logs.skip(log, number, number)
            return
        memory = self.memory[row.topic]
        is_known = row.identity in memory.copies or self._knows(row.identity)
        if not is_known and self.late.is_late(row.routed_at, self.latest(was_read=was_read)):
            was_given = self._look_up(copy, row)
            if was_given is None:
                return
            is_known = was_given
        self.logs.mark_seen(log, number)
        self.offered[copy] = None
        self._given_since.append(copy)
        if not is_known:
            self._give(copy, row, memory)
        elif row.identity in memory.copies:
            memory.add(row.identity, copy)
        else:
            memory.dropped(copy)

    def _knows(self, identity: int) -> bool:
        given_at = self._given_at.get(identity)
        return given_at is not None and self.world.now - given_at < IDENTITY_WINDOW

    def _give(self, copy: Copy, row: ModelRow, memory: TopicMemory) -> None:
        self.gave(row.identity)
        memory.add(row.identity, copy)
        readers = list(self.readers[row.topic])
        position = self.position() if any(reader.keeps_position for reader in readers) else None
        for reader in readers:
            reader.get(row.identity, position)
        memory.trim()

    def gave(self, identity: int) -> None:
        """Note that readers here got the message: no copy of it may be offered to them again."""
        self._given_at[identity] = self.world.now

    def note_replayed(self, identity: int) -> None:
        """Note a replayed message: a late copy of it must not be offered to the same reader."""
        self.gave(identity)

    def _look_up(self, copy: Copy, row: ModelRow) -> bool | None:
        """Return whether readers here got another copy; None if a region can't be asked."""
        stores = self.world.stores
        from_ms, to_ms = self.late.span(row.routed_at, self.spread_ms())
        for region in self.regions_looked_up():
            if not stores.can_ask(self.region, region):
                return None
            self.world.book.counts["looked_up"] += 1
            messages = stores[region].messages
            copies = stores[region].copies.get(row.identity, ())
            # As in :meth:`newsfabric.store.Store.since`.
            found = (c for c in copies if from_ms <= int(messages[c].routed_at * 1000) < to_ms)
            if self.late.was_given(copy, found, self.logs):
                return True
        return False

    def regions_looked_up(self) -> list[str]:
        return self.world.regions

    # Repair: missing numbers are read by number.

    def _poll(self) -> None:
        world = self.world
        if not self.is_alive:
            return
        world.at(world.now + world.pause(3, 14, quiet=40), self._poll)
        if world.now < self.deaf_until:
            return
        if not world.stores.is_down(self.region):
            self._read_directory()
        for known in list(self.logs.unfinished()):
            if not known.is_whole:
                self._repair(known.log, known)
        if world.now > self._leave_at:
            self._leave()
            self._leave_at = world.now + world.pause(0, 10, quiet=300)

    def _repair(self, log: Log, known: KnownLog) -> None:
        world = self.world
        numbers = each(known.missing()) if known.has_missing else []
        tail = each(known.tail()) if known.is_silent(world.now) else []
        if not numbers and not tail:
            return
        at = log.region if world.rng.random() < 0.5 else self.region
        if not world.stores.can_ask(self.region, at):
            return
        if self.may_read_tail(log, at):
            numbers += tail
        store = world.stores[at]
        for number in numbers:
            row = store.find((log, number))
            if row is None:
                self.not_found(known, number)
            elif row is VOID:
                self.offer((log, number), row)
            elif not self.late.is_ahead(row.routed_at, self.reached(log.region)):
                known.note_may_end_void(number)
                self.offer((log, number), row, was_read=True)

    def not_found(self, known: KnownLog, number: int) -> None:
        """Do nothing after a read without a row: that proves only that these replicas lag."""

    def may_read_tail(self, log: Log, at: str) -> bool:
        """Return whether to read the tail there: only at home, as others' rows may stay abroad."""
        return at == log.region

    def counts_row(self, copy: Copy, row: ModelRow, *, read_at: str) -> bool:
        """Return whether a row found there by a read of a topic may be given to a reader."""
        return self.resuming.counts(copy, self.logs)

    def position(self) -> ModelPosition:
        """Return the position of a reader that was given everything until now."""
        time_ms, logs = self.logs.listing.at(int(self.clock() * 1000))
        listed = {hash_: Listed(known.mark, known.whole_ms) for hash_, known in logs}
        position: ModelPosition = self.world.parts.position(time_ms, listed)
        return position

    def reader_at(self, position: ModelPosition) -> ReturningReader:
        """Return the state of a reader that resumes with ``position``."""
        reader_at: ReturningReader = self.world.parts.reader_at(position, self.logs)
        return reader_at


def each(runs: Iterable[tuple[int, int]]) -> list[int]:
    """Return the numbers of these runs."""
    return [number for first, last in runs for number in range(first, last + 1)]

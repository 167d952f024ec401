"""A router, simulated: it numbers messages, writes their rows and publishes them.

The rules for this are in ``numbering``, ``directory`` and ``closing``. This module has its mishaps:
it dies, freezes at any step, wakes, is started again, and its clock is wrong.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from logmodel.directory import as_in_store
from logmodel.numbering import Numbering
from logmodel.protocols import AnyWorld
from logmodel.router_closing import Closer
from logmodel.rows import VOID, Copy, Delivery, ModelPublished, ModelRow, Tick
from logmodel.settings import APART, HEARTBEAT, HOLD
from newsfabric.store.logs import Log
from wholesale.router.log_clock import LogClock

# Seconds by which a router's clock is wrong at most.
CLOCK_ERROR = 10.0
# Larger errors, in some histories: beyond a lease, the margins of times, a TTL, positions' reach.
FAR_OFF = (45.0, 120.0, 900.0, 4_000.0, 30_000.0)


def far_off(rng: random.Random) -> float:
    """Return the error of a clock that an operator set wrong."""
    return rng.choice(FAR_OFF) * rng.uniform(-1.2, 1.2)


@dataclasses.dataclass(slots=True, eq=False)
class Job:
    """A message that a router is processing."""

    delivery: Delivery
    taken_at: float
    #: The count of the connection that brought it: a later connection can't acknowledge it.
    connection: int
    log: Numbering | None = None
    number: int = 0
    row: ModelRow = VOID
    #: True if its row may be in the store.
    tried: bool = False
    is_done: bool = False
    was_published: bool = False

    @property
    def copy(self) -> Copy:
        return self.numbering.log, self.number

    @property
    def numbering(self) -> Numbering:
        assert self.log is not None
        return self.log


class ModelRouter:
    """A router under its name, through all its lives."""

    def __init__(self, world: AnyWorld, region: str, name: str) -> None:
        self.world = world
        self.region = region
        self.name = name
        self.clock_error = world.rng.uniform(-CLOCK_ERROR, CLOCK_ERROR)
        self.is_alive = False
        self.is_connected = False
        self.directory = world.parts.directory()
        self._life = self._epoch = 0
        self.start()

    def start(self) -> None:
        """Begin a life, with a log of its own."""
        rng = self.world.rng
        self._life += 1
        if self.world.profile.clocks and rng.random() < 0.3:
            self.clock_error = far_off(rng)
        self.is_alive = self.is_connected = True
        self._is_leaving = False
        self._frozen_until = 0.0
        self._outage = (0.0, False)
        self.log_clock: LogClock = self.world.parts.clock()
        self._connection = 0
        self._unacknowledged: dict[int, Delivery] = {}
        self._jobs: list[Job] = []
        self._begin_log()
        self.later(rng.uniform(4, 9), self._beat)
        self.later(rng.uniform(2, 9), self._tick)
        self.later(rng.uniform(5, 15), Closer(self.world, self).watch)

    @property
    def takes_more(self) -> bool:
        return self.is_alive and self.is_connected and not self._is_leaving

    def wall_ms(self) -> int:
        return int((self.world.now + self.clock_error) * 1000)

    def clock_ms(self) -> int:
        """Return the time that the router gives its logs, rows and messages."""
        return self.log_clock.now_ms(self.wall_ms(), self.world.now)

    def compare_clocks(self) -> None:
        """Compare its clock with the store's."""
        world, store = self.world, self.world.stores[self.region]
        if not world.stores.is_down(self.region):
            store_ms = int((world.now + store.clock_error) * 1000)
            self.log_clock.compare(self.wall_ms(), world.now, [store_ms])

    def later(self, seconds: float, step: Callable[..., None], *args: Any) -> None:
        """Schedule a step of its own: not done if dead by then, delayed while it is frozen."""
        self.world.at(self.world.now + seconds, self._step, self._life, step, args)

    def _step(self, life: int, step: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.is_alive or self._life != life:
            return
        world = self.world
        if world.now < self._frozen_until:
            awake = self._frozen_until + world.rng.uniform(0, 0.3)
            world.at(awake, self._step, life, step, args)
            return
        step(*args)

    # Its log.

    def _begin_log(self) -> None:
        """Begin a log, later than all times in the directory, once the clock is known as right."""
        world = self.world
        self.numbering = self._new_numbering(0)
        self.compare_clocks()
        if world.stores.is_down(self.region) or not self.log_clock.is_right:
            self.later(5, self._begin_log)
            return
        for log, row in world.stores[self.region].directory.items():
            self.log_clock.at_least(as_in_store(row, log).stated_ms)
        self._epoch = self.next_epoch()
        self.numbering = self._new_numbering(self._epoch)
        world.book.counts["logs"] += 1
        self.list_log(self.numbering)

    def _new_numbering(self, epoch: int) -> Numbering:
        log = Log(self.region, self.name, epoch)
        numbering: Numbering = self.world.parts.numbering(log, window=self.world.window)
        return numbering

    def next_epoch(self) -> int:
        """Return an epoch in ms; if another router of this name has it, the directory refuses."""
        return max(self.clock_ms(), self._epoch + 1)

    def list_log(self, numbering: Numbering) -> None:
        """Write the directory row, which must exist before the first number."""
        world = self.world
        if numbering is not self.numbering:
            return
        if world.stores.is_directory_down(self.region):
            self.later(3, self.list_log, numbering)
            return
        asked_at = world.now
        world.at(world.now + world.rng.uniform(0.01, 0.3), self._apply_first, numbering, asked_at)

    def _apply_first(self, numbering: Numbering, asked_at: float) -> None:
        stores = self.world.stores
        first = self.directory.first(stores[self.region].directory.get(numbering.log))
        if first is None:
            self.later(0.01, self._begin_log)
            return
        stores.write_directory(self.region, numbering.log, first)
        self.later(0.01, self._renewed, numbering, asked_at)

    def _beat(self) -> None:
        """Write ``low`` to the directory; the moved row shows that the router lives."""
        self.later(self.world.pause(4, 9, quiet=9), self._beat)
        world, numbering = self.world, self.numbering
        if not numbering.is_listed or world.stores.is_directory_down(self.region):
            return
        # Some writes are applied late and never answered.
        is_lost = world.rng.random() < 0.05
        after = world.rng.uniform(1, 20) if is_lost else world.rng.uniform(0.01, 0.3)
        ask = (numbering, world.now, self.clock_ms(), numbering.low, is_lost)
        world.at(world.now + after, self._apply_beat, *ask)

    def _apply_beat(
        self, numbering: Numbering, asked_at: float, at_ms: int, low: int, is_lost: bool
    ) -> None:
        stores = self.world.stores
        row = stores[self.region].directory.get(numbering.log)
        if row is None:
            return
        moved = self.directory.moved(row, low=low, at_ms=at_ms)
        if moved is not None:
            stores.write_directory(self.region, numbering.log, moved)
        if not is_lost:
            if row.ended is None:
                self.later(0.01, self._renewed, numbering, asked_at)
            else:
                self.later(0.01, self._refused, numbering)

    def _renewed(self, numbering: Numbering, asked_at: float) -> None:
        if numbering is self.numbering:
            numbering.renewed(asked_at)
            self._go_on()

    def _refused(self, numbering: Numbering) -> None:
        """Go on after others closed our log: unacknowledged messages get numbers of a new one."""
        if numbering is not self.numbering:
            return
        if self._is_leaving:
            self.kill()
            return
        for job in self._jobs:
            job.is_done = True
        self._jobs = []
        self._begin_log()
        for delivery in list(self._unacknowledged.values()):
            self._route(delivery, self._connection)

    def _tick(self) -> None:
        self.later(self.world.pause(3, 15, quiet=30), self._tick)
        numbering = self.numbering
        if self.is_connected and numbering.is_listed and numbering.has_lease(self.world.now):
            tick = Tick(numbering.log, numbering.last, self.clock_ms() / 1000, numbering.low)
            self.world.brokers.publish(self.region, tick)

    # Messages: taken, numbered, written, published, acknowledged.

    def deliver(self, delivery: Delivery) -> None:
        """Receive a message from the broker, which holds it for us until the connection is lost."""
        self._unacknowledged[delivery.serial] = delivery
        self.later(self.world.rng.uniform(0, 0.1), self._route, delivery, self._connection)

    def _route(self, delivery: Delivery, connection: int) -> None:
        if connection == self._connection:
            self._unacknowledged[delivery.serial] = delivery
            self._jobs.append(Job(delivery, self.world.now, connection))
            self._go_on()

    def _go_on(self) -> None:
        """Number all messages that may be numbered now."""
        now = self.world.now
        self.clock_ms()
        for job in self._jobs:
            if job.log is not None or job.is_done:
                continue
            if now > min(job.taken_at + HOLD, job.delivery.first_sent + APART):
                self._finish(job)
            elif self.log_clock.is_right and self.numbering.may_give(now) and not self._is_leaving:
                self._number(job)
        self._jobs = [job for job in self._jobs if not job.is_done]

    def _number(self, job: Job) -> None:
        delivery = job.delivery
        job.log = self.numbering
        job.number = self.numbering.give()
        job.row = ModelRow(delivery.identity, delivery.topic, self.clock_ms() / 1000)
        self.world.book.numbered(delivery.identity, job.copy)
        self.write(job)

    def write(self, job: Job) -> None:
        """Write its rows, repeated until that is confirmed."""
        world, rng = self.world, self.world.rng
        if job.is_done:
            return
        if job.numbering.ends_void(world.now - job.taken_at, tried=job.tried):
            world.book.counts["voided"] += 1
            self.write_void(job)
        elif world.stores.is_down(self.region):
            if self._tries_in_vain() and rng.random() < 0.2:
                job.tried = True
                self.apply_rows(job, rng.uniform(1, 60), rng.random() < 0.5, rng.random() < 0.5)
            self.later(rng.uniform(2, 8), self.write, job)
        elif world.stores.is_overloaded(self.region):
            job.tried = True
            late = world.stores.overloaded[self.region] - world.now + rng.uniform(0, 60)
            self.apply_rows(job, late, rng.random() < 0.3, rng.random() < 0.3)
            self.later(rng.uniform(2, 8), self.write, job)
        elif rng.random() < world.profile.partial:
            job.tried = True
            late = rng.choice([0.1, 5.0, 60.0, 200.0])
            self.apply_rows(job, late, rng.random() < 0.6, rng.random() < 0.6)
            self.later(rng.uniform(2, 8), self.write, job)
        else:
            job.tried = True
            self.apply_rows(job, rng.uniform(0, 0.3), True, True)
            self.later(0.31 + rng.choice([0, 0, 0.5]), self._stored, job)

    def _tries_in_vain(self) -> bool:
        """Return whether its driver sends writes while the store is down, or knows that it is.

        Decided once for each outage: otherwise it would hardly ever void several numbers in a row.
        """
        end = self.world.stores.down[self.region]
        if self._outage[0] != end:
            self._outage = (end, self.world.rng.random() < 0.6)
        return self._outage[1]

    def apply_rows(self, job: Job, late: float, index: bool, message: bool) -> None:
        """Apply each row by itself; after a time-out, rows may be in other regions only."""
        world, rng, stores = self.world, self.world.rng, self.world.stores
        copy, row = job.copy, job.row
        if index:
            world.bring(world.now + late, stores.put_index, self.region, copy, row)
        if message:
            after = late * rng.random()
            world.bring(world.now + after, stores.put_message, self.region, copy, row)
        if index and message:
            return
        for other in world.regions:
            if other == self.region or world.cuts.between(self.region, other):
                continue
            if rng.random() < world.profile.stray:
                for put in (stores.put_index, stores.put_message):
                    if rng.random() < 0.7:
                        world.bring(world.now + rng.uniform(0, 5), put, other, copy, row)

    def write_void(self, job: Job) -> None:
        """End its number with a void row, written until confirmed."""
        world, rng = self.world, self.world.rng
        self._finish(job)
        failed = world.stores.is_down(self.region) or rng.random() < world.profile.partial
        if not failed or rng.random() < 0.5:
            put = world.stores.put_index
            world.bring(world.now + rng.uniform(0, 0.3), put, self.region, job.copy, VOID)
        if failed:
            self.later(rng.uniform(2, 8), self.write_void, job)
        else:
            self.later(0.31, self._settled, job, job.numbering.voided)

    def _settled(self, job: Job, settle: Callable[[int], None]) -> None:
        settle(job.number)
        self._go_on()

    def _stored(self, job: Job) -> None:
        world, rng = self.world, self.world.rng
        if job.is_done:
            return
        job.numbering.stored(job.number)
        if not job.numbering.has_lease(world.now):
            # Not even given up: if its log was closed meanwhile, the number may be beyond its end.
            self.later(rng.uniform(0.5, 3), self._stored, job)
        elif job.numbering.is_too_old(world.now - job.taken_at):
            # Stored, never published, without a receipt; but its number is a message.
            world.book.is_routed(job.row.identity, job.row.topic, world.now)
            self._finish(job)
            self._settled(job, job.numbering.expired)
        elif not self.is_connected:
            self.later(rng.uniform(0.5, 3), self._stored, job)
        else:
            # The router may freeze between its check and its action.
            pause = rng.choice([0.01, 0.1, 0.1, 5.0, 20.0]) if rng.random() < 0.3 else 0.01
            self.later(pause, self._publish, job, self._connection)

    def _publish(self, job: Job, connection: int) -> None:
        world, rng = self.world, self.world.rng
        if job.is_done:
            return
        if connection != self._connection or not self.is_connected:
            self.later(rng.uniform(0.5, 3), self._stored, job)
            return
        if not job.was_published:
            job.was_published = True
            world.book.is_routed(job.row.identity, job.row.topic, world.now)
            world.book.published.add(job.copy)
        item = ModelPublished(job.numbering.log, job.number, job.row, job.numbering.low)
        is_half = rng.random() < 0.04
        world.brokers.publish(self.region, item, local_only=is_half)
        if is_half:
            self.later(rng.uniform(0.5, 4), self._stored, job)
        else:
            self.later(rng.choice([0.01, 0.01, 0.3]), self._confirmed, job)

    def _confirmed(self, job: Job) -> None:
        if job.is_done:
            return
        if job.connection == self._connection:
            self.world.book.receipt(job.row.identity, job.copy)
        self._finish(job)
        self._settled(job, job.numbering.confirmed)

    def _finish(self, job: Job) -> None:
        """Acknowledge a message: its processing has ended."""
        job.is_done = True
        self._unacknowledged.pop(job.delivery.serial, None)

    # A clean end.

    def leave(self) -> None:
        """Accept no more messages, settle all numbers, end the log, stop."""
        if not self.takes_more:
            return
        self._is_leaving = True
        for job in self._jobs:
            if job.log is None and not job.is_done:
                self._finish(job)
                self.world.brokers.enqueue(self.region, job.delivery)
        self._jobs = [job for job in self._jobs if not job.is_done]
        self._end_log()

    def _end_log(self) -> None:
        world, numbering = self.world, self.numbering
        if numbering.low < numbering.last or world.stores.is_directory_down(self.region):
            self.later(1, self._end_log)
            return
        after = world.rng.uniform(0.01, 0.3)
        world.at(world.now + after, self._apply_end, numbering.log, numbering.last)
        self.later(after + 0.01, self.kill)

    def _apply_end(self, log: Log, last: int) -> None:
        row = self.world.stores[self.region].directory.get(log)
        finished = None if row is None else self.directory.finished(row, last)
        if finished is not None:
            self.world.stores.write_directory(self.region, log, finished)
            self.world.book.counts["finished"] += 1

    # Mishaps.

    def kill(self) -> None:
        if self.is_alive:
            self._lose_connection()
            self.is_alive = False

    def freeze(self, seconds: float) -> None:
        """Stop at any step; the broker notices after half a heartbeat to a whole one."""
        world = self.world
        if not self.is_alive or world.now < self._frozen_until:
            return
        self._frozen_until = world.now + seconds
        noticed = world.now + world.rng.uniform(HEARTBEAT / 2, HEARTBEAT)
        world.at(noticed, self._missed, self._life)
        world.at(self._frozen_until + 0.4, self._woken, self._life)

    def _missed(self, life: int) -> None:
        if self.is_alive and self._life == life and self.world.now < self._frozen_until:
            self._lose_connection()
            self.is_connected = False

    def _woken(self, life: int) -> None:
        if self.is_alive and self._life == life and not self.is_connected:
            self.later(self.world.rng.uniform(0, 2), self._connect)

    def _connect(self) -> None:
        self.is_connected = True

    def _lose_connection(self) -> None:
        """Lose the connection: the broker redelivers unacknowledged messages to other routers."""
        world = self.world
        self._connection += 1
        back, self._unacknowledged = self._unacknowledged, {}
        for delivery in back.values():
            again = world.now + world.rng.uniform(0, 1)
            world.at(again, world.brokers.enqueue, self.region, delivery)

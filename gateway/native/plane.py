"""The data plane as the control plane has it: started if need be, attached to, attached to again.

::

    AWAY ──attached──► ATTACHED ──drain──► DRAINING ──link is lost──► GONE
      ▲                   │ └──another control plane has come──────────▲
      └───link is lost────┘

The link is also lost when another data plane takes over from ours (:meth:`Plane.take_over`, or
whoever started it): it is attached to over the same path, and has the same readers. So DRAINING
goes back to AWAY then, and the other one is drained.

What is published stays here until the data plane says that its fan-out is over, and is sent again
to the next attachment: the data plane drops what it has had. How much that can be is
bounded by the feed's prefetch, since a delivery isn't acknowledged before.

Answers to readers are not kept: a verb that wasn't answered comes again. So an answer must
go to the attachment whose verb it answers; :attr:`Plane.attachment` tells them apart.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import enum
import functools
import logging
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from gateway.descriptors import connections_at_most
from gateway.native import commands
from gateway.native.events import (
    REPLACED,
    TAKEN_OVER,
    Attached,
    Counters,
    Event,
    Handover,
    Published,
    Refused,
    Uncovered,
    Verbs,
)
from gateway.native.link import ControlLink, connected
from gateway.native.program import Process, Successor, start, start_successor
from gateway.publication import Publication
from gateway.settings import GatewaySettings
from newsfabric.backoff import Backoff
from newsfabric.errors import ConfigError
from newsfabric.seldom import Seldom

logger = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
# A data plane that can't take over says so within ten seconds.
_TAKE_OVER_PATIENCE: Final = 15.0
_LOOK_AGAIN: Final = 0.02
_COUNT_PATIENCE: Final = 1.0
# A drained data plane has so long after its last reader's linger time.
_GRACE: Final = 2.0


class State(enum.Enum):
    """Where we are with the data plane."""

    AWAY = "away"
    ATTACHED = "attached"
    DRAINING = "draining"
    GONE = "gone"


class Guest(Protocol):
    """Who is told what comes from the data plane. None may block, or raise what it doesn't say."""

    def attached(self, event: Attached) -> None:
        """An attachment has begun."""

    def replaced(self) -> None:
        """Another control plane has come in our place."""

    def verb(self, connection: bytes, badge: bytes, text: bytes) -> None:
        """A reader with ``badge`` has said ``text``; answer exactly once."""

    def uncovered(self, event: Uncovered) -> None:
        """A command with a token was not obeyed."""

    def handed_over(
        self, connection: socket.socket, address: str, closed: Callable[[], None]
    ) -> None:
        """A request is ours to serve; call ``closed`` when its connection is.

        OSError: it was closed before, and nobody calls.
        """

    def counted(self, values: dict[str, int]) -> None:
        """The data plane's counters."""


class Plane:
    """One data plane, for as long as this control plane lives."""

    def __init__(self, told: GatewaySettings, program: Path, control: Path, guest: Guest) -> None:
        self.state = State.AWAY
        self.attachment = 0
        self.pid: int | None = None
        self.port = told.port
        self._told = told
        self._capacity = told.capacity
        # More requests than that are turned away by the data plane.
        self._handovers = connections_at_most()
        # What was handed over and is open, by address.
        self._held: collections.Counter[str] = collections.Counter()
        self._losses = Seldom(every=60.0)
        self._program = program
        self._control = control
        self._guest = guest
        self._link: ControlLink | None = None
        self._process: Process | None = None
        # Set, and replaced, at each change of state or of data plane.
        self._changed = asyncio.Event()
        self._greeting: asyncio.Future[Attached] | None = None
        self._number = 0
        # Sent, and not known to be over: number → (command, what to call then), ascending.
        self._unfinished: collections.OrderedDict[int, tuple[bytes, Callable[[], None]]]
        self._unfinished = collections.OrderedDict()
        self._asked: list[asyncio.Future[None]] = []
        self._replaced = False
        self._taking_over = False
        # Verbs whose answers the link has no room for yet, in their order.
        self._verbs: collections.deque[tuple[bytes, bytes, bytes]] = collections.deque()
        # Set when the link has room again, or is lost.
        self._room = asyncio.Event()
        # Whether its end was announced, and another one has our readers.
        self._moving = False

    @property
    def unfinished(self) -> int:
        """How many publications may not have reached all their readers yet."""
        return len(self._unfinished)

    async def attach(self) -> None:
        """Attach to the data plane that lives, else to one that is started now.

        One that hangs up before it has answered hands its readers to another one, or ends: the next
        one is looked for. TimeoutError if that takes too long, OSError or ConfigError for anything
        else; try again. Where it speaks another version of the protocol that helps only once
        another one has taken over from it.
        """
        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    attached = await self._greet(await self._connect())
                    break
                except ConnectionError as exc:
                    logger.info("the data plane hangs up before it answers: %s", exc)
                    await asyncio.sleep(_LOOK_AGAIN)
        if self._process is not None and self._process.pid != attached.pid:
            # Another one has taken over from our child, which ends.
            await _bury(self._process)
        logger.info(
            "attached to data plane %d on port %d, attachment %d, %d readers",
            attached.pid, self.port, attached.attachment, attached.readers,
        )  # fmt: skip

    async def _greet(self, connection: socket.socket) -> Attached:
        """Say hello on ``connection``, which is ours from now on; return the answer."""
        greeting: asyncio.Future[Attached] = asyncio.get_running_loop().create_future()
        self._greeting = greeting
        link = self._link = ControlLink(connection, self._on_event, self._on_lost, self._on_room)
        link.send(commands.hello())
        try:
            return await greeting
        except asyncio.CancelledError:
            link.close()
            raise

    async def stay_attached(self) -> None:
        """Attach again whenever the link is lost, until the data plane is gone for good."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(base=0.1, cap=5.0)
        while self.state is not State.GONE:
            if self.state is not State.AWAY:
                backoff.succeeded(loop.time())
                await self._changed.wait()
                continue
            try:
                await self.attach()
            except (OSError, ConfigError) as exc:
                delay = backoff.failed(loop.time())
                logger.warning("no data plane, trying again in %.1f s: %s", delay, exc)
                await asyncio.sleep(delay)

    async def take_over(self) -> int:
        """Have a new data plane take over from ours; return its pid when it serves our readers.

        ConfigError if it doesn't; then the one that we have serves on.
        """
        if self.state is not State.ATTACHED or self._taking_over:
            raise ConfigError("there is no data plane to take over from now")
        self._taking_over = True
        successor: Successor | None = None
        try:
            successor = start_successor(self._program, self._control)
            async with asyncio.timeout(_TAKE_OVER_PATIENCE):
                await successor.succeeded()
                former, self._process = self._process, successor
                # The link to the former one ends by itself.
                while self.pid != successor.pid:
                    await self._changed.wait()
            if former is not None:
                await _bury(former)
        except (OSError, TimeoutError, ConfigError) as exc:
            if successor is not None and self._process is not successor:
                await _bury(successor)
            raise ConfigError(f"the new data plane didn't take over: {exc}") from exc
        finally:
            self._taking_over = False
        return successor.pid

    def send(self, command: bytes) -> None:
        """Send a command; nothing while there is no attachment."""
        if self._link is not None and self.state in (State.ATTACHED, State.DRAINING):
            self._link.send(command)

    @property
    def full(self) -> bool:
        """Whether the data plane has to take answers before others are made."""
        return self._link is not None and self._link.full

    async def room(self) -> None:
        """Return when an answer may be made, or there is no attachment to send it to."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def publish(self, publication: Publication, done: Callable[[], None]) -> None:
        """Send ``publication`` to its readers, now or when we are attached; then call ``done``."""
        if self.state is State.GONE:
            if not self._replaced:
                done()
            return
        command = commands.publish(self._number + 1, publication)
        self._number += 1
        self._unfinished[self._number] = (command, done)
        self.send(command)

    def resize(self, capacity: int) -> None:
        """From now on there is room for ``capacity`` readers."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._settle()

    def _settle(self) -> None:
        told, capacity, handovers = self._told, self._capacity, self._handovers
        self.send(commands.settings(told, capacity=capacity, handovers=handovers))

    async def count(self) -> None:
        """Have fresh counters; return without them if the data plane doesn't answer."""
        if self._link is None or self.state is State.AWAY:
            return
        asked = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self.send(commands.count())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COUNT_PATIENCE):
                await asked

    async def drain(self, seconds: float, per_second: int, patience: float) -> None:
        """Have all readers sent away; return when the data plane has ended, or after patience."""
        if self.state is State.GONE:
            # Drained before, or another control plane's by now.
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience + self._told.linger + _GRACE):
                while self.state is not State.GONE:
                    if self.state is State.ATTACHED:
                        self.send(commands.drain(seconds, per_second))
                        self.state = State.DRAINING
                    await self._changed.wait()
        self.close()
        await self._reap()

    def close(self) -> None:
        """Let go of the data plane; if it lives, it goes on without us."""
        self.state = State.GONE
        self._change()
        if self._link is not None:
            self._link.close()
            self._link = None
        self._verbs.clear()
        self._room.set()
        self._finish_all()

    async def _connect(self) -> socket.socket:
        try:
            return connected(self._control)
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            # What a data plane that was killed has left.
            self._control.unlink(missing_ok=True)
        process = self._start()
        while True:
            if (code := process.poll()) is not None:
                raise ConfigError(f"the data plane has ended with code {code}")
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return connected(self._control)
            await asyncio.sleep(_LOOK_AGAIN)

    def _start(self) -> Process:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._process = start(self._program, self._control, self._told, self.port)
        return self._process

    async def _reap(self) -> None:
        if self._process is None:
            return
        await _bury(self._process)
        self._process = None
        if self._told.native.socket is None and not self._told.port:
            shutil.rmtree(self._control.parent, ignore_errors=True)

    def _on_event(self, event: Event, descriptor: int | None) -> None:
        match event:
            case Verbs(verbs):
                self._verbs.extend(verbs)
                self._ask_guest()
            case Uncovered():
                self._guest.uncovered(event)
            case Published(number):
                self._finish(number)
            case Handover(address):
                self._adopt(descriptor, address)
            case Counters(values):
                self._guest.counted(values)
                self._answer_counts()
            case Attached():
                self._on_attached(event)
            case Refused(why):
                if why == TAKEN_OVER:
                    logger.info("data plane %s has handed its readers to another one", self.pid)
                    self._moving = True
                    return
                if self._greeting is not None and not self._greeting.done():
                    self._greeting.set_exception(ConfigError(self._why_refused(why)))
                    return
                logger.warning("the data plane cuts us off: %s", why)
                if why == REPLACED:
                    self._on_replaced()

    def _why_refused(self, why: str) -> str:
        """What to do about a data plane that doesn't answer our hello."""
        return (
            f"the data plane at {self._control} refuses us ({why}); if it is of an older release,"
            f" have one of this release take over from it: {self._program.name} --take-over"
            f" --control {self._control}"
        )

    def _ask_guest(self) -> None:
        """Have verbs answered as long as there is room for answers: one can be a megabyte."""
        while self._verbs and self._link is not None and not self._link.full:
            self._guest.verb(*self._verbs.popleft())

    def _on_room(self) -> None:
        self._room.set()
        self._ask_guest()

    def _on_replaced(self) -> None:
        self.state = State.GONE
        # They stay unacknowledged: the broker gives them to whoever has come.
        self._replaced = True
        self._unfinished.clear()
        self._guest.replaced()

    def _on_attached(self, event: Attached) -> None:
        if self.state is State.GONE:
            # We were drained while the data plane was being looked for.
            self.close()
            return
        if event.ports:
            self.port = event.ports[0]
        self.pid = event.pid
        self.attachment += 1
        self.state = State.ATTACHED
        self._change()
        self._guest.attached(event)
        if self._held:
            self.send(commands.kept(self._held))
        self._settle()
        for command, _ in self._unfinished.values():
            self.send(command)
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_result(event)

    def _on_lost(self, why: str) -> None:
        self._link = None
        # They come again.
        self._verbs.clear()
        self._room.set()
        if self.state is State.ATTACHED:
            self.state = State.AWAY
            if not self._moving:
                logger.warning("the data plane is lost: %s", why)
        elif self.state is State.DRAINING:
            self.state = State.AWAY if self._moving else State.GONE
        self._moving = False
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(ConnectionError(why))
        self._answer_counts()
        self._change()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _adopt(self, descriptor: int | None, address: str) -> None:
        self._held[address] += 1
        if descriptor is None:
            self._gone(address)
            unsaid = self._losses.may_say(asyncio.get_running_loop().time())
            if unsaid is not None:
                text = "a request is lost: out of descriptors (RLIMIT_NOFILE; and %d more)"
                logger.warning(text, unsaid)
            return
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            self._gone(address)
            return
        try:
            closed = functools.partial(self._gone, address)
            self._guest.handed_over(connection, address, closed)
        except OSError as exc:
            # The reader was quicker to leave than we to look.
            logger.debug("a handed over connection is of no use: %s", exc)
            connection.close()
            self._gone(address)

    def _gone(self, address: str) -> None:
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]
        self.send(commands.gone(address))

    def _finish(self, number: int) -> None:
        while self._unfinished and next(iter(self._unfinished)) <= number:
            _, (_, done) = self._unfinished.popitem(last=False)
            done()

    def _finish_all(self) -> None:
        self._finish(self._number)

    def _answer_counts(self) -> None:
        for asked in self._asked:
            if not asked.done():
                asked.set_result(None)
        self._asked.clear()


async def _bury(process: Process) -> None:
    """Wait until a data plane that should end has ended."""
    deadline = asyncio.get_running_loop().time() + _GRACE
    while process.poll() is None:
        if asyncio.get_running_loop().time() > deadline:
            logger.warning("data plane %d doesn't end: killing it", process.pid)
            process.kill()
        await asyncio.sleep(_LOOK_AGAIN)

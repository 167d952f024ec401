"""The native engine: most readers' connections are in the data plane, a process beside ours.

Requests that the data plane doesn't serve (SockJS's HTTP transports, SSE, pages) are served here as
by the Tornado engine. The data plane is started if need be, attached to, attached to again::

    AWAY ──attached──► ATTACHED ──drain──► DRAINING ──link is lost──► GONE
      ▲                   │ └──another control plane has come──────────▲
      └───link is lost────┘

The link is also lost when another data plane takes over from ours (by :meth:`Plane.take_over`, or
for another control plane). We attach to the new one over the same path, and it has the same
readers. So DRAINING returns to AWAY then, and the new one is drained.

A publication stays here until the data plane reports that its fan-out is over, and is sent again to
the next attachment: the data plane drops duplicates. The feed's prefetch bounds how many there are,
since a delivery isn't acknowledged before.

Answers to readers are not kept: a verb that wasn't answered is sent again. So an answer must go to
the attachment whose verb it answers: :attr:`Plane.attachment` is its number.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import enum
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gateway.core.drain import DrainSchedule
from gateway.feed.engine import Engine
from gateway.native import commands, events
from gateway.native.link import AnswerBackpressure, ControlLink
from gateway.native.program import END_SECONDS, LOOK_AGAIN_SECONDS, TAKE_OVER_SECONDS, Child
from gateway.native.totals import DataPlaneTotals
from gateway.process.descriptors import connections_at_most
from gateway.process.settings import GatewaySettings
from gateway.wire.publication import Publication
from newsfabric.backoff import Backoff
from newsfabric.closing import INVALID_TOKEN, REBALANCE
from newsfabric.errors import ConfigError

logger = logging.getLogger(__name__)

_ATTACH_SECONDS: Final = 10.0
_COUNT_SECONDS: Final = 1.0
# Users in one command.
_USERS: Final = 10_000


class PlaneState(enum.Enum):
    """The state of the link to the data plane."""

    AWAY = "away"
    ATTACHED = "attached"
    DRAINING = "draining"
    GONE = "gone"


class _OtherVersion(ConfigError):
    """Error: the data plane doesn't speak our version of the protocol."""


class Plane(Engine):
    """The data plane, for as long as this control plane lives."""

    name = "native"
    serves_websockets = False

    def __init__(self, settings: GatewaySettings, program: Path, control: Path) -> None:
        super().__init__()
        self.totals: DataPlaneTotals = DataPlaneTotals()
        self.state = PlaneState.AWAY
        self.attachment = 0
        self.port = settings.port
        #: Verbs of readers, and the room for answers.
        self.room = AnswerBackpressure(lambda: self._link is not None and self._link.full)
        #: Called for each attachment, handover (with its descriptor; None if lost) and full
        #: address, and when another control plane replaces us. It may not block or raise.
        self.on_event: Callable[[events.Event, int | None], None]
        self._settings = settings
        # New readers are turned away until they can be served.
        self._capacity = 0
        self._child = Child(settings, program, control)
        # Whether our program has taken over from a data plane of another version.
        self._took_over = False
        self._link: ControlLink | None = None
        # Set for a moment at each change of state or of data plane.
        self._changed = asyncio.Event()
        self._greeting: asyncio.Future[events.AttachedEvent] | None = None
        self._unfinished = UnfinishedPublications()
        # Set for a moment when counters have arrived, or won't arrive.
        self._counted = asyncio.Event()
        self._replaced = False
        self._taking_over = False

    # Attaching, and the process.

    async def attach(self) -> None:
        """Attach to the living data plane, or else to one that is started now.

        If it speaks another version of the protocol, our own program takes over from it, once.
        TimeoutError if that takes too long, OSError or ConfigError for anything else; retry.
        """
        try:
            attached = await self._attach()
        except _OtherVersion as exc:
            if self._took_over:
                # Our program has that version too, or another control plane wants it so.
                raise
            logger.warning("%s; ours takes over from it", exc)
            await self._child.take_over()
            self._took_over = True
            attached = await self._attach()
        await self._child.attached_to(attached.pid)
        logger.info(
            "attached to data plane %d on port %d, attachment %d, %d readers",
            attached.pid, self.port, attached.attachment, attached.readers,
        )  # fmt: skip

    async def stay_attached(self) -> None:
        """Attach again whenever the link is lost, until the data plane is gone for good."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(base=0.1, cap=5.0)
        while self.state is not PlaneState.GONE:
            if self.state is not PlaneState.AWAY:
                backoff.succeeded(loop.time())
                await self._changed.wait()
                continue
            try:
                await self.attach()
            except (OSError, ConfigError) as exc:
                delay = backoff.failed(loop.time())
                logger.warning("no data plane, trying again in %.1f s: %s", delay, exc)
                await asyncio.sleep(delay)

    def abandon(self) -> None:
        """Kill the data plane that we have started and can't attach to: it serves nobody."""
        if not self._took_over:
            self._child.kill()

    async def take_over(self) -> int:
        """Have a new data plane take over from ours; return its pid when it serves our readers.

        ConfigError if it doesn't; then our present one serves on.
        """
        if self.state is not PlaneState.ATTACHED or self._taking_over:
            raise ConfigError("there is no data plane to take over from now")
        self._taking_over, former = True, self._link
        try:
            newer = await self._child.take_over()
            # A former data plane that hasn't reported the take-over by then is frozen.
            asyncio.get_running_loop().call_later(END_SECONDS, self._detach_from, former)
            async with asyncio.timeout(TAKE_OVER_SECONDS):
                while self.pid != newer:
                    await self._changed.wait()
        except TimeoutError as exc:
            raise ConfigError("the new data plane has our readers, and doesn't answer us") from exc
        finally:
            self._taking_over = False
        return newer

    async def drain(self) -> None:
        """Have all readers sent away; return when the data plane has ended, or should have."""
        # Drained before, or another control plane's by now. (Not in the `if`: mypy would assume
        # that the state stays another one below.)
        over = self.state is PlaneState.GONE
        if over:
            return
        # First of all: until it has received this, the data plane lets readers in.
        self._send_drain()
        await self.refresh_counters()
        seconds, per_second = self._settings.drain_seconds, self._settings.drain_per_second
        within = DrainSchedule(self.totals.readers, seconds, per_second).duration
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within + self._settings.linger + END_SECONDS):
                while self.state is not PlaneState.GONE:
                    self._send_drain()
                    await self._changed.wait()
        if not self._replaced:
            self.close()
            await self._child.end()

    def _send_drain(self) -> None:
        """Send ``drain``, once for each attachment."""
        if self.state is PlaneState.ATTACHED:
            self.send(commands.drain(self._settings.drain_seconds, self._settings.drain_per_second))
            self.state = PlaneState.DRAINING

    def close(self) -> None:
        """Close the link; a living data plane continues without us."""
        self.state = PlaneState.GONE
        _wake_waiters(self._changed)
        if self._link is not None:
            self._link.close()
            self._link = None
        self.room.reset()
        self._unfinished.finish_all()
        self.totals.restart()

    async def _attach(self) -> events.AttachedEvent:
        async with asyncio.timeout(_ATTACH_SECONDS):
            while True:
                try:
                    return await self._greet(await self._child.connect(self.port))
                except ConnectionError as exc:
                    # The data plane ends, or hands its readers to another one.
                    logger.info("the data plane hangs up before it answers: %s", exc)
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _greet(self, connection: socket.socket) -> events.AttachedEvent:
        """Send ``hello`` on ``connection``, which is ours from now on; return the answer."""
        greeting: asyncio.Future[events.AttachedEvent] = asyncio.get_running_loop().create_future()
        self._greeting = greeting
        link = self._link = ControlLink(
            connection, self._on_event, self._on_lost, self.room.on_room
        )
        link.send(commands.hello())
        try:
            return await greeting
        except asyncio.CancelledError:
            link.close()
            raise

    # Commands to the data plane.

    @property
    def is_serving(self) -> bool:
        """True while we are attached, draining or not."""
        return self.state in (PlaneState.ATTACHED, PlaneState.DRAINING)

    def send(self, command: bytes) -> None:
        """Send ``command``; do nothing while there is no attachment."""
        if self._link is not None and self.is_serving:
            self._link.send(command)

    def publish(self, publication: Publication, done: Callable[[], None]) -> None:
        """Send ``publication`` now or when we are attached; call ``done`` after its fan-out."""
        if self.state is PlaneState.GONE:
            if not self._replaced:
                done()
            return
        self.send(self._unfinished.add(publication, done))

    def resize(self, capacity: int) -> None:
        """Limit the data plane to ``capacity`` readers from now on."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._send_settings()

    def _send_settings(self) -> None:
        # The data plane turns requests away that exceed the second bound.
        bounds = {"capacity": self._capacity, "handovers": connections_at_most()}
        self.send(commands.settings(self._settings, **bounds))

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close users whose logins were issued until the time in ``revoked`` (ms)."""
        for start in range(0, len(revoked), _USERS):
            some = revoked[start : start + _USERS]
            self.send(commands.evict(some, INVALID_TOKEN))

    def send_away(self, count: int) -> None:
        """Have ``count`` of the data plane's readers connect to other boxes."""
        self.send(commands.shed(REBALANCE, count, self._settings.retry_after_ms))

    async def refresh_counters(self) -> None:
        """Fetch fresh counters; return without them if the data plane doesn't answer."""
        if self._link is None or self.state is PlaneState.AWAY:
            return
        self.send(commands.count())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COUNT_SECONDS):
                await self._counted.wait()

    # Events of the data plane.

    def _on_event(self, event: events.Event, descriptor: int | None) -> None:
        match event:
            case events.VerbsEvent(verbs):
                self.room.receive(verbs)
            case events.PublishedEvent(number):
                self._unfinished.finish(number)
            case events.HandoverEvent() | events.FullEvent():
                self.on_event(event, descriptor)
            case events.CountersEvent(values):
                self.totals.update(values)
                _wake_waiters(self._counted)
            case events.AttachedEvent():
                self._on_attached(event)
            case events.RefusedEvent():
                self._on_refused(event)

    def _on_refused(self, event: events.RefusedEvent) -> None:
        why = event.why
        if why == events.TAKEN_OVER:
            self._detach_from(self._link)
        elif self._greeting is not None and not self._greeting.done():
            text = f"the data plane at {self._child.control} refuses us: {why}"
            other = _OtherVersion if why == events.OTHER_VERSION else ConfigError
            self._greeting.set_exception(other(text))
        else:
            logger.warning("the data plane cuts us off: %s", why)
            if why == events.REPLACED:
                self.state = PlaneState.GONE
                # Publications stay unacknowledged: the broker gives them to the new control plane.
                self._replaced = True
                self._unfinished.forget()
                self.on_event(event, None)

    def _on_attached(self, event: events.AttachedEvent) -> None:
        if self.state is PlaneState.GONE:
            # We were drained while we looked for the data plane.
            self.close()
            return
        if event.ports:
            self.port = event.ports[0]
        if self.pid != event.pid:
            self.totals.restart()
            self.pid = event.pid
        self.attachment += 1
        self.state = PlaneState.ATTACHED
        _wake_waiters(self._changed)
        self.on_event(event, None)
        self._send_settings()
        for command in self._unfinished.commands():
            self.send(command)
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_result(event)

    def _detach_from(self, link: ControlLink | None) -> None:
        """Detach from ``link`` if it is still in use: another data plane has the readers."""
        if link is not None and link is self._link and self.is_serving:
            logger.info("data plane %s has handed its readers to another one", self.pid)
            link.close()
            self._detach(PlaneState.AWAY, "it has no readers any more")

    def _on_lost(self, why: str) -> None:
        if self.state is PlaneState.ATTACHED:
            logger.warning("the data plane is lost: %s", why)
        self._detach(
            PlaneState.GONE
            if self.state in (PlaneState.DRAINING, PlaneState.GONE)
            else PlaneState.AWAY,
            why,
        )

    def _detach(self, state: PlaneState, why: str) -> None:
        self.state = state
        self._link = None
        self.room.reset()
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(ConnectionError(why))
        _wake_waiters(self._counted)
        _wake_waiters(self._changed)


def _wake_waiters(event: asyncio.Event) -> None:
    """Wake all tasks that wait for ``event`` now."""
    event.set()
    event.clear()


class UnfinishedPublications:
    """Numbered publications: each command is kept until its fan-out is over.

    The data plane finishes them in the order of their numbers.
    """

    def __init__(self) -> None:
        self._number = 0
        # Ascending: the number, the command, and the callback for the end of its fan-out.
        self._kept: collections.deque[tuple[int, bytes, Callable[[], None]]] = collections.deque()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, publication: Publication, done: Callable[[], None]) -> bytes:
        """Return the command that publishes ``publication`` under the next number."""
        self._number += 1
        command = commands.publish(self._number, publication)
        self._kept.append((self._number, command, done))
        return command

    def commands(self) -> list[bytes]:
        """Return all commands that a new attachment must be sent again."""
        return [command for _, command, _ in self._kept]

    def finish(self, number: int) -> None:
        """Call back for all fan-outs up to ``number``: they are over."""
        while self._kept and self._kept[0][0] <= number:
            _, _, done = self._kept.popleft()
            done()

    def finish_all(self) -> None:
        """Finish all: no reader is left to be given one."""
        self.finish(self._number)

    def forget(self) -> None:
        """Forget all without a callback."""
        self._kept.clear()

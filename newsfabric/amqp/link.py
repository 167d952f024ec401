"""A link to a broker over pika: connected, and reconnected, until closed.

:func:`connect` returns at once, connected or not, so that services can start in any order: a caller
that needs the broker waits with :meth:`ConfirmingPublisher.ready` or for its first delivery.

A task of the link runs one connection after the other; on each of them one task per declaration,
publisher and consumer keeps the channel of that member. A channel that the broker closes (no such
queue, other arguments) is opened again with backoff, without effect on other channels.

::

    connecting ──open──► declaring ──each tried once──► serving ──lost──► waiting ──► connecting
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from newsfabric.amqp import Declare, OnDelivery, Queue
from newsfabric.amqp.connection import BrokerConnection, open_connection
from newsfabric.amqp.consumer import LinkConsumer
from newsfabric.amqp.declaring import Declaration, declare_once
from newsfabric.amqp.parameters import Parameters, parameters_of
from newsfabric.amqp.publisher import LinkPublisher
from newsfabric.amqp.retry import broker_backoff
from newsfabric.errors import ConfigError, LinkClosed, LinkError, LinkRefused
from newsfabric.line_limits import RepeatedFailures
from newsfabric.settings import Credentials

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT: Final = 10.0
# Seconds that close() waits for confirms, and then for the broker's close.
CLOSE_TIMEOUT: Final = 2.0

_GUEST: Final = Credentials()


async def connect(
    urls: Sequence[str],
    *,
    name: str,
    credentials: Credentials | None = _GUEST,
    connect_timeout: float = CONNECT_TIMEOUT,
) -> PikaLink:
    """Return a link to the first of ``urls``, shuffled, that answers. Connects in the background.

    ``name`` is shown in the broker's management and in the log. With ``credentials`` None those in
    each URL are used. ConfigError if a URL is malformed.
    """
    if not urls:
        raise ConfigError(f"link {name}: no URL to connect to")
    parameters = [parameters_of(url, name=name, credentials=credentials) for url in urls]
    return PikaLink(parameters, name, connect_timeout)


class _Member(Protocol):
    """A declaration, publisher or consumer of a link, which works on each connection in turn."""

    @property
    def established(self) -> bool:
        """True if the broker has granted its requests on the present connection."""

    async def serve(self, connection: BrokerConnection, attempted: Callable[[], None]) -> None:
        """Work until ``connection`` is closed; call ``attempted`` after the first try."""


class _Seat:
    """A member of a link, and its task on the present connection."""

    def __init__(self, member: _Member) -> None:
        self.member = member
        self.task: asyncio.Task[None] | None = None
        # Set when the member was tried on this connection, or the connection is gone.
        self.attempted = asyncio.Event()

    def seat_on(self, connection: BrokerConnection) -> None:
        self.attempted.clear()
        self.task = asyncio.create_task(self.member.serve(connection, self.attempted.set))
        self.task.add_done_callback(lambda task: self._on_done(task, connection))

    def _on_done(self, task: asyncio.Task[None], connection: BrokerConnection) -> None:
        self.attempted.set()
        if not task.cancelled() and (error := task.exception()):
            # A bug, ours or in a caller's declare: the link must not look alive then.
            logger.error("%s: dropping the connection", connection.name, exc_info=error)
            connection.abort()


class PikaLink:
    """The :class:`newsfabric.amqp.Link` of :func:`connect`."""

    def __init__(self, parameters: Sequence[Parameters], name: str, connect_timeout: float) -> None:
        self._parameters = list(parameters)
        self._name = name
        self._connect_timeout = connect_timeout
        self._declarations: list[_Seat] = []
        self._users: list[_Seat] = []
        self._connection: BrokerConnection | None = None
        self._trouble: LinkError | None = None
        self._losses = RepeatedFailures()
        # The last loss was logged, and so the reconnection has to be.
        self._loss_logged = True
        # Notified after each try to connect, failed or not.
        self._tried = asyncio.Condition()
        # Every declaration was tried on this connection: publishers and consumers have channels.
        self._serving = False
        self._closing = False
        self._runner = asyncio.create_task(self._run(), name=f"link {name}")

    @property
    def members(self) -> tuple[PikaLink]:
        """See :attr:`newsfabric.amqp.Links.members`: the link itself."""
        return (self,)

    @property
    def connected(self) -> bool:
        """True if the link is up now, with its declarations tried."""
        return self._serving and self._connection is not None and self._connection.is_open

    @property
    def established(self) -> bool:
        """See :attr:`newsfabric.amqp.Links.established`."""
        seats = (*self._declarations, *self._users)
        return self.connected and all(seat.member.established for seat in seats)

    @property
    def trouble(self) -> LinkError | None:
        """See :attr:`newsfabric.amqp.Link.trouble`."""
        return self._trouble

    async def refused(self) -> LinkRefused:
        """See :meth:`newsfabric.amqp.Link.refused`."""
        async with self._tried:
            while not isinstance(self._trouble, LinkRefused):
                await self._tried.wait()
            return self._trouble

    async def publisher(self, *, in_flight: int = 1000) -> LinkPublisher:
        """See :meth:`newsfabric.amqp.Links.publisher`."""
        publisher = LinkPublisher(self._name, in_flight)
        seat = self._seat(self._users, publisher, now=self._serving)
        if self._connection is not None:
            await seat.attempted.wait()
        return publisher

    async def consumer(
        self, queue: Queue, on_delivery: OnDelivery, *, prefetch: int = 1000
    ) -> LinkConsumer:
        """See :meth:`newsfabric.amqp.Link.consumer`."""
        consumer = LinkConsumer(self._name, queue, on_delivery, prefetch)
        # Not awaited: the caller must have its consumer before the first delivery.
        self._seat(self._users, consumer, now=self._serving)
        return consumer

    async def on_connect(self, declare: Callable[[Declare], Awaitable[None]]) -> None:
        """See :meth:`newsfabric.amqp.Link.on_connect`."""
        declaration = Declaration(self._name, declare)
        connected = self._connection is not None
        seat = self._seat(self._declarations, declaration, now=connected)
        if connected:
            await seat.attempted.wait()

    async def declare(self, declare: Callable[[Declare], Awaitable[None]]) -> None:
        """See :meth:`newsfabric.amqp.Link.declare`."""
        if self._connection is None:
            raise LinkClosed(f"{self._name} is down")
        await declare_once(self._connection, declare)

    def _seat(self, seats: list[_Seat], member: _Member, *, now: bool) -> _Seat:
        """Add ``member`` to this link, and start it on the connection if ``now``."""
        seat = _Seat(member)
        seats.append(seat)
        if now and self._connection is not None:
            seat.seat_on(self._connection)
        return seat

    async def close(self) -> None:
        """See :meth:`newsfabric.amqp.Links.close`."""
        try:
            if self.connected and not self._closing:
                self._closing = True
                await self._finish_work()
        finally:
            self._closing = True
            # Only once: a second cancel would interrupt the closing of the connection.
            if not self._runner.cancelling():
                self._runner.cancel()
            await asyncio.wait([self._runner])

    async def _finish_work(self) -> None:
        members = [seat.member for seat in self._users]
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                for member in members:
                    if isinstance(member, LinkPublisher):
                        await member.idle()
        for member in members:
            if isinstance(member, LinkConsumer):
                member.flush()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = broker_backoff()
        failures = RepeatedFailures()
        while True:
            try:
                connection = await self._connect_to_any()
                await self._note(None)
                backoff.succeeded(loop.time())
                failures.ended()
                await self._use(connection)
            except LinkError as exc:
                if failures.should_log(str(exc), loop.time()):
                    logger.warning("link %s: %s; trying again", self._name, exc)
                await self._note(exc)
            except Exception:
                # A bug must not leave a link silently down for good.
                logger.exception("link %s: trying again", self._name)
            await asyncio.sleep(backoff.failed(loop.time()))

    async def _note(self, trouble: LinkError | None) -> None:
        async with self._tried:
            self._trouble = trouble
            self._tried.notify_all()

    async def _connect_to_any(self) -> BrokerConnection:
        """Return a connection to the first URL, shuffled, that answers; LinkError with all reasons.

        LinkRefused if all brokers refuse us: if one fails in another way, waiting may help.
        """
        reasons = []
        refused = 0
        for parameters in random.sample(self._parameters, len(self._parameters)):
            try:
                connection = await open_connection(parameters, within=self._connect_timeout)
            except LinkError as exc:
                reasons.append(f"{parameters.host}:{parameters.port}: {exc}")
                refused += isinstance(exc, LinkRefused)
                continue
            if refused:
                # Without this line the refusals would be unknown until the others are gone.
                logger.warning(
                    "link %s: %s; connected to another broker", self._name, "; ".join(reasons)
                )
            return connection
        text = "; ".join(sorted(reasons))
        raise LinkRefused(text) if refused == len(reasons) else LinkError(text)

    async def _use(self, connection: BrokerConnection) -> None:
        """Serve all members on ``connection`` until it is lost."""
        where = f"{connection.parameters.host}:{connection.parameters.port}"
        if self._loss_logged:
            logger.info("link %s: connected to %s", self._name, where)
        self._connection = connection
        connection.closed.add_done_callback(lambda _: self._release_waiting())
        try:
            await self._serve(connection)
            reason = await asyncio.shield(connection.closed)
            self._loss_logged = self._losses.should_log(
                str(reason), asyncio.get_running_loop().time()
            )
            if self._loss_logged:
                logger.warning("link %s: lost %s: %s", self._name, where, reason)
        finally:
            self._serving = False
            self._connection = None
            self._release_waiting()
            await self._unseat_all()
            await connection.shut(within=CLOSE_TIMEOUT)

    async def _serve(self, connection: BrokerConnection) -> None:
        # One after the other: a later declaration may bind objects of an earlier one. Declarations
        # that are added meanwhile start by themselves.
        for seat in list(self._declarations):
            seat.seat_on(connection)
            await seat.attempted.wait()
        self._serving = True
        for seat in self._users:
            seat.seat_on(connection)

    def _release_waiting(self) -> None:
        for seat in (*self._declarations, *self._users):
            seat.attempted.set()

    async def _unseat_all(self) -> None:
        seats = (*self._declarations, *self._users)
        tasks = [seat.task for seat in seats if seat.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

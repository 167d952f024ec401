"""The driver behind the Cassandra store: connecting, requests in flight, replies, errors.

The driver has threads of its own and calls back in them; replies are collected and handed to the
event loop together, since waking the loop for each would cost more than the reply.

If its own region can't answer a read, another region is asked; sooner where the caller is in a
hurry and the reply needn't be final (:mod:`newsfabric.store._cassandra_presence`). Writes wait for
their own region: rows written elsewhere would silently be missing here after this region's nodes
return, until they have caught up.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from cassandra import InvalidRequest
from cassandra.cluster import Cluster
from cassandra.cluster import Session as DriverSession

from newsfabric.backoff import Backoff
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.settings import Credentials
from newsfabric.store._cassandra_binding import Binding
from newsfabric.store._cassandra_cluster import (
    ELSEWHERE,
    QUORUM,
    REQUEST_S,
    TRANSACTION,
    TRANSACTION_S,
    cluster,
    keep_nodes_known,
    one_line,
    tls_context,
    wrapped,
)
from newsfabric.store._cassandra_presence import LONG_WAIT, Presence, ReadWait, Silence
from newsfabric.store._cassandra_rows import STATEMENTS, Batch, Values
from newsfabric.store._cassandra_url import Address

logger = logging.getLogger(__name__)

# Requests in flight of this process; a node works on 16 to 32 writes at a time.
DEFAULT_IN_FLIGHT: Final = 128
# Requests that wait beyond these; above this bound callers get StoreUnavailable.
DEFAULT_WAITING: Final = 4_096
# Rows of one partition in one reply: with the largest bodies, 16 MiB.
PAGE_ROWS: Final = 256

Row = tuple[Any, ...]
T = TypeVar("T")


class Bridge:
    """A carrier of replies from the driver's threads to the event loop, many at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: collections.deque[Callable[[], None]] = collections.deque()
        self._woken = False

    def post(self, deliver: Callable[[], None]) -> None:
        """Have the event loop call ``deliver`` soon. From any thread."""
        self._arrived.append(deliver)
        if not self._woken:
            self._woken = True
            # The loop may be gone, and all waiting tasks with it.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Cleared before the loop below: a reply that arrives after it wakes the loop again.
        self._woken = False
        while self._arrived:
            self._arrived.popleft()()


@dataclasses.dataclass(frozen=True, slots=True)
class _Link:
    """A connected driver, every statement prepared."""

    cluster: Cluster
    session: DriverSession
    bindings: dict[str, Binding]
    presence: Presence


class CassandraSession:
    """A sender of requests to the nodes of one data centre; belongs to the event loop that uses it.

    The session connects when first used, and again after a failure with a backoff: calls in between
    raise StoreUnavailable. It stays connected through the loss of any node. At most ``in_flight``
    requests are under way; up to ``waiting`` more wait for their turn, the rest fail at once.
    """

    def __init__(
        self,
        address: Address,
        login: Credentials | None,
        *,
        in_flight: int = DEFAULT_IN_FLIGHT,
        waiting: int = DEFAULT_WAITING,
    ) -> None:
        # At construction: the first request may be long after the start.
        tls_context(address)
        self._address = address
        self._login = login
        self._in_flight = in_flight
        self._turns = asyncio.Semaphore(in_flight)
        self._most_waiting = waiting
        self._waiting = 0
        self._link: _Link | None = None
        self._bridge: Bridge | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._rereading: asyncio.Task[None] | None = None
        self._backoff = Backoff(base=0.5, cap=5.0)
        self._rest_until = 0.0
        self._failure: StoreError | None = None
        self._closed = False
        self._silence = Silence()

    @property
    def centre(self) -> str:
        """The data centre whose nodes are asked: a region's name."""
        return self._address.centre

    async def read(
        self,
        statement: str,
        values: Values,
        *,
        wait: ReadWait = LONG_WAIT,
        at: str | None = None,
    ) -> list[Row]:
        """Return the rows that ``statement`` finds in this region, or in another one if it is
        silent.

        The other region lacks rows that this one wrote in its last moments and hadn't replicated.
        With ``at`` only that region is asked, and StoreUnavailable is raised if it doesn't answer.
        """
        link = await self._connected()
        if at is not None:
            profile = QUORUM if at == self._address.centre else ELSEWHERE
            return await self._read(link, statement, values, profile, region=at)
        if not link.presence.has_others:
            return await self._read(link, statement, values, QUORUM)
        now = time.monotonic()
        here = self._silence.begins_here(wait, now) and link.presence.is_whole(now)
        if not here and self._silence.answers_elsewhere(now):
            with contextlib.suppress(StoreUnavailable):
                return await self._read_elsewhere(link, statement, values)
            return await self._read(link, statement, values, QUORUM)
        try:
            return await self._read(link, statement, values, QUORUM, within=wait.here)
        except StoreUnavailable as exc:
            if self._silence.note_silence(wait, time.monotonic()):
                logger.warning("%s: reading from another region", exc)
        return await self._read_elsewhere(link, statement, values)

    async def _read_elsewhere(self, link: _Link, statement: str, values: Values) -> list[Row]:
        try:
            return await self._read(link, statement, values, ELSEWHERE)
        except StoreUnavailable:
            self._silence.note_silence_elsewhere(time.monotonic())
            raise

    async def transact(self, statement: str, values: Values) -> Row:
        """Return the reply to a lightweight transaction of this region: first, if it was applied.

        A transaction that fails may have been applied, or may be applied later.
        """
        link = await self._connected()
        request = link.bindings[statement].one(values)
        turn = await self._turn()
        (answer,) = await self._start(link, request, TRANSACTION, turn, within=TRANSACTION_S)
        return answer

    async def _read(
        self,
        link: _Link,
        statement: str,
        values: Values,
        profile: str,
        *,
        within: float = REQUEST_S,
        region: str | None = None,
    ) -> list[Row]:
        request = link.bindings[statement].one(values)
        # For _cassandra_cluster.OtherRegions.
        request.region = region
        turn = await self._turn()
        return await self._start(link, request, profile, turn, within=within)

    async def write(self, batches: Sequence[Batch]) -> None:
        """Write each batch by one request; return when all are done.

        After an error some batches may have been written.
        """
        link = await self._connected()
        answers: list[asyncio.Future[list[Row]]] = []
        try:
            for batch in batches:
                request = link.bindings[batch.statement].many(batch.rows)
                turn = await self._turn()
                answers.append(self._start(link, request, QUORUM, turn))
            await asyncio.wait(answers)
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise
        errors = [error for answer in answers if (error := answer.exception()) is not None]
        # An error that a retry can't help is raised before others.
        for error in sorted(errors, key=lambda error: isinstance(error, StoreUnavailable)):
            raise error

    async def close(self) -> None:
        """Wait for the requests in flight and disconnect. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._connecting is not None:
            await self._connecting
        for _ in range(self._in_flight):
            await self._turns.acquire()
        if self._link is not None:
            assert self._rereading is not None
            self._rereading.cancel()
            await asyncio.wait([self._rereading])
            await asyncio.to_thread(self._link.cluster.shutdown)

    async def _connected(self) -> _Link:
        if self._closed:
            raise StoreError(f"{self._address}: the store is closed")
        if self._link is not None:
            return self._link
        if self._connecting is None and time.monotonic() >= self._rest_until:
            self._connecting = asyncio.create_task(self._connect(), name="store connect")
        if self._connecting is not None:
            # Others wait for the same connection: the cancellation of one must not end it.
            await asyncio.shield(self._connecting)
        if self._link is None:
            assert self._failure is not None
            raise type(self._failure)(str(self._failure)) from self._failure
        return self._link

    async def _connect(self) -> None:
        """Connect, and set the link or the failure."""
        self._bridge = Bridge(asyncio.get_running_loop())
        try:
            self._link = await asyncio.to_thread(_connect, self._address, self._login)
        except StoreError as exc:
            self._failure = exc
            self._rest_until = time.monotonic() + self._backoff.failed(time.monotonic())
        else:
            self._rereading = asyncio.create_task(
                keep_nodes_known(self._link.cluster), name="store nodes"
            )
            logger.info("connected to the store at %s", self._address)
        finally:
            self._connecting = None

    async def _turn(self) -> _Turn:
        if self._waiting >= self._most_waiting:
            raise StoreUnavailable(f"{self._address}: {self._waiting} requests are waiting")
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        return _Turn(self._turns)

    def _start(
        self,
        link: _Link,
        request: Any,
        profile: str,
        turn: _Turn,
        *,
        within: float = REQUEST_S,
    ) -> asyncio.Future[list[Row]]:
        """Send ``request``; its turn ends with the reply, even if no task waits for it any more."""
        assert self._bridge is not None
        bridge = self._bridge
        answer: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()

        def settle(rows: list[Row] | None, error: Exception | None) -> None:
            turn.end()
            if answer.done():
                return
            if error is None:
                answer.set_result(rows or [])
            else:
                failure = wrapped(error, str(self._address))
                failure.__cause__ = error
                answer.set_exception(failure)

        def arrived(rows: list[Row] | None) -> None:
            bridge.post(functools.partial(settle, rows, None))

        def failed(error: Exception) -> None:
            bridge.post(functools.partial(settle, None, error))

        try:
            link.session.execute_async(
                request, execution_profile=profile, timeout=within
            ).add_callbacks(arrived, failed)
        except Exception as exc:
            # An error that the driver finds before it sends anything.
            settle(None, exc)
        return answer


class _Turn:
    """The right to one request. Ends once, though a speculative request may get two replies."""

    __slots__ = ("_turns",)

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns: asyncio.Semaphore | None = turns

    def end(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.release()


def _connect(address: Address, login: Credentials | None) -> _Link:
    """Connect, and prepare all statements. Blocks. StoreError has the reason of a failure."""
    made: Cluster | None = None
    try:
        made = cluster(address, login)
        presence = Presence(address.centre, made.metadata.all_hosts)
        made.register_listener(presence)
        session = made.connect()
        centres = {host.datacenter for host in made.metadata.all_hosts()}
        if address.centre not in centres:
            known = ", ".join(sorted(str(centre) for centre in centres))
            raise StoreError(f"{address}: no data centre {address.centre!r} (there is: {known})")
        # The driver doesn't notify again of nodes that were away before their region was known.
        presence.note_nodes()
        session.set_keyspace(address.keyspace)
        prepared = {text: session.prepare(text) for text in STATEMENTS}
    except Exception as exc:
        if made is not None:
            made.shutdown()
        if isinstance(exc, InvalidRequest):
            # No such keyspace, no such table.
            text = f"{address}: {one_line(exc)}: run `newsfabric schema apply`"
            raise StoreError(text) from exc
        raise wrapped(exc, str(address)) from exc
    for statement in prepared.values():
        statement.is_idempotent = True
        # Each statement has its own limit, and the driver's first page isn't the whole reply.
        statement.fetch_size = None
    bindings = {text: Binding(statement) for text, statement in prepared.items()}
    return _Link(made, session, bindings, presence)


async def together(reads: Iterable[Coroutine[Any, Any, list[T]]]) -> list[list[T]]:
    """Return the results of ``reads``, run concurrently. Raises the first error among them."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read) for read in reads]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]

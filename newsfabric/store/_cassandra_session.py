"""The driver behind the Cassandra store: connecting, requests in flight, answers, errors.

The one module that talks to cassandra-driver (with :mod:`newsfabric.store._cassandra_schema`).
The driver has threads of its own and calls back in them; answers are collected and handed
to the event loop together, since waking the loop for each would cost more than the answer.

Its libev reactor is asked for by name: under load the driver's asyncio reactor broke frames of
protocol v5 (measured: more than half of all requests failed, none with libev).

What its own region can't read another region is asked for, sooner where the answer is in a hurry
and needn't be the last word (:data:`HASTY`). Writes wait for their own region:
what was written elsewhere would be missing here, and nobody would know, from the return of
this region's nodes until they have caught up.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    CoordinationFailure,
    InvalidRequest,
    OperationTimedOut,
    ProtocolVersion,
    Timeout,
    Unavailable,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
)
from cassandra.cluster import Session as DriverSession
from cassandra.connection import ConnectionException
from cassandra.io.libevreactor import LibevConnection
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    HostStateListener,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import (
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    TruncateError,
)
from cassandra.query import BatchStatement, BatchType, PreparedStatement, tuple_factory

from newsfabric.backoff import Backoff
from newsfabric.errors import ConfigError, StoreError, StoreUnavailable
from newsfabric.settings import Credentials, TlsFiles
from newsfabric.store._cassandra_rows import STATEMENTS, Batch, Consistency, Values
from newsfabric.store._cassandra_url import SYSTEM_TLS, Address
from newsfabric.tls import ClientTls

logger = logging.getLogger(__name__)

CONNECT_S: Final = 5.0
REQUEST_S: Final = 4.0
# An answer takes milliseconds. After this long another replica is asked as well.
_SPECULATE_S: Final = 0.25
_HEARTBEAT_S: Final = 5.0
# Requests that nodes work on for this process; a node works on 16 to 32 writes at a time.
DEFAULT_IN_FLIGHT: Final = 128
# Those that wait for their turn beyond that; then callers are told to come again.
DEFAULT_WAITING: Final = 4_096
_LEVELS: Final = {
    "one": ConsistencyLevel.LOCAL_ONE,
    "quorum": ConsistencyLevel.LOCAL_QUORUM,
}
# Reads that another region answers, by a quorum of its own.
_ELSEWHERE: Final[Literal["elsewhere"]] = "elsewhere"
# So many nodes of each other region are connected to.
_NODES_ELSEWHERE: Final = 2
# So long after this region's nodes have come back from being all away others are asked first: what
# those wrote meanwhile comes to them by hints (measured: within ten seconds).
_CATCHING_UP_S: Final = 30.0
_PASSING: Final = (
    ConnectionException,
    CoordinationFailure,
    IsBootstrappingErrorMessage,
    NoHostAvailable,
    OperationTimedOut,
    OverloadedErrorMessage,
    Timeout,
    TruncateError,
    Unavailable,
)

Row = tuple[Any, ...]


def _is_news(record: logging.LogRecord) -> bool:
    # Logged at ERROR and raised as well; who catches it says what it means. And that a node is
    # still down isn't said every two seconds: it was said once that it is.
    said = (
        "Control connection failed to connect",
        "Failed to authenticate to",
        "Error attempting to reconnect to",
    )
    return not str(record.msg).startswith(said)


for _name in ("cassandra.cluster", "cassandra.connection", "cassandra.pool"):
    logging.getLogger(_name).addFilter(_is_news)


class AskAnother(RetryPolicy):  # type: ignore[misc]
    """Ask one other replica once. Right for us alone: everything we send is idempotent."""

    def on_read_timeout(self, query: Any, *, retry_num: int, **info: Any) -> Any:
        return self._once(retry_num)

    def on_write_timeout(self, query: Any, *, retry_num: int, **info: Any) -> Any:
        return self._once(retry_num)

    def _once(self, retry_num: int) -> Any:
        return (self.RETRY_NEXT_HOST if retry_num == 0 else self.RETHROW, None)


class OtherRegions(DCAwareRoundRobinPolicy):  # type: ignore[misc]
    """The nodes of all regions but ``local_dc``."""

    def make_query_plan(self, *args: Any, **named: Any) -> Iterator[Any]:
        plan = super().make_query_plan(*args, **named)
        return (host for host in plan if host.datacenter != self.local_dc)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a read waits for its own region before another one is asked, and for how long the
    next such reads begin there then: each would wait for a node that hangs. In seconds."""

    here: float
    elsewhere: float


PATIENT: Final = Patience(here=REQUEST_S, elsewhere=30.0)
# For what is asked again until it is found. What another region lacks yet does no harm there.
HASTY: Final = Patience(here=1.5, elsewhere=5.0)


class Silence:
    """Which reads had better begin in another region, because this one was silent, and whether the
    others are. Pure."""

    def __init__(self) -> None:
        self._until = {PATIENT: float("-inf"), HASTY: float("-inf")}
        self._elsewhere_until = float("-inf")

    def over(self, patience: Patience, now: float) -> bool:
        """Whether a read of such ``patience`` begins in this region at ``now``."""
        return now >= self._until[patience]

    def met(self, patience: Patience, now: float) -> bool:
        """Such a read has waited in vain; whether that is news. It is no proof for the more
        patient."""
        news = now > self._until[patience] + patience.elsewhere
        for each in self._until:
            if each.here <= patience.here:
                self._until[each] = now + each.elsewhere
        return news

    def answers_elsewhere(self, now: float) -> bool:
        """Whether no read has lately waited for the other regions in vain."""
        return now >= self._elsewhere_until

    def met_elsewhere(self, now: float) -> None:
        """One has: until further notice reads begin here, whatever is missing here."""
        self._elsewhere_until = now + PATIENT.elsewhere


class Presence(HostStateListener):  # type: ignore[misc]
    """Whether this region's nodes are all away, and when they came back from that. The driver's
    threads tell it, and requests get through a little before they do.

    Which nodes are up the driver is asked each time (``hosts``). What it tells can't be added up: a
    node of the store's URL is told of before the driver knows its region, and not again.
    """

    def __init__(self, centre: str, hosts: Callable[[], Iterable[Any]]) -> None:
        self._centre = centre
        self._hosts = hosts
        self._all_away = False
        self._came_back = float("-inf")

    def is_whole(self, now: float) -> bool:
        """Whether the nodes that are here were here for long enough to have what others wrote."""
        return not self._all_away and now >= self._came_back + _CATCHING_UP_S

    def look(self) -> None:
        """Note it if all nodes are away."""
        ours = [host for host in self._hosts() if host.datacenter == self._centre]
        # That one is up now is no return: it is told of by on_up, from another thread.
        if ours and not any(host.is_up for host in ours):
            self._all_away = True

    def on_up(self, host: Any) -> None:
        """The driver's word for a node that answers again."""
        if host.datacenter == self._centre and self._all_away:
            self._came_back = time.monotonic()
            self._all_away = False

    def on_add(self, host: Any) -> None:
        """And for one that it has just heard of."""
        self.on_up(host)

    def on_down(self, host: Any) -> None:
        """It doesn't answer any more."""
        self.look()

    def on_remove(self, host: Any) -> None:
        """It isn't of the cluster any more."""
        self.look()


def cluster(
    address: Address, login: Credentials | None, *, levels: Mapping[Any, int] = _LEVELS
) -> Cluster:
    """A driver's cluster, not connected, that talks to the nodes of ``address.centre``.

    For reads there is one profile more, for all other nodes. ConfigError if ``address.tls`` names
    no file of certificates.
    """
    auth = None if login is None else PlainTextAuthProvider(login.username, login.password)
    here = functools.partial(DCAwareRoundRobinPolicy, address.centre)
    # The driver's own questions may be answered by any node: a process that starts while all of
    # its region are down learns where the others are.
    anywhere = here(used_hosts_per_remote_dc=_NODES_ELSEWHERE)
    others = OtherRegions(address.centre, used_hosts_per_remote_dc=_NODES_ELSEWHERE)

    def profile(level: int, nodes: Any) -> ExecutionProfile:
        return ExecutionProfile(
            load_balancing_policy=nodes,
            retry_policy=AskAnother(),
            consistency_level=level,
            request_timeout=REQUEST_S,
            row_factory=tuple_factory,
            speculative_execution_policy=ConstantSpeculativeExecutionPolicy(_SPECULATE_S, 1),
        )

    return Cluster(
        list(address.hosts),
        port=address.hosts[0][1],
        auth_provider=auth,
        ssl_context=tls_context(address),
        connection_class=LibevConnection,
        # Cassandra 4.0 and later. Asking for what the driver knows takes it three tries.
        protocol_version=ProtocolVersion.V5,
        connect_timeout=CONNECT_S,
        control_connection_timeout=CONNECT_S,
        execution_profiles={
            name: profile(level, TokenAwarePolicy(here())) for name, level in levels.items()
        }
        | {
            # Aware of tokens it would begin with replicas of our own region.
            _ELSEWHERE: profile(ConsistencyLevel.LOCAL_QUORUM, others),
            EXEC_PROFILE_DEFAULT: profile(ConsistencyLevel.LOCAL_ONE, anywhere),
        },
        reconnection_policy=ExponentialReconnectionPolicy(0.5, 2.0, max_attempts=None),
        idle_heartbeat_interval=_HEARTBEAT_S,
        idle_heartbeat_timeout=_HEARTBEAT_S,
        monitor_reporting_enabled=False,
    )


class DriverTls:
    """What the driver takes for a context: for each connection the one of now.

    A node's certificate must name the IP address at which it is reached: the driver looks names up
    first, and checks what it finds.
    """

    #: Has the driver say which address that is.
    check_hostname: Final = True

    def __init__(self, tls: ClientTls) -> None:
        self._tls = tls

    def wrap_socket(self, socket: Any, **options: Any) -> ssl.SSLSocket:
        """As :meth:`ssl.SSLContext.wrap_socket`."""
        return self._tls.context().wrap_socket(socket, **options)


def tls_context(address: Address) -> DriverTls | None:
    """What connections are secured with; None for plain ones. ConfigError if the file can't be
    read."""
    if address.tls is None:
        return None
    authorities = None if address.tls == SYSTEM_TLS else Path(address.tls)
    return DriverTls(ClientTls(TlsFiles(authorities=authorities)))


def wrapped(exc: Exception, what: str) -> StoreError:
    """``exc`` as our own error, by whether trying again can help. Raise it ``from exc``."""
    if isinstance(exc, StoreError):
        return exc
    if isinstance(exc, ConfigError):
        return StoreUnavailable(str(exc))
    if isinstance(exc, NoHostAvailable) and isinstance(exc.errors, dict):
        reasons = {_host(host): error for host, error in exc.errors.items()}
        if any(isinstance(error, AuthenticationFailed) for error in reasons.values()):
            return StoreError(f"{what}: the nodes refuse this user or password")
        if reasons:
            text = "; ".join(f"{host}: {_one_line(error)}" for host, error in reasons.items())
            return StoreUnavailable(f"{what}: no node answers ({text})")
        return StoreUnavailable(f"{what}: no node of this data centre is up")
    kind = StoreUnavailable if isinstance(exc, _PASSING) else StoreError
    return kind(f"{what}: {_one_line(exc)}")


def _host(host: Any) -> str:
    return str(getattr(host, "endpoint", host))


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:300] or type(exc).__name__


class Bridge:
    """Carries answers from the driver's threads to the event loop, many at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: collections.deque[Callable[[], None]] = collections.deque()
        self._woken = False

    def post(self, deliver: Callable[[], None]) -> None:
        """Have ``deliver`` called in the loop, soon. From any thread."""
        self._arrived.append(deliver)
        if not self._woken:
            self._woken = True
            # The loop may be gone, and with it all who wait.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Before the first look: what arrives after the last one wakes the loop again.
        self._woken = False
        while self._arrived:
            self._arrived.popleft()()


@dataclasses.dataclass(frozen=True, slots=True)
class _Link:
    """A connected driver, every statement prepared; ``presence`` if there are other regions."""

    cluster: Cluster
    session: DriverSession
    prepared: dict[str, PreparedStatement]
    presence: Presence | None


class Session:
    """Sends requests to the nodes of one data centre; belongs to the event loop that uses it.

    It connects when first used, again after a failure (not at once: calls in between fail with
    StoreUnavailable), and stays connected through the loss of any node. At most ``in_flight``
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
        # Sooner than with the first request, which may be long after the start.
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
        self._backoff = Backoff(base=0.5, cap=5.0)
        self._rest_until = 0.0
        self._failure: StoreError | None = None
        self._closed = False
        self._silence = Silence()

    async def read(
        self,
        statement: str,
        values: Values,
        consistency: Consistency,
        patience: Patience = PATIENT,
    ) -> list[Row]:
        """The rows that ``statement`` finds: in this region, or in another if it doesn't answer.

        The other one lacks what this one has written in its last moments and not passed on.
        """
        link = await self._connected()
        if link.presence is None:
            return await self._read(link, statement, values, consistency)
        now = time.monotonic()
        here = self._silence.over(patience, now) and link.presence.is_whole(now)
        if not here and self._silence.answers_elsewhere(now):
            with contextlib.suppress(StoreUnavailable):
                return await self._read_elsewhere(link, statement, values)
            return await self._read(link, statement, values, consistency)
        try:
            return await self._read(link, statement, values, consistency, within=patience.here)
        except StoreUnavailable as exc:
            if self._silence.met(patience, time.monotonic()):
                logger.warning("%s: another region is asked for what is read", exc)
        return await self._read_elsewhere(link, statement, values)

    async def _read_elsewhere(self, link: _Link, statement: str, values: Values) -> list[Row]:
        try:
            return await self._read(link, statement, values, _ELSEWHERE)
        except StoreUnavailable:
            self._silence.met_elsewhere(time.monotonic())
            raise

    async def read_here(
        self, statement: str, values: Values, consistency: Consistency
    ) -> list[Row]:
        """As :meth:`read`, but of this region alone."""
        return await self._read(await self._connected(), statement, values, consistency)

    async def _read(
        self,
        link: _Link,
        statement: str,
        values: Values,
        profile: Consistency | Literal["elsewhere"],
        *,
        within: float = REQUEST_S,
    ) -> list[Row]:
        request = link.prepared[statement].bind(values)
        turn = await self._turn()
        return await self._start(link, request, profile, turn, within=within)

    async def write(self, batches: Sequence[Batch]) -> None:
        """Write each batch by one request; return when all are done.

        After an error some may have been written.
        """
        link = await self._connected()
        answers: list[asyncio.Future[list[Row]]] = []
        try:
            for batch in batches:
                turn = await self._turn()
                answers.append(self._start(link, _request(link, batch), batch.consistency, turn))
            await asyncio.wait(answers)
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise
        errors = [error for answer in answers if (error := answer.exception()) is not None]
        # What can't be mended by trying again is what the caller has to know of.
        for error in sorted(errors, key=lambda error: isinstance(error, StoreUnavailable)):
            raise error

    async def close(self) -> None:
        """Wait for what is in flight and disconnect. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._connecting is not None:
            await self._connecting
        for _ in range(self._in_flight):
            await self._turns.acquire()
        if self._link is not None:
            await asyncio.to_thread(self._link.cluster.shutdown)

    async def _connected(self) -> _Link:
        if self._closed:
            raise StoreError(f"{self._address}: the store is closed")
        if self._link is not None:
            return self._link
        if self._connecting is None and time.monotonic() >= self._rest_until:
            self._connecting = asyncio.create_task(self._connect(), name="store connect")
        if self._connecting is not None:
            # Others wait for the same: who is cancelled must not take it with them.
            await asyncio.shield(self._connecting)
        if self._link is None:
            assert self._failure is not None
            raise type(self._failure)(str(self._failure)) from self._failure
        return self._link

    async def _connect(self) -> None:
        """Sets the link or the failure."""
        self._bridge = Bridge(asyncio.get_running_loop())
        try:
            self._link = await asyncio.to_thread(_connect, self._address, self._login)
        except StoreError as exc:
            self._failure = exc
            self._rest_until = time.monotonic() + self._backoff.failed(time.monotonic())
        else:
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
        profile: Consistency | Literal["elsewhere"],
        turn: _Turn,
        *,
        within: float = REQUEST_S,
    ) -> asyncio.Future[list[Row]]:
        """Send ``request``; the turn ends with the answer, whether anybody still waits or not."""
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
            # What the driver finds wrong before it has sent anything.
            settle(None, exc)
        return answer


class _Turn:
    """The right to one request. Ends once, though a speculative request may be answered twice."""

    __slots__ = ("_turns",)

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns: asyncio.Semaphore | None = turns

    def end(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.release()


def _request(link: _Link, batch: Batch) -> Any:
    statement = link.prepared[batch.statement]
    if len(batch.rows) == 1:
        return statement.bind(batch.rows[0])
    request = BatchStatement(batch_type=BatchType.UNLOGGED)
    request.is_idempotent = True
    for row in batch.rows:
        request.add(statement, row)
    return request


def _connect(address: Address, login: Credentials | None) -> _Link:
    """Blocks. StoreError says what is in the way."""
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
        # Of nodes that were away before their region was known nothing more is told.
        presence.look()
        session.set_keyspace(address.keyspace)
        prepared = {text: session.prepare(text) for text in STATEMENTS}
    except Exception as exc:
        if made is not None:
            made.shutdown()
        if isinstance(exc, InvalidRequest):
            # No such keyspace, no such table.
            text = f"{address}: {_one_line(exc)}: run `newsfabric schema apply`"
            raise StoreError(text) from exc
        raise wrapped(exc, str(address)) from exc
    for statement in prepared.values():
        statement.is_idempotent = True
    return _Link(made, session, prepared, presence if len(centres) > 1 else None)

"""The driver's cluster, as every connection to the store needs it: nodes, profiles, TLS, errors.

Its libev reactor is asked for by name: under
load the driver's asyncio reactor broke frames of protocol v5 (measured: more than half of all
requests failed, none with libev).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    CoordinationFailure,
    DriverException,
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
from cassandra.connection import ConnectionException
from cassandra.io.libevreactor import LibevConnection
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    NoSpeculativeExecutionPolicy,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import (
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    ServerError,
    TruncateError,
)
from cassandra.query import tuple_factory

from newsfabric.errors import ConfigError, StoreError, StoreUnavailable
from newsfabric.settings import Credentials, TlsFiles
from newsfabric.store._cassandra_url import SYSTEM_TLS, Address
from newsfabric.tls import ClientTls

logger = logging.getLogger(__name__)

CONNECT_S: Final = 5.0
REQUEST_S: Final = 4.0
# A lightweight transaction; a lease lasts for several of them.
TRANSACTION_S: Final = 2.0
# An answer takes milliseconds. After this long another replica is asked as well.
_SPECULATE_S: Final = 0.25
_HEARTBEAT_S: Final = 5.0
# Two small reads of the node that the driver is told by.
_REREAD_S: Final = 30.0
# Reads and writes by a quorum of our own region.
QUORUM: Final = "quorum"
# Reads that another region answers, by a quorum of its own.
ELSEWHERE: Final = "elsewhere"
# Lightweight transactions of our own region.
TRANSACTION: Final = "transaction"
# So many nodes of each other region are connected to.
_NODES_ELSEWHERE: Final = 2
_PASSING: Final = (
    ConnectionException,
    CoordinationFailure,
    IsBootstrappingErrorMessage,
    NoHostAvailable,
    OperationTimedOut,
    OverloadedErrorMessage,
    ServerError,
    Timeout,
    TruncateError,
    Unavailable,
)


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
        """The driver asks it when too few replicas have answered a read in time."""
        return self._once(retry_num)

    def on_write_timeout(self, query: Any, *, retry_num: int, **info: Any) -> Any:
        """The driver asks it when too few replicas have answered a write in time."""
        return self._once(retry_num)

    def _once(self, retry_num: int) -> Any:
        return (self.RETRY_NEXT_HOST if retry_num == 0 else self.RETHROW, None)


class OtherRegions(DCAwareRoundRobinPolicy):  # type: ignore[misc]
    """The nodes of all regions but ``local_dc``; of one alone if the request has a ``region``."""

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        """The driver asks it for the nodes to try, in order."""
        plan = super().make_query_plan(working_keyspace, query)
        region = getattr(query, "region", None)
        if region is not None:
            return (host for host in plan if host.datacenter == region)
        return (host for host in plan if host.datacenter != self.local_dc)


def cluster(
    address: Address, login: Credentials | None, *, level: int = ConsistencyLevel.LOCAL_QUORUM
) -> Cluster:
    """A driver's cluster, not connected, that talks to the nodes of ``address.centre``.

    ``level`` is that of profile QUORUM. Of profile ELSEWHERE all other nodes are asked. ConfigError
    if ``address.tls`` names no file of certificates.
    """
    auth = None if login is None else PlainTextAuthProvider(login.username, login.password)
    here = functools.partial(DCAwareRoundRobinPolicy, address.centre)
    # The driver's own questions may be answered by any node: a process that starts while all of
    # its region are down learns where the others are.
    anywhere = here(used_hosts_per_remote_dc=_NODES_ELSEWHERE)
    others = OtherRegions(address.centre, used_hosts_per_remote_dc=_NODES_ELSEWHERE)

    def profile(level: int, nodes: Any, **options: Any) -> ExecutionProfile:
        usual = {
            "retry_policy": AskAnother(),
            "speculative_execution_policy": ConstantSpeculativeExecutionPolicy(_SPECULATE_S, 1),
        }
        return ExecutionProfile(
            load_balancing_policy=nodes,
            consistency_level=level,
            request_timeout=REQUEST_S,
            row_factory=tuple_factory,
            **usual | options,
        )

    # Of a transaction the nodes try a second one only to find the first in their way.
    once = {
        "retry_policy": FallthroughRetryPolicy(),
        "speculative_execution_policy": NoSpeculativeExecutionPolicy(),
        "serial_consistency_level": ConsistencyLevel.LOCAL_SERIAL,
    }

    return Cluster(
        list(address.hosts),
        port=address.hosts[0][1],
        auth_provider=auth,
        ssl_context=tls_context(address),
        connection_class=RefusalsPass,
        # Cassandra 4.0 and later. Asking for what the driver knows takes it three tries.
        protocol_version=ProtocolVersion.V5,
        connect_timeout=CONNECT_S,
        control_connection_timeout=CONNECT_S,
        execution_profiles={
            QUORUM: profile(level, TokenAwarePolicy(here())),
            # By any node, each time the next: a replica that hangs mustn't have all of them.
            TRANSACTION: profile(ConsistencyLevel.LOCAL_QUORUM, here(), **once),
            # Aware of tokens it would begin with replicas of our own region.
            ELSEWHERE: profile(ConsistencyLevel.LOCAL_QUORUM, others),
            EXEC_PROFILE_DEFAULT: profile(ConsistencyLevel.LOCAL_ONE, anywhere),
        },
        reconnection_policy=ExponentialReconnectionPolicy(0.5, 2.0, max_attempts=None),
        idle_heartbeat_interval=_HEARTBEAT_S,
        idle_heartbeat_timeout=_HEARTBEAT_S,
        monitor_reporting_enabled=False,
    )


async def keep_nodes_known(made: Cluster, *, every: float = _REREAD_S) -> None:
    """Read a connected cluster's list of nodes again, until cancelled: each ``every`` seconds, give
    or take a fifth.

    The driver alone reads it when it connects and when it is told of a change. A node that is not
    yet in the list when it connects is forgotten, though the store's URL names it, and if the word
    of it went out a moment before, that is for good: such a process would lose the store with the
    one node that it knows.
    """
    while True:
        await asyncio.sleep(every * random.uniform(0.8, 1.2))  # noqa: S311 - spread, not secret
        try:
            await asyncio.to_thread(made.refresh_nodes)
        except DriverException as exc:
            # It connects to another node by itself, and reads the list there.
            logger.debug("the list of the store's nodes couldn't be read: %s", exc)


class LoginRefused(ConnectionException):  # type: ignore[misc]
    """A node refused our user or password: perhaps not yet known to it, or not any more."""


class RefusalsPass(LibevConnection):  # type: ignore[misc]
    """A connection whose refused login is an error like others, after which a node is tried again.

    After the driver's own AuthenticationFailed it never is, and a new node refuses every login
    until it has the cluster's. Example: a region's only store node is replaced; a router that
    reaches the new one a second too early would lack its region's store for as long as it runs.
    """

    @classmethod
    def factory(cls, *args: Any, **named: Any) -> Any:
        """A connection that is logged in. LoginRefused, and whatever else connecting raises."""
        try:
            return super().factory(*args, **named)
        except AuthenticationFailed as exc:
            raise LoginRefused(str(exc)) from exc


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
        if any(isinstance(error, LoginRefused) for error in reasons.values()):
            return StoreError(f"{what}: the nodes refuse this user or password")
        if reasons:
            text = "; ".join(f"{host}: {one_line(error)}" for host, error in reasons.items())
            return StoreUnavailable(f"{what}: no node answers ({text})")
        return StoreUnavailable(f"{what}: no node of this data centre is up")
    kind = StoreUnavailable if isinstance(exc, _PASSING) else StoreError
    return kind(f"{what}: {one_line(exc)}")


def _host(host: Any) -> str:
    return str(getattr(host, "endpoint", host))


def one_line(exc: Exception) -> str:
    """What ``exc`` says, in one line of at most 300 characters."""
    return " ".join(str(exc).split())[:300] or type(exc).__name__

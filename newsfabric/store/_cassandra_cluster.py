"""The driver's cluster as all connections to the store need it: nodes, profiles, TLS, errors.

The libev reactor is asked for by name: under load the driver's asyncio reactor broke frames of
protocol v5 (measured: more than half of all requests failed, none with libev).
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
# A reply takes milliseconds. After this time another replica is asked as well.
_SPECULATE_S: Final = 0.25
_HEARTBEAT_S: Final = 5.0
# Period of reading the list of nodes again: two small reads of the driver's control node.
_REREAD_S: Final = 30.0
# Profile of reads and writes by a quorum of our own region.
QUORUM: Final = "quorum"
# Profile of reads that another region answers, by a quorum of its own.
ELSEWHERE: Final = "elsewhere"
# Profile of lightweight transactions of our own region.
TRANSACTION: Final = "transaction"
# The driver connects to so many nodes of each other region.
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
    # The driver raises these errors as well, and the caller logs their meaning. A node that stays
    # down was logged once: not again every two seconds.
    ignored = (
        "Control connection failed to connect",
        "Failed to authenticate to",
        "Error attempting to reconnect to",
    )
    return not str(record.msg).startswith(ignored)


for _name in ("cassandra.cluster", "cassandra.connection", "cassandra.pool"):
    logging.getLogger(_name).addFilter(_is_news)


class AskAnother(RetryPolicy):  # type: ignore[misc]
    """A policy: retry once, at another replica. Right for us: all our requests are idempotent."""

    def on_read_timeout(self, query: Any, *, retry_num: int, **info: Any) -> Any:
        """Decide after too few replicas have answered a read in time; the driver calls it."""
        return self._once(retry_num)

    def on_write_timeout(self, query: Any, *, retry_num: int, **info: Any) -> Any:
        """Decide after too few replicas have answered a write in time; the driver calls it."""
        return self._once(retry_num)

    def _once(self, retry_num: int) -> Any:
        return (self.RETRY_NEXT_HOST if retry_num == 0 else self.RETHROW, None)


class OtherRegions(DCAwareRoundRobinPolicy):  # type: ignore[misc]
    """The nodes of all regions but ``local_dc``, or of the ``region`` that the request has."""

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        """Return the nodes to try, in order; the driver calls it."""
        plan = super().make_query_plan(working_keyspace, query)
        region = getattr(query, "region", None)
        if region is not None:
            return (host for host in plan if host.datacenter == region)
        return (host for host in plan if host.datacenter != self.local_dc)


def cluster(
    address: Address, login: Credentials | None, *, level: int = ConsistencyLevel.LOCAL_QUORUM
) -> Cluster:
    """Make a driver's cluster, not connected, that talks to the nodes of ``address.centre``.

    ``level`` is the consistency level of profile QUORUM. Profile ELSEWHERE asks all other nodes.
    ConfigError if ``address.tls`` names no file of certificates.
    """
    auth = None if login is None else PlainTextAuthProvider(login.username, login.password)
    here = functools.partial(DCAwareRoundRobinPolicy, address.centre)
    # Any node may answer the driver's own queries: a process that starts while all nodes of its
    # region are down finds the others.
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

    # A second try of a transaction would only conflict with the first one.
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
        # Cassandra 4.0 and later. The driver's negotiation would take three tries.
        protocol_version=ProtocolVersion.V5,
        connect_timeout=CONNECT_S,
        control_connection_timeout=CONNECT_S,
        execution_profiles={
            QUORUM: profile(level, TokenAwarePolicy(here())),
            # Round robin over all nodes: a replica that hangs must not get all transactions.
            TRANSACTION: profile(ConsistencyLevel.LOCAL_QUORUM, here(), **once),
            # A token-aware policy would begin with replicas of our own region.
            ELSEWHERE: profile(ConsistencyLevel.LOCAL_QUORUM, others),
            EXEC_PROFILE_DEFAULT: profile(ConsistencyLevel.LOCAL_ONE, anywhere),
        },
        reconnection_policy=ExponentialReconnectionPolicy(0.5, 2.0, max_attempts=None),
        idle_heartbeat_interval=_HEARTBEAT_S,
        idle_heartbeat_timeout=_HEARTBEAT_S,
        monitor_reporting_enabled=False,
    )


async def keep_nodes_known(made: Cluster, *, every: float = _REREAD_S) -> None:
    """Read a connected cluster's list of nodes again each ``every`` seconds (±20 %), until
    cancelled.

    The driver reads the list only when it connects or is notified of a change. A node that isn't
    yet in the list then is forgotten, though the store's URL names it; for good, if the
    notification was sent a moment before. Such a process would lose the store with the one node
    that it knows.
    """
    while True:
        await asyncio.sleep(every * random.uniform(0.8, 1.2))  # noqa: S311 - spread, not secret
        try:
            await asyncio.to_thread(made.refresh_nodes)
        except DriverException as exc:
            # The driver connects to another node by itself, and reads the list there.
            logger.debug("the list of the store's nodes couldn't be read: %s", exc)


class LoginRefused(ConnectionException):  # type: ignore[misc]
    """A node refused our user or password: it may not know them yet, or not any more."""


class RefusalsPass(LibevConnection):  # type: ignore[misc]
    """A connection whose refused login is an ordinary error, after which the node is tried again.

    After the driver's own AuthenticationFailed a node is never tried again, and a new node refuses
    every login until it has the cluster's. Example: a region's only store node is replaced; a
    router that reaches the new one a second too early would lack its region's store until it ends.
    """

    @classmethod
    def factory(cls, *args: Any, **named: Any) -> Any:
        """Return a connection that is logged in. LoginRefused, and all errors of connecting."""
        try:
            return super().factory(*args, **named)
        except AuthenticationFailed as exc:
            raise LoginRefused(str(exc)) from exc


class DriverTls:
    """The driver's TLS context: each new connection uses the certificates of that moment.

    A node's certificate must name the IP address at which it is reached: the driver resolves names
    first, and checks the address found.
    """

    #: The driver passes that address as ``server_hostname``.
    check_hostname: Final = True

    def __init__(self, tls: ClientTls) -> None:
        self._tls = tls

    def wrap_socket(self, socket: Any, **options: Any) -> ssl.SSLSocket:
        """See :meth:`ssl.SSLContext.wrap_socket`."""
        return self._tls.context().wrap_socket(socket, **options)


def tls_context(address: Address) -> DriverTls | None:
    """Return the TLS context; None for plain connections. ConfigError for an unreadable file."""
    if address.tls is None:
        return None
    authorities = None if address.tls == SYSTEM_TLS else Path(address.tls)
    return DriverTls(ClientTls(TlsFiles(authorities=authorities)))


def wrapped(exc: Exception, what: str) -> StoreError:
    """Return ``exc`` as our error, StoreUnavailable if a retry can help. Raise it ``from exc``."""
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
    """Return the message of ``exc`` as one line of at most 300 characters."""
    return " ".join(str(exc).split())[:300] or type(exc).__name__

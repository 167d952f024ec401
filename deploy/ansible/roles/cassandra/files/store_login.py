"""Makes the store's login, and takes away the one that every new Cassandra has.

Run on a node, by the release's Python, with the addresses of all nodes, the own one first: the
login comes to a new data centre from one that has it. It says "changed" if it changed anything;
running it again changes nothing. The password comes from NEWSFABRIC_CASSANDRA_PASSWORD;
one in NEWSFABRIC_CASSANDRA_FORMER_PASSWORD is changed to it.
"""

import argparse
import os
import ssl
import sys
import time

from cassandra import AuthenticationFailed, ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement

# A new node makes the default login some seconds after it answers.
PATIENCE = 60.0
LOCAL = "SELECT data_center, cluster_name FROM system.local"
PEERS = "SELECT data_center FROM system.peers"
STRATEGY = "NetworkTopologyStrategy"
REPLICATION = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'system_auth'"
DEFAULT_ROLE = "SELECT can_login FROM system_auth.roles WHERE role = 'cassandra'"


def connect(told: argparse.Namespace, user: str, password: str) -> Session | None:
    """A session with the first node that takes the login; None if those that answer refuse it."""
    refused, error = False, None
    for host in told.hosts.split(","):
        cluster = Cluster(
            [host],
            port=told.port,
            auth_provider=PlainTextAuthProvider(user, password),
            ssl_context=ssl.create_default_context(cafile=told.ca) if told.ca else None,
            load_balancing_policy=WhiteListRoundRobinPolicy([host]),
            protocol_version=4,
        )
        try:
            return cluster.connect()
        except NoHostAvailable as exc:
            cluster.shutdown()
            if all(isinstance(each, AuthenticationFailed) for each in exc.errors.values()):
                refused = True
            error = exc
    if refused or error is None:
        return None
    raise error


def wanted(session: Session, text: str) -> dict[str, str]:
    """``oregon=3,dublin=3`` as a keyspace's replication, without data centres to come."""
    rows = [*session.execute(LOCAL), *session.execute(PEERS)]
    known = {row.data_center for row in rows}
    pairs = (pair.split("=") for pair in text.split(","))
    return {"class": STRATEGY} | {dc: n for dc, n in pairs if dc in known}


def make(session: Session, told: argparse.Namespace, password: str) -> None:
    """The login; all replicas know it, so that a node's death locks nobody out."""
    session.execute(
        f"ALTER KEYSPACE system_auth WITH replication = {wanted(session, told.replication)}"
    )
    options = "SUPERUSER = true AND LOGIN = true AND PASSWORD = %s"
    session.execute(f"CREATE ROLE IF NOT EXISTS {told.login} WITH {options}", [password])
    # A data centre that is new gets all of it: what was written before it has not.
    session.execute(f"ALTER ROLE {told.login} WITH {options}", [password])


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser()
    for name in ("--hosts", "--cluster", "--login", "--replication", "--ca"):
        parser.add_argument(name, required=name != "--ca")
    parser.add_argument("--port", type=int, required=True)
    told = parser.parse_args()
    password = os.environ["NEWSFABRIC_CASSANDRA_PASSWORD"]
    former = os.environ.get("NEWSFABRIC_CASSANDRA_FORMER_PASSWORD")
    deadline = time.monotonic() + PATIENCE
    changed = False
    while (session := connect(told, told.login, password)) is None:
        if former and (known := connect(told, told.login, former)) is not None:
            # Sessions that are open stay; who comes from now on needs the new one.
            known.execute(f"ALTER ROLE {told.login} WITH PASSWORD = %s", [password])
            changed = True
        elif (default := connect(told, "cassandra", "cassandra")) is not None:
            make(default, told, password)
            changed = True
        elif time.monotonic() > deadline:
            sys.exit(
                f"error: no login as {told.login} with this password, nor as a new node has it"
            )
        time.sleep(1)
    name = session.execute(LOCAL).one().cluster_name
    if name != told.cluster:
        sys.exit(f"error: this is a node of cluster {name}, not of {told.cluster}")
    replication = dict(session.execute(REPLICATION).one().replication)
    if replication | {"class": STRATEGY} != wanted(session, told.replication):
        make(session, told, password)
        changed = True
    default_role = session.execute(
        SimpleStatement(DEFAULT_ROLE, consistency_level=ConsistencyLevel.QUORUM)
    ).one()
    if default_role and default_role.can_login:
        session.execute("ALTER ROLE cassandra WITH LOGIN = false AND SUPERUSER = false")
        changed = True
    sys.stdout.write("changed\n" if changed else "as it was\n")


if __name__ == "__main__":
    main()

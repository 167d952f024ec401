"""Makes the store's login, and takes away the one that every new Cassandra has.

Run on a node, by the release's Python. It says "changed" if it changed anything; running it again
changes nothing. The password comes from NEWSFABRIC_CASSANDRA_PASSWORD.
"""

import argparse
import os
import ssl
import sys
import time

from cassandra import AuthenticationFailed
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.policies import WhiteListRoundRobinPolicy

# A new node makes the default login some seconds after it answers.
PATIENCE = 60.0
DEFAULT_ROLE = "SELECT can_login FROM system_auth.roles WHERE role = 'cassandra'"


def connect(told: argparse.Namespace, user: str, password: str) -> Session | None:
    """A session, or None if the node refuses the login."""
    cluster = Cluster(
        [told.host],
        port=told.port,
        auth_provider=PlainTextAuthProvider(user, password),
        ssl_context=ssl.create_default_context(cafile=told.ca) if told.ca else None,
        load_balancing_policy=WhiteListRoundRobinPolicy([told.host]),
        protocol_version=4,
    )
    try:
        return cluster.connect()
    except NoHostAvailable as exc:
        cluster.shutdown()
        if all(isinstance(error, AuthenticationFailed) for error in exc.errors.values()):
            return None
        raise


def replication(text: str) -> str:
    """``oregon=3,dublin=3`` as CQL."""
    pairs = (pair.split("=") for pair in text.split(","))
    centres = [f"'{dc}': {int(n)}" for dc, n in pairs]
    return "{" + ", ".join(["'class': 'NetworkTopologyStrategy'", *centres]) + "}"


def make(session: Session, told: argparse.Namespace, password: str) -> None:
    """The login; all replicas know it, so that a node's death locks nobody out."""
    replicas = replication(told.replication)
    session.execute(f"ALTER KEYSPACE system_auth WITH replication = {replicas}")
    session.execute(
        f"CREATE ROLE IF NOT EXISTS {told.login}"
        " WITH SUPERUSER = true AND LOGIN = true AND PASSWORD = %s",
        [password],
    )


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser()
    for name in ("--host", "--cluster", "--login", "--replication", "--ca"):
        parser.add_argument(name, required=name != "--ca")
    parser.add_argument("--port", type=int, required=True)
    told = parser.parse_args()
    password = os.environ["NEWSFABRIC_CASSANDRA_PASSWORD"]
    deadline = time.monotonic() + PATIENCE
    changed = False
    while (session := connect(told, told.login, password)) is None:
        default = connect(told, "cassandra", "cassandra")
        if default is not None:
            make(default, told, password)
            changed = True
        elif time.monotonic() > deadline:
            sys.exit(
                f"error: no login as {told.login} with this password, nor as a new node has it"
            )
        time.sleep(1)
    name = session.execute("SELECT cluster_name FROM system.local").one().cluster_name
    if name != told.cluster:
        sys.exit(f"error: this is a node of cluster {name}, not of {told.cluster}")
    if session.execute(DEFAULT_ROLE).one().can_login:
        session.execute("ALTER ROLE cassandra WITH LOGIN = false AND SUPERUSER = false")
        changed = True
    sys.stdout.write("changed\n" if changed else "as it was\n")


if __name__ == "__main__":
    main()

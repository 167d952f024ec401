"""Makes the store's logins with their rights, and disables the default login of a new Cassandra.

Run on a node, by the release's Python, with the addresses of all nodes, its own first: logins reach
a new data centre from one that has them. It prints "changed" if it changed anything, and "to be
repaired" if its own node doesn't know the logins yet; a second run changes nothing. On stderr it
prints the data centres that keep more replicas than requested. The logins are read from stdin, so
that no list of processes and no log shows them:

    {"administrator": {"name": "…", "password": "…", "former": "…"},
     "services": [{"name": "…", "password": "…", "former": "…", "rights": ["SELECT", "MODIFY"]}]}

``former`` is the previous password, or empty; with it the administrator logs in to change its own.
A service has the listed rights in the keyspace, once the keyspace exists, and no others.
"""

import argparse
import json
import re
import ssl
import sys
import time
from typing import Any

from cassandra import AuthenticationFailed, ConsistencyLevel, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement

# A new node makes the default login some seconds after its first reply.
PATIENCE = 60.0
DEFAULT = ("cassandra", "cassandra")
LOCAL = "SELECT data_center, cluster_name FROM system.local"
PEERS = "SELECT data_center FROM system.peers"
STRATEGY = "NetworkTopologyStrategy"
REPLICATION = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'system_auth'"
ROLES = "SELECT role, can_login, is_superuser FROM system_auth.roles"
KEYSPACES = "SELECT keyspace_name FROM system_schema.keyspaces"
# Names become parts of statements, where CQL takes no parameters.
NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
RIGHTS = {"SELECT", "MODIFY"}


class Node:
    """The nodes that can be reached, and the logins that they accept."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._open: list[Cluster] = []

    def session(self, user: str, password: str) -> Session | None:
        """Return a session with the first node that accepts the login; None if one refused it."""
        return self._session(self._options.hosts.split(","), user, password)

    def _session(self, hosts: list[str], user: str, password: str) -> Session | None:
        options = self._options
        refused, error = False, None
        for host in hosts:
            alone = ExecutionProfile(WhiteListRoundRobinPolicy([host]))
            cluster = Cluster(
                [host],
                port=options.port,
                auth_provider=PlainTextAuthProvider(user, password),
                ssl_context=ssl.create_default_context(cafile=options.ca) if options.ca else None,
                execution_profiles={EXEC_PROFILE_DEFAULT: alone},
                protocol_version=4,
            )
            self._open.append(cluster)
            try:
                return cluster.connect()
            except NoHostAvailable as exc:
                refused = refused or _refused_login(exc)
                error = exc
        if refused or error is None:
            return None
        raise error

    def accepts(self, login: dict[str, Any]) -> bool:
        """Return whether ``login`` has this password."""
        return self.session(login["name"], login["password"]) is not None

    def itself_accepts(self, login: dict[str, Any]) -> bool:
        """Return whether the own node knows ``login``, whatever the others do."""
        own = self._options.hosts.split(",")[:1]
        return self._session(own, login["name"], login["password"]) is not None

    def close(self) -> None:
        """Close all connections."""
        for cluster in self._open:
            cluster.shutdown()


def _refused_login(unavailable: NoHostAvailable) -> bool:
    """Return whether the node refused the login, on any of the driver's connections to it.

    A node caches passwords for two seconds. So just after a change the first connection can be
    accepted and the next refused; the driver then has no reasons, only addresses.
    """
    if not isinstance(unavailable.errors, dict):
        return True
    return all(isinstance(each, AuthenticationFailed) for each in unavailable.errors.values())


def administrator(
    node: Node, options: argparse.Namespace, given: dict[str, Any]
) -> tuple[Session, bool]:
    """Return the administrator's session, and whether the login had to be made or changed."""
    login = given["administrator"]
    changed = False
    deadline = time.monotonic() + PATIENCE
    while (session := node.session(login["name"], login["password"])) is None:
        if (own := _by_former(node, login)) is not None:
            # Of its own role it may change only the password.
            own.execute(f"ALTER ROLE {login['name']} WITH PASSWORD = %s", [login["password"]])
            changed = True
        elif (known := _who_ruled(node, given)) is not None:
            _check_cluster(known, options)
            make(known, options, login)
            changed = True
        elif time.monotonic() > deadline:
            sys.exit(
                f"error: no login as {login['name']} with this password, nor as a new node has it"
            )
        time.sleep(1)
    _check_cluster(session, options)
    return session, changed


def _by_former(node: Node, login: dict[str, Any]) -> Session | None:
    return node.session(login["name"], login["former"]) if login["former"] else None


def _who_ruled(node: Node, given: dict[str, Any]) -> Session | None:
    """Return a superuser's session: the default login's, or that of a service that was one."""
    default = node.session(*DEFAULT)
    if default is not None:
        known = [one["name"] for one in (given["administrator"], *given["services"])]
        strange = set(_roles(default)) - {DEFAULT[0], *known}
        if strange:
            sys.exit(
                f"error: the default login was open, and a stranger has made "
                f"{', '.join(sorted(strange))} with it: look who that is, and drop it"
            )
        return default
    for login in given["services"]:
        for password in filter(None, (login["password"], login["former"])):
            session = node.session(login["name"], password)
            # A service without superuser rights may not read the roles.
            if session is not None and _may_rule(session):
                return session
    return None


def _may_rule(session: Session) -> bool:
    try:
        session.execute(ROLES)
    except Unauthorized:
        return False
    return True


def _check_cluster(session: Session, options: argparse.Namespace) -> None:
    name = session.execute(LOCAL).one().cluster_name
    if name != options.cluster:
        sys.exit(f"error: this is a node of cluster {name}, not of {options.cluster}")


def wanted(
    nodes: list[str], now: dict[str, str], text: str, *, fewer: bool = False
) -> dict[str, str]:
    """Return the replication ``text`` (``oregon=3,dublin=3``) of logins, for data centres with
    nodes.

    ``nodes`` has the data centre of each node that has joined, ``now`` the present replication.
    While a data centre has fewer nodes than replicas it keeps its present replicas, one at first:
    with three replicas and one node no login would work. oregon's first two nodes: 1, the third: 3,
    and still 3 after one node has left. ``text`` has fewer when the inventory lacks a node that
    still holds its share, so nothing is lowered unless ``fewer`` is true.

    A data centre to be removed keeps one replica until its last node has left: Cassandra removes
    none with nodes from the keyspace of logins. One without nodes has no replica.
    """
    pairs = [pair.split("=") for pair in text.split(",")]
    replicas = {
        dc: n if nodes.count(dc) >= int(n) else now.get(dc, "1") for dc, n in pairs if dc in nodes
    }
    had = {dc: n for dc, n in now.items() if dc in nodes}
    if fewer:
        replicas |= {dc: "1" for dc in had if dc not in replicas}
    else:
        replicas |= {dc: n for dc, n in had.items() if int(n) > int(replicas.get(dc, "0"))}
    return {"class": STRATEGY} | replicas


def replicate(session: Session, options: argparse.Namespace) -> bool:
    """Set the replication of logins, so that a node's death locks out no login.

    Return whether it was changed.
    """
    now = dict(session.execute(REPLICATION).one().replication)
    # Both of one node: each lists itself in the one table, and the others in the other table.
    own = session.execute_async(LOCAL)
    rows = (*own.result(), *session.execute(PEERS, host=own.coordinator_host))
    nodes = [row.data_center for row in rows]
    new = wanted(nodes, now, options.replication, fewer=options.fewer_replicas)
    asked = wanted(nodes, now, options.replication, fewer=True)
    for dc in sorted(dc for dc in new if new[dc] != asked.get(dc)):
        sys.stderr.write(f"{dc} keeps {new[dc]} replicas of logins, though fewer are asked for\n")
    if now | {"class": STRATEGY} == new:
        return False
    session.execute(f"ALTER KEYSPACE system_auth WITH replication = {new}")
    return True


def make(session: Session, options: argparse.Namespace, login: dict[str, Any]) -> None:
    """Make the administrator's login."""
    replicate(session, options)
    _set(session, login, superuser=True)


def _set(session: Session, login: dict[str, Any], *, superuser: bool) -> None:
    how = f"SUPERUSER = {superuser} AND LOGIN = true AND PASSWORD = %s"
    for verb in ("CREATE ROLE IF NOT EXISTS", "ALTER ROLE"):
        session.execute(f"{verb} {login['name']} WITH {how}", [login["password"]])


def serve(node: Node, session: Session, login: dict[str, Any], keyspace: str) -> bool:
    """Give a service its login, password and rights; return whether these were changed.

    Without the keyspace it has no rights yet.
    """
    name = login["name"]
    there = keyspace in {row.keyspace_name for row in session.execute(KEYSPACES)}
    wanted = {(f"<keyspace {keyspace}>", right) for right in login["rights"] if there}
    found = _roles(session).get(name)
    has = _rights(session, name) if found is not None else set()
    if found is not None and (found.is_superuser or has - wanted):
        # This also removes any other rights that the role was given.
        session.execute(f"DROP ROLE {name}")
        found, has = None, set()
    right_login = found is not None and found.can_login and node.accepts(login)
    if not right_login:
        # Open sessions stay; new ones need the new password.
        _set(session, login, superuser=False)
    for _, right in sorted(wanted - has):
        session.execute(f"GRANT {right} ON KEYSPACE {keyspace} TO {name}")
    return not right_login or has != wanted


def _by_quorum(text: str) -> SimpleStatement:
    return SimpleStatement(text, consistency_level=ConsistencyLevel.QUORUM)


def _roles(session: Session) -> dict[str, Any]:
    return {row.role: row for row in session.execute(_by_quorum(ROLES))}


def _rights(session: Session, name: str) -> set[tuple[str, str]]:
    found = session.execute(f"LIST ALL PERMISSIONS OF {name}")
    return {(row.resource, row.permission) for row in found}


def _checked(given: dict[str, Any], keyspace: str) -> dict[str, Any]:
    logins = [given["administrator"], *given["services"]]
    for name in (keyspace, *(login["name"] for login in logins)):
        if not NAME.fullmatch(name):
            sys.exit(f"error: {name!r} is no name of a login or keyspace (a-z, 0-9 and _)")
    if any(not set(login["rights"]) <= RIGHTS for login in given["services"]):
        sys.exit(f"error: a service's rights are of {', '.join(sorted(RIGHTS))}")
    return given


def main() -> None:
    """Run; see the module's docstring."""
    parser = argparse.ArgumentParser()
    for name in ("--hosts", "--cluster", "--keyspace", "--replication", "--ca"):
        parser.add_argument(name, required=name != "--ca")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fewer-replicas", action="store_true")
    options = parser.parse_args()
    given = _checked(json.load(sys.stdin), options.keyspace)
    node = Node(options)
    session, changed = administrator(node, options, given)
    replicas_changed = replicate(session, options)
    changed |= replicas_changed
    for login in given["services"]:
        changed |= serve(node, session, login, options.keyspace)
    default = _roles(session).get(DEFAULT[0])
    if default is not None and default.can_login:
        session.execute("ALTER ROLE cassandra WITH LOGIN = false AND SUPERUSER = false")
        changed = True
    # A node caches others' logins for two seconds: it may accept one that it doesn't hold yet.
    known = not replicas_changed and node.itself_accepts(given["administrator"])
    node.close()
    if known:
        sys.stdout.write("changed\n" if changed else "as it was\n")
    else:
        sys.stdout.write("changed: to be repaired\n")


if __name__ == "__main__":
    main()

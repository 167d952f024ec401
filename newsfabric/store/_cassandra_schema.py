"""The Cassandra schema: the numbered CQL files, and bringing a cluster up to them. Blocks.

Each file is applied once and noted in ``schema_versions``. Every statement can be run again safely,
so a run that dies halfway is simply repeated. Concurrent runs take turns by a row that only a
lightweight transaction can write. The two tables of this module have ids that we choose: two nodes
that make one table at once would otherwise make two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cassandra import ConsistencyLevel, InvalidRequest, WriteTimeout
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.protocol import ConfigurationException
from cassandra.query import SimpleStatement

from newsfabric.errors import ConfigError, StoreError, StoreUnavailable
from newsfabric.settings import Credentials
from newsfabric.store._cassandra_cluster import QUORUM, cluster, wrapped
from newsfabric.store._cassandra_url import Address

_FILE: Final = re.compile(r"(\d{3})_([a-z0-9_]+)\.cql")
_COMMENT: Final = re.compile(r"(^|\s)--.*$", re.MULTILINE)
# A run that dies lets the next one in after this time; a living run renews it.
_LOCK_S: Final = 60
_WAIT_S: Final = 90.0
_LOOK_AGAIN_S: Final = 0.5
_DDL_S: Final = 30.0
# Tries of a write that times out: concurrent transactions often do.
_TRIES: Final = 5
_OWN_TABLES: Final = {
    "schema_versions": "version int PRIMARY KEY, name text, checksum text, applied_at timestamp",
    "schema_lock": "name text PRIMARY KEY, owner uuid",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """A numbered CQL file."""

    version: int
    name: str
    statements: tuple[str, ...]
    checksum: str


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaPlan:
    """The state of a cluster, and the changes that ``apply`` would make.

    ``replication`` is by data centre, None where the keyspace doesn't exist; ``replicate`` is the
    new replication, None to leave it. ``kept`` has the data centres that keep more replicas than
    are asked for.
    """

    keyspace: str
    replication: Mapping[str, int] | None
    replicate: Mapping[str, int] | None
    kept: Mapping[str, int]
    applied: tuple[str, ...]
    pending: tuple[Migration, ...]

    @property
    def raised(self) -> list[str]:
        """Data centres that get more replicas of existing data, which is not copied yet."""
        had, gets = self.replication, self.replicate or {}
        return [] if had is None else sorted(c for c in gets if gets[c] > had.get(c, 0))

    @property
    def notes(self) -> list[str]:
        """A line for each data centre that keeps more replicas than are asked for."""
        return [
            f"{centre} keeps {count} replicas of {self.keyspace}, though fewer are asked for "
            "(--fewer-replicas takes them away)"
            for centre, count in sorted(self.kept.items())
        ]

    @property
    def changes(self) -> list[str]:
        """A line for each change, for a person."""
        lines = []
        if self.replicate is not None:
            verb = "create" if self.replication is None else "alter"
            lines.append(f"{verb} keyspace {self.keyspace}, replicas {_shown(self.replicate)}")
        return lines + [f"apply {m.version:03d}_{m.name}.cql" for m in self.pending]


def _shown(replicas: Mapping[str, int]) -> str:
    return ", ".join(f"{centre}: {count}" for centre, count in sorted(replicas.items()))


def cql_folder() -> Path:
    """Return the folder of the CQL files: inside the installed package, else in the checkout."""
    installed = Path(__file__).parent / "cql"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "cassandra"


def load_migrations(folder: Path) -> tuple[Migration, ...]:
    """Return the CQL files in ``folder`` by number; ConfigError if one or all are missing."""
    found = []
    for path in sorted(folder.glob("*.cql")):
        name = _FILE.fullmatch(path.name)
        if name is None:
            raise ConfigError(f"{path}: CQL files are called 001_what_it_is.cql")
        text = path.read_text(encoding="utf-8")
        checksum = hashlib.sha256(text.encode()).hexdigest()[:16]
        found.append(Migration(int(name[1]), name[2], tuple(statements(text)), checksum))
    if not found or [m.version for m in found] != list(range(1, len(found) + 1)):
        raise ConfigError(f"{folder}: the CQL files must be numbered 001, 002, … without a gap")
    return tuple(found)


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a CQL file: each ends with a semicolon at the end of a line."""
    for part in re.split(r";\s*$", _COMMENT.sub("", text), flags=re.MULTILINE):
        if statement := part.strip():
            yield statement


def parse_replication(text: str) -> dict[str, int]:
    """Parse ``oregon=3,dublin=3``; ConfigError for two replicas or none in a data centre."""
    replicas: dict[str, int] = {}
    for part in text.split(","):
        centre, _, count = part.strip().partition("=")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", centre) or not re.fullmatch(r"[0-9]{1,2}", count):
            raise ConfigError(f"{text!r}: write replicas as oregon=3,dublin=3")
        replicas[centre] = int(count)
    for centre, number in replicas.items():
        if number == 2:
            raise ConfigError(
                f"{centre}: two replicas are worse than one, since a quorum needs both: "
                "3 in production, 1 on one machine"
            )
        if number < 1:
            raise ConfigError(f"{centre}: at least one replica")
    return replicas


def more_than_wanted(has: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    """Return the replicas of the data centres that have more than are wanted there."""
    return {centre: count for centre, count in has.items() if count > wanted.get(centre, 0)}


def pending(
    migrations: Sequence[Migration], applied: Mapping[int, tuple[str, str]]
) -> tuple[Migration, ...]:
    """Return the ``migrations`` that aren't ``applied`` (version → name, checksum).

    StoreError if an applied file has changed, or if the cluster's schema is of a newer release.
    """
    known = {m.version: m for m in migrations}
    if newer := sorted(set(applied) - set(known)):
        raise StoreError(
            f"the schema is at version {newer[-1]}, this release knows {max(known)}: "
            "use the release that applied it"
        )
    for version, (name, checksum) in applied.items():
        if known[version].checksum != checksum:
            raise StoreError(
                f"{version:03d}_{name}.cql isn't what was applied to this cluster: "
                "leave it as it was and add a file"
            )
    return tuple(m for m in migrations if m.version not in applied)


class Schema:
    """The schema of one cluster, as seen from ``address``. A context manager, which connects."""

    def __init__(
        self,
        address: Address,
        login: Credentials | None,
        migrations: Sequence[Migration],
        *,
        replication: Mapping[str, int] | None = None,
        fewer_replicas: bool = False,
    ) -> None:
        """Set up; ``replication`` lowers no replicas unless ``fewer_replicas`` is set."""
        self._address = address
        self._login = login
        self._migrations = migrations
        self._wanted = replication
        self._fewer_replicas = fewer_replicas
        self._cluster: Cluster | None = None
        self._session: Session | None = None

    def __enter__(self) -> Schema:
        made = cluster(self._address, self._login, level=ConsistencyLevel.QUORUM)
        try:
            self._session = made.connect()
        except Exception as exc:
            made.shutdown()
            raise wrapped(exc, str(self._address)) from exc
        self._cluster = made
        return self

    def __exit__(self, *_: object) -> None:
        if self._cluster is not None:
            self._cluster.shutdown()

    def plan(self) -> SchemaPlan:
        """Return the changes that :meth:`apply` would make. Changes nothing."""
        replication = self._replication()
        wanted = self._checked(replication)
        kept: dict[str, int] = {}
        if wanted is not None and replication is not None and not self._fewer_replicas:
            # A data centre that wasn't named this time isn't gone, and keeps its replicas.
            kept = more_than_wanted(replication, wanted)
            wanted |= kept
        applied = {} if replication is None else self._applied()
        return SchemaPlan(
            keyspace=self._address.keyspace,
            replication=replication,
            replicate=None if wanted == replication else wanted,
            kept=kept,
            applied=tuple(f"{v:03d}_{name}" for v, (name, _) in sorted(applied.items())),
            pending=pending(self._migrations, applied),
        )

    def apply(self, show: Callable[[str], None]) -> list[str]:
        """Apply the plan; return a line for each change. ``show`` is called with lines of progress.

        StoreUnavailable if another run holds the lock for too long, or nodes don't agree.
        """
        done = []
        planned = self.plan()
        for line in planned.notes:
            show(line)
        if planned.replicate is not None:
            self._ddl(_keyspace_statement(planned))
            done.append(planned.changes[0])
            show(done[0])
        if not planned.pending:
            return done
        for name, columns in _OWN_TABLES.items():
            self._ddl(_own_table(f"{self._address.keyspace}.{name}", columns))
        assert self._session is not None
        self._session.set_keyspace(self._address.keyspace)
        with self._turn(show) as renew:
            # The plan again: another run may just have applied it.
            for migration in self.plan().pending:
                line = f"apply {migration.version:03d}_{migration.name}.cql"
                show(line)
                for statement in migration.statements:
                    renew()
                    self._ddl(statement)
                self._note(migration)
                done.append(line)
        return done

    # Reads of the cluster's state.

    def _replication(self) -> dict[str, int] | None:
        found = self._execute(
            "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s",
            (self._address.keyspace,),
        )
        if not found:
            return None
        options = dict(found[0][0])
        strategy = options.pop("class").rpartition(".")[2]
        if strategy != "NetworkTopologyStrategy":
            raise StoreError(f"keyspace {self._address.keyspace} is replicated by {strategy}")
        return {centre: int(count) for centre, count in options.items()}

    def _checked(self, has: Mapping[str, int] | None) -> dict[str, int] | None:
        """Return the replicas that are asked for; None if none are, and the keyspace exists."""
        if self._wanted is None:
            if has is None:
                raise StoreError(
                    f"there is no keyspace {self._address.keyspace}: to make it, state how many "
                    "replicas each data centre has (--replication oregon=3,dublin=3)"
                )
            return None
        assert self._cluster is not None
        nodes: dict[str, int] = {}
        for host in self._cluster.metadata.all_hosts():
            nodes[host.datacenter] = nodes.get(host.datacenter, 0) + 1
        for centre, count in self._wanted.items():
            if nodes.get(centre, 0) < count:
                raise StoreUnavailable(
                    f"data centre {centre} has {nodes.get(centre, 0)} nodes, "
                    f"too few for {count} replicas (nodes: {_shown(nodes)})"
                )
        return dict(self._wanted)

    def _applied(self) -> dict[int, tuple[str, str]]:
        tables = self._execute(
            "SELECT table_name FROM system_schema.tables"
            " WHERE keyspace_name = %s AND table_name = 'schema_versions'",
            (self._address.keyspace,),
        )
        if not tables:
            return {}
        found = self._execute(
            f"SELECT version, name, checksum FROM {self._address.keyspace}.schema_versions"  # noqa: S608
        )
        return {version: (name, checksum) for version, name, checksum in found}

    def _note(self, migration: Migration) -> None:
        self._execute(
            f"INSERT INTO {self._address.keyspace}.schema_versions"  # noqa: S608
            " (version, name, checksum, applied_at) VALUES (%s, %s, %s, %s)",
            (
                migration.version,
                migration.name,
                migration.checksum,
                datetime.datetime.now(datetime.UTC),
            ),
        )

    # The lock.

    @contextlib.contextmanager
    def _turn(self, show: Callable[[str], None]) -> Iterator[Callable[[], None]]:
        """Hold the lock; yield a function that renews it."""
        owner = uuid.uuid4()
        table = f"{self._address.keyspace}.schema_lock"
        deadline = time.monotonic() + _WAIT_S
        waiting = False
        while not self._take(table, owner):
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"another `schema apply` has been at work for {_WAIT_S:.0f} s"
                )
            if not waiting:
                show("another `schema apply` is at work; waiting for it")
                waiting = True
            time.sleep(_LOOK_AGAIN_S)

        def renew() -> None:
            statement = f"UPDATE {table} USING TTL {_LOCK_S} SET owner = %s WHERE name = 'schema'"  # noqa: S608
            if not self._execute(f"{statement} IF owner = %s", (owner, owner))[0][0]:
                raise StoreUnavailable("this run lost its turn to another: start it again")

        try:
            yield renew
        finally:
            # After a failure here the row expires by itself.
            with contextlib.suppress(StoreError):
                self._execute(
                    f"DELETE FROM {table} WHERE name = 'schema' IF owner = %s",  # noqa: S608
                    (owner,),
                )

    def _take(self, table: str, owner: uuid.UUID) -> bool:
        (found,) = self._execute(
            f"INSERT INTO {table} (name, owner) VALUES ('schema', %s)"  # noqa: S608
            f" IF NOT EXISTS USING TTL {_LOCK_S}",
            (owner,),
        )
        # The row may be our own: a transaction that timed out may have been applied.
        return bool(found[0]) or owner in found

    # Requests.

    def _ddl(self, text: str) -> None:
        """Run one statement and wait until all nodes have it."""
        assert self._session is not None
        try:
            future = self._session.execute_async(text, timeout=_DDL_S, execution_profile=QUORUM)
            future.result()
        except Exception as exc:
            error = wrapped(exc, " ".join(text.split())[:60])
            if _is_not_known_yet(exc):
                error = StoreUnavailable(f"not every node knows of the others yet: {error}")
            raise error from exc
        if not future.is_schema_agreed:
            raise StoreUnavailable(
                "the nodes don't agree on the schema yet: see that all of them are up, then "
                "apply again"
            )

    def _execute(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run one statement; all our statements are idempotent."""
        assert self._session is not None
        statement = SimpleStatement(text, serial_consistency_level=ConsistencyLevel.SERIAL)
        for tries_left in reversed(range(_TRIES)):
            try:
                return list(
                    self._session.execute(
                        statement, values or None, timeout=_DDL_S, execution_profile=QUORUM
                    )
                )
            except Exception as exc:
                if not (tries_left and _timed_out(exc)):
                    raise wrapped(exc, str(self._address)) from exc
            time.sleep(_LOOK_AGAIN_S)
        raise AssertionError("the last try returns or raises")


def _is_not_known_yet(exc: Exception) -> bool:
    """Return whether the node that was asked may lack changes that others know.

    While nodes join, consecutive requests may reach different nodes: one that knows of all data
    centres, or made the keyspace, and one that doesn't know these yet.
    """
    if isinstance(exc, InvalidRequest):
        return re.search(r"Keyspace '\w+' doesn't exist", str(exc)) is not None
    return isinstance(exc, ConfigurationException) and "Unrecognized strategy option" in str(exc)


def _timed_out(exc: Exception) -> bool:
    """Return whether replicas didn't confirm a write in time; the write may have been applied."""
    errors = exc.errors if isinstance(exc, NoHostAvailable) else None
    found = [exc, *errors.values()] if isinstance(errors, dict) else [exc]
    return any(isinstance(one, WriteTimeout) for one in found)


def _own_table(name: str, columns: str) -> str:
    # Ids are unique in the cluster, not in the keyspace.
    own_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
    return f"CREATE TABLE IF NOT EXISTS {name} ({columns}) WITH ID = {own_id}"


def _keyspace_statement(plan: SchemaPlan) -> str:
    assert plan.replicate is not None
    options = "".join(f", '{centre}': {n}" for centre, n in sorted(plan.replicate.items()))
    verb = "CREATE KEYSPACE IF NOT EXISTS" if plan.replication is None else "ALTER KEYSPACE"
    return (
        f"{verb} {plan.keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy'{options}}}"
    )

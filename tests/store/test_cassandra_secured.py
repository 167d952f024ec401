"""The store on a node with logins and TLS, with the logins that playbooks make."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from authorities import Authority
from cassandra import DriverException, Unauthorized
from cassandra.cluster import NoHostAvailable, Session
from envelopes import START_MS, envelope
from gateways import until
from wires import Wire

from localfabric.nodes.cassandra import LocalCassandra
from localfabric.world.cassandra_home import CassandraHome
from newsfabric.errors import ConfigError, StoreError, StoreUnavailable
from newsfabric.settings import Credentials
from newsfabric.store import Store, open_store
from newsfabric.store._cassandra_cluster import LoginRefused, cluster
from newsfabric.store._cassandra_schema import Schema, cql_folder, load_migrations
from newsfabric.store._cassandra_url import parse_address
from newsfabric.topics import TopicPolicy, TopicTable

pytestmark = [pytest.mark.slow, pytest.mark.cassandra]

ROOT: Final = Path(__file__).parents[2]
TOPICS: Final = TopicTable([TopicPolicy(pattern="news.#", ttl=3_600.0)])
ROLE: Final = ROOT / "deploy" / "ansible" / "roles" / "cassandra"
# The first user of each new cluster.
FIRST: Final = Credentials("cassandra", "cassandra")
ADMINISTRATOR: Final = Credentials("administrator", "of-store-nodes")
WRITER: Final = Credentials("writer", "of-routers")
READER: Final = Credentials("reader", "of-gateways")
_WITHIN: Final = 60.0


def environ(login: Credentials) -> dict[str, str]:
    return {
        "NEWSFABRIC_CASSANDRA_USERNAME": login.username,
        "NEWSFABRIC_CASSANDRA_PASSWORD": login.password,
    }


LOGIN: Final = environ(WRITER)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the node's key and certificate for 127.0.0.1, its authority, and another authority."""
    folder = tmp_path_factory.mktemp("certificates")
    ours = Authority(folder, "ours")
    made = ours.sign()
    both = folder / "both.pem"
    both.write_bytes(made.key + made.certificate)
    return {"both": both, "ours": ours.file, "another": Authority(folder, "another").file}


@pytest.fixture(scope="module")
def url(
    authorities: dict[str, Path],
    cassandra_home: CassandraHome,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Yield a keyspace with our tables on such a node, made over TLS as by the playbooks."""
    encryption = {
        "enabled": True,
        # So that a health check of the node needs no TLS.
        "optional": True,
        "ssl_context_factory": {
            "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"
        },
        "keystore": str(authorities["both"]),
        "truststore": str(authorities["ours"]),
    }
    settings = {
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "client_encryption_options": encryption,
    }
    folder = tmp_path_factory.mktemp("secured")
    with LocalCassandra(folder, cassandra_home, settings=settings) as node:
        plain = node.url("secured")
        authority = authorities["ours"]
        assert make_logins(plain, authority) == "changed"
        apply_schema(f"{plain}&tls={authority}")
        assert make_logins(plain, authority) == "changed"
        yield plain


def apply_schema(url: str) -> None:
    migrations = load_migrations(cql_folder())
    replicas = {"oregon": 1}
    with Schema(parse_address(url), ADMINISTRATOR, migrations, replication=replicas) as schema:
        schema.apply(lambda line: None)


def make_logins(
    url: str,
    authority: Path,
    administrator: Credentials = ADMINISTRATOR,
    former: str = ADMINISTRATOR.password,
) -> str:
    """Run the playbooks' program; return its output."""
    address = parse_address(url)
    host, port = address.hosts[0]
    fields = {
        "--hosts": host,
        "--port": str(port),
        "--cluster": "newsfabric",
        "--keyspace": address.keyspace,
        "--replication": "oregon=1",
        "--ca": str(authority),
    }
    logins = {
        "administrator": given(administrator, former=former),
        "services": [
            given(WRITER) | {"rights": ["SELECT", "MODIFY"]},
            given(READER) | {"rights": ["SELECT"]},
        ],
    }
    done = subprocess.run(
        [
            sys.executable,
            ROLE / "files" / "store_login.py",
            *(w for pair in fields.items() for w in pair),
        ],
        input=json.dumps(logins),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def given(login: Credentials, former: str = "") -> dict[str, object]:
    return {"name": login.username, "password": login.password, "former": former}


@contextlib.contextmanager
def session(url: str, authority: Path, login: Credentials) -> Iterator[Session]:
    """Yield a session of a user with this login."""
    made = cluster(parse_address(f"{url}&tls={authority}"), login)
    try:
        yield made.connect("secured")
    finally:
        made.shutdown()


async def answers(store: Store) -> None:
    """Wait until the store replies: it rests after a failure."""
    async with asyncio.timeout(_WITHIN):
        while True:
            try:
                await store.check()
                return
            except StoreUnavailable:
                await asyncio.sleep(0.2)


def opened(url: str, login: dict[str, str]) -> Store:
    return open_store(url, TOPICS, environ=login)


async def test_with_a_login_and_the_right_authority_everything_works(url, authorities):
    store = opened(f"{url}&tls={authorities['ours']}", LOGIN)
    written = envelope(1, at=int(time.time() * 1000) - START_MS)
    await store.write([written])
    assert await store.history("news.breaking", limit=10) == [written]
    await store.close()


async def test_a_reader_of_the_store_reads_and_writes_nothing(url, authorities):
    at = f"{url}&tls={authorities['ours']}"
    writer, reader = opened(at, LOGIN), opened(at, environ(READER))
    written = envelope(2, at=int(time.time() * 1000) - START_MS)
    await writer.write([written])
    assert written in await reader.history("news.breaking", limit=10)
    with pytest.raises(StoreError, match="no MODIFY permission"):
        await reader.write([envelope(3, at=int(time.time() * 1000) - START_MS)])
    await writer.close()
    await reader.close()


@pytest.mark.parametrize("login", [WRITER, READER])
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE messages_by_topic",
        "TRUNCATE system_auth.roles",
        "SELECT salted_hash FROM system_auth.roles",
        "DROP KEYSPACE secured",
        "CREATE ROLE own WITH SUPERUSER = true",
        "ALTER ROLE administrator WITH PASSWORD = 'own'",
    ],
)
def test_a_service_rules_neither_tables_nor_logins(url, authorities, login, statement):
    with session(url, authorities["ours"], login) as logged_in, pytest.raises(Unauthorized):
        logged_in.execute(statement)


def test_the_login_of_every_new_node_is_gone(url, authorities):
    with (
        pytest.raises(NoHostAvailable) as refused,
        session(url, authorities["ours"], FIRST),
    ):
        pass
    assert [type(error) for error in refused.value.errors.values()] == [LoginRefused]


def test_logins_that_are_right_are_left_alone(url, authorities):
    assert make_logins(url, authorities["ours"]) == "as it was"


def test_a_data_centre_that_is_new_gets_all_logins(url, authorities):
    with session(url, authorities["ours"], ADMINISTRATOR) as rules:
        # As before the playbook knew of the new data centre.
        fewer = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        rules.execute(f"ALTER KEYSPACE system_auth WITH replication = {fewer}")
    assert make_logins(url, authorities["ours"]) == "changed: to be repaired"
    assert make_logins(url, authorities["ours"]) == "as it was"


def test_a_service_that_was_given_more_has_its_own_rights_again(url, authorities):
    with session(url, authorities["ours"], ADMINISTRATOR) as rules:
        rules.execute("ALTER ROLE writer WITH SUPERUSER = true")
        rules.execute("GRANT MODIFY ON ALL KEYSPACES TO reader")
        assert make_logins(url, authorities["ours"]) == "changed"
        rights = {
            name: {
                (resource, right)
                for *_, resource, right in rules.execute(f"LIST ALL PERMISSIONS OF {name}")
            }
            for name in ("writer", "reader")
        }
        asked = "SELECT is_superuser FROM system_auth.roles WHERE role = 'writer'"
        assert [*rules.execute(asked)] == [(False,)]
    secured = "<keyspace secured>"
    assert rights == {
        "writer": {(secured, "SELECT"), (secured, "MODIFY")},
        "reader": {(secured, "SELECT")},
    }


def test_another_password_of_the_administrator_is_changed_by_the_one_before(url, authorities):
    other = Credentials(ADMINISTRATOR.username, "another")
    try:
        assert make_logins(url, authorities["ours"], other) == "changed"
    finally:
        # The former password, for the tests that follow.
        assert make_logins(url, authorities["ours"], former=other.password) == "changed"


async def test_a_node_whose_certificate_nobody_known_vouches_for_is_not_talked_to(url, authorities):
    store = opened(f"{url}&tls={authorities['another']}", LOGIN)
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed"):
        await store.check()
    await store.close()


async def test_a_node_with_the_certificate_of_another_host_is_not_talked_to(url, authorities):
    port = parse_address(url).hosts[0][1]
    # The driver resolves names, and checks the certificate for the address.
    wire = await Wire(port, "127.0.0.2").open()
    elsewhere = url.replace(f"127.0.0.1:{port}", f"127.0.0.2:{wire.port}")
    store = opened(f"{elsewhere}&tls={authorities['ours']}", LOGIN)
    with pytest.raises(StoreUnavailable, match="IP address mismatch"):
        await store.check()
    await store.close()
    await wire.close()


async def test_an_authority_that_is_added_is_trusted_without_a_restart(url, authorities, tmp_path):
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(authorities["another"].read_bytes())
    store = opened(f"{url}&tls={trusted}", LOGIN)
    with pytest.raises(StoreUnavailable):
        await store.check()
    trusted.write_bytes(b"".join(authorities[who].read_bytes() for who in ("another", "ours")))
    await answers(store)
    await store.close()


async def test_a_node_that_refuses_a_login_for_a_while_is_asked_again(url, authorities):
    async def password_becomes(password: str) -> None:
        def change() -> None:
            with session(url, authorities["ours"], ADMINISTRATOR) as rules:
                rules.execute("ALTER ROLE writer WITH PASSWORD = %s", [password])

        # The node hashes passwords slowly on purpose, and other tests run beside this one.
        async with asyncio.timeout(_WITHIN):
            while True:
                with contextlib.suppress(DriverException, NoHostAvailable):
                    return await asyncio.to_thread(change)

    port = parse_address(url).hosts[0][1]
    async with contextlib.AsyncExitStack() as at_the_end:
        wire = await Wire(port).open()
        at_the_end.push_async_callback(wire.close)
        behind = url.replace(f"127.0.0.1:{port}", f"127.0.0.1:{wire.port}")
        store = opened(f"{behind}&tls={authorities['ours']}", LOGIN)
        at_the_end.push_async_callback(store.close)
        await store.check()
        at_the_end.push_async_callback(password_becomes, WRITER.password)
        await password_becomes("of-somebody-else")
        before = wire.accepted
        wire.reset()
        # The driver has two connections, and opens each of them again more than once.
        await until(lambda: wire.accepted >= before + 6)
        await password_becomes(WRITER.password)
        await answers(store)


@pytest.mark.parametrize("login", [{}, LOGIN | {"NEWSFABRIC_CASSANDRA_PASSWORD": "wrong"}])
async def test_without_the_right_password_it_says_so(url, authorities, login):
    store = opened(f"{url}&tls={authorities['ours']}", login)
    with pytest.raises(StoreError, match="user or password"):
        await store.check()
    await store.close()


def test_a_missing_file_of_authorities_is_a_config_error_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
        opened(f"cassandra://127.0.0.1/k?dc=oregon&tls={tmp_path}/none.pem", {})

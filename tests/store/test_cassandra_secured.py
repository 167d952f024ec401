"""The store on a node that wants a login and speaks TLS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from authorities import Authority
from envelopes import START_MS, envelope
from wires import Wire

from newsfabric.errors import ConfigError, StoreError, StoreUnavailable
from newsfabric.settings import Credentials
from newsfabric.store import Store, open_store
from newsfabric.store._cassandra_schema import Schema, cql_folder, load_migrations
from newsfabric.store._cassandra_url import parse_address
from newsfabric.topics import TopicPolicy, TopicTable
from newsfabric.world.cassandra import LocalCassandra
from newsfabric.world.cassandra_home import CassandraHome

pytestmark = pytest.mark.cassandra

ROOT: Final = Path(__file__).parents[2]
TOPICS: Final = TopicTable([TopicPolicy(pattern="news.#", ttl=3_600.0)])
# The first user of every new cluster.
FIRST: Final = Credentials("cassandra", "cassandra")
LOGIN: Final = {
    "NEWSFABRIC_CASSANDRA_USERNAME": FIRST.username,
    "NEWSFABRIC_CASSANDRA_PASSWORD": FIRST.password,
}
_USER_WITHIN: Final = 60.0


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The node's key with its certificate for 127.0.0.1, who signed it, and somebody else."""
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
    """A keyspace with our tables on such a node, made over TLS by the node's first user."""
    encryption = {
        "enabled": True,
        # So that the node can be asked plainly whether it is there.
        "optional": True,
        "ssl_context_factory": {
            "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"
        },
        "keystore": str(authorities["both"]),
        "truststore": str(authorities["ours"]),
    }
    settings = {
        "authenticator": "PasswordAuthenticator",
        "client_encryption_options": encryption,
    }
    folder = tmp_path_factory.mktemp("secured")
    with LocalCassandra(folder, cassandra_home, settings=settings) as node:
        plain = node.url("secured")
        apply_schema(f"{plain}&tls={authorities['ours']}")
        yield plain


def apply_schema(url: str) -> None:
    """Make the tables as soon as the node has made its first user."""
    deadline = time.monotonic() + _USER_WITHIN
    migrations = load_migrations(cql_folder())
    while True:
        try:
            with Schema(parse_address(url), FIRST, migrations, replication={"oregon": 1}) as schema:
                schema.apply(lambda line: None)
            return
        except StoreError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def opened(url: str, login: dict[str, str]) -> Store:
    return open_store(url, TOPICS, environ=login)


async def test_with_a_login_and_the_right_authority_everything_works(url, authorities):
    store = opened(f"{url}&tls={authorities['ours']}", LOGIN)
    written = envelope(1, at=int(time.time() * 1000) - START_MS)
    await store.write([written])
    assert await store.history("news.breaking", limit=10) == [written]
    await store.close()


async def test_a_node_whose_certificate_nobody_known_vouches_for_is_not_talked_to(url, authorities):
    store = opened(f"{url}&tls={authorities['another']}", LOGIN)
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed"):
        await store.check()
    await store.close()


async def test_a_node_with_the_certificate_of_another_host_is_not_talked_to(url, authorities):
    port = parse_address(url).hosts[0][1]
    # The driver looks names up, and checks the address that it finds.
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
    async with asyncio.timeout(_USER_WITHIN):
        while True:
            try:
                await store.check()
                break
            except StoreUnavailable:
                # It rests after a failure.
                await asyncio.sleep(0.2)
    await store.close()


@pytest.mark.parametrize("login", [{}, LOGIN | {"NEWSFABRIC_CASSANDRA_PASSWORD": "wrong"}])
async def test_without_the_right_password_it_says_so(url, authorities, login):
    store = opened(f"{url}&tls={authorities['ours']}", login)
    with pytest.raises(StoreError, match="user or password"):
        await store.check()
    await store.close()


def test_a_missing_file_of_authorities_is_a_config_error_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
        opened(f"cassandra://127.0.0.1/k?dc=oregon&tls={tmp_path}/none.pem", {})

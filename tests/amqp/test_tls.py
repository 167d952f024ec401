"""Links, shovels and the management API over TLS, on a RabbitMQ node with TLS."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from amqp_links import PATIENCE, Inbox, ready
from authorities import Authority, Certified, put

from localfabric.nodes.ports import free_ports
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import Declare, Link, Message, Properties
from newsfabric.amqp.link import connect
from newsfabric.brokers.management import Management
from newsfabric.errors import ConfigError, LinkError, LinkRefused, ManagementError
from newsfabric.settings import Credentials, TlsFiles
from newsfabric.topology import box_upstream, shovel_value
from newsfabric.topology.values import DIRECT, Bounds, Queue, ShovelLink

pytestmark = pytest.mark.broker

# The common name of a certificate, and so the name of a broker's user.
USER = "router.oregon"


@dataclasses.dataclass(frozen=True)
class Secured:
    """A node with TLS."""

    node: LocalNode
    ours: Authority
    shown: Certified
    port: int
    management_url: str

    def url(self, host: str = "127.0.0.1") -> str:
        return f"amqps://{host}:{self.port}/%2F"

    def show(self, *names: str, days: float = 3) -> None:
        """Have the node show another certificate from now on."""
        put(self.ours.sign(*names, days=days), self.shown)
        # By itself, the node would read the file again within two minutes.
        self.node.ctl("eval", "ssl:clear_pem_cache().")

    def trusting(self, authority: Path | None = None, **login: Any) -> Credentials:
        files = TlsFiles(authorities=authority or self.ours.file)
        return Credentials(**login, tls=files)


@pytest.fixture(scope="module")
def secured(
    rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    ours = Authority(folder, "ours")
    shown = ours.issue()
    port, management = free_ports(2)
    files = {
        "cacertfile": ours.file,
        "certfile": shown.certificate,
        "keyfile": shown.key,
    }
    settings = [
        f"listeners.ssl.default = 127.0.0.1:{port}",
        *(f"ssl_options.{name} = {file}" for name, file in files.items()),
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = false",
        "management.ssl.ip = 127.0.0.1",
        f"management.ssl.port = {management}",
        *(f"management.ssl.{name} = {file}" for name, file in files.items()),
        "auth_mechanisms.1 = PLAIN",
        "auth_mechanisms.2 = EXTERNAL",
        "ssl_cert_login_from = common_name",
    ]
    plugins = ["rabbitmq_auth_mechanism_ssl"]
    also_on = [port, management]
    with LocalNode(
        folder, rabbitmq_home, settings=settings, plugins=plugins, also_on=also_on
    ) as node:
        node.ctl("add_user", USER, "pass-word")
        node.ctl("set_permissions", USER, ".*", ".*", ".*")
        url = f"https://127.0.0.1:{management}"
        yield Secured(node, ours, shown, port, url)


@pytest.fixture(autouse=True)
def as_before(secured: Secured) -> Iterator[None]:
    """Give each test the node with a good certificate."""
    before = secured.shown.certificate.read_bytes()
    yield
    if secured.shown.certificate.read_bytes() != before:
        secured.show()


@asynccontextmanager
async def link_to(url: str, credentials: Credentials | None) -> AsyncIterator[Link]:
    link = await connect([url], name="test", credentials=credentials)
    try:
        yield link
    finally:
        await link.close()


async def carries(link: Link, name: str, *bodies: bytes, user: str | None = None) -> None:
    """Check that each of ``bodies``, published in the name of ``user``, is received again."""

    async def declare(on: Declare) -> None:
        await on.queue(name, durable=False, exclusive=True)

    await link.on_connect(declare)
    publisher = await ready(await link.publisher())
    inbox = await Inbox().consume(link, name)
    for body in bodies:
        await publisher.publish("", Message(name, body, Properties(user_id=user)))
    found = [(await inbox.next()).message for _ in bodies]
    assert [message.body for message in found] == list(bodies)
    assert {message.properties.user_id for message in found} == {user}


async def refusal(url: str, credentials: Credentials | None) -> LinkError:
    """Return the reason for which a link can't be made."""
    async with link_to(url, credentials) as link, asyncio.timeout(PATIENCE):
        return await link.refused()


async def test_a_link_over_tls_carries_messages(secured, name):
    async with link_to(secured.url(), secured.trusting()) as link:
        await carries(link, name, b"x" * 300_000, b"")


async def test_a_url_may_name_the_authority(secured, name):
    async with link_to(f"{secured.url()}?cacertfile={secured.ours.file}", Credentials()) as link:
        await carries(link, name, b"hello")


async def test_a_broker_of_another_authority_or_host_or_time_is_not_talked_to(secured, tmp_path):
    other = Authority(tmp_path, "other").file
    error = str(await refusal(secured.url(), secured.trusting(other)))
    assert "certificate verify failed" in error
    assert "certificate verify failed" in str(await refusal(secured.url(), Credentials()))
    error = str(await refusal(secured.url("localhost"), secured.trusting()))
    assert "Hostname mismatch, certificate is not valid for 'localhost'" in error
    secured.show(days=0.5)
    assert "certificate has expired" in str(await refusal(secured.url(), secured.trusting()))


async def test_a_link_lives_through_a_renewal_and_the_next_one_sees_it(secured, name):
    async with link_to(secured.url(), secured.trusting()) as link:
        await carries(link, name, b"before")
        # In a thread: the link must go on sending heartbeats.
        await asyncio.to_thread(secured.show, "localhost")
        publisher = await ready(await link.publisher())
        await publisher.publish("", Message(name, b"after"))
        assert link.connected
        async with link_to(secured.url("localhost"), secured.trusting()) as another:
            await carries(another, f"{name}.another", b"hello")


async def test_a_certificate_is_a_login_without_a_password(secured, name, tmp_path):
    mine = secured.ours.issue(USER, role="client")
    files = TlsFiles(authorities=secured.ours.file, certificate=mine.certificate, key=mine.key)
    known = Credentials(USER, "wrong", files)
    async with link_to(secured.url(), known) as link:
        # The broker confirms the user's name, as orders and canaries of the fabric need.
        await carries(link, name, b"hello", user=USER)
        words = "list_connections", "user", "auth_mechanism"
        # In a thread: the link sends heartbeats meanwhile.
        users = await asyncio.to_thread(secured.node.ctl, *words)
    assert f"{USER}\tEXTERNAL" in users


async def test_a_url_may_name_certificate_and_mechanism(secured, name):
    mine = secured.ours.issue(USER, role="client")
    shown = f"certfile={mine.certificate}&keyfile={mine.key}&auth_mechanism=external"
    url = f"{secured.url()}?cacertfile={secured.ours.file}&{shown}"
    async with link_to(url, None) as link:
        await carries(link, name, b"hello")


async def test_a_certificate_of_a_user_who_is_none_is_refused(secured):
    nobody = secured.ours.issue("nobody.oregon", role="client")
    files = TlsFiles(authorities=secured.ours.file, certificate=nobody.certificate, key=nobody.key)
    error = await refusal(secured.url(), Credentials("nobody.oregon", "", files))
    assert isinstance(error, LinkRefused)
    assert "403 ACCESS_REFUSED" in str(error)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("verify=verify_none", "always verified"),
        ("ssl_options={'cert_reqs':0}", "ssl_options"),
        ("auth_mechanism=external", "certfile"),
        ("auth_mechanism=anonymous", "plain or external"),
        ("cacertfile=/none/ca.pem", "none/ca.pem"),
    ],
)
async def test_a_url_can_not_turn_verification_off(secured, query, why):
    with pytest.raises(ConfigError, match=why):
        await connect([f"{secured.url()}?{query}"], name="test")


async def test_the_management_api_is_asked_over_https(secured, tmp_path):
    async with Management(secured.management_url, secured.trusting()) as api:
        assert (await api.overview())["rabbitmq_version"]
    other = Authority(tmp_path, "other").file
    async with Management(secured.management_url, secured.trusting(other)) as api:
        with pytest.raises(ManagementError, match="certificate verify failed"):
            await api.overview()


@asynccontextmanager
async def shovelling(
    secured: Secured, name: str, url: str, credentials: Credentials
) -> AsyncIterator[Management]:
    """Run a shovel called ``name`` from a queue of that name to ``url``."""
    link = ShovelLink(
        name=name,
        source=DIRECT,
        queue=Queue(name, Bounds(max_length=10, max_bytes=10_000)),
        exchange="amq.fanout",
        destinations=(url,),
    )
    async with Management(secured.node.management_url, Credentials()) as api:
        await api.put_queue(name, link.queue.bounds.arguments())
        await api.put_shovel(name, shovel_value(link, credentials))
        try:
            yield api
        finally:
            await api.delete_shovel(name)
            await api.delete_queue(name)


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        # Neither a broker's management nor its log has events to wait for.
        while not await check():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def runs(secured: Secured, name: str, url: str, credentials: Credentials) -> None:
    async with shovelling(secured, name, url, credentials) as api:

        async def running() -> bool:
            state = (await api.shovel_states()).get(name)
            return state is not None and state.state == "running"

        await until(running)


async def trouble(secured: Secured, name: str, url: str, credentials: Credentials) -> str:
    """Return the line in the broker's log about a shovel that can't connect."""
    text = f"Shovel '{name}' failed to connect"
    log = secured.node.folder / "node.log"
    async with shovelling(secured, name, url, credentials) as api:

        async def is_logged() -> bool:
            return text in await asyncio.to_thread(log.read_text)

        await until(is_logged)
        assert (await api.shovel_states())[name].state != "running"
    _, _, rest = (await asyncio.to_thread(log.read_text)).partition(text)
    assert "guest:" not in rest.partition("\n")[0]
    return rest[:1000]


async def test_a_shovel_runs_over_tls(secured, name):
    await runs(secured, name, secured.url(), secured.trusting())


async def test_a_shovel_goes_by_a_host_s_name_too(secured, name):
    secured.show("localhost")
    await runs(secured, name, secured.url("localhost"), secured.trusting())


async def test_a_shovel_logs_in_with_a_certificate(secured, name):
    mine = secured.ours.issue(USER, role="client")
    files = TlsFiles(authorities=secured.ours.file, certificate=mine.certificate, key=mine.key)
    await runs(secured, name, secured.url(), Credentials(USER, "wrong", files))


async def test_a_shovel_does_not_trust_another_authority(secured, name, tmp_path):
    other = Authority(tmp_path, "other").file
    assert "unknown_ca" in await trouble(secured, name, secured.url(), secured.trusting(other))


@pytest.mark.parametrize(("shown", "asked"), [("127.0.0.1", "localhost"), ("other", "127.0.0.1")])
async def test_a_shovel_does_not_trust_another_host_s_certificate(secured, name, shown, asked):
    secured.show(shown)
    error = await trouble(secured, name, secured.url(asked), secured.trusting())
    assert "hostname_check_failed" in error


async def test_a_shovel_does_not_trust_an_expired_certificate(secured, name):
    secured.show(days=0.5)
    error = await trouble(secured, name, secured.url(), secured.trusting())
    assert "certificate_expired" in error or "cert_expired" in error


def test_a_shovel_over_tls_that_trusts_nobody_is_not_made(secured):
    link = box_upstream(["amqps://core.example:5671/%2F"])
    with pytest.raises(ConfigError, match="NEWSFABRIC_TLS_CA_FILE"):
        shovel_value(link, Credentials())

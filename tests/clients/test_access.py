"""Refused publishers, and brokers that can't be trusted: an error at once, in each language."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from authorities import Certified, certify
from client_programs import CONTRACT, Program, program
from client_regions import ClientRegion, ClientRegions, settings

from localfabric.nodes.ports import free_ports
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.settings import Credentials, Node
from newsfabric.topics import PublisherRights

# Maven may take a minute to compile the Java library on a busy machine.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

MESSAGE = {"topic": "news.x", "body": '{"headline": "Hello"}'}
# Far longer than the time limit of a program: a wait for it fails the test.
FOR_EVER = 600.0


@pytest.fixture(scope="module", params=CONTRACT)
def publisher(request: pytest.FixtureRequest) -> Program:
    return program(request.param)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return certify(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def node(
    rabbitmq_home: RabbitmqHome, ours: Certified, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalNode]:
    """Yield a broker with TLS at ``secured(region)``."""
    (port,) = free_ports(1)
    settings = [
        f"listeners.ssl.default = 127.0.0.1:{port}",
        f"ssl_options.cacertfile = {ours.authority}",
        f"ssl_options.certfile = {ours.certificate}",
        f"ssl_options.keyfile = {ours.key}",
    ]
    folder = tmp_path_factory.mktemp("node")
    with LocalNode(folder, rabbitmq_home, settings=settings, also_on=[port]) as node:
        yield node


@pytest.fixture
async def regions(node: LocalNode) -> AsyncIterator[ClientRegions]:
    async with ClientRegions.on(Node("node", node.amqp_url, node.management_url)) as made:
        yield made


def secured(node: LocalNode, region: ClientRegion, *, authority: Path | None) -> str:
    """Return the URL of ``region`` over TLS, trusting ``authority``."""
    port = node.broker.settings[0].rpartition(":")[2]
    url = f"amqps://127.0.0.1:{port}/{region.vhost}"
    return url if authority is None else f"{url}?cacertfile={authority}"


async def refusal(publisher: Program, *urls: str) -> str:
    """Return the error of ``publisher``, at once, when it has no other broker."""
    (result,) = await publisher.run(settings(*urls, timeout=FOR_EVER), MESSAGE)
    assert result["error"] == "AccessRefused", result
    return str(result["text"])


async def test_a_wrong_password(publisher: Program, regions: ClientRegions) -> None:
    region = await regions("oregon")
    url = Credentials("guest", "wrong").in_url(region.url)
    text = await refusal(publisher, url)
    assert "ACCESS_REFUSED - Login was refused" in text
    assert "wrong" not in text


async def test_a_wrong_password_at_every_broker_of_every_region(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    url = Credentials("guest", "wrong").in_url(region.url)
    assert "ACCESS_REFUSED" in await refusal(publisher, f"{url}, {url}", url)


async def test_no_such_virtual_host(publisher: Program, regions: ClientRegions) -> None:
    region = await regions("oregon")
    text = await refusal(publisher, region.url.replace(region.vhost, "nowhere"))
    assert "NOT_ALLOWED - vhost nowhere not found" in text


async def test_a_virtual_host_that_isnt_the_users(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    text = await refusal(publisher, await region.add_user("cms"))
    assert "NOT_ALLOWED" in text
    assert f"access to vhost '{region.vhost}' refused for user 'cms'" in text


async def test_where_one_broker_refuses_another_is_used(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    wrong = Credentials("guest", "wrong").in_url(region.url)
    given = settings(f"{wrong}, {region.url}", timeout=20.0)
    (result,) = await publisher.run(given, MESSAGE)
    assert result["published"]["region"] == "oregon"


async def test_where_one_region_refuses_another_is_used_and_the_log_says_so(
    publisher: Program, regions: ClientRegions
) -> None:
    oregon, dublin = await regions("oregon"), await regions("dublin")
    wrong = Credentials("guest", "wrong").in_url(oregon.url)
    (lines,), result = await publisher.run_and_listen(
        settings(wrong, dublin, timeout=20.0), MESSAGE
    )
    assert lines["published"]["region"] == "dublin"
    assert "ACCESS_REFUSED - Login was refused" in result


async def test_a_region_that_is_down_may_come_back(
    publisher: Program, regions: ClientRegions, unused_tcp_port: int
) -> None:
    oregon = await regions("oregon")
    wrong = Credentials("guest", "wrong").in_url(oregon.url)
    down = f"amqp://127.0.0.1:{unused_tcp_port}/%2F"
    (result,) = await publisher.run(settings(wrong, down, timeout=2.0), MESSAGE)
    assert (result["error"], result["sent"]) == ("Unanswered", False)


async def test_a_broker_that_takes_no_more_connections_of_the_user_may_take_some_later(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    url = await region.user(PublisherRights("late", ("news.#",)))
    await region.close_to("late")
    (lines,), result = await publisher.run_and_listen(settings(url, timeout=2.0), MESSAGE)
    assert "user connection limit (0) is reached" in result
    assert (lines["error"], lines["sent"]) == ("Unanswered", False)


async def test_a_broker_that_takes_no_more_connections_may_take_some_later(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    await region.close_to_all()
    (lines,), result = await publisher.run_and_listen(settings(region, timeout=2.0), MESSAGE)
    assert "connection limit (0) is reached" in result
    assert (lines["error"], lines["sent"]) == ("Unanswered", False)


async def test_over_tls_with_an_authority_of_ones_own(
    publisher: Program, regions: ClientRegions, node: LocalNode, ours: Certified
) -> None:
    region = await regions("oregon")
    url = secured(node, region, authority=ours.authority)
    result = await publisher.run(settings(url, timeout=20.0), MESSAGE, {**MESSAGE, "many": 500})
    assert result[0]["published"]["region"] == "oregon"
    assert result[1]["failed"] == 0
    assert len(region.seen) == 501


async def test_a_missing_file_of_authorities_is_an_error_at_once(
    publisher: Program, regions: ClientRegions, node: LocalNode, tmp_path: Path
) -> None:
    url = secured(node, await regions("oregon"), authority=tmp_path / "none.pem")
    with pytest.raises(AssertionError, match=r"none\.pem"):
        await publisher.run(settings(url), MESSAGE)


@pytest.mark.parametrize("trusted", ["another", "those of the machine"])
async def test_a_broker_whose_authority_isnt_trusted_is_not_talked_to(
    publisher: Program, regions: ClientRegions, node: LocalNode, tmp_path: Path, trusted: str
) -> None:
    another = certify(tmp_path, "another").authority if trusted == "another" else None
    region = await regions("oregon")
    text = await refusal(publisher, secured(node, region, authority=another))
    assert "certificate verify failed" in text or "PKIX path" in text, text


async def test_a_broker_with_the_certificate_of_another_host_is_not_talked_to(
    publisher: Program, regions: ClientRegions, node: LocalNode, ours: Certified
) -> None:
    region = await regions("oregon")
    url = secured(node, region, authority=ours.authority).replace("127.0.0.1", "localhost")
    text = await refusal(publisher, url)
    assert "localhost" in text

"""Attacks by AMQP 1.0, which RabbitMQ 4 always speaks, around refusals of AMQP 0-9-1.

The interceptor of localfabric.world.bounded_declarations sees nothing of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import amqp10
import pytest
from amqp10 import Amqp10Connection, Ended, source, target, text
from guarded import Guarded, publishes

pytestmark = [pytest.mark.broker, pytest.mark.promise("F4")]

BOX = "box.edge-1"
# With the rest of its frame, just below the largest frame of an entrance.
LONG = "x" * 20_000
NEWS = "/exchanges/publish/news.x"


def connect(node: Guarded, user: str) -> Amqp10Connection:
    return Amqp10Connection(node.node.broker.amqp_port, user, "pass-word")


@pytest.fixture(autouse=True)
def _speaks_it(client: Guarded) -> None:
    if int(client.node.version.split(".")[0]) < 4:
        with pytest.raises(Ended):
            connect(client, "cms")
        pytest.skip("RabbitMQ before 4 refuses AMQP 1.0")


def memory(node: Guarded) -> int:
    """Return the bytes that the broker uses, after a garbage collection of all its processes."""
    collected = "[erlang:garbage_collect(P) || P <- erlang:processes()], erlang:memory(total)."
    return int(node.node.ctl("eval", collected).strip())


def test_nobody_speaks_amqp_1_0_on_a_core(core: Guarded) -> None:
    """A box's two hundred links, with names that fill a frame, would cost its core 12 MB."""

    def is_refused(user: str) -> bool:
        with pytest.raises(Ended):
            connect(core, user)
        return True

    users = (BOX, "router.oregon", "root")
    # A broker waits for seconds before it refuses a login.
    with ThreadPoolExecutor(len(users)) as at_once:
        assert all(at_once.map(is_refused, users))


def links(connection: Amqp10Connection, channel: int, count: int) -> Iterator[bytes]:
    for n in range(count):
        name = f"{channel}-{n}-{LONG}"
        yield connection.attach(channel, name, receives=False, at=source(), to=target(text(NEWS)))


def test_a_publisher_closes_its_regions_entrance_by_links(client: Guarded) -> None:
    """Without bounds one connection cost an entrance 760 MB in two seconds."""
    before = memory(client)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(client, "cms")) for _ in range(10)]
        for connection in connections:
            for _ in range(2):
                assert len([*links(connection, connection.session(), 8)]) == 8
        assert memory(client) < before + (16 << 20)
        with pytest.raises(Ended):
            connections[0].session()
    with connect(client, "cms") as connection, pytest.raises(Ended):
        list(links(connection, connection.session(), 9))
    client.takes("web", publishes("publish", "news.x"))


def test_a_publisher_declares_by_the_management_of_amqp_1_0(client: Guarded) -> None:
    """Every declaration is refused: the publisher may use no name, and the broker gives none."""
    asked = amqp10.pairs([(text("exclusive"), amqp10.TRUE)])
    for path in ("/queues/amq.gen-x", "/queues/cms.mine", "/queues/", "/exchanges/amq.gen-x"):
        with connect(client, "cms") as connection:
            assert is_refused(connection, path, asked)
    for kind in ("temporary-queue", "rabbitmq:volatile-queue"):
        with connect(client, "cms") as connection, pytest.raises(Ended, match="unauthorized"):
            connection.attach(
                connection.session(),
                "l",
                receives=True,
                at=source(dynamic=kind),
                to=target(text("me")),
            )


def is_refused(connection: Amqp10Connection, path: str, asked: bytes) -> bool:
    try:
        reply = connection.request(connection.session(), "PUT", path, asked)
    except Ended as exc:
        return "unauthorized" in str(exc)
    return any(status in reply for status in (b"\xa1\x03400", b"\xa1\x03403"))

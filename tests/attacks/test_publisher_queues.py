"""A publisher with a login of its own tries to fill the client broker with unread messages."""

from __future__ import annotations

import pytest
from guarded import Guarded, opened, publishes
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

pytestmark = pytest.mark.broker

LARGE = b"x" * 65_536


def depth(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def floods(
    channel: BlockingChannel, queue: str, count: int, body: bytes, exchange: str = ""
) -> None:
    """Publish ``count`` messages, and return when ``queue`` has them all.

    Only the last one is confirmed, on the same channel: so the queue has taken all before it.
    """
    for _ in range(count - 1):
        channel.basic_publish(exchange, queue, body)
    channel.confirm_delivery()
    channel.basic_publish(exchange, queue, body)


def test_a_publisher_fills_a_queue_of_its_own_until_the_broker_blocks_everyone(
    client: Guarded,
) -> None:
    # The publisher may ask for any bounds.
    greedy = {"x-max-length": 100_000_000, "x-max-length-bytes": 1 << 40, "x-expires": 1 << 31}
    with client.connect("cms") as connection:
        channel = opened(connection)
        hoard = channel.queue_declare("", durable=True, arguments=greedy).method.queue
        with client.connect("root") as receipts:
            # 768 MiB; the broker's alarm is at 512 MB.
            floods(receipts.channel(), hoard, 12_288, LARGE)
        # 8 MiB of these messages.
        assert depth(channel, hoard) <= 128
        assert client.api("root", "/health/checks/alarms") == 200
        channel.queue_delete(hoard)


@pytest.mark.parametrize("kind", ["stream", "quorum"])
def test_a_publisher_fills_the_disk_with_a_queue_that_keeps_a_log(
    client: Guarded, kind: str
) -> None:
    with client.connect("cms") as connection:
        for name in ("", "cms.log"):
            with pytest.raises(ChannelClosedByBroker):
                opened(connection).queue_declare(
                    name, durable=True, arguments={"x-queue-type": kind}
                )


def test_a_publisher_sends_messages_that_fill_a_shovel(client: Guarded) -> None:
    largest = b"x" * 131_072
    client.takes("cms", publishes("publish", "news.x", largest))
    with client.connect("cms") as connection:
        channel = opened(connection)
        with pytest.raises(ChannelClosedByBroker, match="larger than configured max size"):
            publishes("publish", "news.x", largest + b"x")(channel)
        # The connection still works.
        publishes("publish", "news.x")(opened(connection))


def test_a_publisher_sends_headers_that_cost_a_megabyte_each(client: Guarded) -> None:
    """Each field costs 72 bytes of memory while the message waits; a frame has room for so many."""
    fields = {f"{n:x}": None for n in range(4_000)}
    client.takes("cms", publishes("publish", "news.x", headers=fields))
    with client.connect("cms") as connection:
        channel = opened(connection)
        with pytest.raises(ConnectionClosedByBroker, match="FRAME_ERROR"):
            publishes(
                "publish", "news.x", headers=fields | {f"more{n}": None for n in range(1_000)}
            )(channel)
    client.takes("web", publishes("publish", "news.x"))


def test_a_publisher_keeps_more_small_messages_than_there_may_be(client: Guarded) -> None:
    with client.connect("web") as connection:
        channel = opened(connection)
        hoard = channel.queue_declare("", durable=True).method.queue
        with client.connect("root") as receipts:
            floods(receipts.channel(), hoard, 10_100, b"{}")
        assert depth(channel, hoard) == 10_000
        channel.queue_delete(hoard)


def test_a_publisher_changes_its_limits(client: Guarded) -> None:
    policy = {"pattern": "^cms", "definition": {"max-length": 1 << 40}, "apply-to": "queues"}
    assert client.api("cms", "/operator-policies/%2F/others", "PUT", policy) == 401
    assert client.api("cms", "/policies/%2F/mine", "PUT", policy) == 401
    assert client.api("cms", "/operator-policies/%2F/others", "DELETE") == 401
    assert client.api("cms", "/vhost-limits/%2F/max-queues", "DELETE") == 401


def test_a_publisher_says_that_it_is_another(client: Guarded) -> None:
    with client.connect("cms") as connection, pytest.raises(ChannelClosedByBroker, match="user_id"):
        publishes("publish", "news.x", user_id="web")(opened(connection))
    # An operator may: `newsfabric publish --app-id web`.
    client.takes("root", publishes("publish", "news.x", user_id="web"))


def test_the_fabrics_own_queues_keep_the_bounds_that_the_topology_gives_them(
    client: Guarded,
) -> None:
    with client.connect("keeper.oregon") as connection:
        channel = opened(connection)
        queue = "shovel.publish.oregon.1"
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "publish", "#")
        with client.connect("root") as root:
            floods(root.channel(), "news.x", 10_100, b"{}", "publish")
        assert depth(channel, queue) == 10_100
        channel.queue_delete(queue)

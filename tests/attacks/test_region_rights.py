"""Attacks with a stolen login of one of a region's services, on this region and elsewhere.

The brokers are oregon's: real ones, with the generated definitions.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from guarded import TOPICS, Attempt, Guarded, opened, publishes

from newsfabric.amqp.link import connect
from newsfabric.amqp.message import Delivery
from newsfabric.messages.mailbox import MARK_KEY
from newsfabric.settings import Credentials
from newsfabric.store.memory import MemoryStore
from newsfabric.topology.values import REGION_BOUNDS
from wholesale.common.source import QueueSource
from wholesale.mailbox.marking import Marking
from wholesale.mailbox.service import MailboxService, MailboxSettings

pytestmark = [pytest.mark.broker, pytest.mark.promise("F4")]

KEY = "news.breaking"
ROUTER, MAILBOX, FRONTDESK = "router.oregon", "mailbox.oregon", "frontdesk.oregon"
SCALER = "scaler.oregon"
# Users of another region.
KEEPER, SHOVEL = "keeper.dublin", "shovel.dublin"
SOURCE = "shovel.outbound.dublin.1"


def gets(queue: str) -> Attempt:
    return lambda channel: channel.basic_get(queue)


def binds(queue: str, exchange: str, key: str = "#") -> Attempt:
    return lambda channel: channel.queue_bind(queue, exchange, key)


def hears(exchange: str, key: str = "#") -> Attempt:
    """Consume the messages of ``exchange``, on a queue that the broker names."""

    def attempt(channel: Any) -> None:
        mine = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(mine, exchange, key)
        channel.basic_get(mine)
        channel.queue_delete(mine)

    return attempt


def declares(queue: str) -> Attempt:
    return lambda channel: channel.queue_declare(queue, durable=True)


def deletes(queue: str) -> Attempt:
    return lambda channel: channel.queue_delete(queue)


def deletes_exchange(exchange: str) -> Attempt:
    return lambda channel: channel.exchange_delete(exchange)


def test_a_router_does_more_than_route(core: Guarded) -> None:
    core.takes(
        ROUTER,
        *(publishes(to, KEY) for to in ("postoffice", "outbound", "rejected", "receipts")),
        gets("router.1"),
        gets("router.2"),
    )
    core.refuses(
        ROUTER,
        publishes("intake", KEY),
        publishes("upstream", "_fabric.mark"),
        gets("mailbox"),
        gets("rejected"),
        gets("box.edge-1.1"),
        declares("mine"),
        deletes("router.1"),
        deletes_exchange("intake"),
    )
    assert core.api(ROUTER, "/overview") == 401


def test_a_scaler_does_more_than_drain_boxes_of_its_region(core: Guarded) -> None:
    core.takes(
        SCALER,
        publishes("orders", "_fabric.drain.oregon.edge-1", user_id=SCALER),
        publishes("upstream", "_fabric.report.oregon.oregon-scaler-1", user_id=SCALER),
        hears("upstream", "_fabric.load.oregon.*"),
    )
    core.refuses(
        SCALER,
        publishes("orders", KEY),
        publishes("postoffice", KEY),
        publishes("postoffice", "_fabric.tick.oregon"),
        publishes("postoffice", "_fabric.drain.oregon.edge-1"),
        publishes("orders", "_fabric.drain.dublin.edge-1"),
        publishes("outbound", "_fabric.drain.oregon.edge-1"),
        publishes("intake", KEY),
        publishes("upstream", "_fabric.load.oregon.edge-1"),
        publishes("upstream", "_fabric.mark"),
        binds("box.edge-1.1", "postoffice"),
        gets("router.1"),
        gets("box.edge-1.1"),
        declares("mine"),
        declares("scaler.oregon-scaler-1.x"),
        deletes("box.edge-1.1"),
        deletes_exchange("postoffice"),
        hears("upstream"),
        hears("upstream", "_fabric.mark"),
        hears("upstream", "_fabric.report.oregon.*"),
        hears("postoffice"),
        hears("orders"),
        hears("intake"),
    )
    assert core.api(SCALER, "/overview") == 401


def test_others_order_a_box_to_drain(core: Guarded) -> None:
    order = "_fabric.drain.oregon.edge-1"
    for user in (MAILBOX, FRONTDESK, KEEPER, "keeper.oregon", "box.edge-1", "box.edge-2"):
        to = ("postoffice", "outbound", "orders")
        core.refuses(user, *(publishes(exchange, order) for exchange in to))


def test_a_mailbox_publishes_news(core: Guarded) -> None:
    core.takes(
        MAILBOX, publishes("intake", "user.42"), publishes("intake", "marks.cms"), gets("mailbox")
    )
    core.refuses(
        MAILBOX,
        publishes("intake", KEY),
        publishes("intake", "_fabric.revoked"),
        publishes("postoffice", "user.42"),
        gets("router.1"),
        declares("mine"),
        deletes("mailbox"),
    )
    assert core.api(MAILBOX, "/overview") == 401


async def test_what_a_mailbox_fails_with_comes_round_for_ever(
    core: Guarded, monkeypatch: pytest.MonkeyPatch, expect_error_log: Any
) -> None:
    expect_error_log("requeued")
    expect_error_log("failed twice with a message")

    def take_delivery(_work: Marking, source: QueueSource, delivery: Delivery) -> None:
        source.saw(delivery)
        raise RecursionError("a bug")

    monkeypatch.setattr(Marking, "take_delivery", take_delivery)
    login = Credentials(MAILBOX, "pass-word")
    link = await connect([core.node.amqp_url], name="mailbox", credentials=login)
    service = MailboxService(
        MailboxSettings(name="oregon-mailbox-1", region="oregon", queues=("mailbox",)),
        links=link,
        taking=link,
        store=MemoryStore(TOPICS),
        topics=TOPICS,
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(service.serve(stop))
    with core.connect("box.edge-1") as connection:
        publishes("upstream", MARK_KEY, b"poison", user_id="box.edge-1")(opened(connection))
    assert await asyncio.to_thread(_why_rejected, core, b"poison") == "failed"
    stop.set()
    await serving
    await link.close()


def _why_rejected(core: Guarded, body: bytes) -> str | None:
    """Return the reason for which ``body`` is in ``rejected``; None if it isn't there."""
    with core.connect("root") as connection:
        channel = opened(connection)
        for _, properties, found in channel.consume("rejected", True, inactivity_timeout=60):
            if found is None:
                break
            if found == body:
                return str(properties.headers["reason"])
    return None


def test_a_frontdesk_speaks_on_the_core(core: Guarded) -> None:
    core.takes(
        FRONTDESK,
        hears("upstream", "_fabric.load.oregon.*"),
        hears("upstream", "_fabric.report.oregon.*"),
    )
    core.refuses(
        FRONTDESK,
        *(publishes(to, KEY) for to in ("intake", "postoffice", "upstream", "outbound", "")),
        hears("upstream"),
        hears("upstream", "_fabric.mark"),
        hears("postoffice"),
        declares("frontdesk.desk-1.x"),
        gets("router.1"),
        deletes_exchange("upstream"),
    )
    assert core.api(FRONTDESK, "/overview") == 401


def test_a_frontdesk_hears_what_publishers_say(client: Guarded) -> None:
    client.takes(
        FRONTDESK,
        publishes("publish", KEY, user_id=FRONTDESK),
        lambda channel: channel.queue_declare("", exclusive=True),
    )
    client.refuses(
        FRONTDESK,
        hears("publish"),
        publishes("", "amq.gen-x"),
        declares("frontdesk.desk-1.x"),
        declares("cms.x"),
        deletes_exchange("publish"),
    )


def test_another_regions_keeper_rules_this_one(core: Guarded) -> None:
    core.takes(
        KEEPER,
        declares(SOURCE),
        binds(SOURCE, "outbound"),
        publishes("outbound", "_fabric.canary.dublin"),
    )
    core.takes(SHOVEL, gets(SOURCE))
    core.refuses(
        KEEPER,
        publishes("outbound", KEY),
        publishes("outbound", "_fabric.canary.oregon"),
        *(publishes(to, KEY) for to in ("intake", "postoffice", "upstream", "receipts", "")),
        *(gets(queue) for queue in ("router.1", "mailbox", "rejected", "box.edge-1.1")),
        *(deletes(queue) for queue in ("router.1", "shovel.receipts.1", "box.edge-1.1")),
        *(binds(SOURCE, source) for source in ("postoffice", "intake", "upstream", "receipts")),
        deletes_exchange("outbound"),
        declares("shovel.receipts.1"),
    )
    # It may make no shovel: a shovel may do anything, whoever made it.
    for user in (KEEPER, SHOVEL):
        assert core.api(user, "/parameters/shovel/%2F") == 401
        assert core.api(user, "/parameters/shovel/%2F/mine", "PUT", {"value": {}}) == 401
        assert core.api(user, "/definitions", "POST", {}) == 401
    core.takes(
        "keeper.oregon",
        deletes("router.1"),
        declares("router.1"),
        binds("router.1", "intake"),
        deletes("mailbox"),
        declares("mailbox"),
        binds("mailbox", "upstream", MARK_KEY),
    )
    core.takes(KEEPER, deletes(SOURCE))


def test_another_regions_keeper_has_this_core_keep_what_it_never_fetches(core: Guarded) -> None:
    greedy = {"x-max-length": 100_000_000, "x-max-length-bytes": 1 << 40}
    core.takes(
        KEEPER, lambda channel: channel.queue_declare(SOURCE, durable=True, arguments=greedy)
    )
    found = core.node.ctl(
        "eval",
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{SOURCE}">>)), '
        "rabbit_policy:effective_definition(Q).",
    )
    held = {name: int(value) for name, value in re.findall(r'<<"([^"]+)">>[ =>,]+(\d+)', found)}
    assert held == REGION_BOUNDS.policy()
    core.takes(KEEPER, deletes(SOURCE))


def test_another_regions_keeper_publishes_here(client: Guarded) -> None:
    source = "shovel.publish.dublin.1"
    client.takes(KEEPER, declares(source), binds(source, "publish", KEY))
    client.takes(SHOVEL, gets(source))
    client.refuses(
        KEEPER,
        publishes("publish", KEY),
        publishes("", "cms.x"),
        declares("shovel.publish.oregon.1"),
        declares("cms.x"),
        deletes_exchange("publish"),
    )
    client.takes(KEEPER, deletes(source))
    assert client.api(KEEPER, "/parameters/shovel/%2F") == 401


def test_a_stolen_login_of_the_shovels_does_more_than_read(core: Guarded) -> None:
    """The login is on each broker that runs a shovel, such as a proxy cluster's far away."""
    mine = "shovel.receipts.1"
    core.takes("keeper.oregon", declares(mine))
    core.takes("shovel.oregon", gets(mine))
    core.refuses(
        "shovel.oregon",
        *(publishes(to, KEY) for to in ("intake", "postoffice", "outbound", "receipts", "")),
        *(gets(queue) for queue in ("router.1", "mailbox", "rejected", "box.edge-1.1")),
        deletes(mine),
        declares("shovel.receipts.2"),
    )
    assert core.api("shovel.oregon", "/overview") == 401
    core.takes("keeper.oregon", deletes(mine))

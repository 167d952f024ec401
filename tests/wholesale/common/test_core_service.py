"""Routers and mailbox services as processes: ready, healthy, drained."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from clusters import sent_by_box
from core_cluster import CoreCluster, message, until
from envelopes import START_MS, envelope
from several_cores import SeveralCores
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from newsfabric.amqp import Links
from newsfabric.amqp.message import Delivery, Message
from newsfabric.errors import ConfigError, StoreUnavailable
from newsfabric.messages.mailbox import MARK_KEY, KeptMessage, UserMark, encode_mark
from newsfabric.store.memory import MemoryStore
from newsfabric.store.rules import clock_ms
from newsfabric.topics import TopicTable
from wholesale.common.core_service import CoreService
from wholesale.common.source import QueueSource
from wholesale.mailbox.marking import Marking
from wholesale.mailbox.service import MailboxService, MailboxSettings
from wholesale.router.router import Router
from wholesale.router.service import RouterService, RouterSettings

# The service goes by the real clock.
LETTER = envelope(1, at=clock_ms() - START_MS, topic="user.42", app_id="billing")


class UnreachableStore(MemoryStore):
    async def check(self) -> None:
        raise StoreUnavailable("nobody there")


class Away(MemoryStore):
    """A store that answers health checks, but fails when it is used."""

    async def kept(self, topic: str, id: str) -> KeptMessage | None:
        raise StoreUnavailable("gone")


def _router(core: CoreCluster, links: Links | None = None, **settings: Any) -> CoreService[Any]:
    found = RouterSettings(
        name="oregon-router-1", region="oregon", queues=("router.1",), **settings
    )
    links = links or core.link
    return RouterService(found, links=links, taking=links, store=core.store, topics=core.topics)


def _mailbox(core: CoreCluster, links: Links | None = None, **settings: Any) -> CoreService[Any]:
    found = MailboxSettings(
        name="oregon-mailbox-1", region="oregon", queues=("mailbox",), **settings
    )
    links = links or core.link
    return MailboxService(found, links=links, taking=links, store=core.store, topics=core.topics)


@pytest.fixture(params=[_router, _mailbox], ids=["router", "mailbox"])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


@contextlib.asynccontextmanager
async def serving(service: CoreService[Any]) -> AsyncIterator[str]:
    """Run the service; yield the URL of its pages, and stop it at the end."""
    stop = asyncio.Event()
    task = asyncio.create_task(service.serve(stop))
    await service.listening.wait()
    try:
        yield f"http://127.0.0.1:{service.port}"
    finally:
        stop.set()
        await task


async def get(url: str) -> HTTPResponse:
    return await AsyncHTTPClient().fetch(url, raise_error=False)


async def test_it_is_ready_once_it_consumes_and_the_store_answers(core: CoreCluster, make: Any):
    service = make(core)
    async with serving(service) as url:
        await until(lambda: service.readiness().ready)
        assert (await get(f"{url}/healthz/ready")).code == 200
        assert (await get(f"{url}/healthz/live")).code == 200


async def test_without_its_link_it_isnt_ready_and_says_so(core: CoreCluster, make: Any):
    service = make(core)
    async with serving(service) as url:
        await until(lambda: service.readiness().ready)
        core.broker.cut()
        response = await get(f"{url}/healthz/ready")
        assert response.code == 503
        assert json.loads(response.body) == {"ready": False, "waiting_for": ["link"]}


async def test_without_its_store_it_isnt_ready(core: CoreCluster, make: Any):
    core.store = UnreachableStore(core.topics)
    service = make(core)
    async with serving(service):
        await until(lambda: service.readiness().waiting_for == ("store",))


async def test_a_taken_port_is_one_clear_line(core: CoreCluster, make: Any):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"can't listen on 127.0.0.1 port {port}"):
            await make(core, port=port).serve(asyncio.Event())


def _read_at(at_ms: int) -> UserMark:
    return UserMark(topic=LETTER.topic, id=LETTER.id, kind="read", at_ms=at_ms)


async def test_ordered_to_stop_a_mailbox_service_finishes_what_it_has(core: CoreCluster):
    await core.store.write([LETTER])
    service = _mailbox(core)
    async with serving(service):
        await until(lambda: service.readiness().ready)
        for n in range(300):
            core.broker.publish("upstream", sent_by_box(encode_mark(_read_at(n + 1))))
        await until(lambda: core.broker.depth("mailbox") < 300)
    # Messages it took are acknowledged; the others are untouched.
    left = core.broker.depth("mailbox")
    core.link.lose()
    assert core.broker.depth("mailbox") == left
    kept = await core.store.kept(LETTER.topic, LETTER.id)
    assert kept is not None
    assert kept.mark("read") == _read_at(1)


async def test_it_stops_in_time_and_leaves_to_the_others_what_the_store_cant_do(
    core: CoreCluster, caplog: pytest.LogCaptureFixture
):
    core.store = Away(core.topics)
    service = _mailbox(core, drain_seconds=0.05)
    async with serving(service):
        await until(lambda: service.readiness().ready)
        core.broker.publish("upstream", sent_by_box(encode_mark(_read_at(1))))
        await until(lambda: core.broker.depth("mailbox") == 0)
        await until(lambda: service.readiness().waiting_for == ("store",))
    core.link.lose()
    assert core.broker.depth("mailbox") == 1
    assert "oregon-mailbox-1 stops with 1 deliveries unprocessed" in caplog.text


async def test_what_a_service_fails_with_twice_is_rejected_and_the_rest_goes_on(
    core: CoreCluster, make: Any, monkeypatch: pytest.MonkeyPatch, expect_error_log: Any
):
    expect_error_log("requeued")
    expect_error_log("failed twice with a message")
    service = make(core)
    offers: list[bool] = []

    def take_delivery(_work: Any, source: QueueSource, delivery: Delivery) -> None:
        source.saw(delivery)
        if delivery.message.body == b"poison":
            offers.append(delivery.redelivered)
            raise RecursionError("a bug")
        source.ack(delivery)

    monkeypatch.setattr(Router, "take_delivery", take_delivery)
    monkeypatch.setattr(Marking, "take_delivery", take_delivery)
    async with serving(service):
        await until(lambda: service.readiness().ready)
        for body in (b"poison", b"good"):
            core.broker.publish("intake", Message("news.world", body))
            core.broker.publish("upstream", Message(MARK_KEY, body))
        await until(lambda: core.arrived("rejected"))
        (evidence,) = core.arrived("rejected")
        assert evidence.body == b"poison"
        assert evidence.properties.headers["reason"] == "failed"
        assert offers == [False, True]
    core.link.lose()
    assert core.broker.depth(service._settings.queues[0]) == 0


@pytest.fixture
async def cores(topics: TopicTable) -> SeveralCores:
    return await SeveralCores.opened(topics, 2)


async def test_it_is_ready_while_it_works_on_one_broker_of_several(cores: SeveralCores, make: Any):
    service = make(cores[0], cores.links)
    async with serving(service):
        await until(lambda: service.readiness().ready)
        cores.broker(0).cut()
        assert service.readiness().ready
        cores.broker(1).cut()
        assert service.readiness().waiting_for == ("link",)
        await cores.broker(0).heal()
        assert service.readiness().ready


async def test_a_mailbox_service_takes_marks_from_each_broker_and_tells_each(cores: SeveralCores):
    await cores.store.write([LETTER])
    taps = [broker.tap("intake") for broker in cores.brokers]
    service = _mailbox(cores[0], cores.links)
    async with serving(service):
        await until(lambda: service.readiness().ready)
        for n, broker in enumerate(cores.brokers):
            broker.publish("upstream", sent_by_box(encode_mark(_read_at(n + 1))))
            await until(
                lambda value=n + 1: all(b.depth(t) >= value for b, t in subscribed(cores, taps))
            )
    kept = await cores.store.kept(LETTER.topic, LETTER.id)
    assert kept is not None
    assert kept.mark("read") == _read_at(1)


def subscribed(cores: SeveralCores, taps: list[str]) -> list[tuple[Any, str]]:
    return list(zip(cores.brokers, taps, strict=True))


async def test_while_a_broker_hangs_it_works_and_is_drained_without_its_word(
    cores: SeveralCores, make: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("newsfabric.amqp.spread._CANCEL_SECONDS", 0.0)
    service = make(cores[0], cores.links, drain_seconds=60.0)
    async with asyncio.timeout(60), serving(service):
        await until(lambda: service.readiness().ready)
        cores.broker(0).hang()
        cores[1].publish(*(message(message_id=str(n)) for n in range(20)))
        assert service.readiness().ready
    assert service.under_way == 0
    cores.broker(0).go_on()

"""Every transport against a real gateway on a stub broker (tests/support)."""

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
from frontdesks import Frontdesk, gateway_of
from gateways import TABLE, Box, opened_box, settle

from gateway.core.drain import drain
from newsfabric.errors import Disconnected, ReaderError, StoreUnavailable
from newsfabric.messages.envelope import Envelope
from newsfabric.reader import TRANSPORTS, Endpoint, Push, Reader, Transport, connect, follow
from newsfabric.store.memory import MemoryStore

PATIENCE = 60.0
TOPIC = "news.breaking"
# RFC 6455 section 1.3.
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class AwayStore(MemoryStore):
    """A store that fails for readers that resume."""

    async def since(self, topic: str, **asked: Any) -> list[Envelope]:
        raise StoreUnavailable("away")


@pytest.fixture
async def box() -> AsyncIterator[Box]:
    async with opened_box("tornado") as box:
        yield box


async def hear(reader: Reader | AsyncGenerator[Push]) -> Push:
    return await asyncio.wait_for(anext(reader), PATIENCE)


async def hear_end(reader: Reader) -> Disconnected:
    try:
        while True:
            await hear(reader)
    except Disconnected as exc:
        return exc


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_messages_arrive_by_every_transport(box: Box, transport: Transport) -> None:
    async with await connect(gateway_of(box), transport) as reader:
        await reader.subscribe(TOPIC)
        assert (await hear(reader)).fields["topic"] == TOPIC
        sent = [box.publish(TOPIC, body={"n": n, "text": "ü\u2028"}) for n in range(20)]
        heard = [await hear(reader) for _ in sent]
    assert [push.fields["id"] for push in heard] == [envelope.id for envelope in sent]
    assert all(push.is_message and "\n" not in push.text for push in heard)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_rewind_is_asked_for_by_every_transport(box: Box, transport: Transport) -> None:
    async with box.reader(TOPIC) as first:
        sent = [box.publish(TOPIC) for _ in range(3)]
        await first.hear_bodies(3)
    async with await connect(gateway_of(box), transport) as reader:
        await reader.subscribe(TOPIC, rewind=2)
        pushes = [await hear(reader) for _ in range(3)]
    assert [push.fields.get("id") for push in pushes] == [None, sent[1].id, sent[2].id]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_drain_says_to_come_again(box: Box, transport: Transport) -> None:
    async with await connect(gateway_of(box), transport) as reader:
        await reader.subscribe(TOPIC)
        await hear(reader)
        draining = asyncio.create_task(drain(box.gateway.core))
        assert (await hear_end(reader)).reconnect
        await draining


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_where_nobody_listens_it_is_disconnected(
    transport: Transport, unused_tcp_port: int
) -> None:
    host = f"127.0.0.1:{unused_tcp_port}"
    nowhere = Endpoint(
        sockjs_url=f"http://{host}/s", websocket_url=f"ws://{host}/w", sse_url=f"http://{host}/e"
    )
    with pytest.raises(Disconnected) as caught:
        await _subscribe_at(nowhere, transport)
    assert caught.value.reconnect


async def test_who_stops_waiting_for_a_websocket_leaves_no_connection_behind() -> None:
    asked = asyncio.Event()
    answer = asyncio.Event()
    ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        head = (await incoming.readuntil(b"\r\n\r\n")).decode()
        key = head.split("Sec-Websocket-Key: ")[1].split("\r\n")[0]
        asked.set()
        await answer.wait()
        # RFC 6455 section 4.2.2.
        accept = base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode()).digest()).decode()
        outgoing.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        ended.set_result(await incoming.read(1))
        outgoing.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        gateway = Endpoint(
            sockjs_url=f"http://{host}/s", websocket_url=f"ws://{host}/w", sse_url=""
        )
        waiting = asyncio.create_task(connect(gateway, "websocket"))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        answer.set()
        # A close frame, RFC 6455 section 5.5.1.
        assert await asyncio.wait_for(ended, PATIENCE) == b"\x88"


async def _subscribe_at(gateway: Endpoint, transport: Transport) -> None:
    async with await connect(gateway, transport) as reader:
        await reader.subscribe(TOPIC)
        await hear(reader)


async def test_verbs_of_all_kinds_go_up_where_there_is_a_way_up(box: Box) -> None:
    for transport in ("websocket", "sockjs", "xhr-streaming"):
        async with await connect(gateway_of(box), transport) as reader:
            await reader.send({"action": "ping", "ref": transport})
            assert (await hear(reader)).fields == {"type": "pong", "ref": transport}


@pytest.fixture
async def frontdesk() -> AsyncIterator[Frontdesk]:
    frontdesk = Frontdesk()
    yield frontdesk
    await frontdesk.close()


async def test_following_goes_on_at_another_box_and_repeats_nothing(
    box: Box, frontdesk: Frontdesk
) -> None:
    subscribed = asyncio.Event()
    frontdesk.boxes = [box]
    pushes = follow(frontdesk.url, [TOPIC], on_subscribed=lambda _topic: subscribed.set())
    async with aclosing(pushes), opened_box("tornado") as other:
        hearing = asyncio.ensure_future(hear(pushes))
        await asyncio.wait_for(subscribed.wait(), PATIENCE)
        first = box.publish(TOPIC)
        assert (await hearing).fields["id"] == first.id
        # The other box has it as its number 1, too: after the rewind it isn't delivered again.
        assert other.publish(TOPIC).identity == first.identity
        subscribed.clear()
        frontdesk.boxes = [other]
        await drain(box.gateway.core)
        hearing = asyncio.ensure_future(hear(pushes))
        await asyncio.wait_for(subscribed.wait(), PATIENCE)
        second = other.publish(TOPIC)
        assert (await hearing).fields["id"] == second.id


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_following_goes_on_where_it_was_at_a_box_that_has_just_started(
    frontdesk: Frontdesk, transport: Transport
) -> None:
    store, subscribed, gaps = MemoryStore(TABLE), asyncio.Event(), []
    async with AsyncExitStack() as stack:
        box = await stack.enter_async_context(opened_box("tornado", store=store))
        frontdesk.boxes = [box]
        pushes = follow(
            frontdesk.url,
            [TOPIC],
            transport=transport,
            on_subscribed=lambda _topic: subscribed.set(),
            on_gap=gaps.append,
        )
        await stack.enter_async_context(aclosing(pushes))
        hearing = asyncio.ensure_future(hear(pushes))
        await asyncio.wait_for(subscribed.wait(), PATIENCE)
        first = box.publish(TOPIC)
        assert (await hearing).fields["id"] == first.id
        frontdesk.boxes = []
        await drain(box.gateway.core)
        missed = [box.envelope(TOPIC) for _ in range(3)]
        await store.write([first, *missed])
        await settle(store, missed[-1])
        other = await stack.enter_async_context(opened_box("tornado", store=store))
        frontdesk.boxes = [other]
        heard = [await hear(pushes) for _ in missed]
        assert [push.fields["id"] for push in heard] == [envelope.id for envelope in missed]
        assert gaps == []
        # Closed before the box: a WebSocket close needs both sides.
        await pushes.aclose()


async def test_following_tells_of_a_gap(box: Box, frontdesk: Frontdesk) -> None:
    subscribed, gaps = asyncio.Event(), asyncio.Event()
    frontdesk.boxes = [box]
    pushes = follow(
        frontdesk.url,
        [TOPIC],
        on_subscribed=lambda _topic: subscribed.set(),
        on_gap=lambda _topic: gaps.set(),
    )
    store = AwayStore(TABLE)
    # The other gateway knows only from the directory that number 1 of the box's router is settled.
    await settle(store, box.envelope(TOPIC))
    async with aclosing(pushes), opened_box("tornado", store=store) as other:
        hearing = asyncio.ensure_future(hear(pushes))
        await asyncio.wait_for(subscribed.wait(), PATIENCE)
        box.publish(TOPIC)
        await hearing
        frontdesk.boxes = [other]
        await drain(box.gateway.core)
        hearing = asyncio.ensure_future(hear(pushes))
        await asyncio.wait_for(gaps.wait(), PATIENCE)
        after = other.publish(TOPIC)
        assert (await hearing).fields["id"] == after.id
        await pushes.aclose()


async def test_following_since_a_time_begins_with_what_was_routed_since_then(
    box: Box, frontdesk: Frontdesk
) -> None:
    frontdesk.boxes = [box]
    started = time.time() - 60
    box.publish(TOPIC, ms=int((started - 5) * 1000))
    since = box.publish(TOPIC, ms=int((started + 5) * 1000))
    async with aclosing(follow(frontdesk.url, [TOPIC], since=started)) as pushes:
        assert (await hear(pushes)).fields["id"] == since.id


async def test_a_topic_that_is_refused_ends_the_following(box: Box, frontdesk: Frontdesk) -> None:
    frontdesk.boxes = [box]
    async with aclosing(follow(frontdesk.url, ["no.such.topic"])) as pushes:
        with pytest.raises(ReaderError, match=r"102: no\.such\.topic: unknown topic"):
            await hear(pushes)

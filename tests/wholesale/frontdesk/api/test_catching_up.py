"""Readers' requests that a frontdesk passes on to gateways: their answers take bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest
from core_cluster import until
from house import House, open_house
from loads import load
from metric_values import value

from newsfabric.messages.control import LoadReport
from newsfabric.topics import TopicTable
from wholesale.common.http import HttpProblem
from wholesale.frontdesk.api import catching_up, counters
from wholesale.frontdesk.api.catching_up import HistoryProxy, HistoryReply

MIB = 1 << 20
LARGE = b'"%s"' % (b"x" * (4 * MIB))
BUSY = "503 busy, {'Retry-After': '1'}"
UNAVAILABLE = "503 unavailable, {'Retry-After': '1'}"
SMALL = b'{"messages": []}'


@pytest.fixture
async def house(topics: TopicTable) -> AsyncIterator[House]:
    async with open_house(topics) as house:
        yield house


class SlowGateway:
    """A gateway that sends one half of each answer, and the rest when ``go_on`` is set."""

    def __init__(self, port: int, go_on: asyncio.Event) -> None:
        self.box = load(sse_url=f"http://127.0.0.1:{port}/events")
        self.go_on = go_on
        self.asked = 0


@contextlib.asynccontextmanager
async def gateway(status: bytes = b"200 OK") -> AsyncIterator[SlowGateway]:
    connections: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            it.asked += 1
            body = LARGE if b"topic=large" in head else SMALL
            half = len(body) // 2
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
            writer.write(body[:half])
            await writer.drain()
            await it.go_on.wait()
            writer.write(body[half:])
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    it = SlowGateway(server.sockets[0].getsockname()[1], asyncio.Event())
    try:
        yield it
    finally:
        server.close()
        it.go_on.set()
        await asyncio.gather(*connections)


async def asked(catching: HistoryProxy, box: LoadReport, topic: str) -> str:
    try:
        answer = await catching.ask_boxes([box], {"topic": topic}, {})
    except HttpProblem as problem:
        return f"{problem.status} {problem.reason}, {problem.headers}"
    assert answer.body == (LARGE if topic == "large" else SMALL)
    return "answered"


def held() -> float:
    return value(counters.CATCHING_UP_BYTES)


async def test_all_answers_on_their_way_have_one_bound_and_the_largest_makes_room():
    async with gateway() as there:
        catching = HistoryProxy(most_bytes=10 * MIB)
        large = [asyncio.create_task(asked(catching, there.box, "large")) for _ in range(12)]
        small = [asyncio.create_task(asked(catching, there.box, "small")) for _ in range(12)]
        await until(lambda: there.asked == 24 and held() > 7 * MIB)
        assert held() <= 10 * MIB
        there.go_on.set()
        found = await asyncio.gather(*large)
        assert await asyncio.gather(*small) == ["answered"] * 12
        assert set(found) == {"answered", BUSY}
        assert found.count("answered") >= 2
        assert held() == 0
        assert await asked(catching, there.box, "large") == "answered"
        catching.close()


@pytest.mark.parametrize("status", [b"429 Too Many Requests", b"500 Oh", b"503 Draining"])
async def test_a_gateway_that_can_not_now_is_left_for_the_next_one(status: bytes):
    async with gateway(status) as unable, gateway() as there:
        catching = HistoryProxy()
        for one in (unable, there):
            one.go_on.set()
        answer = await catching.ask_boxes([unable.box, there.box], {"topic": "small"}, {})
        assert (answer, unable.asked, there.asked) == (HistoryReply(200, SMALL), 1, 1)
        assert await asked(catching, unable.box, "small") == UNAVAILABLE
        catching.close()


async def test_what_a_gateway_refuses_for_good_no_other_one_is_asked():
    async with gateway(b"403 Forbidden") as refusing, gateway() as there:
        catching = HistoryProxy()
        refusing.go_on.set()
        answer = await catching.ask_boxes([refusing.box, there.box], {"topic": "small"}, {})
        assert (answer.status, there.asked) == (403, 0)
        catching.close()


async def test_a_gateway_that_never_ends_its_answer_is_left_in_time():
    async with gateway() as there:
        catching = HistoryProxy(seconds=0.2)
        boxes = [there.box] * 3
        with pytest.raises(HttpProblem, match="503 unavailable"):
            await catching.ask_boxes(boxes, {"topic": "large"}, {})
        assert (there.asked, held()) == (1, 0)
        catching.close()


async def test_nothing_is_held_for_a_reader_who_is_gone(house: House):
    async with gateway() as there:
        house.report(sse_url=there.box.sse_url)
        await until(lambda: house.service.boxes.count(now=0.0) == 1)
        before = value(counters.CATCHING_UP_LEFT)
        _, writer = await asyncio.open_connection("127.0.0.1", house.service.port)
        writer.write(b"GET /history?topic=large&after= HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: held() > MIB)
        writer.close()
        await until(lambda: held() == 0)
        assert value(counters.CATCHING_UP_LEFT) == before + 1


async def test_one_question_more_than_may_be_on_their_way_is_asked_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catching_up, "_AT_ONCE", 2)
    async with gateway() as there:
        catching = HistoryProxy()
        begun = [asyncio.create_task(asked(catching, there.box, "small")) for _ in range(2)]
        await until(lambda: there.asked == 2)
        assert await asked(catching, there.box, "small") == BUSY
        there.go_on.set()
        assert await asyncio.gather(*begun) == ["answered"] * 2
        assert await asked(catching, there.box, "small") == "answered"
        catching.close()


async def leave(catching: HistoryProxy, boxes: list[LoadReport], number: int) -> None:
    """Start ``number`` requests, and cancel them before any answer."""
    questions = [
        asyncio.create_task(catching.ask_boxes(boxes, {"topic": "small"}, {}))
        for _ in range(number)
    ]
    await asyncio.sleep(0)
    for question in questions:
        question.cancel()
    await asyncio.gather(*questions, return_exceptions=True)


async def test_readers_who_leave_a_silent_box_keep_nobody_from_another_one():
    async with gateway() as silent, gateway() as there:
        silent_box = dataclasses.replace(silent.box, box="silent")
        there.go_on.set()
        catching = HistoryProxy()
        await leave(catching, [silent_box], 10)
        # No request waits for the silent one any more.
        for _ in range(100):
            answer = await catching.ask_boxes([silent_box, there.box], {"topic": "small"}, {})
            assert answer == HistoryReply(200, SMALL)
        assert await asked(catching, silent_box, "small") == UNAVAILABLE
        # It answers its requests.
        silent.go_on.set()
        for _ in range(1_000):
            if (found := await asked(catching, silent_box, "small")) != UNAVAILABLE:
                break
            await asyncio.sleep(0.01)
        assert (found, silent.asked) == ("answered", 11)
        catching.close()


async def test_boxes_that_are_all_silent_bound_the_questions_that_readers_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catching_up, "_LEFT", 12)
    async with gateway() as silent:
        catching = HistoryProxy()
        for name in ("a", "b"):
            await leave(catching, [dataclasses.replace(silent.box, box=name)], 6)
        assert await asked(catching, silent.box, "small") == BUSY
        catching.close()

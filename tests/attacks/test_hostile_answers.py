"""Hostile HTTP servers, whose replies no real server would send, to requests of our processes.

The server is another region's frontdesk, a collector of traces, an issuer or a gateway. The process
that sent the request gets no reply then, reports it, and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from core_cluster import until
from loads import load
from metric_values import value
from pictures import PLACE
from trace_collector import span

from newsfabric.brokers.management import Management
from newsfabric.errors import Disconnected, ManagementError, NewsfabricError
from newsfabric.reader import Endpoint, connect, fetch_endpoints
from newsfabric.settings import Credentials
from newsfabric.tokens.token_keys import TokenKeys
from newsfabric.tracing.otel_tracer import SPANS, Tracer, TraceSettings
from operations.mirror.asking import Asking
from operations.top.frontdesks import Frontdesks, fetch_once
from retail.ends import GatewayAdmin
from wholesale.common.http import HttpProblem
from wholesale.frontdesk.api.catching_up import HistoryProxy
from wholesale.frontdesk.board.board import Board

OK = b"HTTP/1.1 200 OK\r\n"


def answer(body: bytes, *headers: str) -> bytes:
    lines = [*headers, f"Content-Length: {len(body)}"]
    return OK + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


ANSWERS = {
    "nothing": b"",
    "no_http": b"\x00\xff\x13 what?\r\n\r\n",
    "no_body": OK + b"Content-Length: 100\r\n\r\nabc",
    "huge_headers": OK + b"A: " + b"b" * 200_000 + b"\r\n\r\n",
    "endless_continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
    "length_without_end": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "chunk_below_zero": OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n",
    "gzip_of_nothing": answer(b"x" * 50, "Content-Encoding: gzip"),
    "gzip_bomb": answer(gzip.compress(bytes(64 << 20)), "Content-Encoding: gzip"),
    "another_place": b"HTTP/1.1 302 x\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    "nested": answer(b"[" * 100_000),
    "no_utf8": answer(b'{"regions": "\xff"}'),
    "no_object": answer(b"null"),
}


@contextlib.asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[int]:
    """Yield the port of a server that answers each request with ``reply`` and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ask_for_a_board_elsewhere(port: int) -> str:
    board = Board(PLACE, reaches=lambda: (True, True))
    asking = asyncio.create_task(board._ask_on("dublin", f"http://127.0.0.1:{port}"))
    elsewhere = board.picture.elsewhere
    await until(lambda: asking.done() or elsewhere._others["dublin"].why != "")
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    return elsewhere._others["dublin"].why


async def ask_as_the_mirror(port: int) -> str:
    asking = Asking(f"http://127.0.0.1:{port}/board.json", None)
    running = asyncio.create_task(asking.run())
    await until(lambda: running.done() or asking.trouble != "")
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return asking.trouble


async def ask_for_endpoints(port: int) -> str:
    with pytest.raises(Disconnected) as refused:
        await fetch_endpoints(f"http://127.0.0.1:{port}/endpoints.json")
    return refused.value.reason


async def connect_to_a_gateway(port: int) -> str:
    at = f"http://127.0.0.1:{port}"
    gateway = Endpoint(sockjs_url=at, websocket_url=at.replace("http", "ws"), sse_url=at)
    with pytest.raises(Disconnected) as refused:
        await connect(gateway)
    return refused.value.reason


async def stream_from_a_gateway(port: int) -> str:
    at = f"http://127.0.0.1:{port}"
    gateway = Endpoint(sockjs_url=at, websocket_url=at, sse_url=at)
    reader = await connect(gateway, "sse")
    with pytest.raises(Disconnected) as refused:
        async for _ in reader:
            pass
    await reader.close()
    return refused.value.reason or "cut off"


async def watch_a_board(port: int) -> str:
    troubles: list[str] = []
    frontdesks = Frontdesks(
        [f"http://127.0.0.1:{port}"], lambda: None, lambda _b, _d: None, troubles.append
    )
    watching = asyncio.create_task(frontdesks.run())
    await until(lambda: watching.done() or troubles != [])
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError, NewsfabricError):
        await watching
    return troubles[0]


async def fetch_a_board(port: int) -> str:
    with pytest.raises(NewsfabricError) as refused:
        await fetch_once([f"http://127.0.0.1:{port}"], lambda: None)
    return str(refused.value)


async def ask_a_gateway_for_its_load(port: int) -> str:
    end = GatewayAdmin(f"http://127.0.0.1:{port}")
    found = (await end.load(), await end.report())
    end.close()
    assert found == (None, None)
    return "no load, no word"


async def ask_a_broker(port: int) -> str:
    async with Management(f"http://127.0.0.1:{port}", Credentials()) as management:
        with pytest.raises(ManagementError) as refused:
            await management.overview()
    return str(refused.value)


async def ask_the_issuer(port: int) -> str:
    keys = TokenKeys(f"http://127.0.0.1:{port}/jwks.json")
    assert await keys.look_again()
    assert keys.current.keys == ()
    return "no keys"


async def catch_up(port: int) -> str:
    catching = HistoryProxy()
    box = load(sse_url=f"http://127.0.0.1:{port}/events")
    try:
        found = await catching.ask_boxes([box], {"topic": "news.breaking"}, {})
        return f"passed on: {found}"
    except HttpProblem as problem:
        return str(problem)
    finally:
        catching.close()


ASKERS: list[Callable[[int], Awaitable[str]]] = [
    ask_for_a_board_elsewhere,
    ask_as_the_mirror,
    ask_for_endpoints,
    connect_to_a_gateway,
    stream_from_a_gateway,
    watch_a_board,
    fetch_a_board,
    ask_a_gateway_for_its_load,
    ask_a_broker,
    ask_the_issuer,
    catch_up,
]


@pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("ask", ASKERS)
async def test_an_answer_that_cant_be_is_none_and_ends_nobody(
    ask: Callable[[int], Awaitable[str]], reply: bytes
) -> None:
    async with answering(reply) as port:
        assert await asyncio.wait_for(ask(port), 60)


@pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS.keys())
async def test_a_collector_that_answers_what_it_likes_takes_the_tracer_with_it_never(
    reply: bytes,
) -> None:
    async with answering(reply) as port:
        tracer = Tracer(TraceSettings(endpoint=f"http://127.0.0.1:{port}"))
        tracer.add([span()])
        running = asyncio.create_task(tracer.run())
        await asyncio.sleep(0)
        tracer.stop()
        await asyncio.wait_for(running, 60)


@pytest.mark.parametrize(
    "count", ["1e308", "[]", "{}", '"' + "9" * 5000 + '"', "-1", "null", '"NaN"', "true"]
)
async def test_a_collector_refuses_no_more_spans_than_it_was_sent(count: str) -> None:
    text = f'{{"partialSuccess": {{"rejectedSpans": {count}}}}}'.encode()
    before = _spans()
    async with answering(answer(text)) as port:
        tracer = Tracer(TraceSettings(endpoint=f"http://127.0.0.1:{port}"))
        tracer.add([span()])
        running = asyncio.create_task(tracer.run())
        await asyncio.sleep(0)
        tracer.stop()
        await asyncio.wait_for(running, 60)
    assert _spans() - before == 1


def _spans() -> float:
    """Return the number of spans that were sent or refused so far."""
    return sum(value(SPANS.labels(outcome)) for outcome in ("sent", "refused"))


@pytest.mark.sockets
@pytest.mark.parametrize(
    "url",
    ["", "ws:", "ws://[", "ws://127.0.0.1:99999999/", "gopher://127.0.0.1/", "ws://a b/", "//x"],
)
@pytest.mark.parametrize("transport", ["websocket", "sockjs", "sse", "xhr-streaming"])
async def test_a_gateways_url_that_leads_nowhere_is_a_gateway_that_isnt_there(
    url: str, transport: str
) -> None:
    gateway = Endpoint(sockjs_url=url, websocket_url=url, sse_url=url)

    async def read() -> None:
        async with await connect(gateway, transport) as reader:  # type: ignore[arg-type]
            await reader.subscribe("news.breaking")
            async for _ in reader:
                pass

    with pytest.raises(Disconnected):
        await asyncio.wait_for(read(), 60)


async def test_a_slow_answer_is_none_after_two_seconds() -> None:
    hung_up = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 1000000\r\n\r\n")
        with contextlib.suppress(OSError):
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        hung_up.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        began = time.monotonic()
        assert await ask_for_a_board_elsewhere(server.sockets[0].getsockname()[1]) == "no answer"
        assert time.monotonic() - began < 10.0
        await hung_up.wait()

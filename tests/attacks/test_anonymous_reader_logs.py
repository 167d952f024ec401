"""A stranger tries to fill the log, which is on a disk. Any attack causes a few lines."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gateways import ENGINES, PATIENCE, Box, opened_box
from house import open_house
from signing import AUDIENCE, ISSUER, keys_file, token

from gateway.process.settings import TokenSettings
from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope
from newsfabric.messages.mailbox import KeptMessage
from newsfabric.process import logs
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import REVOKED, TopicPolicy, TopicTable

TABLE = TopicTable(
    [TopicPolicy(pattern="news.#"), TopicPolicy(pattern="user.*", access="owner", keep=0)]
)
# The number of attacks of each kind; a line for each would be noticed.
TIMES = 40
# The lines that all together may cause: bad tokens are logged at the 1st, 2nd, 4th, 8th, …
MOST_LINES = 12
# Places whose lines are rate-limited: bad tokens, damaged topics, damaged mailboxes.
SELDOM_PLACES = 3

Lines = Callable[[], list[str]]

REQUESTS: tuple[bytes, ...] = (
    b"\r\n\r\n\r\n",
    b"\0\xff\xfe\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
    b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\nCookie: \xff=\xfe; =;;\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /history?topic=%ff%fe HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /history?topic=news.a&limit=%00%0aroot HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /events?topic=%ff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /events?topic=news.a&last_event_id=%ff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /nothing/here%0d%0aERROR HTTP/1.1\r\nHost: x\r\n\r\n",
    b"BREW /history HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /history HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    b"POST /publish HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n"
    b"Content-Type: application/json\r\n\r\n",
    b"POST /publish HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
    b"Content-Type: application/json\r\n\r\n{]",
    b"POST /publish HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Type: application/json\r\n\r\nzz\r\n",
    b"POST /publish HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n"
    b"Content-Type: multipart/form-data; boundary=\xff\r\n\r\n{",
    b"GET /websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
    b"GET /sockjs/0/s/jsonp?c=%ff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /sockjs/0/s/htmlfile HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /sockjs/0/s/xhr_send HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{]",
    b"POST /sockjs/0/s/jsonp_send HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\nd=%",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: \xff\r\nRange: bytes=-\r\n\r\n",
)
FRAMES: tuple[tuple[int, bytes], ...] = (
    (0x81, b"{"),
    (0x81, b"\xff\xfe"),
    (0x81, b'{"action": 1}'),
    (0x81, b'{"action": "subscribe", "topic": "' + b"x" * 15_000 + b'"}'),
    (0x81, b"x" * 20_000),
    (0xFF, b"no such frame"),
    (0x88, b"\0"),
    (0x01, b"unfinished"),
)


class DamagedStore(MemoryStore):
    """A store with an unreadable row on each topic."""

    async def history(self, topic: str, **asked: Any) -> list[Envelope]:
        if topic == REVOKED:
            return []
        raise StoreError("a row that can't be read")

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[KeptMessage]]:
        raise StoreError("a row that can't be read")


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """Yield a function that returns a service's log so far, with the data plane's lines."""
    root, general = logging.getLogger(), logging.getLogger("tornado.general")
    levels = [(logger, logger.level) for logger in (root, general)]
    stream, dataplane = io.StringIO(), []
    handler = logs.log_to(stream, "info")

    def so_far() -> list[str]:
        dataplane.extend(capfd.readouterr().err.splitlines())
        return [*stream.getvalue().splitlines(), *dataplane]

    yield so_far
    root.removeHandler(handler)
    for logger, level in levels:
        logger.setLevel(level)


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_a_reader_of_a_gateway_fills_the_log(
    engine: str, lines: Lines, tmp_path: Path
) -> None:
    tokens = TokenSettings(keys=keys_file(tmp_path), audience=AUDIENCE, issuer=ISSUER)
    settings = {"tokens": tokens, "sockjs_legacy": True}
    async with opened_box(engine, table=TABLE, store=DamagedStore(TABLE), **settings) as box:
        begin, since = len(lines()), time.monotonic()
        for _ in range(TIMES):
            await asyncio.gather(*(_say(box.gateway.port, request) for request in REQUESTS))
            await asyncio.gather(*(_speak(box, *frame) for frame in FRAMES))
            await asyncio.gather(_lie(box), _read_a_damaged_row(box))
        # Rate-limited lines appear once in ten seconds: a busy machine takes many times that.
        now_and_then = SELDOM_PLACES * (time.monotonic() - since) / 10
        assert len(lines()) - begin <= MOST_LINES + now_and_then, lines()[begin:]


async def test_a_stranger_fills_the_log_of_a_frontdesk(lines: Lines) -> None:
    async with open_house(TABLE) as house:
        begin = len(lines())
        for _ in range(TIMES):
            port = house.service.port
            await asyncio.gather(*(_say(port, request) for request in REQUESTS))
        assert len(lines()) - begin <= MOST_LINES, lines()[begin:]


async def test_a_stranger_fills_the_log_of_a_frontdesk_whose_store_is_damaged(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(TABLE) as house:
        monkeypatch.setattr(house.store, "history", DamagedStore(TABLE).history)
        begin = len(lines())
        for _ in range(TIMES):
            assert (await house.fetch("/history?topic=news.world")).code == 503
        assert len(lines()) - begin == 1


async def _say(port: int, request: bytes) -> None:
    """Send one request, and read the reply to its end, or for a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(request)
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            await reader.read()
    writer.transport.abort()


async def _speak(box: Box, first: int, payload: bytes) -> None:
    async with box.opened() as raw:
        await raw.upgrade()
        raw.send_frame(first, payload)
        raw.send_frame(0x88, b"")
        with contextlib.suppress(OSError):
            await raw.read_all()


async def _lie(box: Box) -> None:
    """Send bad tokens by each way to log in."""
    bad = token("42", issued=1.0)
    async with box.reader() as reader:
        for text in ("x", bad, "\n\x1b[31mERROR gateway: it burns\n"):
            assert (await reader.answer_to(action="login", token=text))["type"] == "error"
    await box.request("GET", "/history?topic=user.42", Authorization=f"Bearer {bad}")
    async with box.opened() as raw:
        raw.send_request("GET", "/events?topic=user.42", Authorization="Bearer \x7f")
        await raw.read_until(b"\r\n\r\n")


async def _read_a_damaged_row(box: Box) -> None:
    async with box.reader() as reader:
        await reader.answer_to(action="login", token=token("42"))
        await reader.answer_to(action="subscribe", topic="user.42")
        await reader.answer_to(action="history", topic="news.world")

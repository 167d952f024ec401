"""An anonymous reader wants more from a frontdesk than its share."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import socket
from collections.abc import Iterator

import psutil
import pytest
from core_cluster import EPOCH, until
from descriptors import Descriptors
from envelopes import envelope
from gateways import TABLE
from house import SETTINGS, open_house

from newsfabric.http.networks import parse_networks
from newsfabric.http.pace import Rate
from newsfabric.messages.envelope import Envelope, id_of

SOCKETS = 40
ONCE = dataclasses.replace(SETTINGS, history_rate=Rate(burst=1, per_second=0.001))
QUESTION = "/history?topic=news.world"


async def test_a_stranger_takes_all_descriptors_of_a_frontdesk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_house(TABLE) as house:
        with (
            # The client's own sockets, opened before no descriptor is left in this process.
            sockets(SOCKETS) as strangers,
            Descriptors.bounded() as descriptors,
            caplog.at_level(logging.WARNING),
        ):
            descriptors.take_all()
            for stranger in strangers:
                stranger.setblocking(False)
                stranger.connect_ex(("127.0.0.1", house.service.port))
            # Each connection is closed, and nothing is logged.
            await until(lambda: all(_is_closed(stranger) for stranger in strangers))
            assert caplog.records == []
        assert (await house.fetch("/healthz/live")).code == 200


async def test_strangers_ask_for_megabytes_and_read_none_of_it(rows: list[Envelope]) -> None:
    """Forty replies of 12 MB: kept for all readers they would take 480 MB, for ever."""
    async with open_house(TABLE) as house:
        await house.store.write(rows)
        gc.collect()
        before = psutil.Process().memory_info().rss
        with sockets(40) as strangers:
            for stranger in strangers:
                await _ask(stranger, house.service.port)
            answer = await house.fetch(f"{QUESTION}&limit=200", request_timeout=60)
            gc.collect()
            assert psutil.Process().memory_info().rss - before < 200 << 20
            assert len(answer.body) > 12_000_000


async def test_a_stranger_asks_as_often_as_he_invents_addresses() -> None:
    async with open_house(TABLE, ONCE) as house:
        answers = [
            (await house.fetch(QUESTION, headers={"X-Forwarded-For": f"192.0.2.{n}"})).code
            for n in range(3)
        ]
    assert answers == [200, 429, 429]


async def test_a_stranger_uses_up_what_all_behind_a_balancer_may_ask() -> None:
    behind = dataclasses.replace(ONCE, proxy_from=parse_networks(["127.0.0.0/8"]))
    async with open_house(TABLE, behind) as house:
        asked = ["192.0.2.1", "192.0.2.1", "192.0.2.7, 192.0.2.1", "192.0.2.1, 192.0.2.2"]
        answers = [
            (await house.fetch(QUESTION, headers={"X-Forwarded-For": forwarded})).code
            for forwarded in asked
        ]
    assert answers == [200, 429, 429, 200]


@pytest.fixture
def rows() -> list[Envelope]:
    """Return as many messages of one topic as one reply may have, of 60 KB each."""
    made = [envelope(n, topic="news.world", body=b'"%s"' % (b"x" * 60_000)) for n in range(200)]
    return [
        dataclasses.replace(one, id=id_of(EPOCH - 1_000 + n, one.identity), expires_ms=None)
        for n, one in enumerate(made)
    ]


@contextlib.contextmanager
def sockets(many: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.socket()) for _ in range(many)]


async def _ask(stranger: socket.socket, port: int) -> None:
    """Ask for all messages, with a small buffer for the reply."""
    loop = asyncio.get_running_loop()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stranger.setblocking(False)
    await loop.sock_connect(stranger, ("127.0.0.1", port))
    asked = f"GET {QUESTION}&limit=200 HTTP/1.1\r\nHost: x\r\n\r\n"
    await loop.sock_sendall(stranger, asked.encode())


def _is_closed(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True

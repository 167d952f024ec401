"""The mirrored readers' process, and the requests for the original's board."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from frontdesks import Frontdesk
from gateways import opened_box, until
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from operations.mirror.asking import Asking
from operations.mirror.board import Crowded
from operations.mirror.crowd import Wanted
from operations.mirror.readers import parse_wanted
from operations.mirror.readers_process import ReadersProcess


def crowd(readers: int, connects: float = 0.0) -> Wanted:
    return Wanted(
        readers=readers,
        connects_per_second=connects,
        topics=("news.breaking", "live.final"),
        probability=1.0,
    )


def test_what_is_wanted_goes_over_a_pipe() -> None:
    assert parse_wanted(orjson.dumps(crowd(7, 1.5))) == crowd(7, 1.5)


async def test_readers_come_read_and_leave_as_it_is_wanted() -> None:
    frontdesk = Frontdesk()
    async with opened_box() as box:
        frontdesk.boxes = [box]
        async with ReadersProcess.start([frontdesk.url], ramp=100.0, seed=1) as readers:
            readers.send_wanted(crowd(5))
            await until(lambda: readers.last_report["readers"] == 5)
            assert frontdesk.asked == 5
            box.publish("news.breaking")
            await until(lambda: readers.last_report["messages"] == 5)
            readers.send_wanted(crowd(2))
            await until(lambda: readers.last_report["readers"] == 2)
            readers.send_wanted(crowd(2, connects=4.0))
            # New readers replace others.
            await until(lambda: readers.last_report["opened"] >= 8)
            assert readers.last_report["failed"] == 0
            assert readers.last_report["connect_p50_ms"] > 0
        assert readers.last_report["trouble"] == "the readers' process has ended"
    await frontdesk.close()


async def test_where_nobody_lets_them_in_they_fail_ever_more_seldom_and_come_once_it_does() -> None:
    frontdesk = Frontdesk()
    async with (
        opened_box() as box,
        ReadersProcess.start([frontdesk.url], ramp=100.0, seed=1) as readers,
    ):
        readers.send_wanted(crowd(5))
        await until(
            lambda: readers.last_report["failed"] > 0 and readers.last_report["turned_away"] > 0
        )
        assert "no gateway in oregon is ready" in readers.last_report["trouble"]
        frontdesk.boxes = [box]
        await until(lambda: readers.last_report["readers"] == 5)
        assert readers.last_report["trouble"] == ""
    await frontdesk.close()


async def test_a_gateway_that_dies_cuts_them_off_and_nobody_comes_in() -> None:
    frontdesk = Frontdesk()
    async with ReadersProcess.start([frontdesk.url], ramp=100.0, seed=1) as readers:
        async with opened_box() as box:
            frontdesk.boxes = [box]
            readers.send_wanted(crowd(3))
            await until(lambda: readers.last_report["readers"] == 3)
            frontdesk.boxes = []
        await until(lambda: readers.last_report["cut_off"] == 3)
    await frontdesk.close()


class BoardServer:
    """A server that sends ``answer`` as ``/board.json`` to requests with ``token``."""

    def __init__(self) -> None:
        self.answer: bytes = b""
        self.token: str | None = None
        self._sockets = bind_sockets(0, "127.0.0.1")
        self.url = f"http://127.0.0.1:{self._sockets[0].getsockname()[1]}/board.json"
        self._server = HTTPServer(
            Application(
                [("/board.json", _Board, {"board_server": self})], log_function=lambda _: None
            )
        )
        self._server.add_sockets(self._sockets)

    async def close(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()


class _Board(RequestHandler):
    def initialize(self, board_server: BoardServer) -> None:
        self.server = board_server

    def get(self) -> None:
        if self.server.token is not None:
            token = self.request.headers.get("Authorization")
            self.set_status(200 if token == f"Bearer {self.server.token}" else 401)
        self.write(self.server.answer)


@pytest.fixture
async def board_server() -> AsyncIterator[BoardServer]:
    found = BoardServer()
    yield found
    await found.close()


@contextlib.asynccontextmanager
async def asking(url: str, token_file: Path | None = None) -> AsyncIterator[Asking]:
    found = Asking(url, token_file)
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def board(readers: Any) -> bytes:
    return orjson.dumps({"regions": [{"name": "oregon", "totals": {"readers": readers}}]})


async def test_the_board_is_asked_with_the_token_of_the_moment(
    board_server: BoardServer, tmp_path: Path
) -> None:
    board_server.answer, board_server.token = board(7), "new"
    token_file = tmp_path / "token"
    token_file.write_text("old\n")
    async with asking(board_server.url, token_file) as found:
        await until(lambda: "401" in found.trouble)
        assert found.crowded is None
        token_file.write_text("new\n")
        await until(lambda: found.crowded == Crowded(readers=7))
        assert found.trouble == ""


@pytest.mark.parametrize("text", ["a b", "a\r\nHost: x", "\x00"])
async def test_a_file_without_a_token_is_reported_and_not_sent(
    board_server: BoardServer, tmp_path: Path, text: str
) -> None:
    board_server.answer = board(7)
    token_file = tmp_path / "token"
    token_file.write_text(text)
    async with asking(board_server.url, token_file) as found:
        await until(lambda: "holds no token" in found.trouble)
        assert found.crowded is None


@pytest.mark.parametrize("answer", [b"", b"\xff", b"[]", b'{"regions": 7}', b"[" * 100_000])
async def test_an_answer_that_is_no_board_is_reported_and_the_last_one_stands(
    board_server: BoardServer, answer: bytes
) -> None:
    board_server.answer = board(7)
    async with asking(board_server.url) as found:
        await until(lambda: found.crowded is not None)
        board_server.answer = answer
        await until(lambda: found.trouble)
        assert found.crowded == Crowded(readers=7)


@pytest.mark.sockets
async def test_a_board_that_is_away_is_reported() -> None:
    async with asking("http://127.0.0.1:1/board.json") as found:
        await until(lambda: found.trouble)
        assert found.crowded is None

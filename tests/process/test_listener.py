"""The services' listening socket, on a machine that has no room for one more connection."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.web import Application

from newsfabric.process._listener import _PAUSE, SpareListener
from newsfabric.process.service import serving


@pytest.fixture
def listener() -> Iterator[SpareListener]:
    with SpareListener(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener


@pytest.fixture
def visitor(listener: SpareListener) -> Iterator[socket.socket]:
    """Yield a client that waits to be accepted."""
    with socket.create_connection(listener.getsockname()) as visitor:
        yield visitor


def fail_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Make the next accept fail with errno ``number``."""
    accept = socket.socket.accept

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        monkeypatch.setattr(socket.socket, "accept", accept)
        raise OSError(number, "no room")

    monkeypatch.setattr(socket.socket, "accept", failing)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_descriptors_who_comes_is_turned_away(
    listener: SpareListener,
    visitor: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    fail_once(monkeypatch, number)
    with pytest.raises(ConnectionAbortedError):
        listener.accept()
    assert visitor.recv(1) == b""


@pytest.mark.parametrize("number", [errno.ENOBUFS, errno.ENOMEM])
async def test_without_kernel_memory_who_comes_waits_and_the_loop_does_not_spin(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    loop, accept, tries = asyncio.get_running_loop(), socket.socket.accept, 0

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise OSError(number, "no memory")
        return accept(self)

    async with serving(Application(), host="127.0.0.1", port=0) as port:
        monkeypatch.setattr(socket.socket, "accept", failing)
        began = loop.time()
        with pytest.raises(HTTPClientError, match="404"):
            await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/")
        # Without the pause, it would have tried many times by now.
        assert loop.time() - began >= 3 * _PAUSE
    assert tries <= 5


async def test_a_port_that_is_closed_in_a_pause_stays_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, tried = asyncio.get_running_loop(), asyncio.Event()
    seen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: seen.append(context))

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        tried.set()
        raise OSError(errno.ENOBUFS, "no memory")

    async with serving(Application(), host="127.0.0.1", port=0) as port:
        monkeypatch.setattr(socket.socket, "accept", failing)
        with socket.create_connection(("127.0.0.1", port)):
            await tried.wait()
    await asyncio.sleep(2 * _PAUSE)
    assert seen == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))

"""Accepting connections when the machine is short of a resource."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import time
from collections.abc import Iterator

import pytest
import tornado.web
from descriptors import Descriptors
from gateways import until
from tornado.httpserver import HTTPServer

from gateway.process.settings import GatewaySettings
from gateway.readers.budget import Budget
from gateway.readers.listener import ReaderListener, listen
from newsfabric.errors import ConfigError

SETTINGS = GatewaySettings(name="oregon-retail-1", region="oregon")


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    with Descriptors.bounded() as taken:
        yield taken


def budget() -> Budget:
    return Budget(1 << 20, 30.0, list, time.monotonic)


async def test_without_descriptors_it_pauses_and_then_serves(
    descriptors: Descriptors, caplog: pytest.LogCaptureFixture
) -> None:
    server = HTTPServer(tornado.web.Application([], log_function=lambda handler: None))
    listener = ReaderListener(server, budget(), SETTINGS)
    listener.start()
    loop = asyncio.get_running_loop()
    with socket.socket() as waiting:
        waiting.setblocking(False)
        descriptors.allow_none()
        await loop.sock_connect(waiting, ("127.0.0.1", listener.port))
        await until(lambda: "no new connections" in caplog.text)
        for _ in range(50):
            await asyncio.sleep(0)
        assert caplog.text.count("no new connections") == 1
        descriptors.give_back()
        await loop.sock_sendall(waiting, b"GET / HTTP/1.0\r\n\r\n")
        answer = await asyncio.wait_for(loop.sock_recv(waiting, 100), 60)
        assert answer.startswith(b"HTTP/1.1 404")
    listener.stop()
    listener.stop()
    await server.close_all_connections()


async def test_with_all_connections_that_it_may_have_others_wait(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.readers.listener.connections_at_most", lambda: 1)
    server = HTTPServer(tornado.web.Application([], log_function=lambda handler: None))
    listener = ReaderListener(server, budget(), SETTINGS)
    listener.start()
    loop = asyncio.get_running_loop()
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.setblocking(False)
            await loop.sock_connect(each, ("127.0.0.1", listener.port))
            await loop.sock_sendall(each, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await loop.sock_recv(first, 4096)).startswith(b"HTTP/1.1 404")
        await until(lambda: "1 connections are open" in caplog.text)
        first.close()
        answer = await asyncio.wait_for(loop.sock_recv(second, 100), 60)
        assert answer.startswith(b"HTTP/1.1 404")
    # It has tried at least twice, and logged only once that it must wait.
    assert caplog.text.count("no new connections") == 1
    listener.stop()
    await server.close_all_connections()


async def test_beyond_those_who_learn_that_an_address_is_full_others_are_closed_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.readers.listener._TURNED_AWAY_AT_ONCE", 2)
    server = HTTPServer(tornado.web.Application([], log_function=lambda handler: None))
    settings = dataclasses.replace(SETTINGS, per_address=1, unfinished_seconds=600.0)
    listener = ReaderListener(server, budget(), settings)
    listener.start()
    loop = asyncio.get_running_loop()

    async def come() -> socket.socket:
        made = socket.socket()
        made.setblocking(False)
        await loop.sock_connect(made, ("127.0.0.1", listener.port))
        return made

    async def heard_by(made: socket.socket) -> bytes:
        await loop.sock_sendall(made, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            return (await asyncio.wait_for(loop.sock_recv(made, 4096), 60))[:12]
        return b""

    there = await come()
    assert await heard_by(there) == b"HTTP/1.1 404"
    # Those who are turned away are served as far as it takes to tell them.
    silent = [await come() for _ in range(2)]
    await until(lambda: listener._turned_away == 2)
    third = await come()
    assert await heard_by(third) == b""
    assert listener._turned_away == 2
    silent[0].close()
    await until(lambda: listener._turned_away == 1)
    fourth = await come()
    assert await heard_by(fourth) == b"HTTP/1.1 404"
    for made in (there, silent[1], third, fourth):
        made.close()
    # Whoever is gone is counted no more.
    await until(lambda: (listener._open, listener._turned_away) == (0, 0))
    listener.stop()
    await server.close_all_connections()


def test_a_taken_port_is_one_clear_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1 port {port}: Address"):
            listen("127.0.0.1", port)

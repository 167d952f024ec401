"""The time since a peer's machine last acknowledged anything, as the kernel reports it."""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

import pytest
from gateways import PATIENCE

from gateway.transports.acknowledged import since_acknowledged


def test_what_a_peer_does_not_even_read_is_acknowledged() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0],
    ):
        until = time.monotonic() + PATIENCE
        while since_acknowledged(one) < 0.05:
            assert time.monotonic() < until
        one.sendall(b"x")
        while since_acknowledged(one) >= 0.05:
            assert time.monotonic() < until


class Kernel(socket.socket):
    """A connection of which the kernel says so many ms, as struct tcp_info has them."""

    def __init__(self, said_ms: int) -> None:
        super().__init__()
        self._info = bytes(56) + said_ms.to_bytes(4, sys.byteorder)

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        assert (level, option, size) == (socket.IPPROTO_TCP, socket.TCP_INFO, 60)
        return self._info


@pytest.mark.parametrize(
    ("said_ms", "seconds"), [(0, 0.0), (19, 0.0), (20, 0.0), (21, 0.001), (25_020, 25.0)]
)
def test_a_peer_is_given_the_twenty_ms_that_clocks_may_differ(said_ms: int, seconds: float) -> None:
    with Kernel(said_ms) as connection:
        assert since_acknowledged(connection) == seconds


@pytest.mark.parametrize("length", [0, 59])
def test_a_kernel_that_says_less_says_nothing(length: int) -> None:
    with Kernel(9_000) as connection:
        connection._info = bytes(length)
        assert since_acknowledged(connection) == 0.0


def test_of_what_is_no_connection_nothing_is_known() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert since_acknowledged(one) == 0.0
    assert since_acknowledged(one) == 0.0

"""The time since a peer's machine last acknowledged anything, as the kernel reports it."""

from __future__ import annotations

import socket
import time

from gateways import PATIENCE

from gateway.acknowledged import since_acknowledged


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


def test_of_what_is_no_connection_nothing_is_known() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert since_acknowledged(one) == 0.0
    assert since_acknowledged(one) == 0.0

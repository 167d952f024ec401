"""What the services' listening socket makes of a machine that has no room for one more."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from newsfabric._listener import SpareListener


@pytest.fixture
def listener() -> Iterator[SpareListener]:
    with SpareListener(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener


@pytest.fixture
def visitor(listener: SpareListener) -> Iterator[socket.socket]:
    """Somebody who waits to be accepted."""
    with socket.create_connection(listener.getsockname()) as visitor:
        yield visitor


def fail_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The next connection can't be accepted, for the reason ``number``."""
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
def test_without_kernel_memory_who_comes_waits_and_the_loop_doesnt_spin(
    listener: SpareListener,
    visitor: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("newsfabric._listener.time.sleep", pauses.append)
    fail_once(monkeypatch, number)
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert pauses == [0.01]
    connection, address = listener.accept()
    with connection:
        assert address == visitor.getsockname()

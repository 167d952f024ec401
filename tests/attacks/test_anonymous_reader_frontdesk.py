"""An anonymous reader takes all connections that a frontdesk may have."""

from __future__ import annotations

import logging
import socket

import pytest
from core_desk import until
from descriptors import Descriptors
from gateways import TABLE
from house import open_house

SOCKETS = 40


async def test_a_stranger_takes_all_descriptors_of_a_frontdesk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_house(TABLE) as house:
        # The client's own, before none is left in this process.
        strangers = [socket.socket() for _ in range(SOCKETS)]
        with Descriptors.bounded() as descriptors, caplog.at_level(logging.WARNING):
            descriptors.take_all()
            for stranger in strangers:
                stranger.setblocking(False)
                stranger.connect_ex(("127.0.0.1", house.service.port))
            # Each is turned away, and nobody says a word.
            await until(lambda: all(_is_closed(stranger) for stranger in strangers))
            assert caplog.records == []
        for stranger in strangers:
            stranger.close()
        assert (await house.fetch("/healthz/live")).code == 200


def _is_closed(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True

"""An anonymous reader wants more of a frontdesk than others get."""

from __future__ import annotations

import dataclasses
import logging
import socket

import pytest
from core_desk import until
from descriptors import Descriptors
from gateways import TABLE
from house import SETTINGS, open_house

from newsfabric.networks import parse_networks
from newsfabric.pace import Rate

SOCKETS = 40
ONCE = dataclasses.replace(SETTINGS, history_rate=Rate(burst=1, per_second=0.001))
QUESTION = "/history?topic=news.world"


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


def _is_closed(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True

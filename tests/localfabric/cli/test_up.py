"""The output of ``newsfabric up`` while a world starts, and the time after which it gives up."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from localfabric.cli.show import progress
from localfabric.cli.up import start_limit
from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.start import bring_up
from newsfabric.errors import WorldError


def test_the_default_world_has_two_minutes_and_a_larger_one_more(tmp_path):
    assert start_limit(lay_out(WorldOptions(), tmp_path)) == 120.0
    large = WorldOptions(core_nodes=3, store="cassandra", store_nodes=3)
    assert start_limit(lay_out(large, tmp_path)) == 340.0


async def test_who_waits_for_brokers_hears_which_begin_and_now_and_then_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("localfabric.world.start._REMIND_EVERY", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as epmd:
        layout = lay_out(WorldOptions(port_base=22400), tmp_path / "world")
        running: Any = Mock(layout=Mock(wraps=layout, epmd_port=epmd.getsockname()[1]))
        running.layout.regions = layout.regions
        with progress() as shown, pytest.raises(WorldError, match=r"not ready after 1 s:\n"):
            await bring_up(running, shown, seconds=1.0)
    output = capsys.readouterr().err.splitlines()
    for broker in layout.brokers():
        assert f"waiting for the broker {broker.name}" in output
        late = rf"after \d+ s: {broker.name} doesn't answer"
        assert any(re.fullmatch(late, line) for line in output)

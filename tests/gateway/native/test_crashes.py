"""A test notices that its data plane has crashed."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from crashes import crashed
from gateways import ENGINES, opened_box, until

from gateway.native.program import Process

pytestmark = pytest.mark.skipif("native" not in ENGINES, reason="the native engine isn't built")


async def test_a_data_plane_that_aborts_is_noticed(dataplanes: list[Process]) -> None:
    async with opened_box("native"):
        (process,) = dataplanes
        assert crashed(dataplanes) == []
        # The effect of a panic.
        os.kill(process.pid, signal.SIGABRT)
        await until(lambda: process.poll() is not None)
        assert crashed(dataplanes) == [(process.pid, -signal.SIGABRT)]
        dataplanes.remove(process)


async def test_data_planes_say_where_they_panic(dataplanes: list[Process]) -> None:
    async with opened_box("native"):
        assert psutil.Process(dataplanes[0].pid).environ()["RUST_BACKTRACE"] == "1"

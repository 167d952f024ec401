"""Messages to systemd, on a real datagram socket in systemd's place."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from newsfabric.process import sd_notify


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        yield listening


def environ(supervisor: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": supervisor.getsockname(), **more}


def test_lines_arrive_in_one_datagram(supervisor: socket.socket):
    assert sd_notify.notify(sd_notify.READY, "STATUS=up", environ=environ(supervisor))
    assert supervisor.recv(100) == b"READY=1\nSTATUS=up"


def test_an_abstract_socket_is_written_with_an_at_sign():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"newsfabric-test-{os.getpid()}"
        listening.bind("\0" + name)
        assert sd_notify.notify(sd_notify.STOPPING, environ={"NOTIFY_SOCKET": "@" + name})
        assert listening.recv(100) == b"STOPPING=1"


def test_without_a_supervisor_nothing_is_sent():
    assert not sd_notify.notify(sd_notify.READY, environ={})


@pytest.mark.sockets
def test_a_supervisor_that_is_gone_is_logged_and_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    gone = str(tmp_path / "gone")
    assert not sd_notify.notify(sd_notify.READY, environ={"NOTIFY_SOCKET": gone})
    assert gone in caplog.text


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "7"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "8"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_watchdog_is_ours_if_it_names_us_or_nobody(variables: dict[str, str], seconds: float):
    assert sd_notify.watchdog_seconds(variables, pid=7) == seconds


async def test_the_watchdog_hears_again_and_again_that_the_loop_turns(supervisor: socket.socket):
    environment = environ(supervisor, WATCHDOG_USEC="20000")
    task = asyncio.create_task(sd_notify.keep_watched(environment))
    try:
        heard = [await asyncio.to_thread(supervisor.recv, 100) for _ in range(3)]
    finally:
        task.cancel()
    assert heard == [b"WATCHDOG=1"] * 3


async def test_without_a_watchdog_nothing_is_sent(supervisor: socket.socket):
    await sd_notify.keep_watched(environ(supervisor))
    supervisor.setblocking(False)
    with pytest.raises(BlockingIOError):
        supervisor.recv(100)


def test_a_service_says_when_it_is_up_and_when_it_stops(supervisor: socket.socket, tmp_path: Path):
    command = [sys.executable, "-m", "retail", "--name", "box-1", "--region", "oregon"]
    command += ["--core", "amqp://127.0.0.1:1/%2F", "--broker", "amqp://127.0.0.1:1/%2F"]
    command += ["--management", "http://127.0.0.1:1", "--gateway-admin", "http://127.0.0.1:1"]
    command += ["--port", "0", "--drain-timeout", "0"]
    variables = os.environ | environ(supervisor)
    process = subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL)
    try:
        assert supervisor.recv(100) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert supervisor.recv(100) == b"STOPPING=1"
    finally:
        process.kill()
        process.wait(timeout=30)

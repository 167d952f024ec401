"""A world for tests: its state folder, the CLI for it, and its processes and ports."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from localfabric.world.state import read_running
from localfabric.world.status import observe, status_document

ROOT = Path(__file__).resolve().parents[2]
# The first of 2,300 ports for the worlds of one test run: below the kernel's ephemeral range, away
# from the default world and the bench. Two runs side by side need two values. Worlds that may be
# up at the same time have ports of their own.
PORTS = int(os.environ.get("NEWSFABRIC_TEST_PORTS", "23000"))
# The parts of a region or a proxy in a world's status.
PARTS = ("brokers", "store", "services", "gateways")


@dataclasses.dataclass(frozen=True)
class World:
    """A world's state folder, with the CLI applied to it."""

    state: Path

    def run(self, *arguments: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        """Run ``newsfabric`` on this world; never raise on a non-zero exit."""
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=timeout, cwd=ROOT
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``newsfabric`` on this world and leave it running."""
        return subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def command(self, *arguments: str) -> Sequence[str]:
        return [sys.executable, "-m", "operations.cli", *arguments, "--state", str(self.state)]

    def status(self) -> dict[str, Any]:
        """Return the output of ``newsfabric status --json``, without a process for it."""
        # A thread has no running loop, which an async test has.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._status).result()

    def _status(self) -> dict[str, Any]:
        layout, notes = read_running(self.state)
        document = status_document(layout, notes, asyncio.run(observe(layout)))
        found: dict[str, Any] = json.loads(json.dumps(document))
        return found

    def region(self, name: str) -> dict[str, Any]:
        return next(r for r in self.status()["regions"] if r["name"] == name)

    def amqp_url(self, region: str, role: str = "client") -> str:
        layout, _ = read_running(self.state)
        found = layout.region(region).brokers()
        return next(broker.amqp_url for its_role, broker in found if its_role == role)

    def mend(self, seconds: float = 240) -> None:
        """Heal everything, and wait until all works as before the faults."""
        healed = self.run("chaos", "heal", timeout=seconds)
        assert healed.returncode == 0, healed.stderr
        deadline = time.monotonic() + seconds
        while ill := _ill(self.status()):
            assert time.monotonic() < deadline, f"not well after {seconds} s: {ill}"
            time.sleep(0.5)

    def pids(self) -> set[int]:
        """Return every live process of this world, by the mark in its environment."""
        return {p.pid for p in psutil.process_iter() if self._marked(p)}

    def _marked(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("NEWSFABRIC_WORLD") == str(self.state)
        except psutil.Error:
            return False


def _ill(status: dict[str, Any]) -> list[str]:
    """Return the names of parts of a world that don't work."""
    ill = []
    places = [*status["regions"], *([status["proxy"]] if status["proxy"] else [])]
    for place in places:
        parts = [part for kind in PARTS for part in place.get(kind, ())]
        ill += [part["name"] for part in parts if not part["running"]]
        ill += [shovel["name"] for shovel in place["shovels"] if shovel["state"] != "running"]
        boxes = place.get("gateways", ())
        ill += [gateway["name"] for gateway in boxes if not gateway["ready"]]
        if "endpoints_url" in place and len(gateways_in(place["endpoints_url"])) < len(boxes):
            ill.append("endpoints.json")
    return ill


def gateways_in(endpoints_url: str) -> list[dict[str, Any]]:
    """Return the gateways that a region lists for its readers; none if it doesn't answer."""
    try:
        with urlopen(endpoints_url, timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["gateways"]
    except OSError:
        # Also with 503, if there is no gateway.
        return []
    return found


def ports_in_use(base: int, count: int) -> list[int]:
    """Return the TCP ports of [base, base + count) on which a process listens on loopback."""
    used = []
    for port in range(base, base + count):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                used.append(port)
    return used


def require_rabbitmq() -> None:
    """Skip on a laptop without RabbitMQ; fail in CI."""
    from localfabric.world.rabbitmq_home import find_rabbitmq
    from newsfabric.errors import SetupError

    try:
        find_rabbitmq(ROOT, os.environ)
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have RabbitMQ: {exc}")
        pytest.skip(str(exc))

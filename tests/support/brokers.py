"""Several RabbitMQ nodes with names of one's choice: single ones, or one cluster.

Blocking; in a running loop use ``asyncio.to_thread``. Ports stay the same over restarts.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localfabric.nodes.ports import free_ports
from localfabric.world.broker import (
    Broker,
    answers,
    broker_command,
    entrance,
    environment,
    epmd_command,
    listening,
    prepare,
    prepare_cookie,
)
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.settings import Node

TIMEOUT = 120.0


class Brokers:
    """Named nodes below ``folder``. Start them, kill one, start it again; close at the end."""

    def __init__(self, folder: Path, home: RabbitmqHome, clusters: Sequence[Sequence[str]]) -> None:
        self._folder = folder
        self._home = home
        names = [name for cluster in clusters for name in cluster]
        self._epmd_port, *ports = free_ports(1 + 3 * len(names))
        self._brokers = {
            name: Broker(
                name=name,
                folder=folder / name,
                amqp_port=ports.pop(),
                management_port=ports.pop(),
                distribution_port=ports.pop(),
                epmd_port=self._epmd_port,
                peers=tuple(cluster) if len(cluster) > 1 else (),
            )
            for cluster in clusters
            for name in cluster
        }
        for name, node in self._brokers.items():
            if "-client-" in name:
                self._brokers[name] = entrance(node)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def node(self, name: str) -> Node:
        broker = self._brokers[name]
        return Node(name, broker.amqp_url, broker.management_url)

    def start(self, *names: str) -> None:
        """Start these nodes (all, if none is named) and return when they answer."""
        prepare_cookie(self._folder / "erlang")
        if "epmd" not in self._processes:
            first = next(iter(self._brokers.values()))
            self._spawn("epmd", epmd_command(self._home, self._epmd_port), first)
            self._wait("epmd", lambda: listening(self._epmd_port))
        chosen = names or tuple(self._brokers)
        for name in chosen:
            prepare(self._brokers[name], self._home.version)
            self._spawn(name, broker_command(self._home), self._brokers[name])
        for name in chosen:
            broker = self._brokers[name]
            self._wait(name, lambda broker=broker: answers(broker.amqp_port))  # type: ignore[misc]
            self._wait(name, lambda broker=broker: listening(broker.management_port))  # type: ignore[misc]

    def kill(self, name: str) -> None:
        """As a power cut would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait(timeout=30)

    def close(self) -> None:
        for name in [*self._processes]:
            self.kill(name)

    def __enter__(self) -> Brokers:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self, name: str, command: Sequence[str], broker: Broker) -> None:
        env: dict[str, Any] = environment(
            broker, self._home, os.environ, marker=self._folder, erlang=self._folder / "erlang"
        )
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env=env,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, name: str, check: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not check():
            assert self._processes[name].poll() is None, f"{name} died, see {self._folder}"
            assert time.monotonic() < deadline, f"{name} doesn't answer, see {self._folder}"
            time.sleep(0.05)

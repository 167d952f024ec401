"""One RabbitMQ node with an epmd of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from localfabric.nodes.ports import free_ports
from localfabric.world.broker import (
    START_TIMEOUT,
    Broker,
    answers,
    broker_command,
    environment,
    epmd_command,
    listening,
    prepare,
    prepare_cookie,
)
from localfabric.world.processes import last_lines, spawn
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.errors import WorldError


class LocalNode:
    """A single node with an epmd of its own, for tests and benches: start, kill, start again.

    Blocking; in a running loop use ``asyncio.to_thread``. The ports stay the same over
    restarts, so that a link can come back. ``definitions``, ``settings`` and ``plugins`` are given
    over to the node. ``also_on`` are the ports of more listeners that ``settings`` make.
    """

    def __init__(
        self,
        folder: Path,
        home: RabbitmqHome,
        *,
        definitions: Path | None = None,
        settings: Sequence[str] = (),
        plugins: Sequence[str] = (),
        also_on: Sequence[int] = (),
        name: str = "node",
    ) -> None:
        amqp, management, distribution, epmd = free_ports(4)
        self.folder = folder
        self.broker = Broker(
            name=name,
            folder=folder / "node",
            amqp_port=amqp,
            management_port=management,
            distribution_port=distribution,
            epmd_port=epmd,
            definitions=definitions,
            settings=tuple(settings),
            plugins=tuple(plugins),
        )
        self._also_on = tuple(also_on)
        self._home = home
        self._environment = environment(
            self.broker, home, os.environ, marker=folder, erlang=folder / "erlang"
        )
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def amqp_url(self) -> str:
        """Where to connect; the user is ``guest``."""
        return self.broker.amqp_url

    @property
    def management_url(self) -> str:
        """Base of its management API."""
        return self.broker.management_url

    def start(self, *, timeout: float = START_TIMEOUT) -> None:
        """Start it and return when it answers; WorldError with its last words otherwise."""
        prepare_cookie(self.folder / "erlang")
        prepare(self.broker, self._home.version)
        if self._epmd is None or self._epmd.poll() is not None:
            self._epmd = self._spawn(epmd_command(self._home, self.broker.epmd_port), "epmd")
            _wait(self._epmd, lambda: listening(self.broker.epmd_port), 10.0, self._log("epmd"))
        self._process = self._spawn(broker_command(self._home), "node")
        _wait(self._process, self._serves, timeout, self._log("node"))

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        _end(self._process, signal.SIGKILL)

    def close(self) -> None:
        """End node and epmd. Idempotent."""
        _end(self._process, signal.SIGKILL)
        _end(self._epmd, signal.SIGKILL)

    def let_go(self) -> None:
        """Leave node and epmd running when this process ends: somebody else ends them."""
        for process in (self._epmd, self._process):
            if process is not None:
                # Popen complains at the end of the interpreter about who seems to run still.
                process.returncode = 0

    def ctl(self, *arguments: str) -> str:
        """Run ``rabbitmqctl`` on the node and return what it prints."""
        command = [str(self._home.sbin / "rabbitmqctl"), "--quiet", *arguments]
        done = subprocess.run(
            command,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise WorldError(f"rabbitmqctl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def __enter__(self) -> LocalNode:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serves(self) -> bool:
        # The listener for TLS comes after the one that answers here.
        return answers(self.broker.amqp_port) and all(map(listening, self._also_on))

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _spawn(self, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        return spawn(
            command, environment=self._environment, folder=self.folder, log=self._log(name)
        )


def _wait(
    process: subprocess.Popen[bytes], check: Callable[[], bool], timeout: float, log: Path
) -> None:
    deadline = time.monotonic() + timeout
    while not check():
        if process.poll() is not None:
            raise WorldError(f"{log.stem} died ({process.returncode}):\n{last_lines(log)}")
        if time.monotonic() > deadline:
            raise WorldError(f"{log.stem} doesn't answer after {timeout:.0f} s, see {log}")
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> None:
    if process is not None and process.poll() is None:
        process.send_signal(number)
        process.wait(timeout=30)

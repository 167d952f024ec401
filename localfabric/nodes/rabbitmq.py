"""RabbitMQ nodes with an epmd of their own."""

from __future__ import annotations

import functools
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from localfabric.nodes.ports import free_ports
from localfabric.nodes.processes import LocalProcesses
from localfabric.world.broker import (
    START_TIMEOUT,
    WorldBroker,
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
from newsfabric.errors import WorldError


class LocalBrokers(LocalProcesses):
    """Nodes that share an epmd, each a broker of its own: start, kill, start again."""

    def __init__(self, folder: Path, home: RabbitmqHome, brokers: Sequence[WorldBroker]) -> None:
        super().__init__(folder)
        self._home = home
        self._brokers = {broker.name: broker for broker in brokers}
        # True once rabbitmqctl has waited for the first node's last start.
        self._awaited = False

    def start(self, *names: str, timeout: float = START_TIMEOUT) -> None:
        """Start these nodes (all, if none is named); see :meth:`LocalProcesses.start`."""
        chosen = [self._brokers[name] for name in names or self._brokers]
        deadline = time.monotonic() + timeout
        prepare_cookie(self.folder / "erlang")
        if "epmd" not in self._processes:
            port = chosen[0].epmd_port
            self._run("epmd", epmd_command(self._home, port), chosen[0])
            self._wait("epmd", lambda: listening(port), deadline)
        self._awaited = False
        for broker in chosen:
            prepare(broker, self._home)
            self._run(broker.name, broker_command(self._home), broker)
        for broker in chosen:
            self._wait(broker.name, functools.partial(self._serves, broker), deadline)

    @property
    def version(self) -> str:
        """The version of their RabbitMQ."""
        return self._home.version

    def ctl(self, *arguments: str) -> str:
        """Run ``rabbitmqctl`` on the first node and return its output; WorldError if it fails.

        A node that listens may still be starting, and refuses most commands until it has started.
        """
        if not self._awaited:
            self._ctl("await_startup")
            self._awaited = True
        return self._ctl(*arguments)

    def _ctl(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._home.sbin / "rabbitmqctl"), "--quiet", *arguments],
            env=self._environment(next(iter(self._brokers.values()))),
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise WorldError(f"rabbitmqctl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def let_go(self) -> None:
        """Leave all running when this process ends: another program ends them."""
        for process in self._processes.values():
            # At the end of the interpreter Popen warns about children that seem to run still.
            process.returncode = 0

    def _serves(self, broker: WorldBroker) -> bool:
        return answers(broker.amqp_port) and listening(broker.management_port)

    def _run(self, name: str, command: Sequence[str], broker: WorldBroker) -> None:
        self._spawn(name, command, self._environment(broker), self.folder)

    def _environment(self, broker: WorldBroker) -> dict[str, str]:
        return environment(
            broker, self._home, os.environ, marker=self.folder, erlang=self.folder / "erlang"
        )


class LocalNode(LocalBrokers):
    """A single node. The ports stay the same over restarts, so that a link can reconnect.

    ``definitions``, ``settings`` and ``plugins`` are the broker's. ``also_on`` are the ports of
    more listeners, made by ``settings``. ``for_publishers``: its limits are those of an entrance.
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
        for_publishers: bool = False,
    ) -> None:
        amqp, management, distribution, epmd = free_ports(4)
        broker = WorldBroker(
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
        self.broker = entrance(broker) if for_publishers else broker
        super().__init__(folder, home, [self.broker])
        self._also_on = tuple(also_on)

    @property
    def amqp_url(self) -> str:
        """The URL to connect to; the user is ``guest``."""
        return self.broker.amqp_url

    @property
    def management_url(self) -> str:
        """The base URL of its management API."""
        return self.broker.management_url

    def _serves(self, broker: WorldBroker) -> bool:
        # The TLS listener starts later than the one that answers here.
        return super()._serves(broker) and all(map(listening, self._also_on))

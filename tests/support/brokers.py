"""Several RabbitMQ nodes, side by side, with names that the test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localfabric.nodes.ports import free_ports
from localfabric.nodes.rabbitmq import LocalBrokers, LocalNode
from localfabric.world.broker import WorldBroker, entrance
from localfabric.world.processes import ProcessId, arguments_of, marked, pause, unpause
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.settings import Node


class NamedNodes(LocalBrokers):
    """Named nodes below ``folder``. Ports stay the same over restarts."""

    def __init__(self, folder: Path, home: RabbitmqHome, names: Sequence[str]) -> None:
        epmd, *ports = free_ports(1 + 3 * len(names))
        brokers = [
            WorldBroker(
                name=name,
                folder=folder / name,
                amqp_port=ports.pop(),
                management_port=ports.pop(),
                distribution_port=ports.pop(),
                epmd_port=epmd,
            )
            for name in names
        ]
        made = [entrance(each) if "-client-" in each.name else each for each in brokers]
        super().__init__(folder, home, made)

    def node(self, name: str) -> Node:
        broker = self._brokers[name]
        return Node(name, broker.amqp_url, broker.management_url)


def freeze(node: LocalNode) -> None:
    """Stop ``node`` but keep its sockets open; it is silent until :func:`thaw`."""
    for process in _machine(node):
        pause(process)


def thaw(node: LocalNode) -> None:
    """Let ``node`` run again."""
    for process in _machine(node):
        unpause(process)


def _machine(node: LocalNode) -> list[ProcessId]:
    # Erlang's helper processes start and end; one that has just ended has no command line.
    return [one for one in marked(node.folder) if any("beam" in s for s in arguments_of(one)[:1])]

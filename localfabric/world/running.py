"""The processes that one ``up`` has started, each noted before it runs."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from localfabric.world import cassandra
from localfabric.world.broker import WorldBroker, broker_command, environment, epmd_command, prepare
from localfabric.world.cassandra_home import CassandraHome
from localfabric.world.layout import WorldLayout
from localfabric.world.options import PROXY
from localfabric.world.processes import MARKER, last_lines, process_id, spawn
from localfabric.world.programs import LINKS, ServiceProgram, links_program, region_programs
from localfabric.world.rabbitmq_home import RabbitmqHome
from localfabric.world.state import ENGINE, Notes, shown, write_notes
from newsfabric.errors import WorldError
from newsfabric.process.environment import without_secrets

EPMD: Final = "epmd"


def planned(layout: WorldLayout) -> dict[str, None]:
    """Return the names of all processes of ``layout``, none of them started."""
    stores = (node.name for node in layout.store_nodes())
    brokers = (broker.name for broker in layout.brokers())
    programs = (p.name for region in layout.regions for p in region_programs(layout, region))
    links = (LINKS,) if layout.proxies else ()
    return dict.fromkeys((EPMD, *links, *stores, *brokers, *programs))


class Running:
    """Starts processes of a world, and knows those that have died.

    ``homes`` has the RabbitMQ of each region and of the proxy.
    """

    def __init__(
        self,
        layout: WorldLayout,
        notes: Notes,
        homes: Mapping[str, RabbitmqHome],
        store_home: CassandraHome | None = None,
    ) -> None:
        self.layout = layout
        self.notes = notes
        self._homes = homes
        self._store_home = store_home
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start_epmd(self) -> None:
        """Start Erlang's port mapper, which every node asks for its peers."""
        # Any version fits: the protocol between nodes and epmd is the same in all.
        home = self._homes[self.layout.regions[0].name]
        command = epmd_command(home, self.layout.epmd_port)
        self._start(EPMD, command, without_secrets(os.environ))

    def start_links(self) -> None:
        """Start Toxiproxy, if it is used."""
        if (links := links_program(self.layout)) is not None:
            self._start(links.name, links.command, without_secrets(os.environ))

    def start_store(self) -> None:
        """Write every store node's files and start them all at once."""
        for node in self.layout.store_nodes():
            self.start_store_node(node)

    def start_store_node(self, node: cassandra.StoreNode) -> None:
        """Write a store node's files and start it, with its data of earlier runs."""
        home = self._store_home
        assert home is not None
        cassandra.prepare(node)
        variables = cassandra.environment(self.layout.paths.state)
        with cassandra.few_wakeups():
            self._start(node.name, cassandra.command(node, home), variables)

    def start_brokers(self) -> None:
        """Write every node's files and start them all at once."""
        for broker in self.layout.brokers():
            self.start_broker(broker)

    def start_broker(self, broker: WorldBroker) -> None:
        """Write a node's files and start it, with its data of earlier runs."""
        paths = self.layout.paths
        home = self._homes[self._place(broker)]
        prepare(broker, home)
        variables = environment(broker, home, os.environ, marker=paths.state, erlang=paths.erlang)
        versions = self.notes.versions | {broker.name: home.version}
        self.notes = dataclasses.replace(self.notes, versions=versions)
        self._start(broker.name, broker_command(home), variables)

    def start_program(self, program: ServiceProgram) -> None:
        """Start a service; its output is appended to its log file."""
        # The process that heals a world, or adds boxes, may have another environment than ``up``
        # had, and another newsfabric, with its native engine elsewhere.
        ours = {name: value for name, value in os.environ.items() if name != ENGINE}
        # Logs are read while things go wrong: no line may wait in a buffer.
        variables = ours | self.notes.engine | {"PYTHONUNBUFFERED": "1"} | dict(program.variables)
        self._start(program.name, program.command, variables)

    def start(self, name: str) -> None:
        """Start the process ``name``, of any kind; KeyError if there is none of that name."""
        if name == LINKS:
            self.start_links()
            return
        brokers = {broker.name: broker for broker in self.layout.brokers()}
        if name in brokers:
            self.start_broker(brokers[name])
            return
        stores = {node.name: node for node in self.layout.store_nodes()}
        if name in stores:
            self.start_store_node(stores[name])
            return
        regions = self.layout.regions
        programs = {p.name: p for region in regions for p in region_programs(self.layout, region)}
        self.start_program(programs[name])

    def update(self, notes: Notes) -> None:
        """Replace the notes, and write them to the state folder."""
        self.notes = notes
        write_notes(self.layout.paths.state, notes)

    def died(self) -> dict[str, str]:
        """Return the names of the processes that have ended, and how."""
        return {
            name: _ending(code)
            for name, child in self._children.items()
            if (code := child.poll()) is not None
        }

    def check(self) -> None:
        """WorldError, with the end of its log, if a process has died."""
        for name, ending in self.died().items():
            log = self.layout.paths.log(name)
            words = last_lines(log) or "(no output)"
            raise WorldError(f"{name} {ending}. The end of {shown(log)}:\n{words}")

    def _place(self, broker: WorldBroker) -> str:
        """Return the region of ``broker``, or the proxy."""
        for region in self.layout.regions:
            if any(other.name == broker.name for _, other in region.brokers()):
                return region.name
        return PROXY

    def _start(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        paths = self.layout.paths
        child = spawn(
            command,
            environment={**variables, MARKER: str(paths.state)},
            folder=paths.state,
            log=paths.log(name),
        )
        self._children[name] = child
        processes = self.notes.processes | {name: process_id(child.pid)}
        self.update(dataclasses.replace(self.notes, processes=processes))


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"

"""A Cassandra cluster of any shape."""

from __future__ import annotations

import contextlib
import functools
import itertools
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from localfabric.nodes.ports import free_ports
from localfabric.nodes.processes import LocalProcesses
from localfabric.world.broker import HOST
from localfabric.world.cassandra import (
    HEAP_MB,
    START_TIMEOUT,
    StoreNode,
    answers,
    command,
    environment,
    few_wakeups,
    prepare,
    tokens,
)
from localfabric.world.cassandra_home import CassandraHome


class LocalCassandra(LocalProcesses):
    """A cluster of ``centres`` data centres with ``nodes`` nodes each, for tests and benches.

    Ports stay the same over restarts.
    """

    def __init__(
        self,
        folder: Path,
        home: CassandraHome,
        *,
        centres: Sequence[str] = ("oregon",),
        nodes: int = 1,
        heap_mb: int = HEAP_MB,
        optimised: bool = False,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Take ``settings`` as for :func:`prepare`, ``options`` as for :func:`command`."""
        super().__init__(folder)
        self._home = home
        self._heap_mb = heap_mb
        self._optimised = optimised
        self._settings = settings
        self._options = options
        ports = iter(free_ports(2 * nodes * len(centres)))
        pairs = list(itertools.islice(zip(ports, ports, strict=True), nodes * len(centres)))
        seeds = tuple(f"{HOST}:{gossip}" for _, gossip in pairs)
        self.nodes = tuple(
            StoreNode(
                name=f"{centre}-store-{n + 1}",
                datacentre=centre,
                folder=folder / f"{centre}-store-{n + 1}",
                cql_port=pairs[c * nodes + n][0],
                gossip_port=pairs[c * nodes + n][1],
                tokens=tokens(centre=c, node=n, nodes=nodes),
                seeds=seeds,
                replicas=nodes,
            )
            for c, centre in enumerate(centres)
            for n in range(nodes)
        )

    def start(
        self, *names: str, timeout: float = START_TIMEOUT, options: Sequence[str] = ()
    ) -> None:
        """Start these nodes (all, if none is named); see :meth:`LocalProcesses.start`.

        ``options`` are for these nodes only, in addition to those of all nodes.
        """
        chosen = [node for node in self.nodes if not names or node.name in names]
        for node in chosen:
            prepare(node, self._settings)
            words = command(
                node,
                self._home,
                heap_mb=self._heap_mb,
                optimised=self._optimised,
                options=(*self._options, *options),
            )
            with contextlib.nullcontext() if self._optimised else few_wakeups():
                self._spawn(node.name, words, environment(self.folder), node.folder)
        deadline = time.monotonic() + timeout
        for node in chosen:
            self._wait(node.name, functools.partial(answers, node.cql_port), deadline)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a node a signal: SIGSTOP and SIGCONT freeze and wake it."""
        self._processes[name].send_signal(number)

    def stop(self, name: str) -> None:
        """End a node cleanly: its data in memory is written to its disk."""
        process = self._processes.pop(name)
        process.terminate()
        process.wait(timeout=60)

    def url(self, keyspace: str, *, centre: str | None = None) -> str:
        """Return the store's URL for a program in data centre ``centre``, by default the first."""
        chosen = centre or self.nodes[0].datacentre
        nearest = sorted(self.nodes, key=lambda node: node.datacentre != chosen)
        contacts = ",".join(node.contact for node in nearest)
        return f"cassandra://{contacts}/{keyspace}?dc={chosen}"

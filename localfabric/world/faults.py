"""Breaks parts of a running world and heals them again. Blocks for as long as a signal takes.

Dead parts aren't restarted automatically: a part stays dead until it is healed, so that a test
decides for how long. (In production systemd restarts it after a second.) A healed part starts
afresh, as after a reboot: a service with a new epoch, a broker with its old folder.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from localfabric.world.cassandra_home import find_cassandra
from localfabric.world.dataplanes import dataplanes
from localfabric.world.layout import WorldLayout
from localfabric.world.parts import WorldPart, link_parts, links
from localfabric.world.processes import ProcessId, kill, pause, unpause
from localfabric.world.programs import LINKS
from localfabric.world.queues import WorldQueue
from localfabric.world.rabbitmq_home import RabbitmqHome
from localfabric.world.rabbitmq_homes import find_rabbitmqs
from localfabric.world.running import Running
from localfabric.world.state import changing, read_running
from localfabric.world.toxiproxy import Toxiproxy
from newsfabric.brokers.management import Management
from newsfabric.errors import ManagementError, WorldError
from newsfabric.settings import Credentials

_CHECKOUT: Final = Path(__file__).resolve().parents[2]

# The kind of a link, among those of processes.
LINK: Final = "link"

Signal = Literal["kill", "stop", "cont"]


@dataclasses.dataclass(frozen=True, slots=True)
class FaultEffect:
    """The action on the part ``name``, in a word or two; ``pid`` is that of its process."""

    name: str
    kind: str
    done: str
    pid: int | None = None


class Faults:
    """The faults of the world in ``state``, and their healing."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._homes: dict[str, RabbitmqHome] = {}

    def apply(self, verb: Signal, parts: Sequence[WorldPart]) -> list[FaultEffect]:
        """Send each part the signal; WorldError, before any signal, if one can't get it."""
        act = {"kill": self._kill, "stop": self._stop, "cont": self._cont}[verb]
        processes = self._processes(parts)
        if verb != "kill":
            for part in parts:
                if processes[part.name] is None:
                    raise WorldError(f"{part.name} is dead: `newsfabric chaos heal` starts it")
        return [act(part, processes[part.name]) for part in parts]

    def heal(self, parts: Sequence[WorldPart]) -> list[FaultEffect]:
        """Start dead parts, continue stopped ones, leave the rest alone."""
        with changing(self._state):
            return [self._heal(part, self._processes([part])[part.name]) for part in parts]

    def cut(self, names: Sequence[str]) -> list[FaultEffect]:
        """Cut links, silently, like a dead wire; WorldError if links are direct."""
        toxiproxy, proxies = self._links()
        for name in names:
            toxiproxy.cut(proxies[name])
        return [FaultEffect(name, LINK, "cut") for name in names]

    def slow(self, names: Sequence[str], *, latency_ms: int, jitter_ms: int) -> list[FaultEffect]:
        """Make links slow, each way; WorldError if links are direct."""
        toxiproxy, proxies = self._links()
        for name in names:
            toxiproxy.slow(proxies[name], latency_ms=latency_ms, jitter_ms=jitter_ms)
        return [
            FaultEffect(name, LINK, f"slow, {latency_ms}±{jitter_ms} ms each way") for name in names
        ]

    def heal_links(self, names: Sequence[str]) -> list[FaultEffect]:
        """Make links normal again."""
        toxiproxy, proxies = self._links()
        for name in names:
            toxiproxy.heal(proxies[name])
        return [FaultEffect(name, LINK, "healed") for name in names]

    def lose(self, queues: Sequence[WorldQueue]) -> list[FaultEffect]:
        """Delete queues with their messages; the fabric declares them again by itself.

        WorldError if a queue's broker doesn't answer.
        """
        return [asyncio.run(_lose(queue)) for queue in queues]

    def ill_links(self) -> list[str]:
        """Return the links that are cut or slow. None while Toxiproxy is dead: it restarts without
        its toxics."""
        layout, notes = read_running(self._state)
        if LINKS not in notes.running():
            return []
        toxiproxy = Toxiproxy(layout.toxiproxy_port)
        return [name for name, proxies in links(layout).items() if toxiproxy.ill(proxies)]

    def _links(self) -> tuple[Toxiproxy, dict[str, list[str]]]:
        layout, _ = read_running(self._state)
        if not layout.proxies:
            raise WorldError(
                "regions are linked directly in this world, so links can't be cut or slowed: "
                "install Toxiproxy with `scripts/setup toxiproxy`, and start the world again"
            )
        return Toxiproxy(layout.toxiproxy_port), links(layout) | link_parts(layout)

    def unwell(self, parts: Sequence[WorldPart]) -> list[WorldPart]:
        """Return those of ``parts`` that are dead or stopped."""
        processes = self._processes(parts)
        return [part for part in parts if (p := processes[part.name]) is None or p.stopped]

    def _processes(self, parts: Sequence[WorldPart]) -> dict[str, ProcessId | None]:
        layout, notes = read_running(self._state)
        running = notes.running()
        planes = _dataplanes(layout)
        return {
            part.name: planes.get(part.box or "")
            if part.kind == "dataplane"
            else running.get(part.name)
            for part in parts
        }

    @staticmethod
    def _kill(part: WorldPart, process: ProcessId | None) -> FaultEffect:
        if process is None:
            return FaultEffect(part.name, part.kind, "was dead")
        kill([process])
        return FaultEffect(part.name, part.kind, "killed", process.pid)

    @staticmethod
    def _stop(part: WorldPart, process: ProcessId | None) -> FaultEffect:
        assert process is not None
        pause(process)
        return FaultEffect(part.name, part.kind, "stopped", process.pid)

    @staticmethod
    def _cont(part: WorldPart, process: ProcessId | None) -> FaultEffect:
        assert process is not None
        unpause(process)
        return FaultEffect(part.name, part.kind, "goes on", process.pid)

    def _heal(self, part: WorldPart, process: ProcessId | None) -> FaultEffect:
        if process is not None and process.stopped:
            return self._cont(part, process)
        if process is not None:
            return FaultEffect(part.name, part.kind, "was well", process.pid)
        if part.kind == "dataplane":
            # The gateway restarts its data plane, if it has one at all.
            return FaultEffect(part.name, part.kind, "left to its gateway")
        layout, notes = read_running(self._state)
        self._homes = self._homes or find_rabbitmqs(layout.options, os.environ)
        store = find_cassandra(_CHECKOUT, os.environ) if part.kind == "store node" else None
        running = Running(layout, notes, self._homes, store)
        running.start(part.name)
        started = running.notes.processes[part.name]
        return FaultEffect(
            part.name, part.kind, "started", None if started is None else started.pid
        )


async def _lose(queue: WorldQueue) -> FaultEffect:
    async with Management(queue.management, Credentials()) as management:
        try:
            there = queue.queue in await management.queues()
            await management.delete_queue(queue.queue)
        except ManagementError as exc:
            raise WorldError(f"{queue.name} can't be lost: {exc}") from exc
    return FaultEffect(queue.name, queue.kind, "lost" if there else "was not there")


def _dataplanes(layout: WorldLayout) -> dict[str, ProcessId]:
    """Return the processes by box."""
    found = {plane.socket: plane.process for plane in dataplanes(layout.paths.state)}
    return {
        box.name: found[box.control_socket]
        for box in layout.boxes()
        if box.control_socket is not None and box.control_socket in found
    }

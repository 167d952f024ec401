"""Starts a world: files, brokers, services, canaries. ``stop`` ends its processes.

All brokers and store nodes start at once, the services of a region as soon as its brokers answer
and the store has its tables. The order is for speed alone: every service waits by itself for the
parts it needs.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from localfabric.world.broker import HOST, WorldBroker, answers, listening, prepare_cookie
from localfabric.world.canary import Canaries
from localfabric.world.issuer import make_keys
from localfabric.world.layout import RegionLayout, WorldBox, WorldLayout, box_ports
from localfabric.world.links import configuration
from localfabric.world.options import PROXY
from localfabric.world.programs import region_programs
from localfabric.world.running import Running
from localfabric.world.state import write_private
from localfabric.world.store_start import bring_up_store
from newsfabric.errors import ConfigError, WorldError
from newsfabric.settings import Credentials, dump_fabric
from newsfabric.topics import CANARY_TOPIC, TopicTable, load_topics
from newsfabric.topology import (
    Cluster,
    client_definitions,
    core_definitions,
    retail_definitions,
    taken_from,
)
from newsfabric.topology.rights import User, publisher
from newsfabric.topology.roles import box_user, cluster_users, operator
from operations.passwords import passwords_in

_LOOK_AGAIN: Final = 0.1
# After a longer silence a person wonders whether anything happens.
_REMIND_EVERY: Final = 10.0


class StartProgress(Protocol):
    """A receiver of the progress of a start. ``part`` is a line for a person."""

    def begin(self, part: str) -> None:
        """Note that ``part`` has begun."""

    def done(self, part: str) -> None:
        """Note that ``part`` is done."""

    def still(self, waiting: Collection[str]) -> None:
        """Note a while without progress; ``waiting`` has a line for each part that isn't done."""


def check_ports(layout: WorldLayout) -> None:
    """WorldError naming the first port of ``layout`` that is taken, and its purpose."""
    _check_free(layout.ports())


def check_ports_of(box: WorldBox) -> None:
    """WorldError as :func:`check_ports`, for a box that is added."""
    _check_free(box_ports(box))


def _check_free(ports: Iterable[tuple[int, str]]) -> None:
    for port, purpose in ports:
        with socket.socket() as probe:
            # Servers set this, too: the remains of closed connections don't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as exc:
                raise WorldError(
                    f"port {port} ({purpose}) is taken: stop what uses it, or choose --port-base"
                ) from exc


def write_files(layout: WorldLayout, topics_file: Path) -> None:
    """Write all files of brokers and services: the world needs no other file afterwards.

    ConfigError for a topics.toml that is invalid, or doesn't allow the canaries' topic.
    """
    paths = layout.paths
    shutil.copyfile(topics_file, paths.topics)
    paths.topics.chmod(0o600)
    topics = load_topics(topics_file)
    if topics.find(CANARY_TOPIC) is None:
        raise ConfigError(f"{topics_file}: it must allow the topic {CANARY_TOPIC}")
    write_private(paths.fabric, dump_fabric(layout.fabric()))
    for region in layout.regions:
        seen = dump_fabric(layout.fabric_seen_from(region.name))
        write_private(paths.fabric_seen_from(region.name), seen)
    if layout.proxies:
        write_private(paths.links, configuration(layout.proxies))
    prepare_cookie(paths.erlang)
    make_keys(paths)
    write_definitions(layout, topics)


def write_definitions(layout: WorldLayout, topics: TopicTable) -> None:
    """Write the definitions that each broker loads at boot; make missing passwords."""
    for name, definitions in _definitions(layout, topics).items():
        write_private(layout.paths.definitions(name), json.dumps(definitions, indent=1))


def _definitions(layout: WorldLayout, topics: TopicTable) -> dict[str, dict[str, Any]]:
    fabric, paths = layout.fabric(), layout.paths
    person = Credentials()
    publishers = [publisher(rights) for rights in topics.publishers]
    passwords = {person.username: person.password}
    passwords |= passwords_in(paths.publishers, (user.name for user in publishers))

    def known(users: Iterable[User]) -> list[User]:
        listed = list(users)
        passwords.update(passwords_in(paths.users, (user.name for user in listed)))
        return [operator(person.username), *listed]

    def on(cluster: Cluster, boxes: Iterable[str] = ()) -> list[User]:
        return known(cluster_users(fabric, topics, cluster, boxes))

    found = {}
    for region, laid in zip(fabric.regions, layout.regions, strict=True):
        client = Cluster(region.name, "client")
        users, taken = [*on(client), *publishers], taken_from(fabric, client, topics)
        found[f"{region.name}-client"] = client_definitions(taken, users, passwords)
        users = on(Cluster(region.name, "core"), (box.name for box in laid.boxes))
        found[f"{region.name}-core"] = core_definitions(topics, users, passwords)
        for box in laid.boxes:
            found[box.name] = retail_definitions(known([box_user(box.name)]), passwords)
    if layout.proxy_nodes:
        proxy = Cluster(PROXY, "proxy")
        users, taken = [*on(proxy), *publishers], taken_from(fabric, proxy, topics)
        found[PROXY] = client_definitions(taken, users, passwords)
    return found


async def bring_up(running: Running, progress: StartProgress, *, seconds: float) -> None:
    """Start everything and return when canaries have arrived everywhere.

    WorldError when a process dies, or after ``seconds``, with the parts that aren't ready. Either
    way the processes are left running.
    """
    waiting: dict[str, str] = {}
    try:
        async with asyncio.timeout(seconds):
            await _bring_up(running, progress, waiting)
    except TimeoutError as exc:
        what = "".join(f"\n  {text}" for text in waiting.values())
        raise WorldError(f"not ready after {seconds:.0f} s:{what}") from exc


async def _bring_up(running: Running, progress: StartProgress, waiting: dict[str, str]) -> None:
    running.start_epmd()
    await _until(listening, running.layout.epmd_port)
    running.start_links()
    running.start_brokers()
    canaries = Canaries(running.layout)
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_watch(running))
            reminder = group.create_task(_remind(progress, waiting))
            stored = group.create_task(bring_up_store(running, progress, waiting))
            regions = [
                group.create_task(
                    _Region(running, region, canaries, progress, waiting, stored).bring_up()
                )
                for region in running.layout.regions
            ]
            await asyncio.wait(regions, return_when=asyncio.FIRST_EXCEPTION)
            watch.cancel()
            reminder.cancel()
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    finally:
        await canaries.close()


async def _watch(running: Running) -> None:
    while True:
        running.check()
        await asyncio.sleep(_LOOK_AGAIN)


async def _remind(progress: StartProgress, waiting: Mapping[str, str]) -> None:
    while True:
        await asyncio.sleep(_REMIND_EVERY)
        progress.still(tuple(waiting.values()))


class _Region:
    """A region that starts. ``waiting`` gets the parts it waits for, for a time-out's error."""

    def __init__(
        self,
        running: Running,
        region: RegionLayout,
        canaries: Canaries,
        progress: StartProgress,
        waiting: dict[str, str],
        stored: asyncio.Task[None],
    ) -> None:
        self._running = running
        self._region = region
        self._canaries = canaries
        self._progress = progress
        self._waiting = waiting
        self._stored = stored

    async def bring_up(self) -> None:
        region = self._region
        brokers = [broker for _, broker in region.brokers()]
        await asyncio.gather(*(self._broker(broker) for broker in brokers))
        await self._stored
        for program in region_programs(self._running.layout, region):
            self._running.start_program(program)
        self._canaries.release(region)
        await self._part(f"canaries in {region.name}", self._arrivals)
        self._waiting.pop(region.name, None)

    async def _part(self, part: str, work: Callable[[], Awaitable[None]]) -> None:
        self._progress.begin(part)
        await work()
        self._progress.done(part)

    async def _broker(self, broker: WorldBroker) -> None:
        self._waiting[broker.name] = f"{broker.name} doesn't answer"
        await self._part(f"broker {broker.name}", lambda: _until(answers, broker.amqp_port))
        del self._waiting[broker.name]

    async def _arrivals(self) -> None:
        async for missing in self._canaries.arrivals(self._region):
            self._waiting[self._region.name] = missing


async def _until(check: Callable[[int], bool], port: int) -> None:
    while True:
        # In a thread: a broker that starts may take its time to answer a greeting.
        if await asyncio.to_thread(check, port):
            return
        await asyncio.sleep(_LOOK_AGAIN)

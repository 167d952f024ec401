"""A world on this machine, as commands see it that work with any fabric.

Who runs worlds is the package `localfabric`. It imports `operations` and never the other way round,
so it is found by the entry-point group ``newsfabric.worlds``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from newsfabric.errors import WorldError
from newsfabric.settings import Fabric, Region
from newsfabric.spelling import unknown_name

_GROUP: Final = "newsfabric.worlds"

Say = Callable[[str], None]


class Process(NamedTuple):
    """A router or a gateway, by the base URL of what it answers to operators.

    Of one that nobody knows but by its URL, kind and region are empty.
    """

    kind: str
    name: str
    region: str
    url: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where everything of a world is. ``stores`` has a URL for each region.

    ``unwell`` names the parts that are dead or stopped now while others work: those that
    ``newsfabric chaos heal`` would start.
    """

    fabric: Fabric
    topics: Path
    processes: tuple[Process, ...]
    stores: Mapping[str, str]
    unwell: Callable[[], Sequence[str]] = tuple

    def region(self, name: str | None) -> Region:
        """The region called ``name``, the first one for None; ConfigError lists those there are."""
        for region in self.fabric.regions:
            if name in (None, region.name):
                return region
        known = [region.name for region in self.fabric.regions]
        raise unknown_name(str(name), known, "region", "in this world")

    def frontdesk_urls(self, first: str | None) -> list[str]:
        """All frontdesks, that of the region ``first`` before the others; as :meth:`region`."""
        own = self.region(first)
        order = sorted(self.fabric.regions, key=lambda region: region is not own)
        return [region.frontdesk_url for region in order]

    def publishing_ways(self, place: str | None) -> dict[str, list[str]]:
        """Brokers to publish by, of each entrance by its name: those of ``place`` come first.

        ``place`` is a region or a proxy cluster; as :meth:`region` otherwise. The other regions are
        for when its brokers are all away.
        """
        near = next((proxy.nodes for proxy in self.fabric.proxies if proxy.name == place), None)
        first = {}
        if near is not None:
            first[str(place)] = near
        else:
            own = self.region(place)
            first[own.name] = own.client
        others = {region.name: region.client for region in self.fabric.regions}
        ways = first | {name: nodes for name, nodes in others.items() if name not in first}
        return {name: [node.amqp_url for node in nodes] for name, nodes in ways.items()}


class _Finder(Protocol):
    def running(self, state: Path) -> World: ...
    def to_read(self, state: Path, say: Say) -> World: ...
    def to_publish_to(self, state: Path, say: Say) -> World: ...


def running_world(state: Path) -> World:
    """The world in ``state``, ready or not; WorldError (one line) when there is none."""
    return _finder().running(state)


def world_to_read(state: Path, say: Say) -> World:
    """The world in ``state``; waits while an ``up`` is starting it. WorldError if there is none."""
    return _finder().to_read(state, say)


def world_to_publish_to(state: Path, say: Say) -> World:
    """As :func:`world_to_read`, but readers who have waited for the same world go first.

    Else ``up --detach && tail … & publish …`` would publish what nobody reads yet.
    """
    return _finder().to_publish_to(state, say)


def _finder() -> _Finder:
    point = next(iter(entry_points(group=_GROUP)), None)
    if point is None:
        raise WorldError("localfabric, which runs worlds, isn't installed")
    return cast(_Finder, point.load())

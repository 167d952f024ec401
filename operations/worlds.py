"""A world on this machine, for commands that work with any fabric.

The package `localfabric` runs worlds. It imports `newsfabric` and never the other way round, so it
is found by the entry-point group ``newsfabric.worlds``.
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

PrintLine = Callable[[str], None]


class ProcessAddress(NamedTuple):
    """A router or a gateway, by the base URL of its port for operators.

    Kind and region are empty if only the URL is known.
    """

    kind: str
    name: str
    region: str
    url: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlaces:
    """The places of a world's parts. ``stores`` has a URL for each region.

    ``unwell`` returns the parts that are dead or stopped now while others work: the parts that
    ``newsfabric chaos heal`` would start.
    """

    fabric: Fabric
    topics: Path
    processes: tuple[ProcessAddress, ...]
    stores: Mapping[str, str]
    unwell: Callable[[], Sequence[str]] = tuple

    def region(self, name: str | None) -> Region:
        """Return the region called ``name``, the first for None; ConfigError lists all."""
        for region in self.fabric.regions:
            if name in (None, region.name):
                return region
        known = [region.name for region in self.fabric.regions]
        raise unknown_name(str(name), known, "region", "in this world")

    def frontdesk_urls(self, first: str | None) -> list[str]:
        """Return all frontdesks, the one of region ``first`` first; errors as :meth:`region`."""
        own = self.region(first)
        order = sorted(self.fabric.regions, key=lambda region: region is not own)
        return [region.frontdesk_url for region in order]

    def publishing_ways(self, place: str | None) -> dict[str, list[str]]:
        """Return the brokers to publish to, by the name of the region or proxy: ``place`` first.

        ``place`` is a region or a proxy cluster; as :meth:`region` otherwise. The other regions are
        used if all brokers of ``place`` are away.
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
    def running(self, state: Path) -> WorldPlaces: ...
    def to_read(self, state: Path, print_line: PrintLine) -> WorldPlaces: ...
    def to_publish_to(self, state: Path, print_line: PrintLine) -> WorldPlaces: ...


def running_world(state: Path) -> WorldPlaces:
    """Return the world in ``state``, ready or not; WorldError (one line) if there is none."""
    return _finder().running(state)


def world_to_read(state: Path, print_line: PrintLine) -> WorldPlaces:
    """Return the world in ``state``, waiting for an ``up`` that starts it, or WorldError."""
    return _finder().to_read(state, print_line)


def world_to_publish_to(state: Path, print_line: PrintLine) -> WorldPlaces:
    """Return as :func:`world_to_read`, but after readers that waited for the same world.

    Else ``up --detach && tail … & publish …`` would publish before the reader is subscribed.
    """
    return _finder().to_publish_to(state, print_line)


def _finder() -> _Finder:
    point = next(iter(entry_points(group=_GROUP)), None)
    if point is None:
        raise WorldError("localfabric, which runs worlds, isn't installed")
    return cast(_Finder, point.load())

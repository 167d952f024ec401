"""The options of a world, and their bounds. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, Literal, get_args

from newsfabric.errors import ConfigError
from newsfabric.settings import is_name

MAX_REGIONS: Final = 9
MAX_NODES: Final = 5
MAX_BOXES: Final = 9
MAX_CAPACITY: Final = 1_000_000
MAX_STORE_NODES: Final = 3
# Number of ports of a region (localfabric.world.layout).
REGION_PORTS: Final = 100

# The proxy cluster's name.
PROXY: Final = "proxy"

StoreKind = Literal["sqlite", "cassandra"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """The options of a world; ConfigError if there can't be such a world.

    ``client_nodes`` and ``core_nodes`` are per region and stand side by side. ``retail`` is the
    number of boxes that a region starts with; ``boxes`` has the numbers of its present boxes, if
    they have changed (a tuple for each region). ``box_capacity`` is the number of readers a box
    takes; None for the gateway's default. With ``scale`` (least, most boxes a region) there are
    scalers, which start and end boxes. ``store_nodes`` is per region too, for Cassandra alone: 1,
    or 3 of which one may die. ``proxy`` adds a broker away from all regions, for publishers there.
    ``toxiproxy`` is the program that carries the links between regions; None for direct ones.
    ``rabbitmq`` is the folder with the RabbitMQ to run
    (:func:`~localfabric.world.rabbitmq_home.rabbitmq_in`), None for the installed one;
    ``rabbitmq_of`` has others for single regions, or for the proxy.
    """

    regions: tuple[str, ...] = ("oregon", "dublin")
    client_nodes: int = 1
    core_nodes: int = 1
    retail: int = 1
    port_base: int = 18000
    store: StoreKind = "sqlite"
    store_nodes: int = 1
    proxy: bool = False
    toxiproxy: str | None = None
    boxes: tuple[tuple[int, ...], ...] = ()
    box_capacity: int | None = None
    scale: tuple[int, int] | None = None
    rabbitmq: str | None = None
    rabbitmq_of: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in self.regions:
            if not is_name(name) or len(name) > 40:
                raise ConfigError(f"{name!r} is no region name (a-z, 0-9 and -, at most 40)")
        if len(set(self.regions)) < len(self.regions):
            raise ConfigError("a region is named twice")
        if self.proxy and PROXY in self.regions:
            raise ConfigError(f"{PROXY!r} is the proxy cluster's name, so no region's")
        # The proxy's ports lie where one more region's would.
        places = len(self.regions) + self.proxy
        _check("regions", len(self.regions), 1, MAX_REGIONS - self.proxy)
        _check("client nodes", self.client_nodes, 1, MAX_NODES)
        _check("core nodes", self.core_nodes, 1, MAX_NODES)
        _check("retail boxes", self.retail, 1, MAX_BOXES)
        if self.boxes and len(self.boxes) != len(self.regions):
            raise ConfigError("boxes: not as many entries as regions")
        for numbers in self.boxes:
            if list(numbers) != sorted(set(numbers)):
                raise ConfigError(f"boxes: {numbers} isn't in order")
            for number in numbers:
                _check("box number", number, 1, MAX_BOXES)
        if self.box_capacity is not None:
            _check("readers a box", self.box_capacity, 1, MAX_CAPACITY)
        if self.scale is not None:
            least, most = self.scale
            _check("least boxes", least, 1, MAX_BOXES)
            _check("most boxes", most, least, MAX_BOXES)
        if self.store not in get_args(StoreKind):
            raise ConfigError(f"{self.store!r} is no store: write sqlite or cassandra")
        if self.store_nodes not in (1, MAX_STORE_NODES):
            raise ConfigError("store nodes: 1 or 3 (two replicas are worse than one)")
        for place, _ in self.rabbitmq_of:
            if place not in self.places():
                raise ConfigError(f"a RabbitMQ for {place!r}, which is no region of this world")
        if len(dict(self.rabbitmq_of)) < len(self.rabbitmq_of):
            raise ConfigError("a region has two RabbitMQs: name one")
        _check("port base", self.port_base, 1024, 65535 - REGION_PORTS * (places + 1))

    def places(self) -> tuple[str, ...]:
        """Return the places of brokers: the regions, and the proxy if there is one."""
        return (*self.regions, PROXY) if self.proxy else self.regions

    def box_numbers(self, region: str) -> tuple[int, ...]:
        """Return the numbers of the boxes of ``region``; KeyError if there is no such region."""
        if region not in self.regions:
            raise KeyError(region)
        if self.boxes:
            return self.boxes[self.regions.index(region)]
        return tuple(range(1, self.retail + 1))

    def with_boxes(self, region: str, numbers: Iterable[int]) -> WorldOptions:
        """Return the same options with other boxes for ``region``."""
        found = {name: self.box_numbers(name) for name in self.regions}
        found[region] = tuple(sorted(set(numbers)))
        return dataclasses.replace(self, boxes=tuple(found.values()))


def _check(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{what}: {value} is not in {least}..{most}")

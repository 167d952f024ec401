"""The parts of a world that can be broken, by the names that ``status`` shows. Pure.

Some names stand for several parts: ``oregon-retail-1-box`` is everything of that box. A region's
own name is every process of it, or every link of it where a link is expected. A link that stores
replicate over has two named parts: ``oregon-dublin-store`` and ``oregon-dublin-feed``. Erlang's
port mapper has a name but is no part: production has one on each machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from localfabric.world.layout import RegionLayout, WorldBox, WorldLayout
from localfabric.world.links import LINK_SUFFIX
from localfabric.world.options import PROXY
from localfabric.world.programs import LINKS
from newsfabric import spelling
from newsfabric.errors import ConfigError
from newsfabric.kinds import BoxKind, CoreKind

Kind = Literal[
    "client node",
    "core node",
    "retail node",
    "store node",
    "proxy node",
    CoreKind,
    BoxKind,
    "dataplane",
    "links",
]
# The suffixes of the names of a link's two parts.
STORE_PART: Final = "-store"
FEED_PART: Final = "-feed"
_ROLES: Final[dict[str, Kind]] = {
    "client": "client node",
    "core": "core node",
    "retail": "retail node",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldPart:
    """A process of a world. ``box`` is the name of its box, if it belongs to one."""

    name: str
    kind: Kind
    region: str
    box: str | None = None


def parts(layout: WorldLayout) -> dict[str, WorldPart]:
    """Return every part by name, region by region."""
    found = {part.name: part for region in layout.regions for part in _parts(region)}
    for broker in layout.proxy_nodes:
        found[broker.name] = WorldPart(name=broker.name, kind="proxy node", region=PROXY)
    if layout.proxies:
        found[LINKS] = WorldPart(name=LINKS, kind="links", region="")
    return found


def links(layout: WorldLayout) -> dict[str, list[str]]:
    """Return the names of each link's proxies, by the link's name; none if links are direct."""
    found: dict[str, list[str]] = {}
    for proxy in layout.proxies:
        found.setdefault(proxy.link, []).append(proxy.name)
    return found


def link_parts(layout: WorldLayout) -> dict[str, list[str]]:
    """Return, like :func:`links`, the two parts of each link that stores replicate over.

    The store's part is the traffic between their nodes, the feed's all the rest.
    """
    found: dict[str, list[str]] = {}
    replicated = {proxy.link for proxy in layout.proxies if proxy.what == "store"}
    for proxy in layout.proxies:
        if proxy.link in replicated:
            part = STORE_PART if proxy.what == "store" else FEED_PART
            found.setdefault(proxy.link.removesuffix(LINK_SUFFIX) + part, []).append(proxy.name)
    return found


def find_links(layout: WorldLayout, names: Sequence[str]) -> list[str]:
    """Return the links and parts of links with these ``names``, or to regions with them, each once.

    ConfigError lists the known ones.
    """
    known = links(layout)
    pieces = link_parts(layout)
    regions = [region.name for region in layout.regions] if known else []
    found: list[str] = []
    for name in names:
        if name not in known and name not in pieces and name not in regions:
            raise unknown_name(name, (*known, *pieces, *regions), "link")
        found += [name] if name in pieces else []
        found += (p.link for p in layout.proxies if name in (p.link, p.region, p.other))
    return list(dict.fromkeys(found))


def box_name(box: WorldBox) -> str:
    """Return the name of the whole of ``box``; the box's own name is its broker's."""
    return f"{box.name}-box"


def dataplane_name(box: WorldBox) -> str:
    """Return the name of the second process of the box's gateway."""
    return f"{box.name}-dataplane"


def find_parts(layout: WorldLayout, names: Sequence[str]) -> list[WorldPart]:
    """Return the parts of these names or regions, each once; ConfigError lists the known ones."""
    known = parts(layout)
    groups = {box_name(box): _of_box(known, box) for box in layout.boxes()}
    for region in layout.regions:
        groups[region.name] = [part for part in known.values() if part.region == region.name]
    found: dict[str, WorldPart] = {}
    for name in names:
        if name not in known and name not in groups:
            raise unknown_name(name, (*known, *groups), "part")
        for part in groups.get(name) or [known[name]]:
            found[part.name] = part
    return list(found.values())


def unknown_name(name: str, known: Sequence[str], what: str) -> ConfigError:
    """Return the error for a name that isn't in ``known``, with a suggestion."""
    return spelling.unknown_name(name, known, what, "in this world")


def _of_box(known: dict[str, WorldPart], box: WorldBox) -> list[WorldPart]:
    return [part for part in known.values() if part.box == box.name]


def _parts(region: RegionLayout) -> Iterator[WorldPart]:
    boxes = {box.name for box in region.boxes}
    for role, broker in region.brokers():
        owner = broker.name if broker.name in boxes else None
        yield WorldPart(name=broker.name, kind=_ROLES[role], region=region.name, box=owner)
    for node in region.store_nodes:
        yield WorldPart(name=node.name, kind="store node", region=region.name)
    for service in region.services:
        yield WorldPart(name=service.name, kind=service.kind, region=region.name)
    for box in region.boxes:
        for name, kind in _box_services(box):
            yield WorldPart(name=name, kind=kind, region=region.name, box=box.name)


def _box_services(box: WorldBox) -> Iterator[tuple[str, Kind]]:
    yield f"{box.name}-agent", "agent"
    yield box.gateway, "gateway"
    yield dataplane_name(box), "dataplane"

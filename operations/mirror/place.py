"""The two fabrics of a mirror: the addresses of their brokers and frontdesks.

Each is a world's folder or a ``fabric.json``. The logins for brokers come from the environment:
``NEWSFABRIC_FROM_USERNAME`` and ``NEWSFABRIC_TO_USERNAME``, each with ``…_PASSWORD_FILE`` or
``…_PASSWORD``; ``guest`` otherwise, which brokers accept only from their own machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from newsfabric.errors import ConfigError
from newsfabric.settings import Credentials, Fabric, Region, credentials_from, load_fabric
from newsfabric.topics import TopicTable, load_topics
from operations.worlds import running_world

FROM_LOGIN: Final = "NEWSFABRIC_FROM"
TO_LOGIN: Final = "NEWSFABRIC_TO"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MirroredFabric:
    """A fabric as the mirror sees it. ``region`` is the one whose brokers and observer are used;
    ``endpoints_urls`` has all regions', its own first. ``topics`` None: not known."""

    region: str
    core_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    endpoints_urls: tuple[str, ...]
    board_url: str
    credentials: Credentials
    topics: TopicTable | None


def find_place(
    path: Path, *, region: str | None, topics: Path | None, environ: Mapping[str, str], login: str
) -> MirroredFabric:
    """Return the fabric at ``path``; ``topics`` replaces a world's own.

    WorldError or ConfigError if there is none, or no such ``region``.
    """
    if path.is_dir():
        world = running_world(path.resolve())
        fabric, topics = world.fabric, topics or world.topics
    else:
        fabric = load_fabric(path)
    table = None if topics is None else load_topics(topics)
    return place_of(fabric, region, table, credentials_from(environ, login))


def place_of(
    fabric: Fabric, region: str | None, topics: TopicTable | None, credentials: Credentials
) -> MirroredFabric:
    """Return ``region`` of ``fabric``, the first one for None."""
    own = fabric.regions[0] if region is None else fabric.region(region)
    return MirroredFabric(
        region=own.name,
        core_urls=tuple(node.amqp_url for node in own.core),
        client_urls=tuple(node.amqp_url for node in own.client),
        endpoints_urls=tuple(_endpoints(each) for each in (own, *fabric.others(own.name))),
        board_url=f"{own.frontdesk_url.rstrip('/')}/board.json",
        credentials=credentials,
        topics=topics,
    )


def check_apart(original: MirroredFabric, other: MirroredFabric) -> None:
    """ConfigError if both are one fabric: its messages would loop back to it."""
    here = {_broker(url) for url in (*original.core_urls, *original.client_urls)}
    if here & {_broker(url) for url in (*other.core_urls, *other.client_urls)}:
        raise ConfigError("--from and --to are the same fabric")


def _endpoints(region: Region) -> str:
    return f"{region.frontdesk_url.rstrip('/')}/endpoints.json"


def _broker(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"

"""Starts a world's Cassandra: nodes, then tables. With SQLite there is nothing to do."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from localfabric.world.cassandra import answers
from localfabric.world.layout import WorldLayout
from localfabric.world.running import Running
from newsfabric.backoff import Backoff
from newsfabric.errors import StoreUnavailable

# A node answers after a quarter of a minute, on a machine that other nodes keep busy.
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 2.0
_PART: Final = "store"


class Parts(Protocol):
    """A receiver of the progress of a start (:class:`localfabric.world.start.StartProgress`)."""

    def begin(self, part: str) -> None:
        """Note that ``part`` has begun."""

    def done(self, part: str) -> None:
        """Note that ``part`` is done."""


async def bring_up_store(running: Running, progress: Parts, waiting: dict[str, str]) -> None:
    """Start all store nodes at once and return when they have the tables.

    ``waiting`` gets under "store" the reason for waiting, for the error of a time-out.
    """
    nodes = tuple(running.layout.store_nodes())
    if not nodes:
        return
    progress.begin(_PART)
    running.start_store()
    for node in nodes:
        waiting[_PART] = f"{node.name} doesn't answer"
        await _until(functools.partial(asyncio.to_thread, answers, node.cql_port))
    await _until(lambda: _has_tables(running.layout, waiting))
    del waiting[_PART]
    progress.done(_PART)


async def _has_tables(layout: WorldLayout, waiting: dict[str, str]) -> bool:
    try:
        await asyncio.to_thread(_apply_schema, layout)
    except StoreUnavailable as exc:
        # Nodes that have just started take a second or two to know of each other.
        waiting[_PART] = f"no tables in the store: {exc}"
        return False
    return True


def _apply_schema(layout: WorldLayout) -> None:
    # Imported late, so that a world with SQLite never loads the driver.
    from newsfabric.store._cassandra_schema import Schema, cql_folder, load_migrations
    from newsfabric.store._cassandra_url import parse_address

    address = parse_address(layout.store_url(layout.regions[0]))
    replicas = {region.name: len(region.store_nodes) for region in layout.regions}
    with Schema(address, None, load_migrations(cql_folder()), replication=replicas) as schema:
        schema.apply(lambda line: None)


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    backoff = Backoff(base=_FIRST_PAUSE, cap=_LONGEST_PAUSE)
    while True:
        if await check():
            return
        await asyncio.sleep(backoff.failed(time.monotonic()))

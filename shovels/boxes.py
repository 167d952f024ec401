"""Binds the queues that feed boxes on a region's core, and removes objects that boxes may not have.

A box declares its two queues and may not bind. A process that may bind could make any number of
bindings, since RabbitMQ takes two with different arguments as two. A box may declare exchanges
under its queues' names (``configure`` doesn't distinguish them). Such exchanges are harmless, for
the box may neither publish to them nor bind them, and they are removed.

A queue is bound only if it is like those of an agent: one that refuses messages, or dead-letters
them, gets no bindings.

:func:`box_actions` is pure. Boxes can't affect the keeper's plan or its readiness.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final

from newsfabric import metrics
from newsfabric.brokers.management import Management, QueueState
from newsfabric.errors import ManagementError
from newsfabric.line_limits import LineLimit, RepeatedFailures
from newsfabric.settings import Credentials, Node
from newsfabric.topology import Binding, Broker, Cluster, Exchange, box_of, feed_bindings, mask

logger = logging.getLogger(__name__)

# Seconds between two listings of queues: a new box waits for the next one.
EVERY: Final = 1.0
# Everything is checked every so many rounds, and when the queues have changed.
THOROUGHLY: Final = 5
_TIMEOUT: Final = 5.0

CHANGES: Final = metrics.counter(
    "shovels_box_changes", "Bindings of boxes' queues, and deletions of forbidden ones", ["outcome"]
)

# Arguments that a queue may have; an operator policy bounds its size. A full queue drops its oldest
# messages, unless its arguments state otherwise.
_HARMLESS: Final = {"x-overflow": "drop-head", "x-queue-type": "classic"}
_BOUNDS: Final = frozenset({"x-max-length", "x-max-length-bytes", "x-message-ttl", "x-expires"})

Change = Binding | Exchange


def box_actions(
    region: str,
    queues: Mapping[str, QueueState],
    bindings: frozenset[Binding],
    exchanges: frozenset[str],
) -> tuple[frozenset[Binding], frozenset[Change]]:
    """Return objects to make and objects to delete, for the present state of a core broker."""
    wanted: set[Binding] = set()
    for name, queue in queues.items():
        box = box_of(name)
        if box is not None and _is_harmless(queue):
            wanted.update(feed_bindings(region, box, name))
    found = {each for each in bindings if box_of(each.queue) is not None}
    strange: set[Change] = {Exchange(name) for name in exchanges if box_of(name) is not None}
    return frozenset(wanted - found), frozenset(strange | (found - wanted))


def _feeds(queues: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in queues if box_of(name) is not None)


def _is_harmless(queue: QueueState) -> bool:
    # Another connection's exclusive queue can't be bound.
    return not queue.exclusive and all(
        name in _BOUNDS or _HARMLESS.get(name) == value for name, value in queue.arguments.items()
    )


class Boxes:
    """Binds the boxes' queues on each core broker of ``region``. :meth:`run` it."""

    def __init__(
        self, region: str, brokers: Mapping[Broker, Node], credentials: Credentials
    ) -> None:
        core = Cluster(region, "core")
        self._region = region
        self._apis = {
            broker: Management(node.management_url, credentials, timeout=_TIMEOUT)
            for broker, node in brokers.items()
            if broker.cluster == core
        }
        self._lines = LineLimit()

    async def run(self) -> None:
        """Check each second, until cancelled."""
        try:
            await asyncio.gather(*(self._follow(*each) for each in self._apis.items()))
        finally:
            for api in self._apis.values():
                api.close()

    async def _follow(self, broker: Broker, api: Management) -> None:
        loop = asyncio.get_running_loop()
        failures = RepeatedFailures()
        known: frozenset[str] = frozenset()
        looks = 0
        while True:
            began = loop.time()
            try:
                if looks % THOROUGHLY == 0 or _feeds(await api.queues()) != known:
                    known = await self._mend(broker, api)
                looks += 1
                failures.ended()
            except ManagementError as exc:
                known, looks = frozenset(), 0
                if failures.should_log(str(exc), loop.time()):
                    logger.warning("boxes on %s: %s", broker, mask(str(exc)))
            await asyncio.sleep(max(0.0, EVERY - (loop.time() - began)))

    async def _mend(self, broker: Broker, api: Management) -> frozenset[str]:
        """Make and remove objects as boxes need them; return the names of the boxes' queues."""
        bindings, exchanges = frozenset(await api.bindings()), frozenset(await api.exchanges())
        # Queues last: otherwise another keeper's bindings of a new queue would look unwanted.
        queues = await api.queues()
        made, gone = box_actions(self._region, queues, bindings, exchanges)
        for binding in made:
            await self._change("bound", broker, binding, api.put_binding(binding))
        for change in gone:
            if isinstance(change, Exchange):
                await self._change("removed", broker, change, api.delete_exchange(change.name))
            else:
                await self._change("removed", broker, change, api.delete_binding(change))
        return _feeds(queues)

    async def _change(
        self, verb: str, broker: Broker, what: Change, asked: Coroutine[Any, Any, None]
    ) -> None:
        """Await ``asked``. ManagementError only without a reply: one box must not stop others."""
        try:
            await asked
        except ManagementError as exc:
            if not exc.status:
                raise
            # Its object is gone by now, or exclusive to another connection.
            CHANGES.labels("failed").inc()
            logger.debug("%s: %s: %s", broker, what, exc)
            return
        CHANGES.labels(verb).inc()
        if verb == "removed" and self._lines.may_log(asyncio.get_running_loop().time()) is not None:
            logger.warning("%s: removed %s, which a box may not have", broker, what)

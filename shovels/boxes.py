"""Binds what feeds boxes on a region's core, and removes what boxes shouldn't have there.

A box declares its two queues and may bind nothing: whoever may bind makes bindings without end,
since two with other arguments are two to RabbitMQ. It may declare exchanges under its queues' names
(``configure`` knows no difference). They do nothing, for it may neither publish to them nor bind
them, and they are removed.

A queue is bound only if it is what an agent makes: one that refuses messages, or sends them on when
they die, gets none.

:func:`box_actions` is pure. Whatever a box does, the keeper's plan and its readiness don't change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from newsfabric import metrics
from newsfabric.brokers.management import Management, QueueState
from newsfabric.errors import ManagementError
from newsfabric.line_limits import LineLimit, RepeatedFailures
from newsfabric.settings import Credentials, Node
from newsfabric.topology import Binding, Broker, Cluster, Exchange, box_of, feed_bindings, mask

logger = logging.getLogger(__name__)

# How often queues are listed: a box that comes up waits for that.
EVERY: Final = 1.0
# Everything is looked at in each so many looks, and when there are other queues than before.
THOROUGHLY: Final = 5
_TIMEOUT: Final = 5.0

CHANGES: Final = metrics.counter(
    "shovels_box_changes", "Bindings of boxes' queues, and what boxes may not have", ["outcome"]
)

# What a queue may say of itself; how much it holds is bounded by an operator policy. One that is
# full drops its oldest, unless it says something else.
_HARMLESS: Final = {"x-overflow": "drop-head", "x-queue-type": "classic"}
_BOUNDS: Final = frozenset({"x-max-length", "x-max-length-bytes", "x-message-ttl", "x-expires"})

Change = Binding | Exchange


def box_actions(
    region: str,
    queues: Mapping[str, QueueState],
    bindings: frozenset[Binding],
    exchanges: frozenset[str],
) -> tuple[frozenset[Binding], frozenset[Change]]:
    """What is to be made and what is to go on a core broker of ``region`` that has all this."""
    wanted: set[Binding] = set()
    for name, queue in queues.items():
        box = box_of(name)
        if box is not None and _is_harmless(queue):
            wanted.update(feed_bindings(region, box, name))
    found = {each for each in bindings if box_of(each.queue) is not None}
    strange: set[Change] = {Exchange(name) for name in exchanges if box_of(name) is not None}
    return frozenset(wanted - found), frozenset(strange | (found - wanted))


def _is_harmless(queue: QueueState) -> bool:
    # Nobody can bind another connection's exclusive queue.
    return not queue.exclusive and all(
        name in _BOUNDS or _HARMLESS.get(name) == value for name, value in queue.arguments.items()
    )


class Boxes:
    """Does so on each core broker of ``region``. :meth:`run` it."""

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
        """Look each second, until cancelled."""
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
                queues = await api.queues()
                feeds = frozenset(name for name in queues if box_of(name) is not None)
                if feeds != known or looks % THOROUGHLY == 0:
                    await self._mend(broker, api)
                known = feeds
                looks += 1
                failures.ended()
            except ManagementError as exc:
                known, looks = frozenset(), 0
                if failures.should_log(str(exc), loop.time()):
                    logger.warning("boxes on %s: %s", broker, mask(str(exc)))
            await asyncio.sleep(max(0.0, EVERY - (loop.time() - began)))

    async def _mend(self, broker: Broker, api: Management) -> None:
        bindings, exchanges = frozenset(await api.bindings()), frozenset(await api.exchanges())
        # Last: else another keeper's bindings of a queue that has just come would look strange.
        queues = await api.queues()
        made, gone = box_actions(self._region, queues, bindings, exchanges)
        for binding in made:
            await self._change("bound", broker, binding, api.put_binding(binding))
        for change in gone:
            if isinstance(change, Exchange):
                await self._change("removed", broker, change, api.delete_exchange(change.name))
            else:
                await self._change("removed", broker, change, api.delete_binding(change))

    async def _change(
        self, verb: str, broker: Broker, what: Change, asked: Coroutine[Any, Any, None]
    ) -> None:
        """ManagementError only if the broker doesn't answer: one box must not stop the others."""
        try:
            await asked
        except ManagementError as exc:
            if not exc.status:
                raise
            # What it is about is gone by now, or another connection's own.
            CHANGES.labels("failed").inc()
            logger.debug("%s: %s: %s", broker, what, exc)
            return
        CHANGES.labels(verb).inc()
        if verb == "removed" and self._lines.may_log(asyncio.get_running_loop().time()) is not None:
            logger.warning("%s: removed %s, which a box may not have", broker, what)

"""The readers whose connections this process holds, and what a connection needs of its gateway."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Final

from gateway import measures
from gateway.budget import Budget
from gateway.connection import Connection
from gateway.desk import Desk
from gateway.hub import Hub
from gateway.settings import GatewaySettings
from gateway.tasks import Spawn
from newsfabric.closing import INVALID_TOKEN, CloseReason
from newsfabric.topics import TopicTable

# Connections over capacity that are being told so; beyond them the answer is a bare 503.
_TURNED_AWAY_AT_ONCE: Final = 1_000


class Readers:
    """The open connections, those that are saying goodbye, and who is logged in on which.

    ``clock`` gives seconds, and only goes on. ``changed`` is called when one has come or gone.
    """

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        table: TopicTable,
        hub: Hub,
        desk: Desk,
        clock: Callable[[], float],
        spawn: Spawn,
    ) -> None:
        self.settings = settings
        self.table = table
        self.hub = hub
        self.desk = desk
        self.clock = clock
        self.spawn = spawn
        # In the order they came.
        self.open: dict[Connection, None] = {}
        self.closing: set[Connection] = set()
        self.budget = Budget(
            settings.outbox_memory,
            settings.stalled_seconds,
            lambda: (*self.open, *self.closing),
            clock,
        )
        #: How many have come since the start.
        self.connects = 0
        self.changed: Callable[[], None] = lambda: None
        self._by_user: dict[str, set[Connection]] = {}
        # Set while there is no connection at all.
        self._empty = asyncio.Event()
        self._empty.set()

    def can_turn_away(self) -> bool:
        """Whether there is room for one more reader who is only told that there is none."""
        return len(self.closing) < _TURNED_AWAY_AT_ONCE

    def joined(self, connection: Connection) -> None:
        """``connection`` is open."""
        self.open[connection] = None
        self._empty.clear()
        self.connects += 1
        measures.CONNECTS.labels(connection.transport).inc()
        measures.READERS.labels(connection.transport).inc()
        self.changed()

    def leaving(self, connection: Connection) -> None:
        """``connection`` is closing: it doesn't count any more, but must be waited for."""
        del self.open[connection]
        self.closing.add(connection)
        measures.READERS.labels(connection.transport).dec()
        self.changed()

    def left(self, connection: Connection) -> None:
        """``connection`` is gone."""
        self.closing.discard(connection)
        if not self.open and not self.closing:
            self._empty.set()

    async def all_left(self) -> None:
        """Return when there is no connection any more."""
        await self._empty.wait()

    def logged_in(self, user: str, connection: Connection) -> None:
        """``connection`` is ``user``'s."""
        self._by_user.setdefault(user, set()).add(connection)

    def logged_out(self, user: str, connection: Connection) -> None:
        """It isn't any more, because it closes."""
        connections = self._by_user[user]
        connections.discard(connection)
        if not connections:
            del self._by_user[user]

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close the connections of users who were revoked, unless they have logged in since."""
        for user, at_ms in revoked:
            for connection in tuple(self._by_user.get(user, ())):
                login = connection.auth.login
                if login is not None and login.issued_ms <= at_ms:
                    connection.close(INVALID_TOKEN)

    def send_away(self, count: int, reason: CloseReason, most_ms: int) -> None:
        """Have ``count`` readers, or all if there are fewer, connect to another box for ``reason``,
        each after ``most_ms`` at most."""
        for connection in list(itertools.islice(self.open, count)):
            wait_ms = random.randint(0, most_ms)  # noqa: S311 - jitter, not a secret
            connection.close(reason, retry_after_ms=wait_ms)

"""What the parts of one gateway share: hub, store, connections, tasks, readiness.

Made on the running loop. It holds no listener and no broker link: those are
:mod:`gateway.app`'s, so tests can run a gateway without either.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Final

from gateway import measures
from gateway.archive import Archive
from gateway.budget import Budget
from gateway.connection import Connection
from gateway.desk import Desk
from gateway.fanout import Fanout
from gateway.follower import Follower
from gateway.gate import Gate
from gateway.hub import Hub
from gateway.logs import Logs
from gateway.mailroom import Mailroom
from gateway.publication import Publication
from gateway.resume import Resumer
from gateway.settings import ANY_ORIGIN, GatewaySettings
from gateway.spans import spans_of
from gateway.upstream import Upstream
from newsfabric import otel_tracer
from newsfabric.bearer import bearer
from newsfabric.closing import INVALID_TOKEN, REBALANCE
from newsfabric.envelope import Envelope
from newsfabric.errors import ConfigError, NewsfabricError
from newsfabric.origins import is_of_host
from newsfabric.pace import Pace
from newsfabric.races import Races
from newsfabric.service import Readiness
from newsfabric.sightings import Sighting
from newsfabric.store import Store
from newsfabric.store.rules import clock_ms
from newsfabric.topics import REVOKED, TopicPolicy, TopicTable

logger = logging.getLogger(__name__)

# Connections over capacity that are being told so; beyond them the answer is a bare 503.
_TURNED_AWAY_AT_ONCE: Final = 1_000


class Welcome(enum.Enum):
    """Whether a new reader may come in. The values are metric labels."""

    YES = "yes"
    FULL = "capacity"
    DRAINING = "draining"
    STARTING = "starting"
    BAD_ORIGIN = "origin"


class Core:
    """One gateway without its listeners."""

    # Whether WebSockets are served in this process.
    upgrades: ClassVar[bool] = True

    def __init__(self, settings: GatewaySettings, table: TopicTable, store: Store) -> None:
        self.settings = settings
        self.table = table
        self.store = store
        self.clock = time.monotonic
        self.hub = Hub(table, Logs(clock_ms(), settings.logs), settings.hub)
        self.fanout = Fanout(settings.fanout_chunk)
        self.races = Races(measures.COPIES, measures.LEAD)
        self.tracer = otel_tracer.current()
        self.archive = Archive(store, settings)
        self.resumer = Resumer(
            hub=self.hub,
            archive=self.archive,
            told=settings,
            spawn=self.spawn,
        )
        self.mailroom = Mailroom(
            hub=self.hub,
            store=store,
            told=settings,
            spawn=self.spawn,
            publish=self.publish,
            store_is_away=self.archive.failed,
        )
        self.upstream = Upstream(settings)
        self.history_pace = Pace(settings.history_rate, free=settings.frontdesks)
        self.gate = Gate(settings, table, store, self.evict)
        self.desk = Desk(self)
        self.follower = Follower(self)
        # Open ones, in the order they came, and those that are saying goodbye.
        self.connections: dict[Connection, None] = {}
        self.closing: set[Connection] = set()
        # Those that are logged in, by user.
        self._users: dict[str, set[Connection]] = {}
        self.budget = Budget(
            settings.outbox_memory,
            settings.stalled_seconds,
            lambda: (*self.connections, *self.closing),
            self.clock,
        )
        # Set while there is neither.
        self.empty = asyncio.Event()
        self.empty.set()
        self.let_in = 0
        self.draining = False
        # time.monotonic() of the last tick of our own region; None before the first one.
        self.fed_at: float | None = None
        self._evicted_early = 0
        self._began = self.clock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.spawn(self.budget.watch())

    def policy(self, topic: str) -> TopicPolicy:
        """The policy of a topic that a verb names: no session lets another one through."""
        policy = self.table.find(topic)
        assert policy is not None
        return policy

    def welcome(self, origin: str | None, host: str | None) -> Welcome:
        """Whether a reader from a page of ``origin`` may come in now. Refusals are counted."""
        verdict = self._welcome(origin, host)
        if verdict is not Welcome.YES:
            measures.REJECTED_CONNECTS.labels(verdict.value).inc()
        return verdict

    def allows_origin(self, origin: str | None, host: str | None) -> bool:
        """Whether pages of ``origin`` may connect. Programs send none."""
        allowed = self.settings.origins
        if origin is None or allowed == ANY_ORIGIN or origin.lower() in allowed:
            return True
        return is_of_host(origin, host)

    def allows_page(self, headers: Mapping[str, str]) -> bool:
        """Whether a page may connect that says no origin, because it loads a script or a frame."""
        return self.settings.origins == ANY_ORIGIN or self._is_own_page(headers)

    def token_of(self, headers: Mapping[str, str]) -> str | None:
        """The token that comes with an HTTP request: in ``Authorization``, or in the cookie."""
        return bearer(headers) or self.cookie_of(headers)

    def cookie_of(self, headers: Mapping[str, str]) -> str | None:
        """The token in the cookie, if there may be one.

        A browser sends the cookie whichever page asks. It counts for a page of our own host, or of
        an origin that is listed by name; ``*`` lists nobody.
        """
        if "Cookie" not in headers or not self.lends_cookie(headers):
            return None
        for part in headers["Cookie"].split(";"):
            found, _, value = part.strip().partition("=")
            if found == self.settings.tokens.cookie:
                return value
        return None

    def lends_cookie(self, headers: Mapping[str, str]) -> bool:
        """Whether the page that asks may have the cookie sent along and read the answer."""
        return self.settings.tokens.cookie is not None and self._is_own_page(headers)

    def _is_own_page(self, headers: Mapping[str, str]) -> bool:
        origin, host = headers.get("Origin"), headers.get("Host")
        if origin is None:
            # A GET of one's own origin has none, but this, which no page can forge.
            return headers.get("Sec-Fetch-Site") == "same-origin"
        return origin.lower() in self.settings.origins or is_of_host(origin, host)

    def can_turn_away(self) -> bool:
        """Whether there is room for one more reader who is only told that there is none."""
        return len(self.closing) < _TURNED_AWAY_AT_ONCE

    def joined(self, connection: Connection) -> None:
        """``connection`` is open."""
        self.connections[connection] = None
        self.empty.clear()
        self.let_in += 1
        measures.CONNECTS.labels(connection.transport).inc()
        measures.READERS.labels(connection.transport).inc()

    def leaving(self, connection: Connection) -> None:
        """``connection`` is closing: it doesn't count any more, but must be waited for."""
        del self.connections[connection]
        self.closing.add(connection)
        measures.READERS.labels(connection.transport).dec()

    def logged_in(self, user: str, connection: Connection) -> None:
        """``connection`` is ``user``'s."""
        self._users.setdefault(user, set()).add(connection)

    def logged_out(self, user: str, connection: Connection) -> None:
        """It isn't any more, because it closes."""
        connections = self._users[user]
        connections.discard(connection)
        if not connections:
            del self._users[user]

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close the connections of users who were revoked, unless they have logged in since."""
        for user, at_ms in revoked:
            for connection in tuple(self._users.get(user, ())):
                login = connection.standing.login
                if login is not None and login.issued_ms <= at_ms:
                    connection.close(INVALID_TOKEN)

    def left(self, connection: Connection) -> None:
        """``connection`` is gone."""
        self.closing.discard(connection)
        if not self.connections and not self.closing:
            self.empty.set()

    @property
    def readers(self) -> int:
        """Readers connected now, on whichever engine."""
        return len(self.connections)

    @property
    def connects(self) -> int:
        """Readers let in since the start."""
        return self.let_in

    @property
    def deliveries(self) -> int:
        """Frames given to readers since the start."""
        return self.fanout.deliveries

    def publish(
        self,
        publication: Publication,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Send what the hub has just made of an envelope to all who are subscribed.

        ``done`` is called when it has been given to the last of them.
        """
        if publication.envelope.topic == REVOKED:
            # Whichever way it came: for us, not for readers.
            self.gate.heed([publication.envelope])
            published(publication, done)
        else:
            self._spread(publication, lambda: published(publication, done))

    def _spread(self, publication: Publication, done: Callable[[], None]) -> None:
        audience = self.hub.audience(publication.envelope.topic)
        self.fanout.publish(publication, audience, done)

    def trace(self, envelope: Envelope, sighting: Sighting) -> None:
        """The last reader has been given ``envelope``: tell the collector of traces, if any."""
        context = self.tracer.context(envelope.identity, envelope.traceparent)
        if context is not None:
            box = self.settings.name
            self.tracer.add(spans_of(envelope, sighting, context, box, now_ms=clock_ms()))

    @property
    def engine(self) -> dict[str, str | int | None]:
        """Which engine runs, in which processes."""
        return {"engine": "tornado", "pid": os.getpid(), "dataplane_pid": None}

    def send_elsewhere(self, count: int) -> None:
        """Have ``count`` readers, or all if there are fewer, connect to another box."""
        rng = random.Random()  # noqa: S311 - jitter, not a secret
        for connection in list(itertools.islice(self.connections, count)):
            wait = rng.randint(0, self.settings.retry_after_ms)
            connection.close(REBALANCE, retry_after_ms=wait)

    async def drain_elsewhere(self) -> None:
        """Send those readers away that aren't among ``connections``; here are none."""

    async def take_over(self) -> int:
        """Put a new data plane in the place of ours, without readers noticing; return its pid.

        ConfigError if that fails; then nothing has changed. Here is none.
        """
        raise ConfigError("this engine has no data plane")

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task that :meth:`close` ends. Our own errors are its awaiter's."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def feed_age(self) -> float | None:
        """Seconds since the last tick of our own region; None before the first one."""
        return None if self.fed_at is None else self.clock() - self.fed_at

    @property
    def stranded(self) -> bool:
        """Whether there was no feed for so long that readers are better served elsewhere."""
        fed_at = self._began if self.fed_at is None else self.fed_at
        return not self.draining and self.clock() - fed_at > self.settings.stranded_seconds

    def readiness(self) -> Readiness:
        """Whether readers should be sent here."""
        age = self.feed_age()
        return Readiness.of(
            feed=age is not None and age <= self.settings.feed_fresh,
            logs=self.follower.ready,
            logins=self.gate.ready,
            drain=not self.draining,
        )

    async def look(self) -> None:
        """Bring :attr:`readers` and the gauges up to date."""
        age = self.feed_age()
        measures.FEED_AGE.set(float("inf") if age is None else age)
        measures.CAPACITY.set(self.settings.capacity)
        measures.OUTBOXES.set(self.budget.waiting_bytes)
        measures.TOPICS.set(self.hub.topics)
        measures.MEMORY.set(self.hub.memory_bytes)
        measures.IDENTITIES.set(self.hub.identities)
        self._count_forgotten()
        measures.LOGS.set(len(self.hub.logs))
        measures.MISSING.set(self.hub.logs.missing)
        measures.HOLES.set(self.hub.logs.holes)

    def _count_forgotten(self) -> None:
        before, self._evicted_early = self._evicted_early, self.hub.evicted_early
        measures.EVICTED_EARLY.inc(self._evicted_early - before)

    async def close(self) -> None:
        """End every task and let go of the store."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.gate.close()
        await self.store.close()

    def _welcome(self, origin: str | None, host: str | None) -> Welcome:
        if self.draining:
            return Welcome.DRAINING
        if not self.follower.has_begun:
            # Nobody can be told what it has missed, or be given a position.
            return Welcome.STARTING
        if not self.allows_origin(origin, host):
            return Welcome.BAD_ORIGIN
        if self.readers >= self.settings.capacity:
            return Welcome.FULL
        return Welcome.YES

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        exc = None if task.cancelled() else task.exception()
        if isinstance(exc, NewsfabricError):
            # Its awaiter's to tell, but where there is none this is all that is left of it.
            logger.debug("a task of the gateway ended: %s", exc)
        elif exc is not None:
            logger.error("a task of the gateway failed", exc_info=exc)


def published(publication: Publication, done: Callable[[], None] | None) -> None:
    """``publication`` has reached its last reader: count it, then call ``done``."""
    measures.PUBLICATIONS.labels(publication.policy.topic_class).inc()
    delay = measures.delay_of(publication)
    if delay is not None:
        # Deliveries were measured where they were made; this only names one message of many.
        delay.exemplify(measures.age(publication), {"id": publication.envelope.id})
    if done is not None:
        done()

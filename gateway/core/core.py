"""The parts of one gateway, joined on the running event loop.

Not the listeners, nor the broker link: :mod:`gateway.run.app` has these, so tests can run a gateway
without either.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.answers.authenticator import Authenticator
from gateway.answers.dispatcher import VerbDispatcher
from gateway.answers.upstream import Upstream
from gateway.answers.verbs import VerbParser
from gateway.feed.broadcast import Broadcast
from gateway.feed.engine import Engine
from gateway.feed.fanout import Fanout
from gateway.feed.feed import Feed
from gateway.feed.follower import Follower
from gateway.logs.logs import Logs
from gateway.memory.hub import Hub
from gateway.past.archive import Archive
from gateway.past.mailbox import Mailboxes
from gateway.past.resume import Resumes
from gateway.past.rewind import Rewinds
from gateway.process import measures
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import Tasks
from gateway.readers.admission import Admission, Origins
from gateway.readers.connection import OpenReaders
from newsfabric.closing import REBALANCE
from newsfabric.http.pace import RateLimit
from newsfabric.process.service import Readiness
from newsfabric.store import Store
from newsfabric.topics import TopicTable
from newsfabric.tracing.races import Races


class Core:
    """The parts of one gateway. ``engine`` stands for the readers that another process holds."""

    def __init__(
        self,
        settings: GatewaySettings,
        table: TopicTable,
        store: Store,
        engine: Engine | None = None,
    ) -> None:
        self.settings = settings
        self.table = table
        self.store = store
        self.engine = engine or Engine()
        self.clock = time.monotonic
        self._tasks = Tasks()
        self.spawn = spawn = self._tasks.spawn
        self._evicted_early = 0

        self.authenticator = Authenticator(settings, table, store, spawn=spawn, evict=self._evict)
        self.races = Races(measures.COPIES, measures.LEAD)
        self.history_pace = RateLimit(settings.history_rate, free=settings.frontdesks)
        self.upstream = Upstream()

        self.hub = hub = Hub(
            table,
            Logs(limits=settings.logs),
            settings.hub,
            clock=self.clock,
            dropped=measures.dropped,
        )
        self.fanout = Fanout(settings.fanout_chunk)
        self.broadcast = Broadcast(
            hub=hub,
            fanout=self.fanout,
            engine=self.engine,
            authenticator=self.authenticator,
            races=self.races,
            box=settings.name,
        )
        self.follower = Follower(
            hub=hub,
            store=store,
            settings=settings,
            clock=self.clock,
            spawn=spawn,
            broadcast=self.broadcast,
        )
        self.feed = Feed(
            hub=hub,
            follower=self.follower,
            broadcast=self.broadcast,
            races=self.races,
            settings=settings,
            clock=self.clock,
        )

        can_serve = self.follower.begun.is_set
        archive = Archive(store, settings)
        rewinds = Rewinds(hub=hub, archive=archive, settings=settings, spawn=spawn)
        self.resumes = Resumes(
            hub=hub,
            archive=archive,
            rewinds=rewinds,
            settings=settings,
            spawn=spawn,
            clock=self.clock,
        )
        self.dispatcher = VerbDispatcher(
            table=table,
            replay_bytes=settings.replay_bytes,
            hub=hub,
            rewinds=rewinds,
            resumes=self.resumes,
            mailboxes=Mailboxes(
                hub=hub,
                store=store,
                archive=archive,
                settings=settings,
                spawn=spawn,
                publish=self.broadcast.publish,
                clock=self.clock,
            ),
            upstream=self.upstream,
            authenticator=self.authenticator,
            can_serve=can_serve,
        )
        self.readers = OpenReaders(
            settings=settings,
            verbs=VerbParser(table, settings.reader),
            hub=hub,
            dispatcher=self.dispatcher,
            clock=self.clock,
            spawn=spawn,
        )
        self.origins = Origins(settings.origins, settings.tokens.cookie)
        self.admission = Admission(
            self.origins,
            settings.capacity,
            readers=lambda: self.reader_count,
            can_serve=can_serve,
        )
        spawn(self.readers.budget.watch())

    @property
    def reader_count(self) -> int:
        """The number of readers connected now, here and in the data plane."""
        return len(self.readers.open) + self.engine.totals.readers

    @property
    def connects(self) -> int:
        """The number of readers admitted since the start, here and in the data plane."""
        return self.readers.connects + self.engine.totals.connects

    @property
    def deliveries(self) -> int:
        """The number of frames sent to readers since the start, here and in the data plane."""
        return self.fanout.deliveries + self.engine.totals.deliveries

    @property
    def has_no_feed(self) -> bool:
        """True if readers are better served elsewhere, since the feed is silent."""
        return not self.admission.draining and self.feed.has_no_feed

    def send_away(self, count: int) -> None:
        """Have ``count`` readers, here and in the data plane, connect to other boxes."""
        here = count * len(self.readers.open) // max(1, self.reader_count)
        self.readers.send_away(here, REBALANCE, self.settings.retry_after_ms)
        self.engine.send_away(count - here)

    def readiness(self) -> Readiness:
        """Return whether readers should be sent here, and the conditions that aren't met."""
        return Readiness.of(
            feed=self.feed.is_fresh,
            logs=self.follower.ready.is_set(),
            logins=self.authenticator.ready,
            drain=not self.admission.draining,
            dataplane=self.engine.is_serving,
        )

    async def refresh_metrics(self) -> None:
        """Update :attr:`reader_count` and the gauges. Calls may overlap."""
        await self.engine.refresh_counters()
        hub, totals, age = self.hub, self.engine.totals, self.feed.age
        measures.FEED_AGE.set(float("inf") if age is None else age)
        measures.CAPACITY.set(self.settings.capacity)
        measures.OUTBOXES.set(self.readers.budget.waiting_bytes + totals.get("outbox_bytes"))
        measures.TOPICS.set(len(hub.topics))
        measures.MEMORY.set(hub.topics.memory_bytes)
        measures.IDENTITIES.set(totals.get("identities", len(hub.seen)))
        before, self._evicted_early = self._evicted_early, hub.seen.evicted_early
        measures.EVICTED_EARLY.inc(self._evicted_early - before)
        measures.LOGS.set(len(hub.logs))
        measures.UNLISTED.set(len(self.follower.unlisted.logs))
        missing = hub.logs.missing()
        measures.MISSING.set(sum(last - first + 1 for first, last in missing))
        measures.HOLES.set(len(missing))

    async def close(self) -> None:
        """End every task, and release the data plane, the logins and the store."""
        self.engine.close()
        await self._tasks.close()
        await self.authenticator.close()
        await self.store.close()

    def _evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        self.readers.evict(revoked)
        self.engine.evict(revoked)

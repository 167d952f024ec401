"""A mailbox service on its region's core brokers."""

from __future__ import annotations

import dataclasses

from newsfabric.amqp import Links
from newsfabric.process.figures import ProcessFigures
from newsfabric.process.reporting import Reporting, Speaker
from newsfabric.store import Store
from newsfabric.topics import TopicTable
from wholesale.common.core_service import CoreService, CoreSettings
from wholesale.mailbox import counters
from wholesale.mailbox.marking import MAX_BATCH, Marking


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MailboxSettings(CoreSettings):
    """The settings of one mailbox service."""

    prefetch: int = 500


class MailboxService(CoreService[Marking]):
    """The service that carries user marks out."""

    def __init__(
        self,
        settings: MailboxSettings,
        *,
        links: Links,
        taking: Links,
        store: Store,
        topics: TopicTable,
    ) -> None:
        super().__init__(settings, links=links, taking=taking, store=store)
        self.settings = settings
        self._topics = topics

    def _make_reporting(self) -> Reporting:
        settings = self.settings
        return Reporting(
            Speaker(
                kind="mailbox", name=settings.name, region=settings.region, login=settings.login
            ),
            figures=ProcessFigures(counters.FIGURES),
            readiness=self.readiness,
            draining=lambda: self.draining,
            outcomes=counters.REPORTS,
        )

    async def _make_work(self) -> Marking:
        # For each mark its announcement and its note.
        publisher = await self._links.publisher(in_flight=2 * MAX_BATCH)
        return Marking(store=self._store, topics=self._topics, publisher=publisher)

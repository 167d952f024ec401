"""The core brokers of a region, side by side in memory, with one store."""

from __future__ import annotations

from core_cluster import EPOCH, CoreCluster
from hanging import HangingBroker, brokers

from newsfabric.amqp.spread import SpreadLink
from newsfabric.messages.control import Receipt
from newsfabric.messages.envelope import Envelope
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicTable


class SeveralCores:
    """Core brokers: ``each`` with its link, and ``links`` to all for the service under test."""

    def __init__(self, topics: TopicTable, count: int) -> None:
        self.topics = topics
        self.store = MemoryStore(topics, now_ms=lambda: EPOCH)
        self.brokers = brokers(count)
        self.each = [
            CoreCluster(broker, broker.connect(), self.store, topics) for broker in self.brokers
        ]
        self.links = SpreadLink({f"b{n}": core.link for n, core in enumerate(self.each, 1)})

    @classmethod
    async def opened(cls, topics: TopicTable, count: int = 3) -> SeveralCores:
        cores = cls(topics, count)
        for core in cores.each:
            await core.open()
        return cores

    def __getitem__(self, n: int) -> CoreCluster:
        return self.each[n]

    def broker(self, n: int) -> HangingBroker:
        return self.brokers[n]

    def envelopes(self) -> list[list[Envelope]]:
        """Return the messages that each broker has received for readers so far."""
        return [core.envelopes() for core in self.each]

    def receipts(self) -> list[list[Receipt]]:
        return [core.receipts() for core in self.each]

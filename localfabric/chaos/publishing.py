"""Publishers of a chaos run: a steady rate into every region, each message until its receipt.

Open loop: messages have fixed times, whatever became of the ones before, and a delay counts from
the first try. Messages that wait for receipts are bounded; at the bound the publisher waits, like
one with a full outbox.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from localfabric.chaos.delivery_record import DeliveryRecord, RecordedMessage
from newsfabric.amqp import Message as AmqpMessage
from newsfabric.backoff import Backoff
from newsfabric.errors import AccessRefused
from newsfabric.messages.control import Receipt
from newsfabric.publish import AsyncPublisher
from newsfabric.topics import TopicClass
from operations.cli.messages import make_message
from operations.cli.sending import send_with_retry

APP_ID: Final = "newsfabric-chaos"
_IN_FLIGHT: Final = 5_000

#: Topics of each class. They match the project's topics.toml.
TOPICS: Final[Mapping[str, TopicClass]] = {
    **{f"live.chaos-{n}": "gold" for n in range(6)},
    **{f"news.chaos-{n}": "silver" for n in range(8)},
    **{f"markets.chaos-{n}": "bronze" for n in range(4)},
}


class Publishing:
    """Publishes to the client clusters in ``urls`` (by region), and enters it into ``record``."""

    def __init__(
        self,
        urls: Mapping[str, Sequence[str]],
        record: DeliveryRecord,
        *,
        run: str,
        began: float,
        seed: int,
        topics: Mapping[str, TopicClass] = TOPICS,
    ) -> None:
        self._urls = urls
        self._topics = topics
        self._record = record
        self._run = run
        self._began = began
        self._rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._publishers: dict[str, AsyncPublisher] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_IN_FLIGHT)

    async def __aenter__(self) -> Publishing:
        for region, urls in self._urls.items():
            self._publishers[region] = await AsyncPublisher.open(
                [",".join(urls)], app_id=APP_ID, timeout=None, window=_IN_FLIGHT
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        for publisher in self._publishers.values():
            await publisher.close()

    async def publish(self, *, rate: float, seconds: float) -> None:
        """Begin to send ``rate`` messages a second for ``seconds``; return when all are begun."""
        began = time.monotonic()
        topics, regions = list(self._topics), list(self._urls)
        for n in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + n / rate - time.monotonic()))
            await self._room.acquire()
            topic = self._rng.choice(topics)
            region = self._rng.choice(regions)
            task = asyncio.create_task(self._send(n, topic, region))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, n: int, topic: str, region: str) -> None:
        now = time.time()
        entry = RecordedMessage(
            n=n, topic=topic, klass=self._topics[topic], region=region, sent=now - self._began
        )
        self._record.sent(entry)
        message = make_message(
            topic,
            orjson.dumps({"run": self._run, "n": n}),
            message_id=f"{self._run}-{n}",
            app_id=APP_ID,
            now_ms=int(now * 1000),
        )
        try:
            receipt = await self._until_answered(message, region)
        finally:
            self._room.release()
        entry.receipted = time.time() - self._began
        entry.id = receipt.id
        entry.router = receipt.router
        entry.rejected = receipt.reason if receipt.status == "rejected" else None

    async def _until_answered(self, message: AmqpMessage, region: str) -> Receipt:
        """Send it until there is a final receipt: neither refused access nor overload."""
        backoff = Backoff(base=1.0, cap=10.0)
        while True:
            try:
                receipt = await send_with_retry(self._publishers[region], message)
            except AccessRefused:
                # Returned by a broker that is being killed or started; it passes.
                await asyncio.sleep(backoff.failed(time.monotonic(), self._rng))
                continue
            if receipt.reason != "overload":
                return receipt
            # Dropped bronze: docs/publishing.md asks publishers to send again later.
            self._record.shed += 1
            await asyncio.sleep(backoff.failed(time.monotonic(), self._rng))

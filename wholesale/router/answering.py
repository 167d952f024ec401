"""The last stage: receipts and rejections are confirmed, then deliveries acknowledged.

Acknowledging comes last, so whatever dies before it, the broker delivers the message again and
the answer is given again.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from typing import Final

from newsfabric import topology
from newsfabric.amqp import Publisher
from newsfabric.seldom import Seldom
from wholesale.progress import Progress
from wholesale.router import counters
from wholesale.router.jobs import Answer, Letter
from wholesale.router.outgoing import confirmed, send

logger = logging.getLogger(__name__)

_MAX_BATCH: Final = 256


class Answering:
    """Takes answers with :meth:`put`; :meth:`run` gives them.

    Each answer belongs to at least one unacknowledged delivery, so the broker's prefetch bounds
    how many wait here.
    """

    def __init__(self, publisher: Publisher, progress: Progress) -> None:
        self._publisher = publisher
        self._progress = progress
        self._waiting: collections.deque[Answer] = collections.deque()
        self._wake = asyncio.Event()
        self._failing = Seldom()

    def put(self, answer: Answer) -> None:
        """Give ``answer`` in its turn; at once if it is nothing but acks."""
        if not answer.letters:
            _acknowledge(answer)
            return
        self._progress.begin()
        self._waiting.append(answer)
        self._wake.set()

    def forget_stale(self) -> None:
        """Drop the answers to deliveries that the broker has taken back and will repeat."""
        owed = [a for a in self._waiting if not all(claim.is_stale for claim in a.claims)]
        for _ in range(len(self._waiting) - len(owed)):
            self._progress.end()
        self._waiting = collections.deque(owed)

    async def run(self) -> None:
        """Give answers, batch by batch, until cancelled."""
        while True:
            if self._waiting:
                count = min(len(self._waiting), _MAX_BATCH)
                await self._give([self._waiting.popleft() for _ in range(count)])
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _give(self, answers: list[Answer]) -> None:
        letters = [letter for answer in answers for letter in answer.letters]
        sent = [letter for letter in letters if await self._send(letter)]
        await confirmed(self._publisher, sent, counters.PUBLISH_RETRIES)
        counters.RECEIPTS.inc(sum(letter.exchange == topology.RECEIPTS for letter in sent))
        for answer in answers:
            _acknowledge(answer)
            self._progress.end()

    async def _send(self, letter: Letter) -> bool:
        """Whether ``letter`` could be put on the wire, if need be plainly."""
        try:
            await send(self._publisher, letter)
        except Exception as exc:
            # Something in it can't be encoded. Without the letter the answer is
            # still complete: waiting for it would stop all others.
            unsaid = self._failing.may_say(time.monotonic())
            if unsaid is not None:
                text = "a letter to %s can't be sent: %r (and %d more)"
                logger.error(text, letter.exchange, exc, unsaid)
            if letter.plain is None or letter.message is letter.plain:
                return False
            letter.fall_back()
            return await self._send(letter)
        return True


def _acknowledge(answer: Answer) -> None:
    for claim in answer.claims:
        claim.ack()

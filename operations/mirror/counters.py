"""A mirror's metrics. Once a second :class:`MirrorCounters` adds the growth of the sums of
record and carrier.

Delays aren't sums: the record reports each of them to :func:`observe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import Counter

from newsfabric import metrics
from newsfabric.topics import TopicClass
from operations.mirror.share_record import ShareRecord, Side

HEARD: Final = metrics.counter("mirror_heard_messages", "Messages received from the original")
LEFT_OUT: Final = metrics.counter(
    "mirror_left_out_messages", "Messages that it doesn't mirror", ["reason"]
)
COPIES: Final = metrics.counter(
    "mirror_copies",
    "Copies sent to the other fabric, by outcome",
    ["class", "outcome"],
)
WATCHED: Final = metrics.counter(
    "mirror_watched_messages",
    "Messages due at an observer, received or not",
    ["side", "class", "outcome"],
)
DOUBLED: Final = metrics.counter(
    "mirror_doubled_messages", "Messages received again on one connection", ["side", "class"]
)
DELAY: Final = metrics.histogram(
    "mirror_delay",
    "Delay to the observer: here from the router, there from the mirror's sending",
    ["side", "class"],
)
WAITING: Final = metrics.gauge("mirror_waiting_messages", "Copies that wait to be sent")
READERS: Final = metrics.gauge("mirror_readers", "Readers in the other fabric now")
CONNECTS: Final = metrics.counter(
    "mirror_connects", "Connects of mirrored readers, by outcome", ["outcome"]
)


def observe(side: Side, topic_class: TopicClass, seconds: float) -> None:
    """Record that a message of ``topic_class`` took ``seconds`` to the observer of ``side``."""
    # A publisher's clock may be ahead.
    DELAY.labels(side, topic_class).observe(max(0.0, seconds))


class MirrorCounters:
    """The values of one run's sums that the metrics have so far."""

    def __init__(self) -> None:
        self._counted: dict[tuple[Counter, tuple[str, ...]], int] = {}

    def update(
        self,
        record: ShareRecord,
        *,
        heard: int,
        left_out: Mapping[str, int],
        waiting: int,
        readers: Mapping[str, Any],
    ) -> None:
        """Bring the metrics up to date; ``readers`` is the last report of the readers' process."""
        self._grow(HEARD, heard)
        for reason, count in left_out.items():
            self._grow(LEFT_OUT, count, reason)
        for topic_class, class_sums in record.by_class.items():
            for ending, count in class_sums.outcomes.items():
                self._grow(COPIES, count, topic_class, ending)
            for side, sums in class_sums.sides.items():
                self._grow(WATCHED, sums.delivered, side, topic_class, "delivered")
                self._grow(WATCHED, sums.missing.total(), side, topic_class, "missing")
                self._grow(DOUBLED, sums.doubled, side, topic_class)
        WAITING.set(waiting)
        READERS.set(readers["readers"])
        for outcome in ("opened", "failed", "cut_off"):
            self._grow(CONNECTS, readers[outcome], outcome)

    def _grow(self, counter: Counter, total: int, *labels: str) -> None:
        one = counter.labels(*labels) if labels else counter
        one.inc(max(0, total - self._counted.get((counter, labels), 0)))
        self._counted[counter, labels] = total

"""The cost of metrics and reports for a gateway with 10,000 readers, as a part of one core.

Three things cost: a scrape (each fifteen seconds), a report for the board (each second), and the
counting. Counting is measured alone, for each message. A delivery costs no counting, except that
the data plane adds once for a chunk of readers, which is in no figure here.
"""

from __future__ import annotations

import time
import urllib.request
from typing import Final

from bench.box import BODY_BYTES, TOPIC, BenchBox, envelope, running_box, subscribe_verb
from bench.programs import running_crowd
from bench.rows import BenchRow
from gateway.native import commands
from gateway.process import measures
from gateway.wire.publication import Publication
from newsfabric.topics import TopicPolicy

READERS: Final = 10_000
LOOKS: Final = 40
SCRAPE_SECONDS: Final = 15.0
REPORT_SECONDS: Final = 1.0
MESSAGES_PER_SECOND: Final = 100
ROUNDS: Final = 20_000


async def measure() -> list[BenchRow]:
    """Measure a scrape, a report, a message's part, and the sum of a second."""
    async with running_box("native") as box:
        crowd = running_crowd(box.port, READERS, source="127.0.0.2", say=subscribe_verb())
        async with crowd as readers:
            await readers.next_reply()
            await box.publish(count=20)
            scrape = _processor_ms(box, "/metrics")
            report = _processor_ms(box, "/report")
    message = _message_us()
    each_second = (
        scrape / 1e3 / SCRAPE_SECONDS
        + report / 1e3 / REPORT_SECONDS
        + message / 1e6 * MESSAGES_PER_SECOND
    )
    return [
        BenchRow(f"a scrape of a gateway with {READERS:,} readers", scrape, "ms"),
        BenchRow("a report for the board", report, "ms", digits=2),
        BenchRow("measuring one message", message, "µs"),
        BenchRow(
            f"metrics and reports, {MESSAGES_PER_SECOND} messages/s, of a core",
            each_second * 100,
            "%",
            digits=2,
            at_most=1.0,
        ),
    ]


def _processor_ms(box: BenchBox, path: str) -> float:
    """Return the processor time of both processes for one request, without their idle cost."""
    before, began = box.spent().total, time.monotonic()
    for _ in range(LOOKS):
        with urllib.request.urlopen(box.gateway.url(path), timeout=30) as page:
            page.read()
    spent, seconds = box.spent().total - before, time.monotonic() - began
    before = box.spent().total
    time.sleep(seconds)
    idle = box.spent().total - before
    return max(0.0, spent - idle) / LOOKS * 1e3


def _message_us() -> float:
    """Return the control plane's cost of measuring a message: its stamp, its example."""
    plain, measured = _publication(), _publication()
    measured.way = "postoffice.1"
    took = []
    for publication in (plain, measured):
        began = time.process_time()
        for number in range(ROUNDS):
            commands.publish(number, publication)
            measures.published(publication)
        took.append(time.process_time() - began)
    return max(0.0, took[1] - took[0]) / ROUNDS * 1e6


def _publication() -> Publication:
    made = envelope(TOPIC, 1, 1, 1, BODY_BYTES)
    return Publication(made, TopicPolicy(pattern="#"), None)

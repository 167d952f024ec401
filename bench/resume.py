"""A crowd that resumes at a gateway which has just started: the time until all have everything.

The messages routed since the earlier gateway was killed are in a SQLite store. The readers'
positions differ. Another crowd has no positions and asks for the last messages: first from the
store, then from the memory of a gateway that has already read them.

``python -m bench.resume [ENGINE…]`` prints the results.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvloop

from bench import comeback
from bench.comeback import ENGINES, ROUTER, Counting, ReturningReader, Served
from bench.rows import BenchRow
from gateway.process.settings import GatewaySettings
from gateway.wire.position import Listed, Position, encode, log_hash
from newsfabric.store.logs import Log
from newsfabric.store.sqlite import SqliteStore
from newsfabric.topics import TopicPolicy, TopicTable

TOPIC: Final = "news.bench"
READERS: Final = 10_000
# The messages missed by the oldest position; positions are spread over half of them.
MISSED: Final = 20
# The start of the log, before the messages.
EPOCH_MS: Final = 3_600_000
TABLE: Final = TopicTable([TopicPolicy(pattern="news.*", topic_class="gold")])


def measure() -> list[BenchRow]:
    """Return the rows of the native engine, for which the limit is meant."""
    result = come_back("native")
    return [
        BenchRow(
            f"{READERS:,} readers resume at a gateway that has just started",
            result.seconds,
            "s",
            at_most=1.5,
        ),
        BenchRow("readers who had all, and knew it", result.whole, "", digits=0, at_least=READERS),
        BenchRow("reads of the store for that", result.store_reads, "", digits=0, at_most=1),
        *_rows_of_rewinds(),
    ]


def _rows_of_rewinds() -> list[BenchRow]:
    cold, warm = rewind("native"), rewind("native", again=True)
    return [
        BenchRow(f"{READERS:,} readers rewind {MISSED} messages, {which}", result.seconds, "s")
        for result, which in ((cold, "gateway just started"), (warm, "messages in its memory"))
    ]


def rewind(engine: str, *, readers: int = READERS, again: bool = False) -> Served:
    """Let ``readers`` ask a gateway of ``engine`` for the last messages; ``again``: twice."""
    now_ms = int(time.time() * 1000)
    with _served(engine, now_ms) as arguments:
        verb = {"action": "subscribe", "topic": TOPIC, "rewind": MISSED}

        def reader(_: int) -> ReturningReader:
            return ReturningReader([verb], MISSED, signs=[b'"subscribed"'])

        return comeback.come_back("bench.resume", arguments, reader, readers, again=again)


def come_back(engine: str, *, readers: int = READERS) -> Served:
    """Let ``readers`` come back to a gateway of ``engine``."""
    now_ms = int(time.time() * 1000)
    epoch = now_ms - EPOCH_MS
    log = log_hash(Log("oregon", ROUTER, epoch))
    positions = [
        encode(Position(now_ms - 31_000, {log: Listed(seen, now_ms - 31_000)}))
        for seen in range(MISSED // 2)
    ]

    def reader(n: int) -> ReturningReader:
        seen = n % len(positions)
        verb = {"action": "subscribe", "topic": TOPIC, "position": positions[seen]}
        return ReturningReader([verb], MISSED - seen, signs=[b'"recovered":true'])

    with _served(engine, now_ms) as arguments:
        return comeback.come_back("bench.resume", arguments, reader, readers)


@contextlib.contextmanager
def _served(engine: str, now_ms: int) -> Iterator[list[str]]:
    """Fill a store with the missed messages; yield the arguments of a gateway that uses it."""
    epoch = now_ms - EPOCH_MS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        missed = (
            comeback.envelope(TOPIC, seq=seq, ms=now_ms - 30_000 + seq, epoch=epoch)
            for seq in range(1, MISSED + 1)
        )
        uvloop.run(comeback.fill(SqliteStore(path, TABLE), missed))
        yield [engine, str(path), str(epoch)]


async def _serve(engine: str, path: Path, epoch: int) -> None:
    store = Counting(SqliteStore(path, TABLE), "since", "history")
    settings = GatewaySettings(name="bench", region="oregon", drain_seconds=0)
    await comeback.serve(engine, settings, TABLE, store, epoch=epoch, last=MISSED)


def main(arguments: list[str]) -> None:
    """Measure each engine named, or both."""
    if arguments[:1] == ["--serve"]:
        _, engine, path, epoch = arguments
        uvloop.run(_serve(engine, Path(path), int(epoch)))
        return
    for engine in arguments or list(ENGINES):
        result = come_back(engine)
        print(
            f"{engine}: {result.whole:,} of {result.readers:,} readers had all in "
            f"{result.seconds:.1f} s, {result.asked_seconds:.1f} s from the first subscribe; "
            f"{result.store_reads} store reads"
        )
        for again in (False, True):
            result = rewind(engine, again=again)
            print(
                f"{engine}: {result.whole:,} of {result.readers:,} readers rewound in "
                f"{result.seconds:.1f} s, {result.asked_seconds:.1f} s from the first subscribe"
                f"{' the second time' if again else ''}; {result.store_reads} store reads"
            )


if __name__ == "__main__":
    main(sys.argv[1:])

"""A storm of registered readers: each connects, logs in, and receives its whole mailbox.

Ten thousand different users ask for ten thousand mailboxes, so that these share no work. The store
is SQLite, or Cassandra (one node, which shares the machine with everything else). Tokens are made
before the measurement.

``python -m bench.mailbox [ENGINE…] [--store URL]`` prints the result.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvloop

from bench import comeback
from bench.comeback import ENGINES, Counting, ReturningReader, Served
from bench.login import Issuer
from bench.rows import BenchRow
from bench.store import cassandra
from gateway.process.settings import GatewaySettings, TokenSettings
from newsfabric.errors import SetupError
from newsfabric.messages.envelope import Envelope
from newsfabric.store import open_store
from newsfabric.topics import TopicPolicy, TopicTable

READERS: Final = 10_000
LETTERS: Final = 5
# Messages are routed over the last hour: most of them before the window of identities.
SPREAD_MS: Final = 3_600_000
TABLE: Final = TopicTable(
    [TopicPolicy(pattern="user.*", topic_class="gold", access="owner", keep=50)]
)


def measure() -> list[BenchRow]:
    """Return the rows of the native engine, with SQLite and, if it is installed, with Cassandra."""
    rows = _rows(come_back("native"), "SQLite")
    try:
        with cassandra() as url:
            rows += _rows(come_back("native", store=url), "Cassandra")
    except SetupError as exc:
        print(f"not measured with Cassandra: {exc}", file=sys.stderr)
    return rows


def _rows(result: Served, store: str) -> list[BenchRow]:
    return [
        BenchRow(
            f"{READERS:,} registered readers, each with a mailbox of {LETTERS} in {store}",
            result.seconds,
            "s",
            at_most=10,
        ),
        BenchRow(
            "… readers who had all, and knew it", result.whole, "", digits=0, at_least=READERS
        ),
        BenchRow("… trips to the store for that", result.store_reads, "", digits=0),
    ]


def come_back(engine: str, *, readers: int = READERS, store: str | None = None) -> Served:
    """Let ``readers`` come back to a gateway of ``engine`` with the store at ``store``."""
    epoch = int(time.time() * 1000) - 2 * SPREAD_MS
    issuer = Issuer()
    tokens = [issuer.token(f"u{n}") for n in range(readers)]

    def reader(n: int) -> ReturningReader:
        verbs = [
            {"action": "login", "token": tokens[n]},
            {"action": "subscribe", "topic": f"user.u{n}"},
        ]
        signs = [b'"type":"logged_in"', b'"recovered":true']
        return ReturningReader(verbs, LETTERS, signs=signs)

    with tempfile.TemporaryDirectory() as folder:
        url = store or f"sqlite:{folder}/store.db"
        uvloop.run(_fill(url, _letters(readers, epoch)))
        keys = issuer.write_keys(Path(folder))
        arguments = [engine, url, str(keys), str(epoch), str(readers * LETTERS)]
        return comeback.come_back("bench.mailbox", arguments, reader, readers)


def _letters(readers: int, epoch: int) -> Iterator[Envelope]:
    count = readers * LETTERS
    for seq in range(1, count + 1):
        ms = epoch + SPREAD_MS + seq * SPREAD_MS // count - 1
        yield comeback.envelope(f"user.u{seq % readers}", seq=seq, ms=ms, epoch=epoch)


async def _fill(url: str, letters: Iterator[Envelope]) -> None:
    await comeback.fill(open_store(url, TABLE), letters)


async def _serve(engine: str, url: str, keys: str, epoch: int, last: int) -> None:
    store = Counting(open_store(url, TABLE), "mailboxes")
    tokens = TokenSettings(keys=keys, audience=Issuer.AUDIENCE)
    settings = GatewaySettings(name="bench", region="oregon", drain_seconds=0, tokens=tokens)
    await comeback.serve(engine, settings, TABLE, store, epoch=epoch, last=last)


def main(arguments: list[str]) -> None:
    """Measure each engine named, or both."""
    if arguments[:1] == ["--serve"]:
        _, engine, url, keys, epoch, last = arguments
        uvloop.run(_serve(engine, url, keys, int(epoch), int(last)))
        return
    store = None
    if "--store" in arguments:
        at = arguments.index("--store")
        store = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2 :]
    for engine in arguments or list(ENGINES):
        result = come_back(engine, store=store)
        print(
            f"{engine}: {result.whole:,} of {result.readers:,} readers had their mailboxes in "
            f"{result.seconds:.1f} s; {result.store_reads} trips to the store"
        )


if __name__ == "__main__":
    main(sys.argv[1:])

"""Every store against a model of list comprehensions, on random histories."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from envelopes import START_MS, Clock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import SHORT_TTL_MS, SHORTEST_MS, STORES, TOPICS, TTL_MS, Opener
from unit_share import examples

from newsfabric.messages.envelope import Envelope, id_of, identity_of
from newsfabric.store.logs import Log, Number, NumberState

TIMES = [0, 1, 2, 900, 1_000, 590_000]


class StoreModel:
    """The contract, computed in the simplest way."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rows: dict[tuple[str, str, int, int], Envelope] = {}

    def write(self, batch: list[Envelope]) -> None:
        for e in batch:
            self.rows.setdefault((e.id, e.router, e.epoch, e.seq), e)

    def numbers(self, log: Log, limit: int) -> list[Number]:
        ends = {"markets.dax": max(SHORT_TTL_MS, SHORTEST_MS)}
        ours = [e for e in self.rows.values() if (e.router, e.epoch) == (log.router, log.epoch)]
        found = [
            Number(e.seq, NumberState.MESSAGE, e)
            if self.clock.ms < _routed(e) + ends.get(e.topic, TTL_MS)
            else Number(e.seq, NumberState.GONE)
            for e in sorted(ours, key=lambda e: e.seq)
        ]
        return found[:limit]

    def history(self, topic: str, limit: int, since_ms: int, before: str | None) -> list[Envelope]:
        newest_first = [
            self.rows[key]
            for key in sorted(self.rows, reverse=True)
            if self.rows[key].topic == topic and self._shown(self.rows[key])
        ]
        chosen: list[Envelope] = []
        for e in newest_first:
            if _routed(e) < since_ms or (before is not None and e.id >= before):
                continue
            chosen = [other for other in chosen if other.identity != e.identity] + [e]
            if len(chosen) == limit:
                break
        return chosen[::-1]

    def since(self, topic: str, from_ms: int, to_ms: int, limit: int) -> list[Envelope]:
        ordered = [self.rows[key] for key in sorted(self.rows)]
        found = [
            e
            for e in ordered
            if e.topic == topic and from_ms <= _routed(e) < to_ms and self._shown(e)
        ]
        return found[-limit:]

    def latest(self, topic: str, limit: int) -> list[Envelope]:
        newest: dict[str, Envelope] = {}
        for e in self.rows.values():
            if e.topic == topic and e.key is not None:
                newest[e.key] = max(newest.get(e.key, e), e, key=_rank)
        shown = sorted((e for e in newest.values() if self._shown(e)), key=lambda e: e.id)
        return shown[-limit:]

    def _shown(self, e: Envelope) -> bool:
        ttl = SHORT_TTL_MS if e.topic == "markets.dax" else TTL_MS
        expired = e.expires_ms is not None and self.clock.ms >= e.expires_ms
        return self.clock.ms < _routed(e) + ttl and not expired


def _routed(e: Envelope) -> int:
    return int(e.id[:8] + e.id[9:13], 16)


def _rank(e: Envelope) -> tuple[int, str]:
    return (-1 if e.version is None else e.version, e.id)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    # Small ranges, so that copies, ties and repeats are frequent. Any router gives a message the
    # same topic, key and version.
    message, time = draw(st.integers(0, 12)), draw(st.integers(0, len(TIMES) - 1))
    ms = START_MS + TIMES[time]
    identity = identity_of(
        app_id=None, message_id=str(message), topic="", published_ms=None, body=b""
    )
    router = draw(st.sampled_from(["oregon-router-1", "dublin-router-1"]))
    return Envelope(
        id=id_of(ms, identity),
        identity=identity,
        topic="markets.dax" if message % 3 == 0 else "news.breaking",
        body=b"%d" % message,
        published_ms=START_MS,
        origin=router.partition("-")[0],
        router=router,
        epoch=draw(st.integers(0, 1)),
        # Each number of a log is one copy.
        seq=1 + message * len(TIMES) + time,
        key=(None, "a", "b")[message % 4 % 3],
        version=(None, 3, 1, 2, 3)[message % 5],
        expires_ms=START_MS + 500 if message % 7 == 0 else None,
    )


LOGS = [Log(of, f"{of}-router-1", epoch) for of in ("oregon", "dublin") for epoch in (0, 1)]
QUERIES = st.tuples(
    st.sampled_from(["markets.dax", "news.breaking"]),
    st.integers(1, 12),
    st.sampled_from([0, START_MS + 1, START_MS + 900]),
    st.none() | envelopes().map(lambda e: e.id),
    st.sampled_from([0, 700, 1_000, 1_500, 599_999, 600_000, TTL_MS]),
)


HISTORIES = {
    "batches": st.lists(st.lists(envelopes(), max_size=8), max_size=8),
    "queries": st.lists(QUERIES),
}
# The opener has no state: each call of it gives a new store.
OPENER_IS_FINE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("opener", STORES, indirect=True)
@settings(max_examples=examples(60), suppress_health_check=OPENER_IS_FINE)
@given(**HISTORIES)
def test_a_store_agrees_with_the_model(opener, batches, queries):
    agrees_with_the_model(opener, batches, queries)


@pytest.mark.cassandra
@pytest.mark.parametrize("opener", ["cassandra"], indirect=True)
@settings(max_examples=examples(20), suppress_health_check=OPENER_IS_FINE)
@given(**HISTORIES)
def test_cassandra_agrees_with_the_model(opener, batches, queries):
    agrees_with_the_model(opener, batches, queries)


def agrees_with_the_model(
    opener: Opener, batches: list[list[Envelope]], queries: list[Any]
) -> None:
    async def scenario(folder: Path) -> None:
        clock = Clock()
        store = opener(folder, TOPICS, clock)
        model = StoreModel(clock)
        try:
            for batch in batches:
                await store.write(batch)
                model.write(batch)
            for topic, limit, since_ms, before, at in queries:
                clock.ms = START_MS + at
                assert await store.history(
                    topic, limit=limit, since_ms=since_ms, before=before
                ) == model.history(topic, limit, since_ms, before)
                for to_ms in (START_MS + 2_000, START_MS + TTL_MS):
                    assert await store.since(
                        topic, from_ms=since_ms, to_ms=to_ms, limit=limit
                    ) == model.since(topic, since_ms, to_ms, limit)
                latest = await store.latest(topic, limit=limit)
                # Of two copies with one id, the store may return either.
                assert [e.id for e in latest] == [e.id for e in model.latest(topic, limit)]
                for log in LOGS:
                    numbers = await store.numbers(log, first=1, last=100, limit=limit)
                    assert numbers == model.numbers(log, limit)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))

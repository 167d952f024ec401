"""What doesn't come over the feed comes from the journal: late, once, and soon enough."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from envelopes import envelope
from gateways import TABLE, Box, Reader, opened_box, until

from gateway.hub import HubLimits
from gateway.repair import RepairLimits
from newsfabric.control import Tick, encode_tick
from newsfabric.envelope import Envelope, encode, id_of
from newsfabric.errors import StoreUnavailable
from newsfabric.store.memory import MemoryStore

TOPIC = "news.breaking"
# Two seconds from the moment when others could know of it, where nothing else takes the processor.
SOON = 60.0


async def lose(box: Box, **fields: Any) -> Envelope:
    """A message that was stored, and lost on its way here."""
    made = box.envelope(**fields)
    await box.store.write([made])
    return made


async def route(box: Box, **fields: Any) -> Envelope:
    """A message as a router sends it: stored first."""
    made = await lose(box, **fields)
    box.send(encode(made))
    return made


async def hear_soon(reader: Reader, count: int, seconds: float = SOON) -> list[Any]:
    """The next bodies, in ``seconds``; and nothing after them."""
    async with asyncio.timeout(seconds):
        bodies = await reader.hear_bodies(count)
    await reader.is_up_to_date()
    return bodies


def tick(box: Box, last: int, **fields: Any) -> None:
    told = {"origin": "oregon", "router": "oregon-router-1", "epoch": box.epoch, **fields}
    box.send(encode_tick(Tick(seq=last, sent_ms=int(time.time() * 1000), **told)))


def missing(box: Box) -> Any:
    return box.gateway.core.hub.streams.missing()


@pytest.mark.promise("D5")
async def test_a_lost_message_is_delivered_soon_and_once(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        await route(box, body=1)
        lost = await lose(box, body=2)
        await route(box, body=3)
        assert await hear_soon(reader, 3) == [1, 3, 2]
        # Its copy was only late after all.
        box.send(encode(lost))
        await route(box, body=4)
        assert await hear_soon(reader, 1) == [4]
    assert missing(box) == {}


async def test_a_tick_shows_what_nothing_follows(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        await route(box, body=1)
        lost = [await lose(box, body=n) for n in (2, 3, 4)]
        assert await hear_soon(reader, 1) == [1]
        tick(box, lost[-1].seq)
        assert await hear_soon(reader, 3) == [2, 3, 4]


async def test_what_a_killed_router_stored_and_never_routed_is_delivered(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        await route(box, body=1)
        await lose(box, body=2)
        await lose(box, body=3)
        assert await hear_soon(reader, 3) == [1, 2, 3]


async def test_a_number_declared_void_is_no_hole(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        await route(box, body=1)
        void = box.envelope()
        tick(box, void.seq, void=(void.seq,))
        await route(box, body=2)
        assert await hear_soon(reader, 2) == [1, 2]
        assert missing(box) == {}


@pytest.mark.promise("D7")
async def test_of_a_router_started_twice_with_one_name_each_stream_is_whole(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        for seq in (1, 2, 3):
            for epoch in (box.epoch, box.epoch + 1):
                one = await lose(box, body=[epoch, seq], seq=seq, epoch=epoch)
                if seq != 2:
                    box.send(encode(one))
        bodies = await hear_soon(reader, 6)
        assert sorted(bodies) == [[box.epoch + n, seq] for n in (0, 1) for seq in (1, 2, 3)]
        assert missing(box) == {}


@pytest.mark.promise("S5")
@pytest.mark.parametrize("skew", [-7_200, -5, 5, 7_200])
async def test_routers_clocks_may_be_wrong(box: Box, skew: float) -> None:
    def ms() -> int:
        return int((time.time() + skew) * 1000)

    async with box.reader(TOPIC) as reader:
        await route(box, body=1, ms=ms())
        await lose(box, body=2, ms=ms(), router="oregon-router-1")
        await route(box, body=3, ms=ms())
        await route(box, body=4, router="oregon-router-2", seq=1)
        assert sorted(await hear_soon(reader, 4)) == [1, 2, 3, 4]


@pytest.mark.promise("S5")
@pytest.mark.parametrize("hours", [-30, 30])
async def test_publishers_clocks_dont_matter(box: Box, hours: int) -> None:
    published_ms = int((time.time() + hours * 3600) * 1000)
    async with box.reader(TOPIC) as reader:
        await route(box, body=1, published_ms=published_ms)
        await lose(box, body=2, published_ms=published_ms)
        await route(box, body=3)
        assert sorted(await hear_soon(reader, 3)) == [1, 2, 3]


class BrokenStore(MemoryStore):
    """``answer`` says what becomes of a read of the journal; None: all is well."""

    answer: Callable[[list[Envelope]], Any] | None = None
    asked = 0

    async def journal(self, *, from_ms: int, to_ms: int, limit: int) -> list[Envelope]:
        self.asked += 1
        page = await super().journal(from_ms=from_ms, to_ms=to_ms, limit=limit)
        if self.answer is None:
            return page
        answer = self.answer(page)
        return await answer if asyncio.iscoroutine(answer) else answer


def away(page: Sequence[Envelope]) -> Any:
    raise StoreUnavailable("away")


def bug(page: Sequence[Envelope]) -> Any:
    raise KeyError("a driver's bug")


async def silence(page: Sequence[Envelope]) -> Any:
    await asyncio.sleep(3600)


def never_ending(page: Sequence[Envelope]) -> Any:
    return [dataclasses.replace(envelope(), id=id_of(0, 1))] * 500


def strangers(page: Sequence[Envelope]) -> Any:
    return [None, 7, "x"]


def spoilt(page: list[Envelope]) -> Any:
    return [dataclasses.replace(one, body=b"{") for one in page]


@pytest.mark.parametrize("answer", [away, bug, silence, never_ending, strangers, spoilt])
async def test_a_store_that_fails_or_talks_nonsense_is_asked_again(
    engine: str, answer: Callable[[list[Envelope]], Any]
) -> None:
    store = BrokenStore(TABLE)
    async with (
        opened_box(engine, store=store, store_timeout=0.1) as box,
        box.reader(TOPIC) as reader,
    ):
        await route(box, body=1)
        store.answer = answer
        asked = store.asked
        await lose(box, body=2)
        await route(box, body=3)
        assert await hear_soon(reader, 2) == [1, 3]
        await until(lambda: store.asked > asked + 1)
        await reader.is_up_to_date()
        store.answer = None
        assert await hear_soon(reader, 1) == [2]


async def test_a_gateway_isnt_ready_before_it_has_read_the_journal(engine: str) -> None:
    store = BrokenStore(TABLE)
    store.answer = away
    async with opened_box(engine, store=store) as box:
        box.tick()
        await until(lambda: box.gateway.core.readiness().waiting_for == ("repair",))
        answer = await box.request("GET", "/healthz/ready")
        assert (answer.status, answer.json()["waiting_for"]) == (503, ["repair"])
        store.answer = None

        def fed_and_ready() -> bool:
            # A tick is news for five seconds, which may be over on a busy machine.
            box.tick()
            return box.gateway.core.readiness().ready

        await until(fed_and_ready)


async def test_a_page_that_fails_now_and_then_costs_a_catch_up_only_that_page(engine: str) -> None:
    rows, pages = 15_000, 30
    store = BrokenStore(TABLE)
    async with opened_box(engine, store=store) as box:
        began_ms = int(time.time() * 1000) - 400_000
        await store.write([box.envelope(TOPIC, n, ms=began_ms + n * 20) for n in range(rows)])

    def each_twelfth_fails(page: list[Envelope]) -> Any:
        if store.asked % 12 == 0:
            raise StoreUnavailable("one page timed out")
        return page

    store.answer, store.asked = each_twelfth_fails, 0
    async with opened_box(engine, store=store) as box:

        def fed_and_ready() -> bool:
            box.tick()
            return box.gateway.core.readiness().ready

        async with asyncio.timeout(240):
            while not fed_and_ready():  # noqa: ASYNC110 - what is waited for sets no event
                await asyncio.sleep(0.1)
        # Twice, and what is asked for besides while that goes on.
        assert store.asked < 5 * pages


async def test_a_gateway_that_was_deaf_is_ready_when_it_has_what_it_missed(engine: str) -> None:
    limits = RepairLimits(silent_seconds=0.3)
    store = BrokenStore(TABLE)
    async with opened_box(engine, store=store, repair=limits) as box:
        async with box.reader(TOPIC) as reader:
            box.tick()
            await until(lambda: box.gateway.core.readiness().ready)
            store.answer = away
            await until(lambda: "repair" in box.gateway.core.readiness().waiting_for)
            # Of a router that lived and died meanwhile.
            await lose(box, body="unheard", router="oregon-router-9", seq=1)
            box.tick()
            await reader.is_up_to_date()
            assert box.gateway.core.readiness().waiting_for == ("repair",)
            store.answer = None
            assert await hear_soon(reader, 1) == ["unheard"]

        def fed_and_ready() -> bool:
            box.tick()
            return box.gateway.core.readiness().ready

        await until(fed_and_ready)


async def test_what_was_repaired_is_counted(box: Box) -> None:
    samples = [
        "newsfabric_gateway_recovered_messages_total",
        'newsfabric_gateway_holes_total{ending="filled"}',
        'newsfabric_gateway_repair_seconds_count{ending="filled"}',
    ]
    before = [await box.metric(sample) for sample in samples]
    async with box.reader(TOPIC) as reader:
        await route(box, body=1)
        await lose(box, body=2)
        await route(box, body=3)
        await hear_soon(reader, 3)
        await until(lambda: box.gateway.core.mender.open_gaps == 0)
    after = [await box.metric(sample) for sample in samples]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]
    assert await box.metric("newsfabric_gateway_holes_open") == 0


@pytest.mark.promise("D1", "D5")
async def test_what_a_region_that_was_cut_off_routed_comes_once_and_no_copy_of_it(
    engine: str,
) -> None:
    # A second of silence is a cut, and an identity is forgotten after ten.
    limits = RepairLimits(dead_seconds=1.0)
    hub = HubLimits(identity_seconds=0.0)
    async with opened_box(engine, repair=limits, hub=hub) as box, box.reader(TOPIC) as reader:
        far = {"origin": "dublin", "router": "dublin-router-1"}
        tick(box, 0, **far)
        both = await route(box, body="both")
        await lose(box, **far, body="both", message_id=both.message_id, identity=both.identity)
        assert await hear_soon(reader, 1) == ["both"]
        cut_at = time.monotonic()
        await until(lambda: time.monotonic() > cut_at + 1.5)
        # Of a router that lived and died meanwhile.
        await lose(box, origin="dublin", router="dublin-router-9", body="unheard", seq=1)
        tick(box, 0, **far)
        assert await hear_soon(reader, 1, 5.0) == ["unheard"]

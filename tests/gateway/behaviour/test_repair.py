"""Messages lost on the feed are read by their number: late, once, and soon enough."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from click.testing import CliRunner
from envelopes import envelope
from gateways import TABLE, Box, Reader, opened_box, settle, until
from metric_values import value

from gateway.logs.logs import LogLimits
from gateway.memory.hub import HubLimits
from gateway.process import measures
from gateway.wire.position import log_of
from newsfabric.errors import LinkError, StoreUnavailable
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.messages.envelope import Envelope, encode
from newsfabric.store.logs import DirectoryRow, Number, NumberState
from newsfabric.store.memory import MemoryStore
from operations.cli import cli

TOPIC = "news.breaking"
# The bound is two seconds from the moment at which others could know of it, on an idle machine.
SOON = 60.0


async def lose(box: Box, **fields: Any) -> Envelope:
    """Store a message that is lost on its way here."""
    made = box.envelope(**fields)
    await box.store.write([made])
    return made


async def route(box: Box, **fields: Any) -> Envelope:
    """Send a message like a router: stored first. All before it are settled."""
    made = await lose(box, **fields)
    box.send(encode(made, low=made.seq - 1))
    return made


async def hear_soon(reader: Reader, count: int, seconds: float = SOON) -> list[Any]:
    """Return the next bodies, within ``seconds``; fail if more follow."""
    async with asyncio.timeout(seconds):
        bodies = await reader.hear_bodies(count)
    await reader.is_up_to_date()
    return bodies


def tick(box: Box, last: int, **fields: Any) -> None:
    """Send a tick of a router that has settled all up to its last number."""
    stated = {"origin": "oregon", "router": "oregon-router-1", "epoch": box.epoch, "low": last}
    stated["sent_ms"] = int(time.time() * 1000)
    box.send(encode_tick(Tick(seq=last, **stated | fields)))


def missing(box: Box) -> int:
    runs = box.gateway.core.hub.logs.missing()
    return sum(last - first + 1 for first, last in runs)


@pytest.mark.promise("D5")
async def test_a_lost_message_is_delivered_soon_and_once(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        await route(box, body=1)
        lost = await lose(box, body=2)
        await route(box, body=3)
        assert await hear_soon(reader, 3) == [1, 3, 2]
        # Its copy on the feed was only late.
        box.send(encode(lost))
        await route(box, body=4)
        assert await hear_soon(reader, 1) == [4]
    assert missing(box) == 0
    page = await box.request("GET", f"/trace/{lost.id}", port=box.gateway.admin_port)
    (seen,) = page.json()["sightings"]
    assert "delivered" in seen["steps"]


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


async def test_a_number_without_a_message_is_no_hole(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        first = await route(box, body=1)
        void = box.envelope()
        await box.store.void(log_of(first), [void.seq])
        await route(box, body=2)
        assert await hear_soon(reader, 2) == [1, 2]
        await until(lambda: missing(box) == 0)


async def test_what_nobody_has_stays_missing_until_an_operator_says_that_it_is_lost(
    box: Box,
) -> None:
    async with box.reader(TOPIC) as reader:
        first = await route(box, body=1)
        lost = box.envelope()
        await route(box, body=2)
        assert await hear_soon(reader, 2) == [1, 2]
        await until(lambda: missing(box) == 1)
        url = f"http://127.0.0.1:{box.gateway.admin_port}"
        words = ["logs", "missing", "--gateway", url]
        result = await asyncio.to_thread(CliRunner().invoke, cli, words)
        log = f"oregon oregon-router-1 {box.epoch}"
        assert (result.exit_code, result.output) == (0, f"{url}: {log}: {lost.seq}\n")
        # As `newsfabric logs void` does it.
        await box.store.void(log_of(first), [lost.seq])
        await until(lambda: missing(box) == 0)
        result = await asyncio.to_thread(CliRunner().invoke, cli, [*words, "--json"])
        assert json.loads(result.output) == {url: {"logs": [], "more": 0, "unlisted": []}}


async def test_the_directory_tells_where_a_log_ended_that_was_never_heard_to_its_end(
    engine: str,
) -> None:
    store = MemoryStore(TABLE)
    async with opened_box(engine, store=store) as box, box.reader(TOPIC) as reader:
        first = await route(box, body=1)
        half = box.envelope()
        last = await lose(box, body=3)
        log = log_of(first)
        await store.list_log(log)
        ended = DirectoryRow(log, 2, low=0, ended=last.seq, voids=((half.seq, half.seq),))
        assert await store.change_log(ended)
        assert await hear_soon(reader, 2) == [1, 3]
        await until(lambda: missing(box) == 0)
        known = box.gateway.core.hub.logs.find(log)
        assert known is not None
        await until(lambda: known.is_whole)


async def test_what_was_under_way_when_a_gateway_began_is_delivered(engine: str) -> None:
    store = MemoryStore(TABLE)
    async with opened_box(engine, store=store) as box:
        past = await route(box, body="past")
        await settle(store, past)
        async with box.reader() as reader:
            await until(lambda: box.gateway.core.hub.memory(TOPIC).arrived == 1)
            position = (await reader.subscribe(TOPIC))["position"]
        under_way = await lose(box, body="under way")
    async with opened_box(engine, store=store) as fresh, fresh.reader() as reader:
        # It may be found before the reader is there, or after.
        await reader.subscribe(TOPIC, position=position)
        fresh.epoch, fresh.numbers = box.epoch, box.numbers
        tick(fresh, under_way.seq)
        assert await hear_soon(reader, 1) == ["under way"]


@pytest.mark.promise("D7")
async def test_of_a_router_started_twice_with_one_name_each_log_is_whole(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        for seq in (1, 2, 3):
            for epoch in (box.epoch, box.epoch + 1):
                one = await lose(box, body=[epoch, seq], seq=seq, epoch=epoch)
                if seq != 2:
                    box.send(encode(one, low=seq - 1))
        bodies = await hear_soon(reader, 6)
        assert sorted(bodies) == [[box.epoch + n, seq] for n in (0, 1) for seq in (1, 2, 3)]
        assert missing(box) == 0


@pytest.mark.promise("S5")
@pytest.mark.parametrize("skew", [-7_200, -5, 5, 7_200])
async def test_routers_clocks_may_be_wrong(box: Box, skew: float) -> None:
    def ms() -> int:
        return int((time.time() + skew) * 1000)

    async with box.reader(TOPIC) as reader:
        await route(box, body=1, ms=ms())
        await lose(box, body=2, ms=ms(), router="oregon-router-1")
        await route(box, body=3, ms=ms())
        await route(box, body=4, router="oregon-router-2", seq=1, ms=ms())
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
    """A store that calls ``answer`` with each read of numbers; None: it works."""

    answer: Callable[[list[Number]], Any] | None = None
    away = False
    asked = 0

    async def numbers(self, *args: Any, **kwargs: Any) -> list[Number]:
        self.asked += 1
        page = await super().numbers(*args, **kwargs)
        if self.answer is None:
            return page
        answer = self.answer(page)
        return await answer if asyncio.iscoroutine(answer) else answer

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        if self.away:
            raise StoreUnavailable("away")
        return await super().log_days(at_home=at_home)


def away(page: Sequence[Number]) -> Any:
    raise StoreUnavailable("away")


def bug(page: Sequence[Number]) -> Any:
    raise KeyError("a driver's bug")


async def silence(page: Sequence[Number]) -> Any:
    await asyncio.sleep(3600)


def half(page: Sequence[Number]) -> Any:
    return [Number(one.seq, NumberState.HALF) for one in page]


def others(page: Sequence[Number]) -> Any:
    return [Number(2**62 + n, NumberState.MESSAGE, envelope(n + 1)) for n in range(500)]


def repeated(page: Sequence[Number]) -> Any:
    return [Number(1, NumberState.HALF)] * 500


def strangers(page: Sequence[Number]) -> Any:
    return [None, 7, "x"]


@pytest.mark.parametrize("answer", [away, bug, silence, half, others, repeated, strangers])
async def test_a_store_that_fails_or_talks_nonsense_is_asked_again(
    engine: str, answer: Callable[[list[Number]], Any]
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


async def test_a_row_that_is_no_json_is_passed_over(box: Box) -> None:
    async with box.reader(TOPIC) as reader:
        await route(box, body=1)
        corrupt = dataclasses.replace(box.envelope(), body=b"{")
        await box.store.write([corrupt])
        await route(box, body=3)
        assert await hear_soon(reader, 2) == [1, 3]
        await until(lambda: missing(box) == 0)


async def test_a_gateway_isnt_ready_before_it_has_read_the_directory(engine: str) -> None:
    store = BrokenStore(TABLE)
    store.away = True
    async with opened_box(engine, store=store) as box:
        core = box.gateway.core
        await until(lambda: "logs" in core.readiness().waiting_for)
        answer = await box.request("GET", "/healthz/ready")
        assert answer.status == 503
        store.away = False

        def fed_and_ready() -> bool:
            # A tick counts for five seconds, which may have passed on a busy machine.
            with contextlib.suppress(LinkError):
                box.tick()
            return core.readiness().ready

        await until(fed_and_ready)


async def test_a_gateway_is_ready_when_it_has_heard_the_logs_that_live(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This router's row never moves: on a busy machine the router would count as dead.
    monkeypatch.setattr("gateway.logs.reading._MOVES_WITHIN", 3600)
    store = BrokenStore(TABLE)
    async with opened_box(engine, store=store) as box:
        routed = [await lose(box, body=n) for n in (1, 2)]
        await settle(store, routed[0])
    store.answer = away
    async with opened_box(engine, store=store) as fresh:
        core = fresh.gateway.core
        fresh.epoch = box.epoch
        # On a busy machine a gateway may start before it has read the directory.
        await core.follower.begun.wait()
        fresh.tick(seq=2, low=2)
        await until(lambda: missing(fresh) == 1)
        # Number 2 is missing; its first tick has reported it.
        assert "logs" in core.readiness().waiting_for
        store.answer = None
        await until(lambda: "logs" not in core.readiness().waiting_for)


async def test_what_was_repaired_is_counted(box: Box) -> None:
    samples = [
        "newsfabric_gateway_recovered_messages_total",
        "newsfabric_gateway_repair_seconds_count",
    ]
    before = [await box.metric(sample) for sample in samples]
    async with box.reader(TOPIC) as reader:
        await route(box, body=1)
        await lose(box, body=2)
        await route(box, body=3)
        await hear_soon(reader, 3)
        await until(lambda: missing(box) == 0)
    after = [await box.metric(sample) for sample in samples]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]
    assert await box.metric("newsfabric_gateway_holes_open") == 0


async def test_a_log_with_too_many_holes_is_read_in_its_order(engine: str) -> None:
    async with (
        opened_box(engine, logs=LogLimits(runs=3)) as box,
        box.reader(TOPIC) as reader,
    ):
        for n in range(1, 21):
            one = await lose(box, body=n)
            if n % 2 == 0:
                box.send(encode(one))
        tick(box, 20)
        heard = await hear_soon(reader, 20)
        assert sorted(heard) == list(range(1, 21))
        assert await box.metric("newsfabric_gateway_left_messages_total") > 0


@pytest.mark.promise("D1", "D5")
async def test_what_a_region_that_was_cut_off_routed_comes_once_and_no_copy_of_it(
    engine: str,
) -> None:
    # An identity is forgotten after a few more messages.
    async with (
        opened_box(engine, hub=HubLimits(identities=5)) as box,
        box.reader(TOPIC) as reader,
    ):
        ago = int(time.time() * 1000) - 200_000
        far = {"origin": "dublin", "router": "dublin-router-1"}
        both = await route(box, body="both", ms=ago)
        tick(box, both.seq)
        assert await hear_soon(reader, 1) == ["both"]
        # The topic's memory keeps ten, so only a look-up in the stores finds it now.
        for n in range(10):
            await route(box, body=n)
        assert await hear_soon(reader, 10) == [*range(10)]
        copy = {"message_id": both.message_id, "identity": both.identity}
        duplicates = await box.metric("newsfabric_gateway_duplicates_total")
        await lose(box, **far, **copy, body="both", seq=1, ms=ago + 1_000)
        await lose(box, **far, body="unheard", seq=2, ms=ago + 2_000)
        tick(box, 2, **far)
        assert await hear_soon(reader, 1) == ["unheard"]
        await until(lambda: missing(box) == 0)
        # Copies that repair finds are counted as those of the feed are.
        assert await box.metric("newsfabric_gateway_duplicates_total") == duplicates + 1


async def test_a_late_message_waits_until_every_region_can_say_whether_a_copy_was_given(
    engine: str,
) -> None:
    class CutStore(MemoryStore):
        cut = True

        async def since(self, topic: str, **asked: Any) -> list[Envelope]:
            if self.cut and asked.get("region") == "dublin":
                raise StoreUnavailable("dublin is cut off")
            return await super().since(topic, **asked)

    store = CutStore(TABLE)
    async with opened_box(engine, store=store) as box, box.reader(TOPIC) as reader:
        tick(box, 0, origin="dublin", router="dublin-router-1")
        late = await lose(box, body="late", ms=int(time.time() * 1000) - 200_000)
        tick(box, late.seq)
        await route(box, body="live")
        assert await hear_soon(reader, 1) == ["live"]
        await until(lambda: missing(box) == 1)
        store.cut = False
        assert await hear_soon(reader, 1) == ["late"]


async def test_a_gateway_names_such_a_log_and_its_readers_have_its_messages(
    engine: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("gateway.logs.unlisted._PATIENCE", 0.0)
    monkeypatch.setattr("gateway.feed.follower._DIRECTORY_SECONDS", 0.01)
    async with opened_box(engine) as box, box.reader(TOPIC) as reader:
        made = box.publish(body=1)
        assert await reader.hear_bodies(1) == [1]
        await until(lambda: box.gateway.core.follower.unlisted.logs != [])
        name = f"oregon oregon-router-1 {box.epoch}"
        assert f"oregon: no directory lists oregon-router-1 of {box.epoch}" in caplog.text
        url = f"http://127.0.0.1:{box.gateway.admin_port}"
        words = ["logs", "missing", "--gateway", url]
        result = await asyncio.to_thread(CliRunner().invoke, cli, words)
        lines = [f"{url}: nothing is missing", f"{url}: {name}: not in the directory", ""]
        assert (result.exit_code, result.output) == (0, "\n".join(lines))
        result = await asyncio.to_thread(CliRunner().invoke, cli, [*words, "--json"])
        log = {"region": made.origin, "router": made.router, "epoch": made.epoch}
        assert json.loads(result.output)[url]["unlisted"] == [log]


async def test_a_tick_of_another_year_makes_no_message_late(engine: str) -> None:
    async with opened_box(engine) as box, box.reader(TOPIC) as reader:
        box.publish(body=1)
        assert await reader.hear_bodies(1) == [1]
        left = value(measures.LEFT_TO_FOLLOWER)
        next_year = int(time.time() * 1000) + 365 * 86_400_000
        tick(box, 0, origin="nowhere", router="no-router", sent_ms=next_year)
        box.publish(body=2)
        assert await reader.hear_bodies(1) == [2]
        assert value(measures.LEFT_TO_FOLLOWER) == left

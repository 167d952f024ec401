"""A router over a broker and a store in memory: its input and its output."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging

import pytest
from core_cluster import EPOCH, CoreCluster, message, running, until
from metric_values import value
from shovelled import shovelled

from gateway.logs.logs import Logs
from gateway.memory.hub import Dropped, Hub
from newsfabric.amqp import Message
from newsfabric.amqp.message import SHOVELLED
from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.control import Canary, encode_canary, revocation
from newsfabric.messages.envelope import ms_of_id, taken_ms
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import REVOKED, TopicPolicy, TopicTable
from wholesale.router import counters
from wholesale.router import router as router_module
from wholesale.router.counters import FORGED_CANARIES
from wholesale.router.router import Router
from wholesale.router.window import IdentityWindow


async def test_a_message_is_stored_routed_here_and_to_the_others_and_acknowledged(
    core: CoreCluster,
):
    async with running(core) as router:
        core.publish(message(body=b'{"headline":1}', headers={"key": "k"}, message_id="m1"))
        await core.none_owed(router)
        (here,) = core.envelopes("postoffice")
        assert (here.topic, here.body, here.seq) == ("news.world", b'{"headline":1}', 1)
        assert core.envelopes("outbound") == [here]
        assert await core.store.history("news.world", limit=10) == [here]
    core.link.lose()
    assert core.broker.depth("router.1") == 0


async def test_a_thousand_messages_leave_in_the_order_of_their_numbers(core: CoreCluster):
    async with running(core) as router:
        core.publish(*(message(message_id=str(n)) for n in range(1000)))
        await core.none_owed(router)
        assert [e.seq for e in core.envelopes("postoffice")] == list(range(1, 1001))
        assert [e.message_id for e in core.envelopes("outbound")] == list(map(str, range(1000)))


@pytest.mark.promise("R1", "R5")
async def test_a_receipt_comes_when_it_is_stored_and_routed(core: CoreCluster):
    async with running(core) as router:
        core.publish(message(reply_to="me", correlation_id="c1", message_id="m1"))
        await core.none_owed(router)
        (receipt,) = core.receipts()
        (routed,) = core.envelopes()
        assert (receipt.status, receipt.id, receipt.repeated) == ("routed", routed.id, False)
        assert core.arrived("receipts")[0].topic == "me"


async def test_without_reply_to_there_is_no_receipt(core: CoreCluster):
    async with running(core) as router:
        core.publish(message())
        await core.none_owed(router)
        assert core.receipts() == []


async def test_a_revocation_of_the_operators_is_stored_and_routed_as_gold(core: CoreCluster):
    async with running(core) as router:
        properties = {"reply_to": "me", "correlation_id": "c1"}
        made = revocation("42", EPOCH)
        core.publish(
            dataclasses.replace(made, properties=dataclasses.replace(made.properties, **properties))
        )
        await core.none_owed(router)
        (routed,) = core.envelopes()
        assert core.envelopes("outbound") == await core.store.history(REVOKED, limit=9) == [routed]
        assert [receipt.status for receipt in core.receipts()] == ["routed"]


async def test_a_revocation_of_a_publishers_is_rejected_whatever_it_has_put_into_its_headers(
    core: CoreCluster,
):
    async with running(core) as router:
        made = revocation("42", EPOCH)
        marks = ({SHOVELLED: []}, {SHOVELLED: "no"}, {SHOVELLED: None})
        for headers in (*marks, shovelled("publish.oregon.1")):
            properties = dataclasses.replace(made.properties, headers=headers)
            core.publish(dataclasses.replace(made, properties=properties))
        await core.none_owed(router)
        assert core.envelopes() == []
        assert len(core.arrived("rejected")) == 4


class Clocks:
    """The machine's clock, the store's, and the monotonic one."""

    def __init__(self) -> None:
        self.wall_ms, self.now = EPOCH, 1_000.0

    def go_on(self, seconds: float) -> None:
        self.wall_ms += int(seconds * 1000)
        self.now += seconds

    def router_on(self, core: CoreCluster) -> contextlib.AbstractAsyncContextManager[Router]:
        return running(
            core,
            now_ms=lambda: self.wall_ms,
            now=lambda: self.now,
            awake=lambda: self.now,
        )


async def compared(router: Router) -> None:
    """Compare clocks after a jump: the store's agrees, so the clock is believed again."""
    await router._clock.compare()
    assert router.clock_is_right


@pytest.mark.promise("S1", "R3")
async def test_a_repeat_isnt_routed_again_but_answered_with_the_first_id(core: CoreCluster):
    clocks = Clocks()
    async with clocks.router_on(core) as router:
        core.publish(message(reply_to="me", message_id="m1"))
        await core.none_owed(router)
        clocks.go_on(9 * 60)
        core.publish(message(reply_to="me", message_id="m1"))
        await core.none_owed(router)
        first, second = core.receipts()
        assert len(core.envelopes()) == 1
        assert second.repeated
        assert second.id == first.id
        assert ms_of_id(first.id or "") == EPOCH


@pytest.mark.promise("S1", "S3", "R3")
@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000], ids=["forward", "back"])
async def test_a_repeat_is_known_whatever_the_machines_clock_does(core: CoreCluster, step_ms: int):
    clocks = Clocks()
    async with clocks.router_on(core) as router:
        core.publish(message(reply_to="me", message_id="m1"))
        await core.none_owed(router)
        clocks.wall_ms += step_ms
        await compared(router)
        clocks.go_on(9 * 60)
        core.publish(message(reply_to="me", message_id="m1"))
        await core.none_owed(router)
        first, second = core.receipts()
        assert (len(core.envelopes()), second.repeated) == (1, True)
        assert (second.id, ms_of_id(first.id or "")) == (first.id, EPOCH)


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    "step_ms", [0, 3_600_000, -3_600_000], ids=["right", "an hour forward", "an hour back"]
)
async def test_after_a_quarter_of_an_hour_it_is_routed_again(core: CoreCluster, step_ms: int):
    clocks = Clocks()
    async with clocks.router_on(core) as router:
        core.publish(message(message_id="m1"))
        await core.none_owed(router)
        clocks.wall_ms += step_ms
        await compared(router)
        clocks.go_on(15 * 60)
        core.publish(message(message_id="m1"))
        await until(lambda: router.stream.seq == 2)
        await core.none_owed(router)
        first, second = core.envelopes()
        assert (first.identity, first.seq + 1) == (second.identity, second.seq)


@pytest.mark.promise("S2")
async def test_of_two_bodies_that_met_different_routers_readers_and_history_have_the_first(
    core: CoreCluster,
):
    async with running(core) as first:
        core.publish(message(body=b'"first"', message_id="m1"))
        await core.none_owed(first)
    other = {"name": "oregon-router-2", "link": core.broker.connect()}
    async with running(core, now_ms=lambda: EPOCH + 5, **other) as second:
        core.publish(message(body=b'"second"', message_id="m1"))
        await core.none_owed(second)
    drops: list[Dropped] = []
    hub = Hub(core.topics, Logs(EPOCH), dropped=drops.append)
    given = [e.body for e in core.envelopes() if hub.offer(e, EPOCH / 1000) is not None]
    found = await core.store.history("news.world", limit=10)
    assert (given, [e.body for e in found]) == ([b'"first"'], [b'"first"'])
    assert drops == [Dropped.DIFFERING]


async def test_identities_that_had_to_go_early_are_counted(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(router_module, "IdentityWindow", functools.partial(IdentityWindow, most=3))
    monkeypatch.setattr(router_module, "TICK_SECONDS", 0.01)
    before = value(counters.EVICTED_EARLY)
    async with running(core) as router:
        core.publish(*(message(message_id=str(n)) for n in range(5)))
        await core.none_owed(router)
        await until(lambda: value(counters.EVICTED_EARLY) == before + 2)


@pytest.mark.promise("R3")
async def test_copies_that_come_together_are_routed_once_and_each_is_answered(core: CoreCluster):
    async with running(core) as router:
        core.publish(*(message(reply_to="me", message_id="m1") for _ in range(5)))
        await core.none_owed(router)
        assert len(core.envelopes()) == 1
        assert [r.repeated for r in core.receipts()] == [False, True, True, True, True]


@pytest.mark.promise("S2")
async def test_of_two_bodies_under_one_message_id_the_first_wins_and_it_is_reported_once(
    core: CoreCluster, caplog: pytest.LogCaptureFixture
):
    before = value(counters.DIFFERING)
    async with running(core) as router:
        core.publish(*(message(body=b"%d" % n, message_id="m1") for n in range(4)))
        await core.none_owed(router)
        assert [e.body for e in core.envelopes()] == [b"0"]
    assert value(counters.DIFFERING) == before + 3
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1


@pytest.mark.promise("S5")
@pytest.mark.parametrize("hours", [-30, 30])
async def test_a_publishers_clock_is_shown_and_decides_nothing(core: CoreCluster, hours: int):
    published_ms = EPOCH + hours * 3_600_000
    async with running(core) as router:
        core.publish(
            message(message_id="1"),
            message(message_id="2", headers={"timestamp_in_ms": published_ms}),
            message(message_id="3"),
        )
        await core.none_owed(router)
        routed = core.envelopes()
    assert [e.message_id for e in routed] == ["1", "2", "3"]
    assert [ms_of_id(e.id) for e in routed] == [EPOCH] * 3
    assert [taken_ms(e) for e in routed] == [EPOCH] * 3
    assert [e.published_ms for e in routed] == [EPOCH, published_ms, EPOCH]
    assert await core.store.history("news.world", limit=10) == sorted(routed, key=lambda e: e.id)


async def test_what_publishers_say_of_their_time_is_measured_apart(core: CoreCluster):
    def figures() -> tuple[int, float, float]:
        age = counters.CLAIMED_AGE
        return sum(age.counts), age.sum, value(counters.CLAIMED_AHEAD)

    before = figures()
    async with running(core) as router:
        core.publish(message(message_id="says nothing"))
        for n, offset in enumerate((-7_200_000, -500, 1, 7_200_000)):
            sent = message(message_id=str(n), headers={"timestamp_in_ms": EPOCH + offset})
            # A repeat is no new message.
            core.publish(sent, sent)
        await core.none_owed(router)
    changes = [now - then for then, now in zip(before, figures(), strict=True)]
    assert changes == [2, pytest.approx(7_200.5), 2]


@pytest.mark.promise("D7")
async def test_a_router_started_twice_with_one_name_numbers_two_streams(core: CoreCluster):
    other = core.broker.connect()
    async with (
        running(core, prefetch=300) as first,
        running(core, prefetch=300, epoch=EPOCH + 1, link=other) as second,
    ):
        core.publish(*(message(message_id=str(n), reply_to="me") for n in range(400)))
        await until(lambda: len(core.receipts()) == 400)
        await core.none_owed(first)
        await core.none_owed(second)
        routed = core.envelopes()
        for router in (first, second):
            ours = [e.seq for e in routed if e.epoch == router.stream.log.epoch]
            assert ours == list(range(1, router.stream.seq + 1))
            assert ours


BAD: dict[str, tuple[str, Message]] = {
    "not JSON": ("not_json", message(body=b"{not json")),
    "JSON cut off": ("not_json", message(body=b'{"a":')),
    "not UTF-8": ("not_utf8", message(body=b'"\xff\xfe"')),
    "empty": ("empty_body", message(body=b"")),
    "too large": ("too_large", message(body=b'"' + b"x" * 65_535 + b'"')),
    "forbidden topic": ("topic_not_allowed", message("sport.today")),
    "the fabric's own word": ("topic_not_allowed", message("_fabric.tick.oregon")),
    "malformed topic": ("bad_topic", message("news..world")),
    "topic that isn't UTF-8": ("bad_topic", message("news.\udcff")),
    "key that is no text": ("bad_header", message(headers={"key": 7})),
    "negative version": ("bad_header", message(headers={"version": -1})),
    "traceparent": ("bad_header", message(headers={"traceparent": "yes"})),
    "content type": ("bad_property", message(content_type="text/xml")),
    "timestamp": ("bad_property", message(timestamp=2**60)),
    "message_id that isn't UTF-8": ("bad_property", message(message_id="\udcff")),
}


@pytest.mark.promise("R2")
@pytest.mark.parametrize(("reason", "bad"), BAD.values(), ids=BAD.keys())
async def test_bad_input_is_rejected_with_its_bytes_counted_answered_and_gone(
    core: CoreCluster, reason: str, bad: Message
):
    before = _rejected(reason)
    asked = dataclasses.replace(bad.properties, reply_to="me", correlation_id="c1")
    bad = dataclasses.replace(bad, properties=asked)
    async with running(core) as router:
        core.publish(bad, message(message_id="good"))
        await core.none_owed(router)
        (evidence,) = core.arrived("rejected")
        assert (evidence.topic, evidence.body) == (reason, bad.body)
        assert evidence.properties.headers["reason"] == reason
        (receipt,) = core.receipts()
        assert (receipt.status, receipt.reason) == ("rejected", reason)
        assert _rejected(reason) == before + 1
        assert [e.message_id for e in core.envelopes()] == ["good"]
    core.link.lose()
    assert core.broker.depth("router.1") == 0


def _rejected(reason: str) -> float:
    return value(counters.REJECTED[reason])


async def test_a_tick_names_the_last_number_in_both_exchanges(core: CoreCluster):
    async with running(core) as router:
        core.publish(message())
        await core.none_owed(router)
        core.arrived("outbound")
        await router.tick()
        (tick,) = core.ticks()
        assert (tick.origin, tick.router, tick.epoch) == ("oregon", "oregon-router-1", EPOCH)
        assert (tick.seq, tick.low) == (1, 1)
        assert len(core.broker.pop_messages(core.taps["outbound"])) == 1


async def test_two_routers_share_the_work_and_have_streams_of_their_own(core: CoreCluster):
    other = core.broker.connect()
    async with (
        running(core, prefetch=10) as first,
        running(core, name="oregon-router-2", link=other, prefetch=10) as second,
    ):
        core.publish(*(message(message_id=str(n)) for n in range(200)))
        await until(lambda: len(core.envelopes()) == 200)
        await core.none_owed(first)
        await core.none_owed(second)
        assert first.stream.seq + second.stream.seq == 200
        assert {e.message_id for e in core.envelopes()} == set(map(str, range(200)))
        by_router = [e.seq for e in core.envelopes() if e.router == "oregon-router-2"]
        assert by_router == list(range(1, second.stream.seq + 1))
        assert by_router


async def test_copies_of_a_message_race_and_the_winners_way_is_in_its_path(core: CoreCluster):
    async with running(core) as router:
        core.publish(
            *(
                message("live.x", message_id="m1", headers=shovelled(way))
                for way in ("publish.oregon.2", "publish.dublin.1")
            )
        )
        await core.none_owed(router)
    (routed,) = core.envelopes("postoffice")
    assert routed.path == (f"publish.oregon.2@{EPOCH}", f"oregon-router-1@{EPOCH}")


async def test_what_a_publisher_wrote_where_shovels_write_is_no_hop(core: CoreCluster):
    async with running(core) as router:
        for n, forged in enumerate(("../../etc", "publish.oregon.1@0", "postoffice.1", "p" * 200)):
            core.publish(message("live.x", message_id=f"m{n}", headers=shovelled(forged)))
        await core.none_owed(router)
    assert [e.path for e in core.envelopes()] == [(f"oregon-router-1@{EPOCH}",)] * 4


@pytest.mark.parametrize("way", ["publish.oregon.1.2", "publish.dublin.1", "publish.dublin.1.2"])
async def test_what_isnt_gold_doesnt_come_by_the_ways_that_only_gold_takes(
    core: CoreCluster, way: str
):
    refused_before = value(counters.REJECTED["cc_not_allowed"])
    async with running(core) as router:
        for topic in ("news.world", "live.x"):
            for shovel in ("publish.oregon.1", way):
                headers = shovelled(shovel)
                core.publish(message(topic, message_id=topic, reply_to="me", headers=headers))
        await core.none_owed(router)
    assert sorted(e.topic for e in core.envelopes()) == ["live.x", "news.world"]
    # The message is answered where it arrived as it should; its copy alone is refused.
    assert {(r.topic, r.status) for r in core.receipts()} == {
        ("news.world", "routed"),
        ("live.x", "routed"),
    }
    (evidence,) = core.arrived("rejected")
    assert evidence.properties.headers["topic"] == "news.world"
    assert value(counters.REJECTED["cc_not_allowed"]) == refused_before + 1


async def test_silver_within_a_pattern_of_gold_comes_by_golds_ways_too() -> None:
    topics = TopicTable(
        [
            TopicPolicy(pattern="news.weather", topic_class="silver"),
            TopicPolicy(pattern="news.*", topic_class="gold"),
        ]
    )
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), MemoryStore(topics, now_ms=lambda: EPOCH), topics)
    await core.open()
    async with running(core) as router:
        for shovel in ("publish.oregon.2", "publish.oregon.1"):
            headers = shovelled(shovel)
            core.publish(message("news.weather", message_id="m", reply_to="me", headers=headers))
        await core.none_owed(router)
    assert [e.message_id for e in core.envelopes()] == ["m"]
    assert core.arrived("rejected") == []


async def test_canaries_end_here_and_are_no_ones_message(core: CoreCluster):
    async with running(core) as router:
        core.publish(
            encode_canary(Canary(region="oregon", token="t", sent_ms=1)),
            dataclasses.replace(message(), topic="_fabric.canary.oregon"),
        )
        await core.none_owed(router)
        assert core.envelopes() == []
        # The second one only had a canary's address.
        (refused,) = core.arrived("rejected")
        assert refused.topic == "topic_not_allowed"
    core.link.lose()
    assert core.broker.depth("router.1") == 0


@pytest.mark.parametrize("login", [None, "cms", "keeper.dublin", "keeper", "frontdesk.oregon"])
async def test_a_canary_that_is_no_keepers_is_counted(core: CoreCluster, login: str | None):
    canary = Canary(region="oregon", token="t", sent_ms=1)
    before = value(FORGED_CANARIES)
    async with running(core) as router:
        core.publish(
            encode_canary(canary, user_id=login), encode_canary(canary, user_id="keeper.oregon")
        )
        await core.none_owed(router)
    assert value(FORGED_CANARIES) == before + 1

"""The hub: each topic in the order of arrival, nothing twice, everything bounded."""

from __future__ import annotations

from typing import Any

import pytest
from envelopes import START_MS, envelope
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.frames import Variant
from gateway.hub import Hub, HubLimits, Subscription
from gateway.publication import Publication
from gateway.streams import Streams
from newsfabric.closing import CloseReason
from newsfabric.control import Tick
from newsfabric.topics import TopicPolicy, TopicTable

NOW = START_MS / 1000
TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.*", keep=5, latest=True),
        TopicPolicy(pattern="tick.*", keep=0),
        TopicPolicy(pattern="other.#", keep=3),
    ]
)


class Taker:
    """A subscriber that keeps what it is given."""

    variant = Variant.RAW

    def __init__(self, transport: str = "websocket") -> None:
        self.transport = transport
        self.got: list[int] = []

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        self.got.append(publication.envelope.seq)
        return True

    def close(self, reason: CloseReason) -> None:
        raise AssertionError(reason)


def hub(**limits: Any) -> Hub:
    # Begun after the routers.
    return Hub(TABLE, Streams(NOW + 60), HubLimits(**limits))


def publish(hub: Hub, *args: Any, now: float = NOW, **fields: Any) -> Publication | None:
    publication = hub.offer(envelope(*args, **fields), now)
    if publication is not None:
        send(hub, publication)
    return publication


def send(hub: Hub, publication: Publication) -> None:
    for _, group in hub.audience(publication.envelope.topic):
        for subscription in group:
            subscription.subscriber.deliver(b"", publication)


def seqs(publications: list[Publication]) -> list[int]:
    return [publication.envelope.seq for publication in publications]


def test_subscribers_get_what_comes_after_they_subscribed() -> None:
    box, taker = hub(), Taker()
    publish(box, 1)
    subscription = box.subscribe("news.breaking", taker)
    publish(box, 2)
    publish(box, 3, topic="news.world")
    box.unsubscribe(subscription)
    box.unsubscribe(subscription)
    publish(box, 4)
    assert taker.got == [2]


def test_the_audience_is_grouped_by_transport() -> None:
    box = hub()
    subscriptions = [box.subscribe("news.a", Taker(t)) for t in ("sse", "websocket", "sse")]
    assert box.audience("news.a") == (
        ("sse", (subscriptions[0], subscriptions[2])),
        ("websocket", (subscriptions[1],)),
    )
    assert box.audience("news.b") == ()


def test_a_copy_is_not_published_whatever_stream_it_comes_by() -> None:
    box = hub()
    assert publish(box, 1) is not None
    assert publish(box, 900, message_id="message-1", router="dublin-router-1") is None
    assert box.copies == 1
    assert box.streams.mark("dublin-router-1", START_MS) == 900


@pytest.mark.promise("S2")
def test_a_copy_with_another_body_is_counted_while_the_first_is_remembered() -> None:
    box = hub()
    publish(box, 1, message_id="a", body=b'"first"')
    for router, body in (("dublin-router-1", b'"first"'), ("dublin-router-2", b'"second"')):
        assert publish(box, 1, router=router, message_id="a", body=body) is None
    assert (box.copies, box.differing) == (2, 1)
    assert [p.envelope.body for p in box.memory("news.breaking").last(10, NOW).publications] == [
        b'"first"'
    ]


def test_a_copy_is_known_as_long_as_its_message_is_remembered() -> None:
    box = hub(identity_seconds=60)
    publish(box, 1)
    assert publish(box, 1, now=NOW + 10_000) is None
    for n in range(2, 8):
        publish(box, n, now=NOW + 10_000)
    assert publish(box, 1, now=NOW + 20_000) is not None


def test_a_message_of_an_unknown_topic_is_counted_and_its_number_seen() -> None:
    box = hub()
    publish(box, 1)
    assert publish(box, 2, topic="sport.chess") is None
    assert box.unknown_topics == 1
    assert box.streams.mark("oregon-router-1", START_MS) == 2


def test_a_tick_reaches_the_streams() -> None:
    box = hub()
    publish(box, 1)
    tick = Tick(origin="oregon", router="oregon-router-1", epoch=START_MS, seq=4, sent_ms=START_MS)
    box.ticked(tick, NOW)
    assert box.streams.missing() == {("oregon-router-1", START_MS): [(2, 4)]}


def test_a_publication_carries_the_position_after_it() -> None:
    box = hub()
    publication = publish(box, 1)
    assert publication is not None
    assert publication.position == box.streams.position(NOW)


def test_recent_messages_are_kept_in_the_order_of_arrival_up_to_keep() -> None:
    box = hub()
    for n in (3, 1, 2, 4, 5, 6, 7):
        publish(box, n)
    memory = box.memory("news.breaking")
    assert seqs(memory.last(3, NOW).publications) == [5, 6, 7]
    assert seqs(memory.last(100, NOW).publications) == [2, 4, 5, 6, 7]
    assert memory.last(3, NOW).covered
    assert not memory.last(100, NOW).covered


def test_a_topic_that_keeps_nothing_still_publishes_once() -> None:
    box, taker = hub(), Taker()
    box.subscribe("tick.a", taker)
    publish(box, 1, topic="tick.a")
    publish(box, 1, topic="tick.a")
    assert taker.got == [1]
    assert len(box.memory("tick.a")) == 0


def test_expired_messages_are_not_replayed() -> None:
    box = hub()
    publish(box, 1, expires_ms=START_MS + 1000, key="a")
    publish(box, 2, expires_ms=START_MS + 9000, key="b")
    memory = box.memory("news.breaking")
    assert seqs(memory.last(9, NOW + 5).publications) == [2]
    assert seqs(memory.with_latest([], NOW + 5)) == [2]


def test_latest_is_the_newest_version_of_each_key() -> None:
    box = hub()
    for n, (key, version) in enumerate([("a", 2), ("b", 1), ("a", 1), ("b", 2), (None, 9)], 1):
        publish(box, n, at=n, key=key, version=version)
    assert seqs(box.memory("news.breaking").with_latest([], NOW)) == [1, 4]


def test_latest_outlives_the_recent_messages() -> None:
    box = hub()
    publish(box, 1, at=1, key="a")
    for n in range(2, 9):
        publish(box, n, at=n)
    memory = box.memory("news.breaking")
    replay = memory.with_latest(memory.last(2, NOW).publications, NOW)
    assert seqs(replay) == [1, 7, 8]


def test_a_replay_has_each_message_once() -> None:
    box = hub()
    for n in range(1, 4):
        publish(box, n, at=n, key=f"k{n}")
    memory = box.memory("news.breaking")
    assert seqs(memory.with_latest(memory.last(2, NOW).publications, NOW)) == [1, 2, 3]


def test_keys_are_bounded() -> None:
    box = hub(keys=2)
    for n in range(1, 6):
        publish(box, n, at=n, key=f"k{n}")
    assert seqs(box.memory("news.breaking").with_latest([], NOW)) == [4, 5]


def test_history_goes_back_from_a_message() -> None:
    box = hub()
    for n in range(1, 6):
        publish(box, n, at=n)
    memory = box.memory("news.breaking")
    (newest,) = memory.last(1, NOW).publications
    found = memory.before(newest.envelope.id, 2, NOW)
    assert (seqs(found.publications), found.covered) == ([3, 4], True)
    assert not memory.before(newest.envelope.id, 20, NOW).covered
    assert not memory.before(envelope(99).id, 1, NOW).covered


def test_a_rewind_by_time_is_covered_if_memory_reaches_further_back() -> None:
    box = hub()
    for n in range(1, 6):
        publish(box, n, at=n * 1000)
    memory = box.memory("news.breaking")
    inside = memory.since(START_MS + 3000, NOW)
    assert (seqs(inside.publications), inside.covered) == ([3, 4, 5], True)
    assert not memory.since(START_MS, NOW).covered


def test_the_stores_past_goes_before_what_came_live() -> None:
    box = hub()
    publish(box, 3, at=3)
    fresh = box.warm(
        "news.breaking", [envelope(n, at=n) for n in (1, 2, 3)], [], complete=True, now=NOW
    )
    assert fresh == []
    found = box.memory("news.breaking").last(100, NOW)
    assert (seqs(found.publications), found.covered) == ([1, 2, 3], True)
    assert [p.position is None for p in found.publications] == [True, True, False]


def test_only_as_much_of_the_past_is_taken_as_is_kept() -> None:
    box = hub()
    publish(box, 20, at=20)
    box.warm("news.breaking", [envelope(n, at=n) for n in range(1, 11)], [], complete=True, now=NOW)
    found = box.memory("news.breaking").last(100, NOW)
    assert (seqs(found.publications), found.covered) == ([7, 8, 9, 10, 20], False)


def test_a_seeded_message_counts_as_seen() -> None:
    box = hub()
    publish(box, 50)
    box.warm("news.breaking", [envelope(1)], [], complete=True, now=NOW)
    assert publish(box, 1) is None
    for n in range(60, 70):
        publish(box, n)
    assert publish(box, 1) is None


def test_what_the_store_has_before_the_feed_is_published_to_those_who_are_there() -> None:
    """Otherwise its copy on the feed would be dropped and they would never get it."""
    box, taker = hub(), Taker()
    box.subscribe("news.breaking", taker)
    publish(box, 1)
    stored = [envelope(1), envelope(2, at=2)]
    fresh = box.warm("news.breaking", stored, [], complete=True, now=NOW)
    for publication in fresh:
        send(box, publication)
    publish(box, 2, at=2)
    assert taker.got == [1, 2]
    assert seqs(box.memory("news.breaking").last(9, NOW).publications) == [1, 2]


def test_a_stream_never_heard_of_is_the_past_and_not_news() -> None:
    box, taker = hub(), Taker()
    box.subscribe("news.breaking", taker)
    assert box.warm("news.breaking", [envelope(1)], [], complete=True, now=NOW) == []
    assert taker.got == []


def test_latest_versions_of_the_store_fill_up_and_never_replace_newer_ones() -> None:
    box = hub()
    publish(box, 10, at=10, key="a", version=3)
    stored = [
        envelope(2, at=2, key="a", version=2),
        envelope(3, at=3, key="b", version=1),
    ]
    box.warm("news.breaking", [], stored, complete=False, now=NOW)
    assert seqs(box.memory("news.breaking").with_latest([], NOW)) == [3, 10]


def test_older_messages_of_the_store_are_told_from_those_remembered() -> None:
    box = hub()
    for n in (5, 6):
        publish(box, n, at=n)
    older, fresh = box.absorb("news.breaking", [envelope(n, at=n) for n in (3, 4, 5, 7)], NOW)
    assert (seqs(older), seqs(fresh)) == ([3, 4], [7])


def test_what_is_remembered_elsewhere_is_sorted_by_the_streams_alone() -> None:
    box = hub()
    for n in (5, 6):
        publish(box, n, at=n)
    stored = [envelope(n, at=n) for n in (3, 4, 5, 7)]
    older, fresh = box.sort([*stored, envelope(8, topic="unknown")], NOW)
    assert (seqs(older), seqs(fresh)) == ([3, 4, 5], [7])
    # A copy by another router is no news.
    older, fresh = box.sort([envelope(7, at=7, seq=9)], NOW)
    assert (seqs(older), seqs(fresh)) == ([9], [])


@pytest.mark.parametrize("read", ["absorb", "sort"])
def test_what_a_reader_was_given_of_the_store_isnt_published_by_another_copy(read: str) -> None:
    box, taker = hub(), Taker()
    box.subscribe("news.breaking", taker)
    stored = [envelope(1)]
    older, _ = (
        box.absorb("news.breaking", stored, NOW) if read == "absorb" else box.sort(stored, NOW)
    )
    assert seqs(older) == [1]
    assert publish(box, 1, router="dublin-router-1", seq=7) is None
    assert taker.got == []


def test_a_rewind_of_hours_notes_no_identities() -> None:
    box = hub()
    later = NOW + 2 * box.limits.identity_seconds
    box.absorb("news.breaking", [envelope(1)], later)
    assert box.identities == 0


@pytest.mark.parametrize("read", ["absorb", "sort"])
def test_what_precedes_the_first_number_heard_is_news_if_it_was_routed_since_we_began(
    read: str,
) -> None:
    box = Hub(TABLE, Streams(NOW))
    epoch = START_MS - 3_600_000
    publish(box, 5, at=2_000, epoch=epoch)
    missed = [envelope(4, at=1_000, epoch=epoch)]
    older, fresh = (
        box.absorb("news.breaking", missed, NOW) if read == "absorb" else box.sort(missed, NOW)
    )
    assert (seqs(older), seqs(fresh)) == ([], [4])


def test_topics_without_subscribers_are_forgotten_least_recently_used_first() -> None:
    box = hub(topics=3)
    box.subscribe("other.a", Taker())
    for n, name in enumerate("bcd", 1):
        publish(box, n, topic=f"other.{name}")
    assert box.topics == 3
    publish(box, 9, topic="other.c")
    publish(box, 10, topic="other.e")
    assert box.topics == 3
    assert [len(box.memory(f"other.{name}")) for name in "ecb"] == [1, 2, 0]


def test_a_topic_that_doesnt_fit_is_published_but_not_remembered() -> None:
    box, taker = hub(topics=1), Taker()
    box.subscribe("other.a", taker)
    assert publish(box, 1, topic="other.b") is not None
    assert box.topics == 1
    publish(box, 2, topic="other.a")
    assert taker.got == [2]


def test_memory_is_bounded_in_bytes_also_where_everybody_is_subscribed() -> None:
    box = hub(memory_bytes=10_000)
    box.subscribe("news.breaking", Taker())
    for n in range(1, 20):
        publish(box, n, body=b'"%s"' % (b"x" * 1000))
    assert box.memory_bytes <= 10_000
    found = seqs(box.memory("news.breaking").last(9, NOW).publications)
    assert found == [17, 18, 19]


def test_asking_for_a_topic_that_isnt_one_is_a_bug() -> None:
    with pytest.raises(ValueError, match="no such topic"):
        hub().memory("nothing.known")


class HubMachine(RuleBasedStateMachine):
    """Random offers, copies, subscribes and warmings against the sentence of invariant 1."""

    topics = ("news.a", "other.b", "tick.c")

    @initialize()
    def start(self) -> None:
        self.hub = hub(topics=4, memory_bytes=20_000, identities=10_000)
        self.offered: list[int] = []
        self.arrived: dict[str, list[int]] = {topic: [] for topic in self.topics}
        self.takers: list[tuple[Taker, Subscription]] = []
        self.next = 1

    def topic_of(self, number: int) -> str:
        return self.topics[number % len(self.topics)]

    def offer(self, number: int, **fields: Any) -> None:
        topic = self.topic_of(number)
        made = envelope(number, at=number, topic=topic, key=f"k{number % 4}", **fields)
        publication = self.hub.offer(made, NOW)
        assert (publication is None) == (number in self.offered)
        if publication is not None:
            self.offered.append(number)
            self.arrived[topic].append(number)
            send(self.hub, publication)

    @rule()
    def new_message(self) -> None:
        self.offer(self.next)
        self.next += 1

    @rule()
    def message_overtakes(self) -> None:
        self.offer(self.next + 1)
        self.offer(self.next)
        self.next += 2

    @rule(data=st.data())
    def copy(self, data: st.DataObject) -> None:
        if self.offered:
            self.offer(data.draw(st.sampled_from(self.offered)), router="dublin-router-1")

    @rule(topic=st.sampled_from(topics), transport=st.sampled_from(["sse", "websocket"]))
    def subscribe(self, topic: str, transport: str) -> None:
        taker = Taker(transport)
        self.takers.append((taker, self.hub.subscribe(topic, taker)))

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        if self.takers:
            _, subscription = data.draw(st.sampled_from(self.takers))
            self.hub.unsubscribe(subscription)

    @rule(topic=st.sampled_from(topics), ahead=st.integers(0, 3))
    def warm(self, topic: str, ahead: int) -> None:
        numbers = [n for n in range(1, self.next + ahead) if self.topic_of(n) == topic]
        stored = [envelope(n, at=n, topic=topic, key=f"k{n % 4}") for n in numbers]
        for publication in self.hub.warm(topic, stored, [], complete=True, now=NOW):
            number = publication.envelope.seq
            assert number not in self.offered
            self.offered.append(number)
            self.arrived[topic].append(number)
            send(self.hub, publication)
        # Before the first message nothing is known of the stream: all of it is the past.
        self.offered += [n for n in numbers if n not in self.offered]

    @invariant()
    def each_taker_has_a_run_of_what_arrived_in_that_order(self) -> None:
        for taker, subscription in getattr(self, "takers", []):
            arrived = self.arrived[subscription.topic]
            assert len(taker.got) == len(set(taker.got))
            if taker.got:
                start = arrived.index(taker.got[0])
                assert arrived[start : start + len(taker.got)] == taker.got

    @invariant()
    def it_is_bounded(self) -> None:
        if hasattr(self, "hub"):
            assert self.hub.topics <= 4
            assert self.hub.memory_bytes <= 20_000

    @invariant()
    def memory_has_nothing_twice(self) -> None:
        if hasattr(self, "hub"):
            for topic in self.topics:
                found = self.hub.memory(topic).with_latest(
                    self.hub.memory(topic).last(1000, NOW).publications, NOW
                )
                assert len(found) == len(set(seqs(found)))


TestHubMachine = HubMachine.TestCase


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=30))
def test_latest_agrees_with_a_plain_model(steps: list[tuple[str, int]]) -> None:
    box = hub()
    best: dict[str, tuple[int, int]] = {}
    for n, (key, version) in enumerate(steps, 1):
        publish(box, n, at=n, key=key, version=version)
        best[key] = max(best.get(key, (-1, 0)), (version, n))
    found = seqs(box.memory("news.breaking").with_latest([], NOW))
    assert sorted(found) == sorted(n for _, n in best.values())

"""The hub: each topic in the order of arrival, nothing twice, everything bounded."""

from __future__ import annotations

from typing import Any

import pytest
from envelopes import START_MS, envelope
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.logs.logs import Logs, ReturningReader
from gateway.memory.hub import Dropped, Hub, HubLimits
from gateway.memory.kept_topics import TopicSubscription
from gateway.wire.frames import Framing
from gateway.wire.position import UNKNOWN, Copy, Position, decode
from gateway.wire.publication import Publication
from newsfabric.closing import CloseReason
from newsfabric.messages.envelope import Envelope
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.topics import TopicPolicy, TopicTable

NOW = START_MS / 1000
OREGON = Log("oregon", "oregon-router-1", START_MS)
DUBLIN = Log("dublin", "dublin-router-1", START_MS)
TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.*", keep=5, latest=True),
        TopicPolicy(pattern="tick.*", keep=0),
        TopicPolicy(pattern="other.#", keep=3),
    ]
)


class Taker:
    """A subscriber that keeps all it is given."""

    framing = Framing.RAW

    def __init__(self, transport: str = "websocket") -> None:
        self.transport = transport
        self.got: list[int] = []

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        self.got.append(publication.envelope.seq)
        return True

    def close(self, reason: CloseReason) -> None:
        raise AssertionError(reason)


class MonotonicClock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 5_000.0

    def __call__(self) -> float:
        return self.now


def hub(
    low: int = 0,
    *,
    clock: MonotonicClock | None = None,
    drops: list[Dropped] | None = None,
    **limits: Any,
) -> Hub:
    """Return a hub that began when Oregon had routed ``low`` messages, which are past. ``drops``
    gets the reasons of dropped envelopes."""
    logs = Logs(START_MS)
    logs.begin([DirectoryRow(OREGON, low=low)], now=NOW)
    noted = [] if drops is None else drops
    return Hub(
        TABLE, logs, HubLimits(**limits), clock=clock or MonotonicClock(), dropped=noted.append
    )


def copy(number: int, **fields: Any) -> Envelope:
    """Return Dublin's copy of message ``number``, by default under the same number."""
    place = {"origin": DUBLIN.region, "router": DUBLIN.router, "epoch": DUBLIN.epoch}
    return envelope(number, **{**place, **fields})


def mark(hub: Hub, log: Log) -> int:
    known = hub.logs.find(log)
    assert known is not None
    return known.mark


def publish(hub: Hub, *args: Any, now: float = NOW, **fields: Any) -> Publication | None:
    publication = hub.offer(envelope(*args, **fields), now)
    if publication is not None:
        send(hub, publication)
    return publication


def send(hub: Hub, publication: Publication) -> None:
    for _, group in hub.topics.audience(publication.envelope.topic):
        for subscription in group:
            subscription.subscriber.deliver(b"", publication)


def seqs(publications: list[Publication]) -> list[int]:
    return [publication.envelope.seq for publication in publications]


def test_subscribers_get_what_comes_after_they_subscribed() -> None:
    box, taker = hub(), Taker()
    publish(box, 1)
    subscription = box.topics.subscribe("news.breaking", taker)
    publish(box, 2)
    publish(box, 3, topic="news.world")
    box.topics.unsubscribe(subscription)
    box.topics.unsubscribe(subscription)
    publish(box, 4)
    assert taker.got == [2]


def test_the_audience_is_grouped_by_transport() -> None:
    box = hub()
    subscriptions = [box.topics.subscribe("news.a", Taker(t)) for t in ("sse", "websocket", "sse")]
    assert box.topics.audience("news.a") == (
        ("sse", (subscriptions[0], subscriptions[2])),
        ("websocket", (subscriptions[1],)),
    )
    assert box.topics.audience("news.b") == ()


def test_a_copy_is_not_published_whatever_log_it_comes_by() -> None:
    drops: list[Dropped] = []
    box = hub(drops=drops)
    assert publish(box, 1) is not None
    assert box.offer(copy(1, seq=3), NOW) is None
    assert (drops, len(box.seen)) == ([Dropped.DUPLICATE], 1)
    assert box.logs.was_given(DUBLIN, 3)
    (kept,) = box.memory("news.breaking").messages(NOW)
    assert kept.copies == [Copy(OREGON, 1, START_MS), Copy(DUBLIN, 3, START_MS)]


def test_a_number_that_was_seen_or_is_past_is_not_published_again() -> None:
    clock = MonotonicClock()
    drops: list[Dropped] = []
    box = hub(low=2, clock=clock, drops=drops, identity_seconds=60)
    publish(box, 3, topic="tick.a")
    clock.now += 10_000
    # Its identity and its message were forgotten long ago.
    later = NOW + 10_000
    assert publish(box, 3, topic="tick.a", now=later) is None
    assert publish(box, 2, now=later) is None
    assert drops == [Dropped.DUPLICATE, Dropped.DUPLICATE]
    assert publish(box, 4, now=later) is not None


def test_a_void_number_is_not_published_if_its_message_comes_nevertheless() -> None:
    box = hub()
    publish(box, 1)
    box.logs.skip(OREGON, 2, 2)
    assert publish(box, 2) is None
    assert not box.was_given(envelope(2))


@pytest.mark.promise("S2")
def test_a_copy_with_another_body_is_counted_while_the_first_is_remembered() -> None:
    drops: list[Dropped] = []
    box = hub(drops=drops)
    publish(box, 1, message_id="a", body=b'"first"')
    for router, body in (("dublin-router-1", b'"first"'), ("dublin-router-2", b'"second"')):
        assert publish(box, 1, router=router, message_id="a", body=body) is None
    assert drops == [Dropped.DUPLICATE, Dropped.DIFFERING]
    found = box.memory("news.breaking").messages(NOW)
    assert [p.envelope.body for p in found] == [b'"first"']


def test_a_copy_is_known_as_long_as_its_message_is_remembered() -> None:
    clock = MonotonicClock()
    box = hub(clock=clock, identity_seconds=60)
    publish(box, 1)
    clock.now += 10_000
    assert box.offer(copy(1), NOW + 10_000) is None
    for n in range(2, 8):
        publish(box, n, now=NOW + 10_000)
    clock.now += 10_000
    assert box.offer(copy(1, seq=2), NOW + 20_000) is not None


@pytest.mark.promise("D1")
@pytest.mark.parametrize("step", [3_600, -3_600], ids=["forward", "back"])
def test_a_copy_is_known_for_its_time_whatever_the_machines_clock_does(step: int) -> None:
    clock = MonotonicClock()
    box = hub(clock=clock, identity_seconds=900)
    publish(box, 1, topic="tick.a")
    clock.now += 800
    assert publish(box, 2, topic="tick.a", now=NOW + step) is not None
    assert box.offer(copy(1, topic="tick.a"), NOW + step) is None
    clock.now += 200
    assert publish(box, 3, topic="tick.a", now=NOW + step) is not None
    assert box.offer(copy(1, topic="tick.a", seq=2), NOW + step) is not None


def test_a_message_of_an_unknown_topic_is_counted_and_its_number_seen() -> None:
    drops: list[Dropped] = []
    box = hub(drops=drops)
    publish(box, 1)
    assert publish(box, 2, topic="sport.chess") is None
    assert drops == [Dropped.UNKNOWN_TOPIC]
    assert mark(box, OREGON) == 2


def test_a_publication_carries_the_position_after_it() -> None:
    box = hub()
    publication = publish(box, 1)
    assert publication is not None
    assert publication.position == box.position(NOW)
    position = decode(publication.position)
    assert (position.covers(OREGON, 1), position.covers(OREGON, 2)) == (True, False)


def test_recent_messages_are_kept_in_the_order_of_arrival_up_to_keep() -> None:
    box = hub()
    for n in (3, 1, 2, 4, 5, 6, 7):
        publish(box, n)
    memory = box.memory("news.breaking")
    assert seqs(memory.newest(3, NOW).publications) == [5, 6, 7]
    assert seqs(memory.newest(100, NOW).publications) == [2, 4, 5, 6, 7]
    assert memory.newest(3, NOW).covered
    assert not memory.newest(100, NOW).covered


def test_a_topic_that_keeps_nothing_still_publishes_once() -> None:
    box, taker = hub(), Taker()
    box.topics.subscribe("tick.a", taker)
    publish(box, 1, topic="tick.a")
    publish(box, 1, topic="tick.a")
    assert taker.got == [1]
    assert seqs(list(box.memory("tick.a").messages(NOW))) == []


def test_expired_messages_are_not_replayed() -> None:
    box = hub()
    publish(box, 1, expires_ms=START_MS + 1000, key="a")
    publish(box, 2, expires_ms=START_MS + 9000, key="b")
    memory = box.memory("news.breaking")
    assert seqs(memory.newest(9, NOW + 5).publications) == [2]
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
    replay = memory.with_latest(memory.newest(2, NOW).publications, NOW)
    assert seqs(replay) == [1, 7, 8]


def test_a_replay_has_each_message_once() -> None:
    box = hub()
    for n in range(1, 4):
        publish(box, n, at=n, key=f"k{n}")
    memory = box.memory("news.breaking")
    assert seqs(memory.with_latest(memory.newest(2, NOW).publications, NOW)) == [1, 2, 3]


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
    (newest,) = memory.newest(1, NOW).publications
    found = memory.newest(2, NOW, before=newest.envelope.id)
    assert (seqs(found.publications), found.covered) == ([3, 4], True)
    assert not memory.newest(20, NOW, before=newest.envelope.id).covered
    assert not memory.newest(1, NOW, before=envelope(99).id).covered


def test_a_rewind_by_time_is_covered_if_memory_reaches_further_back() -> None:
    box = hub()
    for n in range(1, 6):
        publish(box, n, at=n * 1000)
    memory = box.memory("news.breaking")
    inside = memory.routed_since(START_MS + 3000, NOW)
    assert (seqs(inside.publications), inside.covered) == ([3, 4, 5], True)
    assert not memory.routed_since(START_MS, NOW).covered


def test_the_stores_past_goes_before_what_came_live() -> None:
    box = hub(low=2)
    publish(box, 3, at=3)
    box.seed("news.breaking", [envelope(n, at=n) for n in (1, 2, 3)], [], complete=True, now=NOW)
    found = box.memory("news.breaking").newest(100, NOW)
    assert (seqs(found.publications), found.covered) == ([1, 2, 3], True)
    assert [p.position is None for p in found.publications] == [True, True, False]


def test_only_as_much_of_the_past_is_taken_as_is_kept() -> None:
    box = hub(low=19)
    publish(box, 20, at=20)
    box.seed("news.breaking", [envelope(n, at=n) for n in range(1, 11)], [], complete=True, now=NOW)
    found = box.memory("news.breaking").newest(100, NOW)
    assert (seqs(found.publications), found.covered) == ([7, 8, 9, 10, 20], False)


def test_a_copy_of_a_seeded_message_is_not_published_though_the_message_is_forgotten() -> None:
    box = hub(low=1)
    publish(box, 50)
    box.seed("news.breaking", [envelope(1)], [], complete=True, now=NOW)
    assert box.offer(copy(1), NOW) is None
    for n in range(60, 70):
        publish(box, n)
    assert box.offer(copy(1, seq=2), NOW) is None


def test_so_is_a_copy_of_one_that_was_seeded_when_it_was_hours_old() -> None:
    box, later = hub(low=1), NOW + 7_200
    box.seed("news.breaking", [envelope(1)], [], complete=True, now=later)
    for n in range(60, 70):
        publish(box, n, now=later)
    assert box.memory("news.breaking").find(envelope(1).identity) is None
    assert box.offer(copy(1), later) is None


def test_what_the_store_has_before_the_feed_comes_live_to_those_who_are_there() -> None:
    """If it went into memory, its copy on the feed would be dropped and never given to them."""
    box, taker = hub(), Taker()
    box.topics.subscribe("news.breaking", taker)
    publish(box, 1)
    stored = [envelope(1), envelope(2, at=2)]
    box.seed("news.breaking", stored, stored, complete=True, now=NOW)
    assert seqs(box.memory("news.breaking").newest(9, NOW).publications) == [1]
    publish(box, 2, at=2)
    assert taker.got == [1, 2]
    assert seqs(box.memory("news.breaking").newest(9, NOW).publications) == [1, 2]


def test_a_log_of_long_ago_that_isnt_known_is_past() -> None:
    box = hub()
    old, young = START_MS - 6 * 3_600_000 - 30_001, START_MS - 6 * 3_600_000
    assert box.was_given(envelope(1, epoch=old))
    assert not box.was_given(envelope(1, epoch=young))
    box.seed("news.breaking", [envelope(1, epoch=old)], [], complete=True, now=NOW)
    assert seqs(box.memory("news.breaking").newest(9, NOW).publications) == [1]


def test_latest_versions_of_the_store_fill_up_and_never_replace_newer_ones() -> None:
    box = hub(low=3)
    publish(box, 10, at=10, key="a", version=3)
    stored = [
        envelope(2, at=2, key="a", version=2),
        envelope(3, at=3, key="b", version=1),
    ]
    box.seed("news.breaking", [], stored, complete=False, now=NOW)
    assert seqs(box.memory("news.breaking").with_latest([], NOW)) == [3, 10]


def test_of_what_the_store_has_the_past_counts() -> None:
    box = hub(low=4)
    for n in (5, 6):
        publish(box, n, at=n)
    stored = [envelope(n, at=n) for n in (3, 4, 5, 7)]
    assert seqs(box.take_past("news.breaking", stored, NOW)) == [3, 4, 5]
    # A topic of which nothing is remembered.
    assert seqs(box.take_past("news.quiet", stored, NOW)) == [3, 4, 5]


def test_what_a_reader_was_given_of_the_store_isnt_published_by_another_copy() -> None:
    box, taker = hub(low=1), Taker()
    box.topics.subscribe("news.breaking", taker)
    assert seqs(box.take_past("news.breaking", [envelope(1)], NOW)) == [1]
    assert box.was_published(copy(1))
    assert box.offer(copy(1, seq=7), NOW) is None
    assert taker.got == []
    assert box.logs.was_given(DUBLIN, 7)


def test_what_the_store_has_and_readers_here_werent_given_is_left_to_the_feed() -> None:
    box = hub(low=1)
    assert box.take_past("news.breaking", [envelope(2), copy(1)], NOW) == []
    assert not box.was_published(envelope(2))
    assert publish(box, 2) is not None


def test_a_rewind_of_hours_notes_no_identities() -> None:
    clock = MonotonicClock()
    box = hub(low=1, clock=clock)
    window = box.limits.identity_seconds
    told_ms = START_MS + int(window * 1000)
    box.logs.times.note_report("oregon", told_ms + 1, clock())
    box.take_past("news.breaking", [envelope(1)], NOW + window + 1)
    assert len(box.seen) == 0
    box.take_past("news.breaking", [envelope(1)], NOW + window)
    assert len(box.seen) == 1


def test_a_clock_that_is_ahead_makes_no_message_old() -> None:
    clock = MonotonicClock()
    box = hub(low=1, clock=clock)
    box.logs.times.note_report("oregon", START_MS + 60_000, clock())
    box.take_past("news.breaking", [envelope(1)], NOW + 7_200)
    assert box.offer(copy(1), NOW) is None


def test_a_message_is_recollected_once_with_all_copies_that_were_given() -> None:
    box = hub(low=3)
    box.logs.mark_seen(DUBLIN, 5)
    stored = [envelope(1), copy(1, at=1, seq=5), copy(2, at=2, seq=6), envelope(2, at=3)]
    stored += [copy(3, at=4, seq=7), envelope(4, at=5)]
    found = box.past_with_copies("news.breaking", stored)
    assert [one.copies for one in found.values()] == [
        [Copy(OREGON, 1, START_MS), Copy(DUBLIN, 5, START_MS + 1)],
        [Copy(OREGON, 2, START_MS + 3)],
    ]
    assert [one.position for one in found.values()] == [None, None]


def test_a_copy_of_what_was_recollected_isnt_published_however_old_it_is() -> None:
    box = hub(low=1)
    later = NOW + 7_200
    box.past_with_copies("news.breaking", [envelope(1), envelope(2)])
    assert box.offer(copy(1), later) is None
    assert publish(box, 2, now=later) is not None


def incomplete_logs(box: Hub, position: Position) -> list[Log]:
    forgotten = box.memory("news.breaking").forgotten
    return forgotten.incomplete_logs(ReturningReader(position, box.logs).has_all)


def test_a_topics_memory_lacks_what_was_seen_before_its_first_message() -> None:
    box = hub(low=3)
    box.offer(copy(8, topic="other.a"), NOW)
    publish(box, 4)
    assert incomplete_logs(box, UNKNOWN) == [OREGON, DUBLIN]
    elsewhere = hub(low=3)
    assert incomplete_logs(box, decode(elsewhere.position(NOW))) == [DUBLIN]
    elsewhere.logs.note_report(DUBLIN, 8, 8, sent_ms=START_MS, now=NOW)
    elsewhere.logs.skip(DUBLIN, 1, 8)
    assert incomplete_logs(box, decode(elsewhere.position(NOW + 1))) == []


def test_a_copy_of_what_isnt_remembered_any_more_counts_as_forgotten() -> None:
    box = hub()
    before = decode(box.position(NOW))
    for n in range(1, 6):
        publish(box, n, at=n)
    assert incomplete_logs(box, before) == []
    box.offer(copy(5, seq=1), NOW)
    assert incomplete_logs(box, before) == []
    publish(box, 6, at=6)
    assert incomplete_logs(box, before) == [OREGON]
    box.offer(copy(1, seq=2), NOW)
    assert incomplete_logs(box, before) == [OREGON, DUBLIN]


def test_topics_without_subscribers_are_forgotten_least_recently_used_first() -> None:
    box = hub(topics=3)
    box.topics.subscribe("other.a", Taker())
    for n, name in enumerate("bcd", 1):
        publish(box, n, topic=f"other.{name}")
    assert len(box.topics) == 3
    publish(box, 9, topic="other.c")
    publish(box, 10, topic="other.e")
    assert len(box.topics) == 3
    found = [box.memory(f"other.{name}").messages(NOW) for name in "ecb"]
    assert [seqs(list(recent)) for recent in found] == [[10], [2, 9], []]


def test_a_topic_that_doesnt_fit_is_published_but_not_remembered() -> None:
    box, taker = hub(topics=1), Taker()
    box.topics.subscribe("other.a", taker)
    published = publish(box, 1, topic="other.b")
    # No memory was made for it, since that would cost each message more than all else here.
    assert published is not None
    assert published.arrival == 0
    assert len(box.topics) == 1
    publish(box, 2, topic="other.a")
    assert taker.got == [2]


def test_memory_is_bounded_in_bytes_also_where_everybody_is_subscribed() -> None:
    box = hub(memory_bytes=10_000)
    box.topics.subscribe("news.breaking", Taker())
    for n in range(1, 20):
        publish(box, n, body=b'"%s"' % (b"x" * 1000))
    assert box.topics.memory_bytes <= 10_000
    found = seqs(box.memory("news.breaking").newest(9, NOW).publications)
    assert found == [17, 18, 19]


def test_asking_for_a_topic_that_isnt_one_is_a_bug() -> None:
    with pytest.raises(ValueError, match="no such topic"):
        hub().memory("nothing.known")


class HubMachine(RuleBasedStateMachine):
    """Random offers, copies, subscribes and seeded topics against the sentence of invariant 1."""

    topics = ("news.a", "other.b", "tick.c")
    #: The number of messages that are past at the start.
    low = 6

    @initialize()
    def start(self) -> None:
        self.hub = hub(self.low, topics=4, memory_bytes=20_000, identities=10_000)
        # Messages given to readers here, live or from the store.
        self.given: set[int] = set()
        self.arrived: dict[str, list[int]] = {topic: [] for topic in self.topics}
        self.takers: list[tuple[Taker, TopicSubscription]] = []
        self.next = self.low + 1

    def topic_of(self, number: int) -> str:
        return self.topics[number % len(self.topics)]

    def made(self, number: int, **fields: Any) -> Envelope:
        topic = self.topic_of(number)
        return envelope(number, at=number, topic=topic, key=f"k{number % 4}", **fields)

    def offer(self, number: int) -> None:
        publication = self.hub.offer(self.made(number), NOW)
        assert (publication is None) == (number in self.given or number <= self.low)
        if publication is not None:
            self.given.add(number)
            self.arrived[self.topic_of(number)].append(number)
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
    def again(self, data: st.DataObject) -> None:
        self.offer(data.draw(st.integers(1, self.next - 1)))

    @rule(data=st.data())
    def copy(self, data: st.DataObject) -> None:
        if self.given:
            number = data.draw(st.sampled_from(sorted(self.given)))
            made = self.made(number, origin="dublin", router="dublin-router-1")
            assert self.hub.offer(made, NOW) is None

    @rule(topic=st.sampled_from(topics), transport=st.sampled_from(["sse", "websocket"]))
    def subscribe(self, topic: str, transport: str) -> None:
        taker = Taker(transport)
        self.takers.append((taker, self.hub.topics.subscribe(topic, taker)))

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        if self.takers:
            _, subscription = data.draw(st.sampled_from(self.takers))
            self.hub.topics.unsubscribe(subscription)

    @rule(topic=st.sampled_from(topics), ahead=st.integers(0, 3))
    def seed_topic(self, topic: str, ahead: int) -> None:
        numbers = [n for n in range(1, self.next + ahead) if self.topic_of(n) == topic]
        self.hub.seed(topic, [self.made(n) for n in numbers], [], complete=True, now=NOW)
        # Messages that the feed hasn't brought yet are sent live later.
        self.given.update(n for n in numbers if n <= self.low)

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
            assert len(self.hub.topics) <= 4
            assert self.hub.topics.memory_bytes <= 20_000

    @invariant()
    def memory_has_nothing_twice_and_nothing_that_wasnt_given(self) -> None:
        if hasattr(self, "hub"):
            for topic in self.topics:
                found = self.hub.memory(topic).with_latest(
                    self.hub.memory(topic).newest(1000, NOW).publications, NOW
                )
                assert len(found) == len(set(seqs(found)))
                assert self.given.issuperset(seqs(found))


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

"""Publishing to brokers side by side: no failure of one of them does harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from core_cluster import until
from hanging import HangingBroker, brokers, spread
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_share import examples

from newsfabric.amqp import ConfirmingPublisher, Declare, Message
from newsfabric.amqp.link import PikaLink
from newsfabric.amqp.spread import PATIENCE, SKIPPED, SpreadPublisher, cancel_all, connect_each
from newsfabric.errors import (
    LinkBusy,
    LinkClosed,
    LinkError,
    LinkRefused,
    PublishNacked,
    PublishReturned,
)


def news(n: int = 1) -> Message:
    return Message("news", str(n).encode())


class Sides:
    """Brokers side by side, each with a queue that gets all messages published to ``x``."""

    def __init__(self, count: int) -> None:
        self.brokers = brokers(count)
        for broker in self.brokers:
            broker.declare_exchange("x")
        self.link = spread(*self.brokers)
        self._taps = [broker.tap("x") for broker in self.brokers]

    def __getitem__(self, n: int) -> HangingBroker:
        return self.brokers[n]

    def got(self, n: int) -> list[int]:
        """Return the messages that broker ``n`` has got since the last call."""
        return [int(message.body) for message in self.brokers[n].pop_messages(self._taps[n])]


def skipped() -> dict[str, int]:
    return {name: SKIPPED.labels(name).total for name in ("b1", "b2", "b3")}


async def error_of(confirm: Awaitable[None]) -> type[LinkError]:
    with pytest.raises(LinkError) as error:
        await confirm
    return error.type


async def test_a_message_goes_to_all_brokers():
    sides = Sides(3)
    publisher = await sides.link.publisher()
    await publisher.publish("x", news())
    assert [sides.got(n) for n in range(3)] == [[1], [1], [1]]
    assert publisher.in_flight == 0


@pytest.mark.parametrize("quick", range(3))
async def test_the_first_confirm_counts(quick: int):
    sides = Sides(3)
    publisher = await sides.link.publisher()
    for n in range(3):
        if n != quick:
            sides[n].hang()
    await publisher.publish("x", news())
    assert [sides.got(n) for n in range(3)] == [[1] if n == quick else [] for n in range(3)]
    assert publisher.in_flight == 0


async def test_what_nobody_has_confirmed_is_in_flight():
    sides = Sides(2)
    publisher = await sides.link.publisher()
    sides[0].hang()
    sides[1].hang()
    confirm = publisher.publish_nowait("x", news())
    await asyncio.sleep(0)
    assert (publisher.in_flight, confirm.done()) == (1, False)
    sides[1].go_on()
    await confirm
    assert publisher.in_flight == 0


async def test_a_broker_that_is_down_is_left_out_and_counted():
    sides = Sides(3)
    publisher = await sides.link.publisher()
    before = skipped()
    sides[1].cut()
    assert sides.link.connected
    await publisher.publish("x", news())
    assert [sides.got(n) for n in range(3)] == [[1], [], [1]]
    assert skipped() == before | {"b2": before["b2"] + 1}


async def test_a_broker_that_comes_back_is_given_the_next_message():
    sides = Sides(2)
    publisher = await sides.link.publisher()
    sides[0].cut()
    await publisher.publish("x", news(1))
    await sides[0].heal()
    await publisher.publish("x", news(2))
    assert [sides.got(n) for n in range(2)] == [[2], [1, 2]]


async def test_a_broker_that_hangs_gets_as_many_as_may_be_unconfirmed_and_delays_nothing():
    sides = Sides(2)
    publisher = await sides.link.publisher(in_flight=5)
    before = skipped()
    sides[0].hang()
    for n in range(100):
        await publisher.publish("x", news(n))
    assert (sides.got(0), sides.got(1)) == ([], list(range(100)))
    assert skipped()["b1"] == before["b1"] + 95
    sides[0].go_on()
    await publisher.publish("x", news(100))
    assert (sides.got(0), sides.got(1)) == ([0, 1, 2, 3, 4, 100], [100])


async def test_one_that_is_full_is_left_out_and_when_all_are_there_is_no_room():
    sides = Sides(2)
    publisher = await sides.link.publisher(in_flight=2)
    sides[0].hang()
    confirms = [publisher.publish_nowait("x", news(n)) for n in range(2)]
    with pytest.raises(LinkBusy):
        publisher.publish_nowait("x", news(2))
    assert not publisher.is_ready
    await asyncio.gather(*confirms)
    assert publisher.is_ready
    confirms = [publisher.publish_nowait("x", news(n)) for n in (2, 3)]
    sides[1].cut()
    with pytest.raises(LinkBusy):
        publisher.publish_nowait("x", news(4))
    sides[0].cut()
    with pytest.raises(LinkClosed):
        publisher.publish_nowait("x", news(4))


async def test_who_waits_for_room_goes_on_when_one_of_them_has_some():
    sides = Sides(2)
    publisher = await sides.link.publisher(in_flight=1)
    for side in sides.brokers:
        side.hang()
    first = publisher.publish_nowait("x", news(1))
    second = asyncio.create_task(publisher.publish("x", news(2)))
    third = asyncio.create_task(publisher.ready())
    await asyncio.sleep(0)
    assert not second.done()
    sides[1].go_on()
    await asyncio.gather(first, second, third)
    assert sides.got(1) == [1, 2]


async def test_who_waits_for_room_learns_when_all_links_are_gone():
    sides = Sides(2)
    publisher = await sides.link.publisher(in_flight=1)
    for side in sides.brokers:
        side.hang()
    first = publisher.publish_nowait("x", news(1))
    second = asyncio.create_task(publisher.publish("x", news(2)))
    await asyncio.sleep(0)
    for side in sides.brokers:
        side.cut()
    assert await error_of(first) is LinkClosed
    assert await error_of(second) is LinkClosed


async def test_when_all_are_down_nothing_can_be_published_and_ready_waits_for_the_first():
    sides = Sides(2)
    publisher = await sides.link.publisher()
    for side in sides.brokers:
        side.cut()
    assert not sides.link.connected
    with pytest.raises(LinkClosed):
        await publisher.publish("x", news())
    waiting = asyncio.create_task(publisher.ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    await sides[1].heal()
    await waiting
    await publisher.publish("x", news())


async def test_what_one_refuses_and_another_confirms_is_confirmed():
    sides = Sides(2)
    publisher = await sides.link.publisher()
    sides[0].nacks = True
    await publisher.publish("x", news())
    assert [sides.got(n) for n in range(2)] == [[], [1]]


async def test_what_one_loses_and_another_confirms_later_is_confirmed():
    sides = Sides(2)
    publisher = await sides.link.publisher()
    for side in sides.brokers:
        side.hang()
    confirm = publisher.publish_nowait("x", news())
    sides[0].cut()
    await asyncio.sleep(0)
    assert not confirm.done()
    sides[1].go_on()
    await confirm


async def test_a_failure_that_nobody_awaits_is_nothing_to_complain_of():
    sides = Sides(2)
    publisher = await sides.link.publisher()
    publisher.publish_nowait("x", news())
    for side in sides.brokers:
        side.cut()
    await until(lambda: publisher.in_flight == 0)


async def test_whoever_has_stopped_waiting_is_not_in_the_way():
    sides = Sides(2)
    publisher = await sides.link.publisher()
    sides[0].hang()
    sides[1].hang()
    publish = asyncio.create_task(publisher.publish("x", news()))
    await asyncio.sleep(0)
    publish.cancel()
    await asyncio.wait([publish])
    assert publisher.in_flight == 1
    sides[0].go_on()
    await until(lambda: publisher.in_flight == 0)


class Answering:
    """A publisher that is always ready and answers when the test tells it to."""

    is_ready = True
    in_flight = 0

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[None]] = []

    def publish_nowait(
        self, _exchange: str, _message: Message, *, mandatory: bool = False
    ) -> asyncio.Future[None]:
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def watch(self, _changed: Callable[[], None]) -> None:
        """Ignore the callback: nothing ever changes."""


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((LinkRefused, LinkRefused), LinkRefused),
        ((LinkRefused, PublishNacked), PublishNacked),
        ((PublishNacked, LinkRefused), PublishNacked),
        ((LinkClosed, LinkRefused), LinkClosed),
        ((PublishNacked, LinkClosed), LinkClosed),
        ((PublishReturned, PublishReturned), PublishReturned),
    ],
)
async def test_of_several_errors_the_one_is_reported_that_promises_most(
    answers: tuple[type[LinkError], ...], expected: type[LinkError]
):
    members = [Answering() for _ in answers]
    publisher = SpreadPublisher({f"b{n}": member for n, member in enumerate(members, 1)})
    confirm = publisher.publish_nowait("x", news())
    for member, error in zip(members, answers, strict=True):
        member.answers[0].set_exception(error("no"))
    assert await error_of(confirm) is expected


async def test_a_mandatory_message_is_returned_if_no_broker_has_a_queue_for_it():
    sides = Sides(2)
    for side in sides.brokers:
        side.declare_exchange("empty")
    publisher = await sides.link.publisher()
    await publisher.publish("x", news(), mandatory=True)
    confirm = publisher.publish("empty", news(), mandatory=True)
    assert await error_of(confirm) is PublishReturned
    sides[1].tap("empty")
    await publisher.publish("empty", news(), mandatory=True)


class StoppedClock:
    """Monotonic seconds that stand still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def _timed(sides: Sides, clock: StoppedClock, *, in_flight: int = 1000) -> SpreadPublisher:
    members: dict[str, ConfirmingPublisher] = {
        f"b{n}": await link.publisher(in_flight=in_flight)
        for n, link in enumerate(sides.link.members, 1)
    }
    return SpreadPublisher(members, now=clock)


async def test_what_a_hanging_broker_alone_has_is_to_be_sent_again_once_another_would_take_it():
    clock, sides = StoppedClock(), Sides(2)
    publisher = await _timed(sides, clock)
    sides[0].hang()
    sides[1].cut()
    confirm = publisher.publish_nowait("x", news())
    clock.now += PATIENCE
    publisher.give_up_late()
    assert not confirm.done()
    await sides[1].heal()
    publisher.give_up_late()
    assert await error_of(confirm) is LinkClosed
    await publisher.publish("x", news())
    assert sides.got(1) == [1]
    assert publisher.in_flight == 0


async def test_whoever_lost_it_and_is_back_is_another_that_would_take_it():
    clock, sides = StoppedClock(), Sides(2)
    publisher = await _timed(sides, clock)
    for side in sides.brokers:
        side.hang()
    confirm = publisher.publish_nowait("x", news())
    sides[1].cut()
    await sides[1].heal()
    await asyncio.sleep(0)
    clock.now += PATIENCE - 0.1
    publisher.give_up_late()
    assert not confirm.done()
    clock.now += 0.2
    publisher.give_up_late()
    assert await error_of(confirm) is LinkClosed


async def test_what_all_have_waits_for_the_first_confirm():
    clock, sides = StoppedClock(), Sides(2)
    publisher = await _timed(sides, clock)
    for side in sides.brokers:
        side.hang()
    confirm = publisher.publish_nowait("x", news())
    clock.now += 60.0
    publisher.give_up_late()
    assert not confirm.done()
    sides[0].go_on()
    await confirm


async def test_it_looks_by_itself_for_what_waits_for_too_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("newsfabric.amqp.spread._LOOK_SECONDS", 0.0)
    clock, sides = StoppedClock(), Sides(2)
    publisher = await _timed(sides, clock)
    sides[0].hang()
    sides[1].cut()
    confirm = publisher.publish_nowait("x", news())
    await sides[1].heal()
    clock.now += PATIENCE
    assert await error_of(confirm) is LinkClosed


@pytest.mark.parametrize("members", [1, 2, 3])
async def test_it_is_up_while_one_link_is(members: int):
    sides = Sides(members)
    assert (sides.link.connected, sides.link.established) == (True, True)
    for side in sides.brokers[1:]:
        side.cut()
    assert (sides.link.connected, sides.link.established) == (True, True)
    sides[0].cut()
    assert (sides.link.connected, sides.link.established) == (False, False)


async def test_a_link_that_is_up_and_lacks_something_establishes_nothing():
    sides = Sides(2)

    async def impossible(broker: Declare) -> None:
        await broker.bind("no queue", "x", "#")

    await sides.link.members[0].on_connect(impossible)
    assert sides.link.established
    sides[1].cut()
    assert (sides.link.connected, sides.link.established) == (True, False)


async def test_closing_it_closes_all():
    sides = Sides(2)
    await sides.link.close()
    assert [member.connected for member in sides.link.members] == [False, False]


async def test_consumers_of_a_hanging_broker_are_cancelled_without_its_word(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("newsfabric.amqp.spread._CANCEL_SECONDS", 0.0)
    sides = Sides(2)
    taken: list[int] = []
    consumers = []
    for side, member in zip(sides.brokers, sides.link.members, strict=True):
        queue = side.tap("x")
        consumers.append(await member.consumer(queue, lambda d: taken.append(int(d.message.body))))
    sides[0].hang()
    await cancel_all(consumers)
    sides[0].go_on()
    for side in sides.brokers:
        side.publish("x", news())
    await asyncio.sleep(0)
    assert taken == []


@given(st.data())
@settings(max_examples=examples(60))
def test_whatever_brokers_do_each_message_is_confirmed_by_one_that_has_it_or_fails(
    data: st.DataObject,
):
    async def play() -> None:
        clock, sides = StoppedClock(), Sides(3)
        publisher = await _timed(sides, clock, in_flight=3)
        confirms: list[asyncio.Future[None]] = []
        side = st.integers(0, 2)
        for _ in range(data.draw(st.integers(1, 30))):
            match data.draw(st.sampled_from(["publish", "hang", "go_on", "cut", "heal", "turn"])):
                case "publish":
                    try:
                        confirms.append(publisher.publish_nowait("x", news(len(confirms))))
                    except LinkBusy:
                        assert sides.link.connected
                        assert not publisher.is_ready
                    except LinkClosed:
                        assert not sides.link.connected
                case "hang":
                    sides[data.draw(side)].hang()
                case "go_on":
                    sides[data.draw(side)].go_on()
                case "cut":
                    sides[data.draw(side)].cut()
                case "heal":
                    await sides[data.draw(side)].heal()
                case "turn":
                    await asyncio.sleep(0)
                    clock.now += 0.2
                    publisher.give_up_late()
            done = sum(confirm.done() for confirm in confirms)
            assert publisher.in_flight == len(confirms) - done
        for each in sides.brokers:
            each.go_on()
            await each.heal()
        results = await asyncio.gather(*confirms, return_exceptions=True)
        there = {n for one in range(3) for n in sides.got(one)}
        assert {n for n, result in enumerate(results) if result is None} <= there
        assert all(result is None or isinstance(result, LinkClosed) for result in results)
        assert publisher.in_flight == 0

    asyncio.run(play())


@pytest.mark.sockets
async def test_one_broker_has_a_link_as_any_other_and_several_have_one_each():
    url = "amqp://127.0.0.1:1/%2F"
    one = await connect_each({"b1": url}, name="t", credentials=None)
    two = await connect_each({"b1": url, "b2": url}, name="t", credentials=None)
    try:
        assert isinstance(one, PikaLink)
        assert list(one.members) == [one]
        assert [type(member) for member in two.members] == [PikaLink, PikaLink]
        assert not two.connected
    finally:
        await asyncio.gather(one.close(), two.close())

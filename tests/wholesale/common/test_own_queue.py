"""Messages to many processes, received from several brokers: each message once."""

from __future__ import annotations

from core_cluster import until
from hanging import HangingBroker, brokers, spread

from newsfabric.amqp import Delivery, Message, Properties
from newsfabric.topology import Bounds
from wholesale.common.own_queue import FirstDeliveries, consume_own

BOUNDS = Bounds(max_length=100, max_bytes=1 << 20, message_ttl_ms=60_000)


def sent_message(body: str, **properties: str) -> Message:
    return Message("report.oregon.x", body.encode(), Properties(**properties))


class Ear:
    """A process that receives the messages published on ``sides``."""

    def __init__(self, *sides: HangingBroker) -> None:
        self.sides = sides
        self.heard: list[str] = []
        for side in sides:
            side.declare_exchange("upstream")
        self.links = spread(*sides)

    async def listen(self) -> Ear:
        await consume_own(
            self.links, self._take, exchange="upstream", key="report.#", bounds=BOUNDS
        )
        return self

    def _take(self, delivery: Delivery) -> None:
        self.heard.append(delivery.message.body.decode())

    async def idle(self) -> None:
        """Wait until all published messages have been received."""
        await until(lambda: all(not any(map(side.depth, side._queues)) for side in self.sides))


async def test_what_comes_by_three_brokers_is_taken_once():
    ear = await Ear(*brokers(3)).listen()
    for body in ("1", "2", "3"):
        for side in ear.sides:
            side.publish("upstream", sent_message(body))
    await ear.idle()
    assert ear.heard == ["1", "2", "3"]


async def test_what_comes_by_one_of_them_is_taken():
    ear = await Ear(*brokers(3)).listen()
    for n, side in enumerate(ear.sides):
        side.publish("upstream", sent_message(str(n)))
    await ear.idle()
    assert sorted(ear.heard) == ["0", "1", "2"]


async def test_what_a_broker_that_hung_brings_late_is_known_already():
    ear = await Ear(*brokers(2)).listen()
    ear.sides[0].hang()
    for body in ("1", "2"):
        for side in ear.sides:
            side.publish("upstream", sent_message(body))
    await until(lambda: len(ear.heard) == 2)
    assert ear.heard == ["1", "2"]
    ear.sides[0].go_on()
    await ear.idle()
    assert ear.heard == ["1", "2"]


async def test_after_a_broker_was_away_its_queue_is_there_again():
    ear = await Ear(*brokers(2)).listen()
    ear.sides[0].cut()
    await ear.sides[0].heal()
    ear.sides[0].publish("upstream", sent_message("1"))
    await ear.idle()
    assert ear.heard == ["1"]


async def test_from_one_broker_all_is_taken_however_often_it_says_the_same():
    ear = await Ear(*brokers(1)).listen()
    for _ in range(2):
        ear.sides[0].publish("upstream", sent_message("1"))
    await ear.idle()
    assert ear.heard == ["1", "1"]


def test_the_same_words_of_another_or_for_another_are_others():
    heard = FirstDeliveries()
    words = [sent_message("x", user_id=user, correlation_id=id) for user in "ab" for id in "12"]
    assert [heard.is_new(each, 1) for each in words] == [True] * 4
    assert [heard.is_new(each, 2) for each in words] == [False] * 4


def test_the_oldest_is_forgotten_when_there_is_too_much():
    heard = FirstDeliveries(most=2)
    for body in ("1", "2", "3"):
        assert heard.is_new(sent_message(body), 1)
    assert [heard.is_new(sent_message(body), 2) for body in ("3", "2")] == [False, False]
    assert heard.is_new(sent_message("1"), 2)

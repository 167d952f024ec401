"""Repeated requests, with the time passed in."""

from __future__ import annotations

import asyncio

import pytest

from newsfabric.amqp import Message, Properties
from newsfabric.errors import StoreUnavailable
from newsfabric.messages.control import Receipt
from wholesale.frontdesk.api.repeats import Name, Repeats


class ScriptedPublisher:
    """A publisher with the results ``reported_state``, one after the other, and a clock."""

    def __init__(self, *says: str | Exception) -> None:
        self.reported_state = list(says)
        self.published = 0
        self.now = 0.0
        self.repeats = Repeats(seconds=600, most=2)
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def publish(self) -> Receipt:
        self.published += 1
        outcome = self.reported_state.pop(0)
        await self.may_answer.wait()
        if isinstance(outcome, Exception):
            raise outcome
        status = "rejected" if outcome == "rejected" else "routed"
        return Receipt(status=status, region="r", router="r", topic="t", id=outcome)

    async def publish_once(
        self, message_id: str = "m-1", app_id: str = "cms", body: bytes = b"{}"
    ) -> tuple[str, bool]:
        properties = Properties(message_id=message_id, app_id=app_id)
        name = Name.of(Message("news.x", body, properties))
        receipt = await self.repeats.publish_once(name, self.publish, clock=lambda: self.now)
        return receipt.id or "", receipt.repeated


async def test_the_same_again_is_answered_with_the_first_id() -> None:
    frontdesk = ScriptedPublisher("one", "two")
    assert await frontdesk.publish_once() == ("one", False)
    assert await frontdesk.publish_once() == ("one", True)
    assert frontdesk.published == 1


async def test_another_publishers_message_of_that_name_is_another() -> None:
    frontdesk = ScriptedPublisher("one", "two")
    assert await frontdesk.publish_once(app_id="cms") == ("one", False)
    assert await frontdesk.publish_once(app_id="web") == ("two", False)


async def test_another_body_under_the_same_name_is_for_the_router_to_judge() -> None:
    frontdesk = ScriptedPublisher("one", "the router's word")
    await frontdesk.publish_once()
    assert await frontdesk.publish_once(body=b"[]") == ("the router's word", False)
    assert await frontdesk.publish_once() == ("one", True)


async def test_after_ten_minutes_it_is_a_new_message() -> None:
    frontdesk = ScriptedPublisher("one", "two")
    await frontdesk.publish_once()
    frontdesk.now = 599.9
    assert await frontdesk.publish_once() == ("one", True)
    frontdesk.now = 600.0
    assert await frontdesk.publish_once() == ("two", False)


async def test_of_many_the_oldest_is_forgotten() -> None:
    frontdesk = ScriptedPublisher("one", "two", "three", "again")
    for message_id in ("m-1", "m-2", "m-3"):
        await frontdesk.publish_once(message_id)
    assert len(frontdesk.repeats) == 2
    assert await frontdesk.publish_once("m-3") == ("three", True)
    assert await frontdesk.publish_once("m-1") == ("again", False)


async def test_two_at_once_are_one_message() -> None:
    frontdesk = ScriptedPublisher("one", "two")
    frontdesk.may_answer.clear()
    asking = [asyncio.create_task(frontdesk.publish_once()) for _ in range(3)]
    await asyncio.sleep(0)
    frontdesk.may_answer.set()
    assert await asyncio.gather(*asking) == [("one", False), ("one", True), ("one", True)]
    assert frontdesk.published == 1


async def test_a_rejection_isnt_kept() -> None:
    frontdesk = ScriptedPublisher("rejected", "one")
    assert await frontdesk.publish_once() == ("rejected", False)
    assert await frontdesk.publish_once() == ("one", False)


async def test_what_failed_is_tried_again_and_those_who_waited_learn_it() -> None:
    frontdesk = ScriptedPublisher(StoreUnavailable("away"), "one")
    frontdesk.may_answer.clear()
    asking = [asyncio.create_task(frontdesk.publish_once()) for _ in range(2)]
    await asyncio.sleep(0)
    frontdesk.may_answer.set()
    for asked in asking:
        with pytest.raises(StoreUnavailable):
            await asked
    assert await frontdesk.publish_once() == ("one", False)


async def test_nobody_else_waits_when_one_goes_away() -> None:
    frontdesk = ScriptedPublisher("one", "two")
    frontdesk.may_answer.clear()
    first = asyncio.create_task(frontdesk.publish_once())
    second = asyncio.create_task(frontdesk.publish_once())
    await asyncio.sleep(0)
    second.cancel()
    frontdesk.may_answer.set()
    assert await first == ("one", False)

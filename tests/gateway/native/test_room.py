"""Verbs and replies wait while the link to the data plane has no room."""

from __future__ import annotations

import asyncio

from gateway.native.events import Verb
from gateway.native.link import AnswerBackpressure


class FakeLink:
    """A link that is full or not, as a test sets it."""

    full = False


def verb(number: int) -> Verb:
    return (b"c", b"", b"%d" % number)


async def test_verbs_are_answered_in_their_order_until_there_is_no_room() -> None:
    link, answered = FakeLink(), list[bytes]()
    room = AnswerBackpressure(lambda: link.full)

    def answer(connection: bytes, auth: bytes, text: bytes) -> None:
        answered.append(text)
        link.full = len(answered) == 2

    room.answer = answer
    room.receive([verb(1), verb(2), verb(3)])
    assert answered == [b"1", b"2"]
    link.full = False
    room.on_room()
    assert answered == [b"1", b"2", b"3"]


async def test_who_waits_is_let_on_one_after_the_other_as_long_as_there_is_room() -> None:
    link, made = FakeLink(), list[int]()
    link.full = True
    room = AnswerBackpressure(lambda: link.full)

    async def make(number: int) -> None:
        await room.wait()
        made.append(number)
        # Its reply fills the link again.
        link.full = True

    tasks = [asyncio.create_task(make(number)) for number in range(3)]
    await asyncio.sleep(0)
    for number in range(3):
        link.full = False
        room.on_room()
        await tasks[number]
        assert made == list(range(number + 1))


async def test_with_the_attachment_its_verbs_go_and_nobody_waits_any_more() -> None:
    link, answered = FakeLink(), list[bytes]()
    link.full = True
    room = AnswerBackpressure(lambda: link.full)
    room.answer = lambda connection, auth, text: answered.append(text)
    room.receive([verb(1)])
    waiting = [asyncio.create_task(room.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    # Without a link nothing is full.
    link.full = False
    room.reset()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    room.on_room()
    assert answered == []


async def test_who_is_cancelled_lets_the_next_one_on() -> None:
    link = FakeLink()
    link.full = True
    room = AnswerBackpressure(lambda: link.full)
    first, second = (asyncio.create_task(room.wait()) for _ in range(2))
    await asyncio.sleep(0)
    link.full = False
    first.cancel()
    await asyncio.wait_for(second, 60)

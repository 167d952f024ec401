"""Mailboxes: messages are kept for absent readers; devices see each other's user marks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gateways import Reader, until
from regions import TABLE, OpenedRegion, linked, opened_mailbox, opened_region
from signing import token

from gateway.memory.hub import HubLimits
from newsfabric.amqp import Message
from newsfabric.errors import StoreUnavailable
from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.messages.mailbox import ANNOUNCEMENT, KeptMessage, MarkKind, UserMark, encode_mark
from newsfabric.store.memory import MemoryStore
from newsfabric.store.rules import clock_ms

TOPIC = "user.42"


class MailboxStore(MemoryStore):
    """A store that counts reads of mailboxes; it can be away, slow, or behind another region."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.reads: list[int] = []
        self.away = False
        self.behind: set[str | None] = set()
        # While it is clear, mailboxes are read but not given out.
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Event()

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[KeptMessage]]:
        self.reads.append(len(topics))
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("away")
        found = await super().mailboxes(topics, limit=limit)
        self.asked.set()
        await self.open.wait()
        return [[k for k in each if k.envelope.message_id not in self.behind] for each in found]


@pytest.fixture
def store() -> MailboxStore:
    return MailboxStore()


@pytest.fixture
async def oregon(engine: str, store: MailboxStore, tmp_path: Path) -> AsyncIterator[OpenedRegion]:
    async with opened_region(engine, tmp_path, store) as region:
        yield region


@pytest.fixture
async def dublin(
    engine: str, store: MailboxStore, tmp_path: Path, oregon: OpenedRegion
) -> AsyncIterator[OpenedRegion]:
    """Open another region, linked with the first."""
    async with opened_region(engine, tmp_path, store, name="dublin") as region:
        await linked([oregon, region])
        yield region


def bodies(pushes: list[dict[str, Any]]) -> list[Any]:
    return [push["body"] for push in pushes]


async def marked(reader: Reader, kind: str, letter: Any, **verb: Any) -> dict[str, Any]:
    """Mark ``letter``; return the push that tells all devices, before or after the reply."""
    await reader.send_verb(action=kind, topic=TOPIC, id=letter.id, ref=7, **verb)
    heard = [await reader.hear(), await reader.hear()]
    (reply,) = [push for push in heard if push["type"] == "marked"]
    assert reply == {"type": "marked", "ref": 7, "topic": TOPIC, "id": letter.id, "mark": kind}
    (reply,) = [push for push in heard if push["type"] != "marked"]
    return reply


@pytest.mark.promise("M1")
async def test_what_came_while_a_user_was_away_is_there_at_the_next_login_in_order(
    oregon: OpenedRegion,
) -> None:
    for n in range(5):
        await oregon.write_to("42", n)
    await oregon.write_to("43", 9)
    async with oregon.device() as reader:
        subscribed, kept = await opened_mailbox(reader)
        assert subscribed["recovered"] is True
        assert bodies(kept) == [0, 1, 2, 3, 4]
        await oregon.write_to("42", 5)
        assert await reader.hear_bodies(1) == [5]
        await reader.is_up_to_date()


async def test_an_empty_mailbox_is_complete_and_has_a_position(oregon: OpenedRegion) -> None:
    async with oregon.device() as reader:
        subscribed, kept = await opened_mailbox(reader)
        assert kept == []
        assert subscribed["recovered"] is True
        await oregon.write_to("42", 1)
        assert await reader.hear_bodies(1) == [1]
    async with oregon.device() as reader:
        again = await reader.subscribe(TOPIC, position=subscribed["position"])
        assert again["recovered"] is True
        assert await reader.hear_bodies(1) == [1]


async def test_the_last_of_a_mailbox_has_the_position_to_come_back_with(
    oregon: OpenedRegion,
) -> None:
    for n in range(3):
        await oregon.write_to("42", n)
    async with oregon.device() as reader:
        subscribed, kept = await opened_mailbox(reader)
        # A reader cut off before the last one asks for the whole mailbox again.
        assert "position" not in subscribed
        assert [push["position"] for push in kept[:2]] == [None, None]
    await oregon.write_to("42", 3)
    async with oregon.device() as reader:
        again = await reader.subscribe(TOPIC, position=kept[2]["position"])
        assert again["recovered"] is True
        assert await reader.hear_bodies(1) == [3]
        await reader.is_up_to_date()


@pytest.mark.promise("M2")
@pytest.mark.parametrize(
    ("kind", "pushed"), [("ack", "acked"), ("read", "read"), ("dismiss", "dismissed")]
)
async def test_what_one_device_does_all_of_them_hear_of_in_every_region(
    oregon: OpenedRegion, dublin: OpenedRegion, kind: str, pushed: str
) -> None:
    letter = await oregon.write_to("42", 1)
    async with oregon.device() as phone, dublin.device() as page, dublin.device("43") as other:
        for device in (phone, page):
            assert bodies((await opened_mailbox(device))[1]) == [1]
        await opened_mailbox(other, "43")
        before = time.time()
        here = await marked(phone, kind, letter)
        there = await page.hear()
        assert before * 1000 - 1 <= here["at"] == there["at"] <= time.time() * 1000
        assert there.pop("position") is not None
        assert there == {"type": pushed, "topic": TOPIC, "id": letter.id, "at": here["at"]}
        await other.is_up_to_date()


@pytest.mark.promise("M3")
async def test_what_was_dismissed_doesnt_come_back_and_the_rest_comes_with_its_marks(
    oregon: OpenedRegion, dublin: OpenedRegion
) -> None:
    letters = [await oregon.write_to("42", n) for n in range(3)]
    async with oregon.device() as reader:
        await opened_mailbox(reader)
        await marked(reader, "dismiss", letters[1])
        read = await marked(reader, "read", letters[2])
        acked = await marked(reader, "ack", letters[2])
    for region in (oregon, dublin):
        async with region.device() as reader:
            subscribed, kept = await opened_mailbox(reader)
            assert subscribed["recovered"] is True
            assert [(push["type"], push["id"]) for push in kept] == [
                ("message", letters[0].id),
                ("message", letters[2].id),
                ("acked", letters[2].id),
                ("read", letters[2].id),
            ]
            assert [push["at"] for push in kept[2:]] == [acked["at"], read["at"]]
            await reader.is_up_to_date()


async def test_a_device_that_comes_back_with_its_position_gets_messages_and_marks_in_order(
    oregon: OpenedRegion, dublin: OpenedRegion
) -> None:
    first = await oregon.write_to("42", 1)
    async with dublin.device() as page:
        _, kept = await opened_mailbox(page)
    async with oregon.device() as phone:
        await opened_mailbox(phone)
        await marked(phone, "read", first)
        second = await oregon.write_to("42", 2)
        assert await phone.hear_bodies(1) == [2]
        await marked(phone, "dismiss", second)
    async with dublin.device() as page:
        again = await page.subscribe(TOPIC, position=kept[-1]["position"])
        assert again["recovered"] is True
        missed = [await page.hear() for _ in range(3)]
        assert [(push["type"], push["id"]) for push in missed] == [
            ("read", first.id), ("message", second.id), ("dismissed", second.id)
        ]  # fmt: skip
        await page.is_up_to_date()


async def test_an_expired_message_isnt_kept(oregon: OpenedRegion) -> None:
    # Long enough for its way to the store on a busy machine.
    expired = await oregon.write_to("42", 1, expiration="2000")
    await oregon.write_to("42", 2, expiration="600000")
    await until(lambda: clock_ms() > ms_of_id(expired.id) + 2_000)
    async with oregon.device() as reader:
        assert bodies((await opened_mailbox(reader))[1]) == [2]


async def test_what_comes_while_the_mailbox_is_read_comes_once_and_in_order(
    oregon: OpenedRegion, store: MailboxStore
) -> None:
    await oregon.write_to("42", 1)
    store.open.clear()
    async with oregon.device() as reader:
        await reader.send_verb(action="subscribe", topic=TOPIC)
        await store.asked.wait()
        dismissed = await oregon.write_to("42", 2)
        await oregon.write_to("42", 3)
        oregon.box.broker.publish("upstream", _mark_of(dismissed, "dismiss"))
        await until(lambda: oregon.core.arrived("postoffice")[-1:] and _is_mark(oregon))
        store.open.set()
        assert (await reader.hear())["type"] == "subscribed"
        assert await reader.hear_bodies(2) == [1, 3]
        await oregon.write_to("42", 4)
        assert await reader.hear_bodies(1) == [4]
        await reader.is_up_to_date()


def _mark_of(letter: Envelope, kind: MarkKind) -> Message:
    return encode_mark(
        UserMark(topic=letter.topic, id=letter.id, kind=kind, at_ms=letter.published_ms)
    )


def _is_mark(region: OpenedRegion) -> bool:
    return any(m.properties.type == ANNOUNCEMENT for m in region.core.arrived("postoffice"))


async def test_what_another_regions_store_has_and_ours_hasnt_yet_comes_all_the_same(
    oregon: OpenedRegion, dublin: OpenedRegion, store: MailboxStore
) -> None:
    await oregon.write_to("42", 1)
    late = await oregon.write_to("42", 2)
    await until(lambda: dublin.box.gateway.core.hub.memory(TOPIC).arrived == 2)
    store.behind = {late.message_id}
    async with dublin.device() as reader:
        assert bodies((await opened_mailbox(reader))[1]) == [1, 2]
        await reader.is_up_to_date()


async def test_what_the_feed_hasnt_brought_yet_reaches_every_device_once(
    oregon: OpenedRegion, store: MailboxStore
) -> None:
    async with oregon.device() as phone, oregon.device() as page:
        await opened_mailbox(phone)
        made = oregon.box.envelope(TOPIC, 1)
        await store.write([made])
        assert bodies((await opened_mailbox(page))[1]) == [1]
        assert await phone.hear_bodies(1) == [1]
        oregon.box.send_envelope(made)
        await oregon.write_to("42", 2)
        assert await phone.hear_bodies(1) == await page.hear_bodies(1) == [2]


async def test_a_crowd_of_users_is_read_in_few_trips(
    oregon: OpenedRegion, store: MailboxStore
) -> None:
    users = [f"u{n}" for n in range(150)]
    for user in users:
        await store.write([oregon.box.envelope(f"user.{user}", user)])
    async with contextlib.AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(oregon.device(user)) for user in users]
        store.open.clear()
        for user, reader in zip(users, readers, strict=True):
            await reader.send_verb(action="subscribe", topic=f"user.{user}")
        await store.asked.wait()
        store.open.set()
        for user, reader in zip(users, readers, strict=True):
            assert (await reader.hear())["recovered"] is True
            assert await reader.hear_bodies(1) == [user]
    assert sum(store.reads) == 150
    assert max(store.reads) <= 64
    assert len(store.reads) < 20


async def test_while_the_store_is_away_the_reader_is_asked_to_come_again(
    oregon: OpenedRegion, store: MailboxStore
) -> None:
    await oregon.write_to("42", 1)
    store.away = True
    async with oregon.device() as reader:
        error = await reader.answer_to(action="subscribe", topic=TOPIC, ref="r")
        assert (error["type"], error["code"], error["temporary"]) == ("error", 100, True)
        assert (error["topic"], error["ref"]) == (TOPIC, "r")
        store.away = False
        assert bodies((await opened_mailbox(reader))[1]) == [1]


async def test_while_upstream_is_away_the_reader_is_asked_to_send_it_again(
    oregon: OpenedRegion,
) -> None:
    letter = await oregon.write_to("42", 1)
    async with oregon.device() as reader:
        await opened_mailbox(reader)
        oregon.box.broker.cut()
        error = await reader.answer_to(action="read", topic=TOPIC, id=letter.id, ref=3)
        assert (error["type"], error["code"], error["temporary"]) == ("error", 100, True)
        assert (error["topic"], error["ref"]) == (TOPIC, 3)
        await oregon.box.broker.heal()
        reply = await reader.answer_to(action="read", topic=TOPIC, id=letter.id)
        assert reply["type"] == "marked"


SOME_ID = "01941f29-7c00-7845-87fd-f0b3c09aa7fd"
REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"topic": "user.43", "id": SOME_ID}, 103),
    ({"topic": "user.42.42", "id": SOME_ID}, 102),
    ({"topic": "news.world", "id": SOME_ID}, 107),
    ({"topic": "marks.billing", "id": SOME_ID}, 107),
    ({"topic": "nothing", "id": SOME_ID}, 102),
    ({"topic": "user.*", "id": SOME_ID}, 107),
    ({"topic": "_fabric.mark", "id": SOME_ID}, 102),
    ({"topic": 42, "id": SOME_ID}, 107),
    ({"id": SOME_ID}, 107),
    ({"topic": TOPIC}, 107),
    ({"topic": TOPIC, "id": SOME_ID.upper()}, 107),
    ({"topic": TOPIC, "id": SOME_ID + " "}, 107),
    ({"topic": TOPIC, "id": 7}, 107),
    ({"topic": TOPIC, "id": [SOME_ID]}, 107),
    ({"topic": TOPIC, "id": SOME_ID, "ref": {}}, 107),
]


@pytest.mark.promise("M4")
@pytest.mark.parametrize("kind", ["ack", "read", "dismiss"])
async def test_only_what_is_ones_own_and_well_formed_can_be_marked(
    oregon: OpenedRegion, kind: str
) -> None:
    upstream = oregon.box.broker.tap("upstream")
    async with oregon.device() as reader, oregon.box.reader() as stranger:
        codes = [(await reader.answer_to(action=kind, **verb))["code"] for verb, _ in REFUSED]
        assert codes == [code for _, code in REFUSED]
        error = await stranger.answer_to(action=kind, topic=TOPIC, id=SOME_ID)
        assert error["code"] == 101
    assert oregon.box.broker.pop_messages(upstream) == []


@pytest.mark.promise("M4")
async def test_a_token_that_opens_everything_opens_no_mailbox(oregon: OpenedRegion) -> None:
    letter = await oregon.write_to("42", 1)
    async with oregon.device("7", topics=["#", "user.#", "user.42", "*.42"]) as reader:
        for verb in ("subscribe", "history", "ack", "read", "dismiss"):
            error = await reader.answer_to(action=verb, topic=TOPIC, id=letter.id)
            assert error["code"] == 103
        await reader.subscribe("marks.billing")


async def test_the_publishers_tools_hear_who_has_read(oregon: OpenedRegion) -> None:
    letter = await oregon.write_to("42", 1, message_id="bill-7")
    async with oregon.device("desk", topics=["marks.#"]) as tool, oregon.device() as reader:
        await tool.subscribe("marks.billing")
        await opened_mailbox(reader)
        push = await marked(reader, "read", letter)
        note = await tool.hear()
        assert (note["type"], note["topic"]) == ("message", "marks.billing")
        assert note["body"] == {
            "user": "42",
            "id": letter.id,
            "message_id": "bill-7",
            "mark": "read",
            "at": push["at"],
        }


async def test_an_event_stream_begins_with_the_mailbox_too(oregon: OpenedRegion) -> None:
    letter = await oregon.write_to("42", 1)
    async with oregon.box.opened() as raw:
        bearer = {"Authorization": f"Bearer {token('42')}"}
        raw.send_request("GET", f"/events?topic={TOPIC}", **bearer)
        text = (await raw.read_until(b'"body":1}\n\n')).decode()
        pushes = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert [push["type"] for push in pushes] == ["subscribed", "message"]
        oregon.box.broker.publish("upstream", _mark_of(letter, "read"))
        event = (await raw.read_until(b'"type":"read"')).decode()
        assert "id: " in event


async def test_a_reader_who_marks_without_end_is_slowed_down_as_with_any_verb(
    oregon: OpenedRegion,
) -> None:
    letter = await oregon.write_to("42", 1)
    async with oregon.device() as reader:
        for _ in range(1_400):
            await reader.send_verb(action="read", topic=TOPIC, id=letter.id)
        code, pushes = await reader.hear_close()
        assert code == 4102
        assert {push.get("code") for push in pushes if push["type"] == "error"} == {111}


async def test_what_isnt_an_announcement_is_a_message_whatever_it_says(
    oregon: OpenedRegion,
) -> None:
    async with oregon.device() as reader:
        await reader.subscribe("news.world")
        await opened_mailbox(reader)
        odd = {"id": SOME_ID, "mark": "undo", "at": 1}
        oregon.box.publish("news.world", {**odd, "mark": "read"}, type=ANNOUNCEMENT)
        oregon.box.publish(TOPIC, odd, type=ANNOUNCEMENT)
        pushes = [await reader.hear() for _ in range(2)]
        assert [push["type"] for push in pushes] == ["message", "message"]


async def test_topics_of_users_who_arent_here_cost_a_bounded_amount(
    engine: str, store: MailboxStore, tmp_path: Path
) -> None:
    limits = HubLimits(topics=50)
    async with opened_region(engine, tmp_path, store, hub=limits) as region:
        for n in range(200):
            region.box.publish(f"user.u{n}", n)
        hub = region.box.gateway.core.hub
        await until(lambda: len(hub.seen) == 200)
        assert len(hub.topics) <= 50
        for n in range(100):
            async with region.device(f"u{n}") as reader:
                await opened_mailbox(reader, f"u{n}")
        assert len(hub.topics) <= 50


async def test_many_messages_are_cut_and_that_is_stated(oregon: OpenedRegion) -> None:
    made = [oregon.box.envelope(TOPIC, n) for n in range(1_001)]
    await oregon.box.was_past(made)
    async with oregon.device() as reader:
        subscribed, kept = await opened_mailbox(reader)
        assert subscribed["recovered"] is False
        assert bodies(kept) == list(range(1, 1_001))

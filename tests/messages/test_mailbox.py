"""User marks as values: sent upstream, as announcements, and as notes for the publisher's tools."""

from __future__ import annotations

import dataclasses
import json

import pytest
from envelopes import START_MS, envelope
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.message import Message, Properties
from newsfabric.messages.envelope import (
    MAX_EXPIRATION,
    Envelope,
    Submission,
    encode,
    id_of,
    receive,
    routed,
)
from newsfabric.messages.mailbox import (
    ANNOUNCEMENT,
    MARK_KINDS,
    UserMark,
    announced,
    announced_again,
    announcement,
    decode_mark,
    encode_mark,
    first_of_each,
    is_individual,
    tool_note,
)
from newsfabric.topics import TopicPolicy

OWNER = TopicPolicy(pattern="user.*", access="owner")
LETTER = envelope(1, topic="user.42", app_id="billing", message_id="bill-7")
READ = UserMark(topic="user.42", id=LETTER.id, kind="read", at_ms=START_MS + 10)

words = st.text("abcXYZ019_-", min_size=1, max_size=64)
marks = st.builds(
    lambda user, ms, identity, kind, at: UserMark(
        topic=f"user.{user}", id=id_of(ms, identity), kind=kind, at_ms=at
    ),
    words,
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**74 - 1),
    st.sampled_from(MARK_KINDS),
    st.integers(0, 2**48 - 1),
)


def received(message: Message) -> Submission:
    return receive(message, now_ms=START_MS)


def as_routed(message: Message, router: str = "oregon-router-1", seq: int = 1) -> Envelope:
    return routed(
        received(message), now_ms=START_MS + 20, origin="oregon", router=router, epoch=1, seq=seq
    )


@given(mark=marks)
def test_a_mark_comes_through_upstream_as_it_was(mark: UserMark) -> None:
    assert decode_mark(encode_mark(mark)) == mark


@given(mark=marks, later=st.integers(0, 2**40))
def test_an_announcement_is_a_message_that_a_router_takes_and_says_the_same_mark(
    mark: UserMark, later: int
) -> None:
    sent = announcement(mark, left_ms=later)
    assert announced(as_routed(sent), OWNER) == mark
    # A lifetime that is too large for RabbitMQ is left out.
    assert received(sent).lifetime_ms == (later if later <= MAX_EXPIRATION else None)


@given(mark=marks)
def test_what_comes_with_a_mailbox_says_the_same_mark_and_is_no_copy_of_its_announcement(
    mark: UserMark,
) -> None:
    again = announced_again(mark, LETTER if mark.topic == LETTER.topic else _on(mark.topic))
    assert announced(again, OWNER) == mark
    assert again.identity != received(announcement(mark, left_ms=2**48)).identity


def _on(topic: str) -> Envelope:
    return dataclasses.replace(LETTER, topic=topic)


def test_announcements_of_one_mark_are_one_message_and_the_note_is_another() -> None:
    # The user mark of another copy of the letter, a little later.
    copy = dataclasses.replace(
        READ, id=id_of(START_MS + 500, LETTER.identity), at_ms=READ.at_ms + 1
    )
    first, second = (received(announcement(m, left_ms=2**48)).identity for m in (READ, copy))
    noted = tool_note(READ, LETTER, left_ms=2**48)
    assert noted is not None
    assert first == second != received(noted).identity


def test_marks_of_another_kind_or_user_or_message_are_others() -> None:
    others = [
        READ,
        dataclasses.replace(READ, kind="ack"),
        dataclasses.replace(READ, topic="user.43"),
        dataclasses.replace(READ, id=envelope(2).id),
    ]
    found = {received(announcement(mark, left_ms=2**48)).identity for mark in others}
    assert len(found) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"topic": "user."},
        {"topic": "user.é"},
        {"topic": "user." + "x" * 65},
        {"topic": "a." * 100 + "b"},
        {"id": ""},
        {"id": LETTER.id[:-1]},
    ],
    ids=str,
)
def test_a_mark_that_can_be_nobodys_isnt_made(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"no user's topic|not a message id"):
        dataclasses.replace(READ, **wrong)


def test_the_longest_names_still_make_a_message_that_a_router_takes() -> None:
    mark = dataclasses.replace(READ, topic="a" * 135 + "." + "x" * 64, kind="dismiss")
    assert received(announcement(mark, left_ms=2**48)).message_id is not None
    marked = dataclasses.replace(LETTER, app_id="x" * 249, message_id="m" * 255)
    noted = tool_note(mark, marked, left_ms=2**48)
    assert noted is not None
    assert len(received(noted).topic) == 255


def test_of_marks_of_one_message_the_first_of_each_kind_stands() -> None:
    late, ack = dataclasses.replace(READ, at_ms=2**47), dataclasses.replace(READ, kind="ack")
    assert first_of_each([late, READ, ack, late]) == (ack, READ)
    assert first_of_each([]) == ()


def test_only_messages_to_a_user_are_individual_and_not_what_the_fabric_says_of_them() -> None:
    assert is_individual(LETTER, OWNER)
    assert is_individual(dataclasses.replace(LETTER, type="bill"), OWNER)
    assert not is_individual(dataclasses.replace(LETTER, type=ANNOUNCEMENT), OWNER)
    assert not is_individual(LETTER, TopicPolicy(pattern="user.*", access="registered"))
    assert not is_individual(LETTER, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": None},
        {"type": "_fabric.marks"},
        {"body": b"[]"},
        {"body": b"{}"},
        {"body": b'{"id": "7", "mark": "read", "at": 1}'},
        {"topic": "a." * 120 + "b"},
    ],
    ids=str,
)
def test_what_isnt_an_announcement_announces_nothing(fields: dict[str, object]) -> None:
    good = as_routed(announcement(READ, left_ms=2**48))
    assert announced(good, OWNER) == READ
    assert announced(dataclasses.replace(good, **fields), OWNER) is None
    assert announced(good, TopicPolicy(pattern="user.*")) is None


def test_a_note_says_who_did_what_with_which_message() -> None:
    noted = tool_note(READ, LETTER, left_ms=2**48)
    assert noted is not None
    assert json.loads(noted.body) == {
        "user": "42",
        "id": LETTER.id,
        "message_id": "bill-7",
        "mark": "read",
        "at": START_MS + 10,
    }
    assert tool_note(READ, dataclasses.replace(LETTER, app_id=None), left_ms=0) is None


@pytest.mark.parametrize("wrong", [Properties(), Properties(type="tick")])
def test_a_mark_says_that_it_is_one(wrong: Properties) -> None:
    with pytest.raises(ValueError, match="not a mark"):
        decode_mark(dataclasses.replace(encode_mark(READ), properties=wrong))


def test_an_announcement_is_routed_like_any_other_message() -> None:
    made = as_routed(announcement(READ, left_ms=2**48))
    assert encode(made).topic == "user.42"

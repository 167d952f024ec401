"""The messages that are copied into the other fabric, and their form there."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from envelopes import START_MS, envelope
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.message import Message, Properties, Undecodable
from newsfabric.messages.control import Canary, Tick, encode_canary, encode_tick
from newsfabric.messages.envelope import IDENTITY_BITS, Envelope, encode, receive
from newsfabric.topics import PublisherRights, TopicPolicy, TopicTable
from operations.mirror.copying import Candidate, Copying, carried_patterns, in_share

NOW = START_MS / 1000
PUBLIC = TopicPolicy(pattern="news.*", topic_class="gold")
OWNED = TopicPolicy(pattern="user.*", topic_class="gold", access="owner")
FRONTDESK = TopicPolicy(pattern="desk.#", access="granted")
TABLE = TopicTable([PUBLIC, TopicPolicy(pattern="fabric.canary"), OWNED, FRONTDESK])
RIGHTS = TopicTable([PUBLIC, OWNED], [PublisherRights("cms", ("news.*",))])

identities = st.integers(0, (1 << IDENTITY_BITS) - 1)
shares = st.floats(0, 1)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=50)


def decide(made: Envelope, **options: Any) -> Candidate | str:
    return Copying(TABLE, **{"share": 1.0, **options}).decide(encode(made), NOW)


def copied(made: Envelope, **options: Any) -> Message:
    found = decide(made, **options)
    assert isinstance(found, Candidate)
    assert found.copy is not None
    return found.copy


@given(identities, shares, shares)
def test_a_smaller_share_lies_within_a_larger_one(identity: int, one: float, two: float) -> None:
    assert in_share(identity, max(one, two)) or not in_share(identity, min(one, two))


@given(identities)
def test_all_of_it_is_everything_and_none_of_it_nothing(identity: int) -> None:
    assert in_share(identity, 1.0)
    assert not in_share(identity, 0.0)


def test_a_tenth_is_a_tenth() -> None:
    found = sum(in_share(envelope(n).identity, 0.1) for n in range(20_000))
    assert found == pytest.approx(2_000, rel=0.1)


def test_what_isn_t_in_the_share_is_heard_and_doesn_t_go() -> None:
    made = next(each for n in range(100) if not in_share((each := envelope(n)).identity, 0.5))
    assert decide(made, share=0.5) == Candidate("news.breaking", "gold", True, made.identity)


@given(
    message_id=st.none() | TEXT,
    app_id=st.none() | TEXT.filter(lambda text: text.partition(".")[0] != "_fabric"),
    key=st.none() | TEXT,
    version=st.none() | st.integers(0, 2**53 - 1),
    body=st.sampled_from([b"1", b'{"a": [1, 2]}', '"ü"'.encode()]),
    life_ms=st.none() | st.integers(6, 10**9),
)
def test_the_other_fabric_finds_the_same_message(
    message_id: str | None,
    app_id: str | None,
    key: str | None,
    version: int | None,
    body: bytes,
    life_ms: int | None,
) -> None:
    published = START_MS - 5
    made = envelope(
        message_id=message_id, app_id=app_id, key=key, version=version, body=body,
        published_ms=published, expires_ms=None if life_ms is None else published + life_ms,
    )  # fmt: skip
    found = decide(made)
    assert isinstance(found, Candidate)
    assert found.copy is not None
    there = receive(found.copy, now_ms=START_MS + 99)
    assert there.identity == found.identity_there
    for name in ("topic", "body", "key", "version", "message_id", "app_id", "published_ms"):
        assert getattr(there, name) == getattr(made, name)
    left_ms = None if life_ms is None else life_ms - 5
    assert there.lifetime_ms == left_ms


def test_with_a_message_id_the_identity_stays() -> None:
    made = envelope(3)
    found = decide(made)
    assert isinstance(found, Candidate)
    assert found.taken_ms == START_MS
    assert (found.identity, found.identity_there) == (made.identity, made.identity)


def test_nobody_is_asked_for_an_answer_and_no_trace_goes_on() -> None:
    properties = copied(envelope(traceparent=f"00-{'a' * 32}-{'b' * 16}-01")).properties
    assert (properties.reply_to, properties.correlation_id) == (None, None)
    assert properties.headers.keys() == {"timestamp_in_ms"}


def test_a_publisher_is_named_where_publishers_have_rights() -> None:
    made = envelope(app_id="cms")
    assert copied(made, others=RIGHTS).properties.user_id == "cms"
    assert copied(made, others=TABLE).properties.user_id is None
    assert copied(made).properties.user_id is None


@pytest.mark.parametrize("topic", ["user.42", "desk.planning"])
def test_what_is_private_stays_unless_it_is_asked_for(topic: str) -> None:
    assert decide(envelope(topic=topic)) == "private"
    assert copied(envelope(topic=topic), with_private=True).topic == topic


def test_what_is_private_never_becomes_public_by_the_other_s_topics() -> None:
    opened = TopicTable([TopicPolicy(pattern="#")])
    assert decide(envelope(topic="user.42"), with_private=True, others=opened) == "public_there"


def test_the_queue_isn_t_even_bound_to_what_is_private() -> None:
    assert carried_patterns(TABLE, with_private=False) == ("news.*", "fabric.canary")
    assert carried_patterns(TABLE, with_private=True) == (
        "news.*", "fabric.canary", "user.*", "desk.#",
    )  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        encode_tick(Tick(origin="oregon", router="r", epoch=1, seq=1, sent_ms=1)),
        encode_canary(Canary(region="oregon", token="t", sent_ms=1)),
        encode(envelope(topic="fabric.canary")),
        encode(envelope(topic="marks.cms")),
        encode(envelope(app_id="_fabric")),
        encode(envelope(type="_fabric.dismissed")),
    ],
    ids=["tick", "canary", "operators' canary", "mark", "own", "own type"],
)
def test_what_the_fabric_says_to_itself_stays(message: Message) -> None:
    assert Copying(TABLE, share=1.0).decide(message, NOW) == "own"


def test_a_copy_of_a_copy_and_a_repeat_don_t_go_again() -> None:
    copying = Copying(TABLE, share=1.0)
    first, second = (encode(envelope(1, at=at, seq=at + 1)) for at in (0, 7))
    assert isinstance(copying.decide(first, NOW), Candidate)
    assert copying.decide(second, NOW + 60) == "repeated"
    assert isinstance(copying.decide(second, NOW + 1000), Candidate)


def test_what_nobody_wants_any_more_stays() -> None:
    assert decide(envelope(expires_ms=START_MS)) == "expired"


def test_a_topic_of_nobody_s_stays() -> None:
    assert decide(envelope(topic="gossip.village")) == "unknown_topic"


HEADERS = st.dictionaries(
    st.sampled_from(["id", "origin", "router", "epoch", "seq", "path", "timestamp_in_ms", "key",
                     "version", "traceparent", "expires_ms", "x"]),
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats()
    | st.binary(max_size=5).map(Undecodable) | st.lists(st.integers(), max_size=2),
    max_size=12,
)  # fmt: skip


@given(HEADERS, st.text(max_size=40), st.binary(max_size=40), st.none() | st.text(max_size=20))
def test_whatever_comes_is_no_exception(
    headers: dict[str, Any], topic: str, body: bytes, text: str | None
) -> None:
    good = encode(envelope())
    copying = Copying(TABLE, share=1.0, with_private=True)
    for message in (
        Message(topic, body, Properties(headers=headers, message_id=text, type=text)),
        Message("news.x", body, Properties(headers={**good.properties.headers, **headers},
                                           message_id=text, app_id=text)),
    ):  # fmt: skip
        found = copying.decide(message, NOW)
        assert isinstance(found, str | Candidate)


def test_surrogates_of_a_text_that_was_no_utf8_are_unreadable() -> None:
    made = encode(envelope())
    broken = dataclasses.replace(made.properties, message_id="caf\udce9")
    assert Copying(TABLE, share=1.0).decide(dataclasses.replace(made, properties=broken), NOW) == (
        "unreadable"
    )

"""Identity and id of a message."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from identities import GOOD_ID, identify

from newsfabric.messages.envelope import (
    IDENTITY_BITS,
    MAX_MS,
    id_of,
    identity_of,
    identity_of_id,
    identity_text,
    ms_of_id,
)

identities = st.integers(0, 2**IDENTITY_BITS - 1)
milliseconds = st.integers(0, MAX_MS)
# Text that UTF-8 can encode.
texts = st.text(st.characters(codec="utf-8"), max_size=40)


def test_an_identity_is_this_number_for_ever():
    # Routers of different releases route copies of one message: they must agree.
    assert identity_text(identify()) == "0db75b5eb60968e7fcd"
    assert identity_text(identify(message_id=None)) == "0891c87d221ad8a54d8"


@pytest.mark.parametrize(
    "change",
    [{"topic": "news.sport"}, {"published_ms": None}, {"published_ms": 1}, {"body": b"[]"}],
    ids=str,
)
def test_with_a_message_id_only_publisher_and_message_id_count(change):
    assert identify(**change) == identify()


@pytest.mark.parametrize("change", [{"message_id": "m-2"}, {"app_id": "wire"}], ids=str)
def test_another_message_id_or_publisher_is_another_message(change):
    assert identify(**change) != identify()


@pytest.mark.parametrize(
    "change",
    [{"topic": "news.sport"}, {"published_ms": None}, {"published_ms": 1}, {"body": b"[]"}],
    ids=str,
)
def test_without_a_message_id_topic_time_and_body_count(change):
    assert identify(message_id=None, **change) != identify(message_id=None)


def test_without_a_message_id_the_publisher_does_not_count():
    assert identify(message_id=None, app_id="wire") == identify(message_id=None)


@given(st.tuples(texts, texts), st.tuples(texts, texts))
def test_where_a_field_ends_matters(one, other):
    same = identify(app_id=one[0], message_id=one[1]) == identify(
        app_id=other[0], message_id=other[1]
    )
    assert same == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"app_id": "ab", "message_id": "c"}, {"app_id": "a", "message_id": "bc"}),
        (
            {"message_id": None, "topic": "a", "published_ms": 1, "body": b"1"},
            {"message_id": None, "topic": "a1", "published_ms": 1, "body": b""},
        ),
        (
            {"message_id": None, "published_ms": 1, "body": b"23"},
            {"message_id": None, "published_ms": 12, "body": b"3"},
        ),
    ],
)
def test_no_two_messages_differ_only_in_where_a_field_ends(one, other):
    assert identify(**one) != identify(**other)


@given(st.none() | texts, st.none() | texts, texts, st.none() | milliseconds, st.binary())
def test_an_identity_fits_its_bits_and_a_copy_has_the_same(app_id, message_id, topic, ms, body):
    fields = {
        "app_id": app_id,
        "message_id": message_id,
        "topic": topic,
        "published_ms": ms,
        "body": body,
    }
    assert 0 <= identity_of(**fields) < 2**IDENTITY_BITS
    assert identity_of(**fields) == identity_of(**fields)


# id


@given(milliseconds, identities)
def test_an_id_is_a_uuid_version_7_that_holds_time_and_identity(ms, identity):
    id_text = id_of(ms, identity)
    parsed = uuid.UUID(id_text)
    assert str(parsed) == id_text
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert ms_of_id(id_text) == ms
    assert identity_of_id(id_text) == identity


@given(st.lists(st.tuples(milliseconds, identities), min_size=2))
def test_ids_sort_as_time_then_identity(pairs):
    assert sorted(id_of(*pair) for pair in pairs) == [id_of(*pair) for pair in sorted(pairs)]


def test_an_identity_is_shown_as_nineteen_hex_digits():
    assert identity_text(0) == "0" * 19
    assert identity_text(2**IDENTITY_BITS - 1) == "3" + "f" * 18


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        GOOD_ID[:-1],
        GOOD_ID + "0",
        GOOD_ID + "\n",
        GOOD_ID.upper().replace("0", "A"),
        GOOD_ID.replace("-", ""),
        "{" + GOOD_ID[1:-1] + "}",
        "+" + GOOD_ID[1:],
        GOOD_ID[:3] + "_" + GOOD_ID[4:],
        GOOD_ID[:14] + "4" + GOOD_ID[15:],
        GOOD_ID[:19] + "c" + GOOD_ID[20:],
        GOOD_ID[:35] + "\u0663",
        "\udcff" * 36,
    ],
)
def test_what_is_no_id_of_ours_is_a_value_error(text):
    with pytest.raises(ValueError, match="not a message id"):
        identity_of_id(text)

"""Identity, id, the limits of a submission, and the way of an envelope over AMQP."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import json
import uuid

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shovelled import shovelled

from newsfabric.amqp.message import TRANSIENT, Message, Properties, Undecodable
from newsfabric.envelope import (
    IDENTITY_BITS,
    JSON,
    MAX_EXPIRATION,
    MAX_INTEGER,
    MAX_MS,
    REJECT_REASONS,
    Envelope,
    Limits,
    Submission,
    decode,
    encode,
    id_of,
    identity_of,
    identity_of_id,
    identity_text,
    ms_of_id,
    receive,
    routed,
)
from newsfabric.errors import Rejected

NOW_MS = 1_735_689_600_000
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

identities = st.integers(0, 2**IDENTITY_BITS - 1)
milliseconds = st.integers(0, MAX_MS)
# Text that UTF-8 can carry, and text as it arrives when a publisher sent something else.
texts = st.text(st.characters(codec="utf-8"), max_size=40)
raw_texts = texts | st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


def message(
    body: bytes = b'{"headline": "x"}',
    *,
    topic: str = "news.breaking",
    headers: dict[str, object] | None = None,
    **properties: object,
) -> Message:
    return Message(topic, body, Properties(headers=headers or {}, **properties))


def reason_of(sent: Message, limits: Limits | None = None) -> str:
    with pytest.raises(Rejected) as caught:
        receive(sent, now_ms=NOW_MS, limits=limits or Limits())
    assert caught.value.reason in REJECT_REASONS
    return caught.value.reason


# identity


def identify(**fields: object) -> int:
    asked = {
        "app_id": "cms",
        "message_id": "m-1",
        "topic": "news.breaking",
        "published_ms": NOW_MS,
        "body": b"{}",
    }
    return identity_of(**(asked | fields))


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


GOOD_ID = id_of(NOW_MS, 12345)


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


# receive: what is accepted


def test_a_bare_message_becomes_a_submission():
    body = b'{"headline": "x"}'
    assert receive(message(body), now_ms=NOW_MS) == Submission(
        topic="news.breaking",
        body=body,
        identity=identify(message_id=None, published_ms=None, body=body),
        published_ms=NOW_MS,
    )


def test_a_message_with_everything_becomes_a_submission_with_everything():
    sent = message(
        b"[1]",
        headers={
            "key": "story-1",
            "version": 7,
            "timestamp_in_ms": NOW_MS - 40,
            "traceparent": TRACEPARENT,
        },
        content_type=JSON,
        message_id="m-1",
        app_id="cms",
        type="article",
        expiration="60000",
        reply_to="publisher-1",
        correlation_id="c-1",
    )
    assert receive(sent, now_ms=NOW_MS) == Submission(
        topic="news.breaking",
        body=b"[1]",
        identity=identify(),
        published_ms=NOW_MS - 40,
        key="story-1",
        version=7,
        message_id="m-1",
        app_id="cms",
        type="article",
        expires_ms=NOW_MS - 40 + 60_000,
        traceparent=TRACEPARENT,
        reply_to="publisher-1",
        correlation_id="c-1",
    )


@pytest.mark.parametrize(
    "body",
    [b"0", b"null", b'""', b" {} ", '"日本"'.encode(), b'{"a": 1, "a": 2}', b'"\\ud800\\udc00"'],
)
def test_any_json_is_accepted_and_its_bytes_are_kept(body):
    assert receive(message(body), now_ms=NOW_MS).body == body


@pytest.mark.parametrize(
    "content_type",
    [None, "", JSON, "Application/JSON", "application/json; charset=utf-8", "application/json ;x"],
)
def test_these_content_types_are_json(content_type):
    assert receive(message(content_type=content_type), now_ms=NOW_MS)


def test_empty_texts_count_as_absent():
    sent = message(headers={"key": ""}, message_id="", app_id="", reply_to="", expiration="")
    got = receive(sent, now_ms=NOW_MS)
    assert got == receive(message(), now_ms=NOW_MS)


def test_the_brokers_stamp_goes_before_the_publishers_seconds():
    both = message(headers={"timestamp_in_ms": 1_500}, timestamp=9)
    assert receive(both, now_ms=NOW_MS).published_ms == 1_500
    assert receive(message(timestamp=9), now_ms=NOW_MS).published_ms == 9_000


def test_a_copy_without_any_stamp_has_the_same_identity_whenever_it_is_received():
    early, late = (receive(message(), now_ms=now) for now in (NOW_MS, NOW_MS + 1))
    assert early.identity == late.identity


def test_copies_have_one_identity_whatever_headers_the_way_added():
    sent = message(b"1", headers={"timestamp_in_ms": 5}, message_id=None)
    shovelled = message(b"1", headers={"timestamp_in_ms": 5, "x-shovelled": [{"src-uri": "a"}]})
    identities = {receive(m, now_ms=NOW_MS).identity for m in (sent, shovelled)}
    assert len(identities) == 1


# receive: limits, at the bound and one above it

LIMITS = Limits(max_body_bytes=20, max_text_bytes=5)


def test_a_body_may_be_as_large_as_the_limit():
    at_limit = b'"' + b"x" * 18 + b'"'
    assert receive(message(at_limit), now_ms=NOW_MS, limits=LIMITS).body == at_limit
    assert reason_of(message(b'"' + b"x" * 19 + b'"'), LIMITS) == "too_large"


def test_the_default_limit_of_a_body_is_64_kib():
    at_limit = b'"' + b"x" * (64 * 1024 - 2) + b'"'
    assert receive(message(at_limit), now_ms=NOW_MS)
    assert reason_of(message(at_limit + b" ")) == "too_large"


TEXT_PROPERTIES = ("message_id", "app_id", "type", "reply_to", "correlation_id")


@pytest.mark.parametrize("name", TEXT_PROPERTIES)
@pytest.mark.parametrize(("fits", "too_long"), [("x" * 5, "x" * 6), ("éé1", "ééé")])
def test_a_text_property_is_measured_in_utf8_bytes(name, fits, too_long):
    assert getattr(receive(message(**{name: fits}), now_ms=NOW_MS, limits=LIMITS), name) == fits
    assert reason_of(message(**{name: too_long}), LIMITS) == "bad_property"


def test_a_key_is_measured_in_utf8_bytes():
    sent = message(headers={"key": "éé1"})
    assert receive(sent, now_ms=NOW_MS, limits=LIMITS).key == "éé1"
    assert reason_of(message(headers={"key": "ééé"}), LIMITS) == "bad_header"


def test_a_topic_has_at_most_255_bytes():
    assert receive(message(topic="x" * 255), now_ms=NOW_MS).topic == "x" * 255
    assert reason_of(message(topic="x" * 256)) == "bad_topic"


@pytest.mark.parametrize(("name", "most"), [("version", MAX_INTEGER), ("timestamp_in_ms", MAX_MS)])
def test_a_number_in_a_header_goes_from_zero_to_its_most(name, most):
    for value in (0, most):
        assert receive(message(headers={name: value}), now_ms=NOW_MS)
    for value in (-1, most + 1):
        assert reason_of(message(headers={name: value})) == "bad_header"


def test_a_timestamp_in_seconds_must_fit_48_bits_of_milliseconds():
    most = MAX_MS // 1000
    assert receive(message(timestamp=most), now_ms=NOW_MS).published_ms == most * 1000
    assert receive(message(timestamp=0), now_ms=NOW_MS).published_ms == 0
    assert reason_of(message(timestamp=most + 1)) == "bad_property"
    assert reason_of(message(timestamp=-1)) == "bad_property"


def test_an_expiration_is_what_rabbitmq_takes_and_written_in_one_way():
    for good in ("0", "1", str(MAX_EXPIRATION)):
        assert receive(message(expiration=good), now_ms=NOW_MS).expires_ms == NOW_MS + int(good)
    for bad in (str(MAX_EXPIRATION + 1), "007", "-1", "+1", " 1", "1_0", "\u0661", "9" * 5_000):
        assert reason_of(message(expiration=bad)) == "bad_property"


# receive: who says it is the fabric


@pytest.mark.promise("M5")
@pytest.mark.parametrize(
    "own", [{"type": "_fabric.mark"}, {"app_id": "_fabric.mailbox"}, {"type": "_fabric"}]
)
def test_nobody_but_the_fabric_speaks_in_its_name(own):
    # What a publisher sends has come through a shovel, whatever it claims about that itself.
    for headers in (shovelled("publish.oregon.1"), {"x-shovelled": "none"}):
        assert reason_of(message(headers=headers, **own)) == "bad_property"
    assert receive(message(**own), now_ms=NOW_MS).identity


@pytest.mark.promise("M5")
def test_nobody_but_the_fabric_says_that_something_was_read():
    noted = message(topic="marks.billing", headers=shovelled("publish.oregon.1"))
    assert reason_of(noted) == "topic_not_allowed"
    assert receive(message(topic="marks.billing"), now_ms=NOW_MS).topic == "marks.billing"
    other = message(topic="marksmen.billing", headers=shovelled("publish.oregon.1"))
    assert receive(other, now_ms=NOW_MS).topic == "marksmen.billing"


@pytest.mark.parametrize("fine", [{"type": "_fabrics.mark"}, {"app_id": "cms._fabric"}])
def test_other_names_are_free(fine):
    assert receive(message(headers=shovelled("publish.oregon.1"), **fine), now_ms=NOW_MS).identity


# receive: what is rejected, and why


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (message(topic=""), "bad_topic"),
        (message(topic="news..breaking"), "bad_topic"),
        (message(topic=".news"), "bad_topic"),
        (message(topic="news.*"), "bad_topic"),
        (message(topic="news.#"), "bad_topic"),
        (message(topic="news breaking"), "bad_topic"),
        (message(topic="news\n"), "bad_topic"),
        (message(topic="nëws"), "bad_topic"),
        (message(topic="\udcff"), "bad_topic"),
        (message(topic="_fabric"), "topic_not_allowed"),
        (message(topic="_fabric.tick.oregon"), "topic_not_allowed"),
        (message(b""), "empty_body"),
        (message(b"\xff"), "not_utf8"),
        (message(b'"\xed\xa0\x80"'), "not_utf8"),
        (message(b" "), "not_json"),
        (message(b"{"), "not_json"),
        (message(b"NaN"), "not_json"),
        (message(b"{} {}"), "not_json"),
        (message(b"\xef\xbb\xbf{}"), "not_json"),
        (message(b'{"a": "\0"}'), "not_json"),
        (message(b"[" * 20_000 + b"]" * 20_000), "not_json"),
        (message(content_type="text/plain"), "bad_property"),
        (message(content_type="application/jsonp"), "bad_property"),
        (message(content_type="\udcff"), "bad_property"),
        (message(message_id="\udcff"), "bad_property"),
        (message(reply_to="\udcff"), "bad_property"),
        (message(expiration="-1"), "bad_property"),
        (message(expiration="1.5"), "bad_property"),
        (message(expiration="١"), "bad_property"),
        (message(headers={"key": 1}), "bad_header"),
        (message(headers={"key": b"story"}), "bad_header"),
        (message(headers={"key": "\udcff"}), "bad_header"),
        (message(headers={"unknown": Undecodable(b"\xff" * 8)}), "bad_header"),
        (message(headers={"version": "1"}), "bad_header"),
        (message(headers={"version": True}), "bad_header"),
        (message(headers={"version": 1.0}), "bad_header"),
        (message(headers={"timestamp_in_ms": "now"}), "bad_header"),
        (message(headers={"traceparent": "00-xyz"}), "bad_header"),
        (message(headers={"traceparent": TRACEPARENT.upper()}), "bad_header"),
        (message(headers={"traceparent": TRACEPARENT + "\n"}), "bad_header"),
        (message(headers={"traceparent": 1}), "bad_header"),
        (message(headers={"CC": ["news.other"]}), "cc_not_allowed"),
        (message(headers={"BCC": []}), "cc_not_allowed"),
    ],
)
def test_a_bad_message_is_rejected_for_its_reason(sent, reason):
    assert reason_of(sent) == reason


def test_a_topic_whose_first_word_only_begins_like_the_fabrics_is_allowed():
    assert receive(message(topic="_fabrics.tick"), now_ms=NOW_MS).topic == "_fabrics.tick"


def test_every_reject_reason_can_happen():
    sent = [
        message(topic=""),
        message(topic="_fabric"),
        message(b""),
        message(b"0" * 70_000),
        message(b"\xff"),
        message(b"{"),
        message(headers={"key": 1}),
        message(expiration="x"),
        message(headers={"CC": ["news.other"]}),
    ]
    # Who may publish is known to routers alone.
    elsewhere = {"publisher_not_allowed"}
    assert sorted(map(reason_of, sent)) == sorted(set(REJECT_REASONS) - elsewhere)


wire_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats()
    | raw_texts
    | st.binary(max_size=10)
    | st.just(decimal.Decimal("1.5"))
    | st.just(datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(raw_texts, inner, max_size=3),
    max_leaves=5,
)
KNOWN_HEADERS = ("key", "version", "timestamp_in_ms", "traceparent", "id", "seq", "path", "epoch")
bodies = st.binary(max_size=30) | st.sampled_from([b"{}", b"[1]", b'"x"'])
topics = raw_texts | st.sampled_from(["news.breaking", "_fabric.tick.oregon", "a..b"])
anything = st.builds(
    Message,
    topics,
    bodies,
    st.builds(
        Properties,
        content_type=st.none() | raw_texts | st.just(JSON),
        headers=st.dictionaries(st.sampled_from(KNOWN_HEADERS) | raw_texts, wire_values),
        correlation_id=st.none() | raw_texts,
        reply_to=st.none() | raw_texts,
        expiration=st.none() | raw_texts | st.just("1000"),
        message_id=st.none() | raw_texts,
        timestamp=st.none() | st.integers(-(2**63), 2**64),
        type=st.none() | raw_texts,
        app_id=st.none() | raw_texts,
    ),
)


@given(anything)
def test_whatever_is_sent_is_received_or_rejected(sent):
    got: Submission | Rejected
    try:
        got = receive(sent, now_ms=NOW_MS)
    except Rejected as exc:
        got = exc
    if isinstance(got, Rejected):
        assert got.reason in REJECT_REASONS
        assert got.detail
    else:
        # What is accepted can be carried further as it is.
        assert decode(encode(number(got))).body == sent.body
        assert orjson.dumps({**dataclasses.asdict(got), "body": None, "identity": None})


# routed, encode, decode


def number(submission: Submission, *, seq: int = 1, now_ms: int = NOW_MS) -> Envelope:
    return routed(
        submission, now_ms=now_ms, origin="oregon", router="oregon-router-1", epoch=9, seq=seq
    )


def test_routing_adds_the_stream_and_the_first_hop():
    submission = receive(message(headers={"key": "k"}, message_id="m-1"), now_ms=NOW_MS)
    got = number(submission, seq=42, now_ms=NOW_MS + 3)
    assert got.id == id_of(NOW_MS + 3, submission.identity)
    assert (got.origin, got.router, got.epoch, got.seq) == ("oregon", "oregon-router-1", 9, 42)
    assert got.path == (f"oregon-router-1@{NOW_MS + 3}",)
    assert (got.topic, got.body, got.key) == (submission.topic, submission.body, "k")
    assert got.published_ms == NOW_MS


def test_an_encoded_envelope_is_transient_json_with_no_expiration():
    sent = message(expiration="1000", reply_to="publisher-1", correlation_id="c")
    got = encode(number(receive(sent, now_ms=NOW_MS)))
    properties = got.properties
    assert properties.delivery_mode == TRANSIENT
    assert properties.content_type == JSON
    assert properties.expiration is None
    assert (properties.reply_to, properties.correlation_id) == (None, None)
    assert properties.headers["expires_ms"] == NOW_MS + 1000


def test_forged_and_foreign_headers_end_at_the_router():
    forged = {
        "id": GOOD_ID,
        "seq": 999,
        "epoch": 999,
        "router": "evil",
        "origin": "evil",
        "path": ["evil@1"],
        "expires_ms": 1,
        "x-death": [],
    }
    honest = encode(number(receive(message(), now_ms=NOW_MS)))
    assert encode(number(receive(message(headers=forged), now_ms=NOW_MS))) == honest
    assert set(honest.properties.headers) == {
        "id",
        "origin",
        "router",
        "epoch",
        "seq",
        "path",
        "timestamp_in_ms",
    }


submissions = st.builds(
    lambda body, **properties: receive(
        message(json.dumps(body).encode(), **properties), now_ms=NOW_MS
    ),
    st.text() | st.integers() | st.lists(st.integers()),
    topic=st.sampled_from(["news.breaking", "user.1", "x" * 255]),
    headers=st.fixed_dictionaries(
        {},
        optional={
            "key": texts,
            "version": st.integers(0, MAX_INTEGER),
            "timestamp_in_ms": milliseconds,
            "traceparent": st.just(TRACEPARENT),
        },
    ),
    message_id=st.none() | texts,
    app_id=st.none() | texts,
    type=st.none() | texts,
    expiration=st.none() | st.integers(0, MAX_EXPIRATION).map(str),
)


@given(submissions, st.integers(0, 2**62), st.lists(texts))
def test_an_envelope_is_decoded_as_it_was_encoded(submission, seq, hops):
    sent = dataclasses.replace(number(submission, seq=seq), path=tuple(hops))
    assert decode(encode(sent)) == sent


ENCODED = encode(number(receive(message(headers={"key": "k", "version": 1}), now_ms=NOW_MS)))


def with_headers(**changes: object) -> Message:
    headers = {**ENCODED.properties.headers, **changes}
    properties = dataclasses.replace(ENCODED.properties, headers=headers)
    return dataclasses.replace(ENCODED, properties=properties)


@pytest.mark.parametrize("name", ["id", "origin", "router", "epoch", "seq", "timestamp_in_ms"])
def test_an_envelope_without_one_of_these_is_not_routed(name):
    headers = {k: v for k, v in ENCODED.properties.headers.items() if k != name}
    properties = dataclasses.replace(ENCODED.properties, headers=headers)
    with pytest.raises(ValueError, match="not a routed message"):
        decode(dataclasses.replace(ENCODED, properties=properties))


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "x"},
        {"id": None},
        {"id": GOOD_ID.encode()},
        {"seq": -1},
        {"seq": True},
        {"seq": "1"},
        {"epoch": 1.0},
        {"router": b"r"},
        {"origin": 1},
        {"origin": "\udcff"},
        {"path": "abc"},
        {"path": None},
        {"path": [1]},
        {"path": ["\udcff"]},
        {"key": 1},
        {"key": "\udcff"},
        {"version": "1"},
        {"expires_ms": -1},
        {"traceparent": 1},
    ],
    ids=str,
)
def test_an_envelope_with_an_odd_header_is_a_value_error(changes):
    with pytest.raises(ValueError, match=r".+"):
        decode(with_headers(**changes))


def test_an_envelope_without_a_path_is_taken():
    headers = {k: v for k, v in ENCODED.properties.headers.items() if k != "path"}
    properties = dataclasses.replace(ENCODED.properties, headers=headers)
    assert decode(dataclasses.replace(ENCODED, properties=properties)).path == ()


@given(anything)
def test_decoding_anything_gives_an_envelope_or_a_value_error(sent):
    with contextlib.suppress(ValueError):
        assert isinstance(decode(sent), Envelope)


@given(st.sampled_from(sorted(ENCODED.properties.headers)), wire_values)
def test_decoding_an_envelope_with_one_header_spoilt_gives_one_or_a_value_error(name, value):
    try:
        got = decode(with_headers(**{name: value}))
    except ValueError:
        return
    assert decode(encode(got)) == got

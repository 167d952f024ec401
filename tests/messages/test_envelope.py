"""The limits of a submission, and an envelope's encoding for AMQP."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from identities import GOOD_ID, NOW_MS, identify
from shovelled import shovelled

from newsfabric.amqp.message import TRANSIENT, Message, Properties, Undecodable
from newsfabric.errors import Rejected
from newsfabric.messages.envelope import (
    IDENTITY_BITS,
    JSON,
    MAX_EXPIRATION,
    MAX_INTEGER,
    MAX_MS,
    REJECT_REASONS,
    Envelope,
    MessageLimits,
    Submission,
    decode,
    encode,
    id_of,
    low_of,
    receive,
    routed,
    taken_ms,
)

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

identities = st.integers(0, 2**IDENTITY_BITS - 1)
milliseconds = st.integers(0, MAX_MS)
# Text that UTF-8 can encode, and text decoded from a publisher's other bytes.
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


def reason_of(sent: Message, limits: MessageLimits | None = None) -> str:
    with pytest.raises(Rejected) as caught:
        receive(sent, now_ms=NOW_MS, limits=limits or MessageLimits())
    assert caught.value.reason in REJECT_REASONS
    return caught.value.reason


# receive: submissions that are accepted


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
        lifetime_ms=60_000,
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

LIMITS = MessageLimits(max_body_bytes=20, max_text_bytes=5)


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
        assert receive(message(expiration=good), now_ms=NOW_MS).lifetime_ms == int(good)
    for bad in (str(MAX_EXPIRATION + 1), "007", "-1", "+1", " 1", "1_0", "\u0661", "9" * 5_000):
        assert reason_of(message(expiration=bad)) == "bad_property"


# receive: forged messages of the fabric


@pytest.mark.promise("M5")
@pytest.mark.parametrize(
    "own", [{"type": "_fabric.mark"}, {"app_id": "_fabric.mailbox"}, {"type": "_fabric"}]
)
def test_nobody_but_the_fabric_speaks_in_its_name(own):
    # A publisher's message came through a shovel, even if its own headers deny that.
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


# receive: submissions that are rejected, and the reasons


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
        (message(b"[" * 255 + b"]" * 255), "not_json"),
        (message(b'{"a":' * 255 + b"1" + b"}" * 255), "not_json"),
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
    # Only routers know who may publish.
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
        # An accepted submission can be sent on unchanged.
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


@pytest.mark.promise("S5")
@pytest.mark.parametrize("off_ms", [0, -3_600_000, 3_600_000])
def test_a_lifetime_counts_from_routing_whatever_the_publishers_clock_says(off_ms):
    sent = message(headers={"timestamp_in_ms": NOW_MS + off_ms}, expiration="60000")
    got = number(receive(sent, now_ms=NOW_MS), now_ms=NOW_MS + 3)
    assert (got.published_ms, got.expires_ms) == (NOW_MS + off_ms, NOW_MS + 3 + 60_000)


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
        "low",
        "path",
        "timestamp_in_ms",
    }


def test_a_message_says_how_far_its_log_is_settled():
    routed = number(receive(message(), now_ms=NOW_MS))
    assert low_of(encode(routed, low=2**63 - 1)) == 2**63 - 1
    assert (low_of(encode(routed)), low_of(message())) == (0, 0)
    assert decode(encode(routed, low=7)) == routed


@pytest.mark.parametrize("low", [-1, 2**63, True, "1", None, 1.0])
def test_a_low_that_is_no_number_of_a_log_is_not_believed(low):
    with pytest.raises(ValueError, match="whole number"):
        low_of(with_headers(low=low))


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
def test_decoding_an_envelope_with_one_damaged_header_gives_one_or_a_value_error(name, value):
    try:
        got = decode(with_headers(**{name: value}))
    except ValueError:
        return
    assert decode(encode(got)) == got


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        (("publish.a-client.0@1700000000123", "oregon-router-1@1700000000456"), 1_700_000_000_123),
        (("oregon-router-1@1700000000456",), 1_700_000_000_456),
        ((), NOW_MS),
        (("oregon-router-1",), NOW_MS),
        (("oregon-router-1@",), NOW_MS),
        (("oregon-router-1@-5",), NOW_MS),
        (("oregon-router-1@9999999999999999",), NOW_MS),
    ],
)
def test_what_is_measured_starts_when_the_router_took_it_in(
    path: tuple[str, ...], taken: int
) -> None:
    sent = message(headers={"timestamp_in_ms": NOW_MS + 7_200_000})
    made = routed(
        receive(sent, now_ms=NOW_MS), now_ms=NOW_MS, origin="a", router="r", epoch=1, seq=1
    )
    made = dataclasses.replace(made, path=path)
    assert taken_ms(made) == taken

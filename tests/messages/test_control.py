"""Ticks, load reports and receipts: round trips; garbage raises ValueError."""

from __future__ import annotations

import dataclasses

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.message import Message, Properties
from newsfabric.messages.control import (
    MAX_READERS,
    Canary,
    LoadReport,
    Receipt,
    Tick,
    canary_key,
    decode_canary,
    decode_load,
    decode_receipt,
    decode_tick,
    encode_canary,
    encode_load,
    encode_receipt,
    encode_tick,
    is_canary,
    load_key,
    tick_key,
)
from newsfabric.messages.envelope import MAX_MS

counts = st.integers(0, 2**63 - 1)
times = st.integers(0, MAX_MS)
rates = st.floats(0, 1e12)
texts = st.text(st.characters(codec="utf-8"), max_size=30)
maybe = st.none() | texts

ticks = st.builds(
    Tick,
    origin=texts,
    router=texts,
    epoch=times,
    seq=counts,
    sent_ms=times,
    low=counts,
)
loads = st.builds(
    LoadReport,
    region=texts,
    box=texts,
    state=st.sampled_from(["starting", "ready", "draining"]),
    connections=st.integers(0, MAX_READERS),
    capacity=st.integers(0, MAX_READERS),
    deliveries_per_second=rates,
    connects_per_second=rates,
    sockjs_url=texts,
    websocket_url=texts,
    sse_url=texts,
    sent_ms=counts,
)
receipts = st.builds(
    Receipt,
    status=st.sampled_from(["routed", "rejected"]),
    region=texts,
    router=texts,
    topic=texts,
    message_id=maybe,
    id=maybe,
    identity=maybe,
    reason=maybe,
    detail=maybe,
    repeated=st.booleans(),
)

TICK = Tick(origin="oregon", router="oregon-router-1", epoch=5, seq=7, sent_ms=9, low=6)
LOAD = LoadReport(
    region="oregon",
    box="oregon-retail-1",
    state="ready",
    connections=10,
    capacity=100,
    deliveries_per_second=12.5,
    connects_per_second=0.0,
    sockjs_url="http://127.0.0.1:1/sockjs",
    websocket_url="ws://127.0.0.1:1/websocket",
    sse_url="http://127.0.0.1:1/events",
    sent_ms=9,
)
RECEIPT = Receipt(
    status="rejected",
    region="oregon",
    router="oregon-router-1",
    topic="news.breaking",
    message_id="m-1",
    reason="not_json",
    detail="line 1",
)


@given(ticks)
def test_a_tick_comes_back(tick):
    assert decode_tick(encode_tick(tick)) == tick


@given(loads)
def test_a_load_report_comes_back(report):
    assert decode_load(encode_load(report)) == report


@given(receipts, texts, maybe)
def test_a_receipt_comes_back(receipt, reply_to, correlation_id):
    message = encode_receipt(receipt, reply_to=reply_to, correlation_id=correlation_id)
    assert decode_receipt(message) == receipt


def test_each_goes_by_its_own_key():
    assert encode_tick(TICK).topic == tick_key("oregon") == "_fabric.tick.oregon"
    assert tick_key("*") == "_fabric.tick.*"
    assert encode_load(LOAD).topic == "_fabric.load.oregon.oregon-retail-1"
    assert load_key("*", "*") == "_fabric.load.*.*"


def test_a_receipt_is_addressed_to_who_asked_and_says_what_was_asked():
    message = encode_receipt(RECEIPT, reply_to="publisher-7", correlation_id="c-1")
    assert message.topic == "publisher-7"
    assert message.properties.correlation_id == "c-1"
    assert message.properties.content_type == "application/json"
    assert message.properties.type == "receipt"
    assert orjson.loads(message.body) == {
        "status": "rejected",
        "region": "oregon",
        "router": "oregon-router-1",
        "topic": "news.breaking",
        "message_id": "m-1",
        "reason": "not_json",
        "detail": "line 1",
        "repeated": False,
    }


DECODERS = {"tick": decode_tick, "load": decode_load, "receipt": decode_receipt}
EXAMPLES = {
    "tick": encode_tick(TICK),
    "load": encode_load(LOAD),
    "receipt": encode_receipt(RECEIPT, reply_to="p", correlation_id=None),
}


def changed(kind: str, **changes: object) -> Message:
    """Return the example of ``kind`` with fields replaced; ``...`` removes a field."""
    fields = orjson.loads(EXAMPLES[kind].body) | changes
    left = {name: value for name, value in fields.items() if value is not ...}
    return dataclasses.replace(EXAMPLES[kind], body=orjson.dumps(left))


@pytest.mark.parametrize(
    ("kind", "other"),
    [(kind, other) for kind in DECODERS for other in (*DECODERS, "article", None) if kind != other],
)
def test_a_message_of_another_type_is_not_believed(kind, other):
    properties = dataclasses.replace(EXAMPLES[kind].properties, type=other)
    with pytest.raises(ValueError, match=f"not a {kind}"):
        DECODERS[kind](dataclasses.replace(EXAMPLES[kind], properties=properties))


@pytest.mark.parametrize("kind", DECODERS)
def test_a_field_that_this_release_doesnt_know_is_passed_over(kind):
    # Ticks of an earlier release also list void numbers.
    known = DECODERS[kind](EXAMPLES[kind])
    assert DECODERS[kind](changed(kind, void=[3, 4])) == known


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"null", b"1", b'"x"'])
def test_a_body_that_is_no_object_is_not_believed(kind, body):
    with pytest.raises(ValueError, match=f"not a {kind}"):
        DECODERS[kind](dataclasses.replace(EXAMPLES[kind], body=body))


REQUIRED = [
    *(("tick", name) for name in ("origin", "router", "epoch", "seq", "sent_ms")),
    *(("load", field.name) for field in dataclasses.fields(LoadReport)),
    *(("receipt", name) for name in ("status", "region", "router", "topic")),
]


@pytest.mark.parametrize(("kind", "name"), REQUIRED)
@pytest.mark.parametrize("value", [..., None, True, {}, [[]]], ids=str)
def test_a_field_that_is_missing_or_odd_is_not_believed(kind, name, value):
    with pytest.raises(ValueError, match=name):
        DECODERS[kind](changed(kind, **{name: value}))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("tick", {"epoch": MAX_MS + 1}),
        ("tick", {"sent_ms": MAX_MS + 1}),
        ("tick", {"low": -1}),
        ("tick", {"low": None}),
        ("tick", {"seq": -1}),
        ("tick", {"seq": 1.0}),
        ("tick", {"seq": "1"}),
        ("load", {"state": "asleep"}),
        ("load", {"connections": 0.5}),
        ("load", {"deliveries_per_second": -0.1}),
        ("load", {"deliveries_per_second": "fast"}),
        ("receipt", {"status": "lost"}),
        ("receipt", {"message_id": 1}),
        ("receipt", {"detail": []}),
    ],
    ids=str,
)
def test_a_value_out_of_its_range_is_not_believed(kind, changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        DECODERS[kind](changed(kind, **changes))


def test_a_number_too_large_for_a_float_is_not_infinite():
    body = EXAMPLES["load"].body.replace(b"12.5", b"1e999")
    with pytest.raises(ValueError, match=r"not a load|deliveries_per_second"):
        decode_load(dataclasses.replace(EXAMPLES["load"], body=body))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
NAMES = sorted({f.name for kind in (Tick, LoadReport, Receipt) for f in dataclasses.fields(kind)})
odd_bodies = st.binary(max_size=40) | st.dictionaries(
    st.sampled_from(NAMES), json_values, max_size=12
).map(orjson.dumps)


@pytest.mark.parametrize("kind", DECODERS)
@given(body=odd_bodies)
def test_garbage_is_a_value_error_or_a_value(kind, body):
    message = Message("x", body, Properties(type=kind))
    try:
        got = DECODERS[kind](message)
    except ValueError:
        return
    assert isinstance(got, Tick | LoadReport | Receipt)


@given(st.builds(Canary, region=texts, token=texts, sent_ms=counts))
def test_a_canary_comes_out_as_it_went_in(canary: Canary) -> None:
    message = encode_canary(canary)
    assert decode_canary(message) == canary
    assert message.topic == canary_key(canary.region)
    assert is_canary(message)


def test_what_only_looks_like_a_canary_is_none() -> None:
    canary = encode_canary(Canary(region="oregon", token="t", sent_ms=1))
    assert not is_canary(dataclasses.replace(canary, topic="news.breaking"))
    assert not is_canary(dataclasses.replace(canary, properties=Properties(type="tick")))
    with pytest.raises(ValueError, match="token"):
        decode_canary(dataclasses.replace(canary, body=b'{"region":"oregon","sent_ms":1}'))


def test_a_report_longer_than_ours_are_is_none() -> None:
    report = LoadReport(
        region="oregon",
        box="oregon-retail-1",
        state="ready",
        connections=1,
        capacity=2,
        deliveries_per_second=1.0,
        connects_per_second=1.0,
        sockjs_url="u" * 70_000,
        websocket_url="w",
        sse_url="s",
        sent_ms=1,
    )
    with pytest.raises(ValueError, match="70"):
        decode_load(encode_load(report))

"""Field tables: any bytes decode, and any decoded table can be sent on."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika.data
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.fields import (
    MAX_DEPTH,
    MAX_TABLE_BYTES,
    OVERSIZE,
    decode_table,
    decode_text,
    encode_short,
    encode_table,
    encode_text,
)
from newsfabric.amqp.message import Undecodable


def field(kind: bytes, payload: bytes, name: bytes = b"x") -> bytes:
    return bytes((len(name),)) + name + kind + payload


def long(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


texts = st.text(st.characters(codec="utf-8"), max_size=20)
scalars = (
    texts
    | st.binary(max_size=20)
    | st.booleans()
    | st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.datetimes(
        min_value=datetime(1970, 1, 1), max_value=datetime(9999, 1, 1), timezones=st.just(UTC)
    ).map(lambda when: when.replace(microsecond=0))
    | st.builds(
        lambda raw, scale: Decimal(raw).scaleb(-scale),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 255),
    )
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
)
tables = st.dictionaries(texts, values, max_size=6)


@given(tables)
def test_a_table_comes_back_as_it_was(table: dict[str, Any]) -> None:
    assert decode_table(encode_table(table)[4:]) == table


@given(st.dictionaries(texts, texts | st.integers(0, 2**31 - 1) | st.booleans() | st.none()))
def test_another_implementation_reads_and_writes_the_same(table: dict[str, Any]) -> None:
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, table)
    assert decode_table(b"".join(pieces)[4:]) == table
    assert pika.data.decode_table(encode_table(table), 0)[0] == table


@given(st.binary(max_size=300))
def test_any_bytes_decode_and_can_be_sent_on(raw: bytes) -> None:
    table = decode_table(raw)
    again = encode_table(table)[4:]
    assert len(again) <= 2.5 * len(raw) + 16
    decode_table(again)


@given(st.lists(st.tuples(st.sampled_from(b"tbBsuUIilLfdDTSxAFVz\0"), st.binary(max_size=12))))
def test_any_fields_decode_and_can_be_sent_on(fields: list[tuple[int, bytes]]) -> None:
    raw = b"".join(field(bytes((kind,)), payload) for kind, payload in fields)
    assert len(encode_table(decode_table(raw))) <= 2.5 * len(raw) + 16


@given(st.binary(max_size=50))
def test_text_that_is_not_utf8_keeps_its_bytes(raw: bytes) -> None:
    assert encode_text(decode_text(raw)) == raw


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (b"t", b"\2", True),
        (b"b", b"\xff", -1),
        (b"B", b"\xff", 255),
        (b"s", b"\xff\xfe", -2),
        (b"u", b"\xff\xfe", 65534),
        (b"I", b"\xff\xff\xff\xff", -1),
        (b"i", b"\xff\xff\xff\xff", 4294967295),
        (b"l", b"\xff" * 8, -1),
        (b"L", b"\xff" * 8, -1),
        (b"f", struct.pack(">f", 1.5), 1.5),
        (b"d", struct.pack(">d", 0.1), 0.1),
        (b"D", b"\2\0\0\4\xd2", Decimal("12.34")),
        (b"T", struct.pack(">Q", 86400), datetime(1970, 1, 2, tzinfo=UTC)),
        (b"S", long(b"caf\xc3\xa9"), "café"),
        (b"S", long(b"caf\xe9"), "caf\udce9"),
        (b"x", long(b"\0\xff"), b"\0\xff"),
        (b"V", b"", None),
        (b"A", long(b"V" + b"t\1"), [None, True]),
        (b"F", long(field(b"V", b"")), {"x": None}),
    ],
)
def test_each_type_has_its_value(kind: bytes, payload: bytes, value: object) -> None:
    found = decode_table(field(kind, payload))["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (b"T", b"\xff" * 8),
        (b"d", struct.pack(">d", float("nan"))),
        (b"d", struct.pack(">d", float("-inf"))),
        (b"f", struct.pack(">f", float("inf"))),
    ],
)
def test_a_value_that_is_none_is_marked_and_the_rest_is_read(kind: bytes, payload: bytes) -> None:
    found = decode_table(field(kind, payload) + field(b"t", b"\1", b"y"))
    assert found == {"x": payload, "y": True}
    assert isinstance(found["x"], Undecodable)


@pytest.mark.parametrize("rest", [b"?what", b"I\0\0", b"S\0\0\0\xffabc", b"A\xff\xff\xff\xff", b""])
def test_a_field_that_can_not_be_followed_takes_the_rest(rest: bytes) -> None:
    found = decode_table(field(b"t", b"\1", b"y") + b"\1x" + rest)
    assert found == {"y": True, "x": rest}
    assert isinstance(found["x"], Undecodable)


def test_a_bad_field_inside_a_table_costs_only_that_table() -> None:
    inner = field(b"?", b"what")
    assert decode_table(field(b"F", long(inner)) + field(b"t", b"\1", b"y")) == {
        "x": {"x": b"?what"},
        "y": True,
    }


def test_a_field_that_is_there_twice_is_none() -> None:
    raw = field(b"t", b"\1") + field(b"t", b"\0", b"y") + field(b"S", long(b"z"))
    found = decode_table(raw)
    assert found == {"x": b"S" + long(b"z"), "y": False}
    assert isinstance(found["x"], Undecodable)


def test_nesting_ends_at_the_limit() -> None:
    raw = b""
    for _ in range(500):
        raw = field(b"F", long(raw))
    found = decode_table(raw)
    for _ in range(MAX_DEPTH):
        found = found["x"]
    assert isinstance(found["x"], Undecodable)


def test_a_table_that_is_too_large_is_not_looked_into() -> None:
    raw = field(b"V", b"") * (MAX_TABLE_BYTES // 3 + 1)
    assert decode_table(raw) == {OVERSIZE: raw[:MAX_TABLE_BYTES]}


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        float("nan"),
        float("inf"),
        Decimal("1e300"),
        Decimal(2**40),
        Decimal("NaN"),
        datetime(1969, 1, 1, tzinfo=UTC),
        object(),
        {"x" * 256: 1},
        [float("nan")],
        "\ud800",
    ],
)
def test_what_has_no_amqp_form_is_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match="header 'story'"):
        encode_table({"story": value})


def test_a_short_string_ends_at_255_bytes() -> None:
    assert encode_short("é" * 127 + "x") == b"\xff" + "é".encode() * 127 + b"x"
    with pytest.raises(ValueError, match="256 bytes"):
        encode_short("é" * 128)

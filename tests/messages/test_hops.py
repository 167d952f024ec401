"""The shovels that carried a message, from headers of RabbitMQ 3.10 and from forged ones."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shovelled import shovelled

from newsfabric.amqp.fields import decode_table, encode_table
from newsfabric.amqp.message import SHOVELLED, Undecoded
from newsfabric.messages.hops import MAX_HOPS, hops, last_hop


def test_the_shovels_are_named_in_the_order_they_carried_it() -> None:
    headers = shovelled("publish.oregon.1", "outbound.oregon.2", "postoffice.1", key="story")
    assert hops(headers) == ("publish.oregon.1", "outbound.oregon.2", "postoffice.1")
    assert last_hop(headers) == "postoffice.1"
    assert headers["key"] == "story"


def test_what_no_shovel_carried_has_no_hops() -> None:
    assert hops({}) == ()
    assert last_hop({"key": "story"}) is None


def test_of_many_hops_the_last_are_kept() -> None:
    names = [f"proxy.{n}" for n in range(20)]
    assert hops(shovelled(*names)) == tuple(names[-MAX_HOPS:])


@pytest.mark.parametrize(
    "forged", ["text", 7, True, None, b"bytes", {"shovel-name": "x"}, 1.5, ["a", 3, [], {}]]
)
def test_what_a_stranger_wrote_there_is_no_hop(forged: object) -> None:
    headers = decode_table(encode_table({SHOVELLED: forged})[4:])
    assert hops(headers) == ()


def test_no_header_makes_us_remember_much() -> None:
    """A header of a publisher may have 16 KiB, and differ in each message."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(600):
            assert hops(shovelled(f"{number}" + "x" * 10_000, "postoffice.1")) == ("postoffice.1",)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2 << 20


@given(st.binary(max_size=200))
def test_no_bytes_upset_it_and_all_can_be_passed_on(raw: bytes) -> None:
    headers = {SHOVELLED: Undecoded(raw)}
    assert all(isinstance(name, str) for name in hops(headers))
    assert decode_table(encode_table(headers)[4:]) == {SHOVELLED: raw}


@given(st.binary(max_size=60))
def test_an_array_cut_short_doesnt_hide_that_it_is_malformed(raw: bytes) -> None:
    head = bytes((len(SHOVELLED),)) + SHOVELLED.encode() + b"A"
    headers = decode_table(head + (2**31).to_bytes(4, "big") + raw)
    assert type(headers[SHOVELLED]).__name__ == "Undecodable"
    assert hops(headers) == ()

"""Connections by address, as the data plane counts them too (``addresses.rs``)."""

from __future__ import annotations

import pytest

from gateway.addresses import Addresses, place_of


def test_an_address_has_so_many_connections_and_then_more_when_they_end() -> None:
    two = Addresses(2)
    assert [two.enter("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert two.enter("192.0.2.2")
    two.leave("192.0.2.1")
    assert [two.enter("192.0.2.1") for _ in range(2)] == [True, False]


def test_without_a_limit_there_may_be_any_number() -> None:
    some = Addresses()
    assert all(some.enter("192.0.2.1") for _ in range(1_000))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:0:0:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_an_ipv6_network_of_64_bits_is_one_place(one: str, other: str, same: bool) -> None:
    assert (place_of(one) == place_of(other)) is same

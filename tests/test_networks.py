"""Which addresses count as one; the data plane counts alike (``addresses.rs``)."""

from __future__ import annotations

import pytest

from newsfabric.networks import parse_address, place_of


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
    assert (place_of(parse_address(one)) == place_of(parse_address(other))) is same

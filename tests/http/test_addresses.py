"""The bound of connections from one address."""

from __future__ import annotations

from newsfabric.http.addresses import Addresses


def test_an_address_has_so_many_connections_and_then_more_when_they_end() -> None:
    two = Addresses(2)
    assert [two.enter("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert two.enter("192.0.2.2")
    two.leave("192.0.2.1")
    assert [two.enter("192.0.2.1") for _ in range(2)] == [True, False]


def test_without_a_limit_there_may_be_any_number() -> None:
    some = Addresses()
    assert all(some.enter("192.0.2.1") for _ in range(1_000))


def test_a_network_of_ipv6_has_as_many_as_an_address_of_ipv4() -> None:
    one = Addresses(1)
    assert one.enter("2001:db8::1")
    assert not one.enter("2001:db8::2")
    one.leave("2001:db8::3")
    assert one.enter("2001:db8::2")


def test_nothing_is_kept_of_an_address_that_has_none_any_more() -> None:
    some = Addresses()
    for number in range(256):
        some.enter(f"192.0.2.{number}")
        some.leave(f"192.0.2.{number}")
    assert not some._counts

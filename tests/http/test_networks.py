"""Addresses that count as one; the data plane counts alike (``addresses.rs``)."""

from __future__ import annotations

import pytest

from newsfabric.http.networks import (
    OtherMachines,
    Places,
    asker,
    parse_address,
    parse_networks,
    place_of,
)


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


BALANCERS = parse_networks(["10.0.0.0/8", "2001:db8:1::/48"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "who"),
    [
        ("203.0.113.9", "", "203.0.113.9"),
        # The header of a stranger isn't believed.
        ("203.0.113.9", "192.0.2.1", "203.0.113.9"),
        ("10.0.0.7", "", "10.0.0.7"),
        ("10.0.0.7", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.7", "6.6.6.6, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.7", "6.6.6.6, 203.0.113.9, 10.0.0.3", "203.0.113.9"),
        ("2001:db8:1::7", "2001:db8:9::1", "2001:db8:9::1"),
        ("10.0.0.7", "203.0.113.9, unknown", "10.0.0.7"),
        ("10.0.0.7", "203.0.113.9,", "10.0.0.7"),
        ("10.0.0.7", "10.0.0.3", "10.0.0.3"),
        ("10.0.0.7", "6.6.6.6," + "10.0.0.3," * 5000 + "10.0.0.4", "10.0.0.3"),
        ("", "6.6.6.6", ""),
    ],
)
def test_only_our_balancers_say_who_asks(peer: str, forwarded: str, who: str) -> None:
    assert asker(peer, forwarded, BALANCERS) == who


PLACES = Places(["edge.example.org", ".boxes.example.org", "10.0.0.0/8", "2001:db8::/32"])


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://edge.example.org/events", True),
        ("wss://EDGE.example.org:8443/websocket", True),
        ("https://r1.boxes.example.org/events", True),
        ("https://boxes.example.org/events", False),
        ("https://evilboxes.example.org/events", False),
        ("https://edge.example.org.evil.test/", False),
        ("https://edge.example.org@evil.test/", False),
        ("https://evil.test/edge.example.org", False),
        ("http://10.1.2.3:8080/events", True),
        ("http://11.1.2.3/events", False),
        ("http://[2001:db8::1]/events", True),
        ("http://[::ffff:10.0.0.1]/events", True),
        ("http://169.254.169.254/latest/meta-data", False),
        ("http://0x0a000001/", False),
        ("http://[10.0.0.1", False),
        ("https://evil.test\\@edge.example.org/", False),
        ("https://user@edge.example.org/", False),
        ("https://edge.example.or%67/", False),
        ("/events", False),
        ("", False),
    ],
)
def test_a_url_leads_where_its_host_says(url: str, allowed: bool) -> None:
    assert PLACES.allow(url) is allowed


@pytest.mark.parametrize(
    ("host", "elsewhere", "here"),
    [
        ("edge.example.org", True, True),
        ("edge", True, True),
        ("10.1.2.3:8080", True, True),
        ("[2001:db8::1]", True, True),
        ("127.0.0.1:8080", False, True),
        ("[::1]", False, True),
        ("[::ffff:127.0.0.1]", False, True),
        ("localhost:8080", False, True),
        ("a.localhost.", False, True),
        ("169.254.169.254", False, False),
        ("[fd00:ec2::254]", False, False),
        ("[fd00:0ec2:0::0fe]", False, False),
        ("[fd00:ec3::254]", True, True),
        ("[fe80::1]", False, False),
        ("[fe80::1%25eth0]", False, False),
        ("224.0.0.1", False, False),
        ("[ff02::1]", False, False),
        ("0.0.0.0", False, False),
        ("127.1", False, False),
        ("2130706433", False, False),
        ("0x7f000001", False, False),
        ("10.0.0.0x1", False, False),
        ("[::1", False, False),
        ("169.254.169.254\\@edge.example.org", False, False),
        ("127.0.0.%31", False, False),
        ("127\u30020\u30020\u30021", False, False),
        ("", False, False),
        (":80", False, False),
    ],
)
def test_a_url_may_lead_to_another_machine(host: str, elsewhere: bool, here: bool) -> None:
    assert OtherMachines(loopback=False).allow(f"http://{host}/events") is elsewhere
    assert OtherMachines(loopback=True).allow(f"http://{host}/events") is here


@pytest.mark.parametrize("place", ["https://x.org", "x.org:80", "", ".", "10.0.0.1/8"])
def test_what_is_no_place_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="no host"):
        Places([place])

"""Addresses of strangers, and which of them count as one. Pure.

An IPv4 address counts by itself. Of IPv6 the first 64 bits count as one, because whoever has one
address there has 2^64 of them. The data plane counts alike (``addresses.rs``).
"""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_address(text: str) -> Address:
    """The address in ``text``; ValueError if it is none."""
    found = ipaddress.ip_address(text)
    # On a socket for both families an IPv4 address looks like this.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def place_of(address: Address) -> bytes:
    """What ``address`` is counted under."""
    whole = isinstance(address, ipaddress.IPv4Address)
    return address.packed if whole else address.packed[:8]

"""Addresses of strangers, the addresses that count as one, and the hosts of URLs. Pure.

An IPv4 address counts by itself. IPv6 addresses with the same first 64 bits count as one, because a
client that has one of them has 2^64. The data plane counts alike (``addresses.rs``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

# A name in ASCII or an address, and perhaps a port: no user, no escapes (RFC 3986, section 3.2).
_AUTHORITY: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.ASCII)

# AWS sends a machine's data over IPv6 (metadata with its role's passwords, names, the clock) from
# unique local addresses, and not from link-local ones like 169.254.169.254.
_METADATA_OF_AWS: Final = ipaddress.IPv6Network("fd00:ec2::/32")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_address(text: str) -> Address:
    """Return the address in ``text``; ValueError if it is none."""
    found = ipaddress.ip_address(text)
    # The form of an IPv4 address on a socket for both families.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Return the networks in ``texts``, like ``10.0.0.0/8``; ValueError names an invalid text."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def place_of(address: Address) -> bytes:
    """Return the key under which ``address`` is counted."""
    whole = isinstance(address, ipaddress.IPv4Address)
    return address.packed if whole else address.packed[:8]


def asker(peer: str, forwarded: str, balancers: Sequence[Network]) -> str:
    """Return the client of a request: ``peer``, or the address reported by our ``balancers``.

    ``forwarded`` is the header ``X-Forwarded-For``, to which each proxy appends its client's
    address. So only the part of its end that our balancers have written is believed. Example: with
    balancers in 10.0.0.0/8, a request of 10.0.0.7 with ``6.6.6.6, 203.0.113.9, 10.0.0.3`` is from
    203.0.113.9, and 6.6.6.6 is a mere claim of that reader.
    """
    believed = peer
    # No path has more proxies of ours than this.
    for address in reversed(forwarded.rsplit(",", 16)[-16:]):
        if not _within(believed, balancers):
            break
        if not _is_address(address.strip()):
            break
        believed = address.strip()
    return believed


class Places:
    """Hosts that a URL may name: each of ``allowed`` is a host, a domain (``.example.org``: all
    names under it), or a network. ValueError for any other text."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(text) for text in allowed if _is_network(text)]
        names = [text.lower() for text in allowed if not _is_network(text)]
        if wrong := [name for name in names if not name.strip(".") or set(name) & set("/:@ ")]:
            raise ValueError(f"{wrong[0]!r} is no host, no .domain and no network")
        self._domains = tuple(name for name in names if name.startswith("."))
        self._hosts = frozenset(name for name in names if not name.startswith("."))

    def allow(self, url: str) -> bool:
        """Return whether ``url`` names one of these hosts. A name is never looked up."""
        host = _host_of(url)
        if not host:
            return False
        return host in self._hosts or host.endswith(self._domains) or _within(host, self._networks)


class OtherMachines:
    """A rule without listed :class:`Places`: any host that may be another machine.

    Not allowed are this machine's own addresses, unless ``loopback``, link-local and multicast
    addresses, and AWS's addresses of a machine's data; nor a number that browsers take for an IPv4
    address (WHATWG URL, section 3.5: ``127.1``, ``0x7f000001``).
    """

    def __init__(self, *, loopback: bool) -> None:
        self._loopback = loopback

    def allow(self, url: str) -> bool:
        """Return whether ``url`` may name another machine. A name is never looked up."""
        host = _host_of(url).rstrip(".")
        if not host:
            return False
        if ":" not in host and not _is_number(host):
            return self._loopback or not (host == "localhost" or host.endswith(".localhost"))
        return self.allows_address(host)

    def allows_address(self, text: str) -> bool:
        """Return whether ``text``, say the result of a look-up, is another machine's address."""
        if not _is_address(text):
            return False
        found = parse_address(text)
        if found.is_loopback:
            return self._loopback
        if found in _METADATA_OF_AWS:
            return False
        return not (found.is_link_local or found.is_multicast or found.is_unspecified)


def _host_of(url: str) -> str:
    """Return the host of ``url`` in lower case; empty where browsers might find another one.

    ``https://evil.test\\@edge.example.org`` leads a browser to evil.test.
    """
    try:
        parts = urlsplit(url)
        return (parts.hostname or "") if _AUTHORITY.fullmatch(parts.netloc.lower()) else ""
    except ValueError:
        return ""


def _is_number(host: str) -> bool:
    last = host.rpartition(".")[2]
    return last.isdigit() or last.startswith("0x")


def _within(text: str, networks: Sequence[Network]) -> bool:
    try:
        found = parse_address(text)
    except ValueError:
        return False
    return any(found in network for network in networks)


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True

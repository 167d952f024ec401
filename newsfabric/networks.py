"""Addresses of strangers, which of them count as one, and where a URL leads. Pure.

An IPv4 address counts by itself. Of IPv6 the first 64 bits count as one, because whoever has one
address there has 2^64 of them. The data plane counts alike (``addresses.rs``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_address(text: str) -> Address:
    """The address in ``text``; ValueError if it is none."""
    found = ipaddress.ip_address(text)
    # On a socket for both families an IPv4 address looks like this.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """The networks in ``texts``, like ``10.0.0.0/8``; ValueError names what is none."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def place_of(address: Address) -> bytes:
    """What ``address`` is counted under."""
    whole = isinstance(address, ipaddress.IPv4Address)
    return address.packed if whole else address.packed[:8]


def asker(peer: str, forwarded: str, balancers: Sequence[Network]) -> str:
    """Whom a request came from: ``peer``, or whom our ``balancers`` had it from.

    ``forwarded`` is the header ``X-Forwarded-For``, to which each proxy appends the address that it
    was asked from. So only as much of its end is believed as balancers of ours have written: with
    balancers in 10.0.0.0/8, a request of 10.0.0.7 with ``6.6.6.6, 203.0.113.9, 10.0.0.3`` is from
    203.0.113.9, and 6.6.6.6 is that reader's own word.
    """
    believed = peer
    # No way has more proxies of ours than this.
    for address in reversed(forwarded.rsplit(",", 16)[-16:]):
        if not _within(believed, balancers):
            break
        if not _is_address(address.strip()):
            break
        believed = address.strip()
    return believed


class Places:
    """Hosts that a URL may name: each of ``allowed`` is a host, a domain (``.example.org``: all
    names under it), or a network. ValueError if one is none of these."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(text) for text in allowed if _is_network(text)]
        names = [text.lower() for text in allowed if not _is_network(text)]
        if wrong := [name for name in names if not name.strip(".") or set(name) & set("/:@ ")]:
            raise ValueError(f"{wrong[0]!r} is no host, no .domain and no network")
        self._domains = tuple(name for name in names if name.startswith("."))
        self._hosts = frozenset(name for name in names if not name.startswith("."))

    def allow(self, url: str) -> bool:
        """Whether ``url`` leads to one of them. A name is never looked up."""
        try:
            host = urlsplit(url).hostname
        except ValueError:
            return False
        if not host:
            return False
        return host in self._hosts or host.endswith(self._domains) or _within(host, self._networks)


def is_elsewhere(url: str, *, loopback: bool) -> bool:
    """Whether the host of ``url`` may be another machine's: of a box whose word is all there is.

    A name is never looked up. ``loopback``: this machine's own addresses count, too. What isn't a
    host, names this machine, its own link or a group of machines doesn't; nor does a number that
    browsers take for an IPv4 address (WHATWG URL, section 3.5: ``127.1``, ``0x7f000001``).
    """
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
        found = parse_address(host) if ":" in host or _is_number(host) else None
    except ValueError:
        return False
    if found is None:
        local = host == "localhost" or host.endswith(".localhost")
        return bool(host) and (loopback or not local)
    if found.is_loopback:
        return loopback
    return not (found.is_link_local or found.is_multicast or found.is_unspecified)


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

"""Tokens in ``Authorization: Bearer`` (RFC 6750 section 2.1), files that hold one, and the URLs
that a token may be sent to.

A token is sent over https, or to this machine (RFC 6750 section 5.3); over plain http to others
only if the operator has declared the network private: ``--token-over-http``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from newsfabric.errors import ConfigError
from newsfabric.tokens import MAX_TOKEN_BYTES


def bearer(headers: Mapping[str, str]) -> str | None:
    """Return the token in a request's ``headers``; None if there is none."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def bearing(token: str | None) -> dict[str, str]:
    """Return headers that carry ``token``; none without one."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def read_token(path: Path) -> str:
    """Return the token in the file at ``path``; OSError, or ValueError if that can't be a token.

    Call it for each use: to renew a token, operators only write the file.
    """
    with path.open("rb") as file:
        token = file.read(MAX_TOKEN_BYTES + 1).strip().decode("latin-1")
    # A token of several lines would be several headers.
    plain = token.isascii() and token.isprintable() and " " not in token
    if not token or len(token) > MAX_TOKEN_BYTES or not plain:
        raise ValueError(f"{path} holds no token")
    return token


def is_private(url: str) -> bool:
    """Return whether no one on the path to ``url`` can read requests to it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    return local or parts.scheme == "https"


def check_private(urls: Iterable[str]) -> None:
    """Raise ConfigError if a token for ``urls`` could be read on its way to one of them."""
    for url in urls:
        if not is_private(url):
            raise ConfigError(
                f"{url}: a token is sent over https, or to this machine, only: write https, "
                "or use --token-over-http in a private network"
            )

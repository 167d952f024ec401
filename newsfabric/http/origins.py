"""Web origins (RFC 6454) in the form of requests: ``https://www.example.org``. Pure."""

from __future__ import annotations

import re
from typing import Final

# A scheme, a host (with brackets around an IPv6 address), a port unless it is the scheme's default.
_ORIGIN: Final = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.ASCII)


def is_origin(text: str) -> bool:
    """Return whether ``text``, in lower case, is an origin; not ``null``: any page can have it."""
    return _ORIGIN.fullmatch(text) is not None


def is_of_host(origin: str, host: str | None) -> bool:
    """Return whether ``origin`` has the host and port of a request's ``Host``."""
    _, mark, rest = origin.partition("://")
    named = re.split("[/?#]", rest, maxsplit=1)[0]
    # "null" and an empty origin name no host, and must not equal an empty Host.
    return bool(mark and named and host) and named.lower() == str(host).lower()

"""Web origins (RFC 6454) as requests say them: ``https://www.example.org``. Pure."""

from __future__ import annotations

import re
from typing import Final

# A scheme, a host (with brackets around an IPv6 address), a port where it isn't the scheme's own.
_ORIGIN: Final = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.ASCII)


def is_origin(text: str) -> bool:
    """Whether ``text``, in lower case, is an origin; ``null``, which any page can have, is none."""
    return _ORIGIN.fullmatch(text) is not None


def is_of_host(origin: str, host: str | None) -> bool:
    """Whether ``origin`` has the host and port that a request was sent to (its ``Host``)."""
    _, mark, rest = origin.partition("://")
    named = re.split("[/?#]", rest, maxsplit=1)[0]
    # "null" and an empty origin name nobody, and must not be an empty Host's.
    return bool(mark and named and host) and named.lower() == str(host).lower()

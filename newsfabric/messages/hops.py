"""The shovels that have carried a message: RabbitMQ's header ``x-shovelled``. Pure.

Every shovel of the fabric adds a table with its name to that header (``dest-add-forward-headers``).
The header is the same for every message of the same path, so its bytes are decoded once
(:class:`~newsfabric.amqp.message.Undecoded`) and looked up for the others.

A publisher may have put tables there before the first shovel. So believe only as many of the *last*
hops as there are shovels before the reader's place in the fabric.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from newsfabric.amqp.fields import decode_array
from newsfabric.amqp.message import SHOVELLED, Undecoded

# More shovels than any path through the fabric has.
MAX_HOPS: Final = 8
# Paths that are remembered: regions by paths by feeds, squared.
_WAYS: Final = 512
# Longest header that is remembered, as of our shovels: eight tables, each with a name, URIs and a
# queue. A publisher's header may have any allowed length, and be different each time.
_SHORT: Final = 4_096
# A name of a queue, an exchange or a shovel is a short string (AMQP 0-9-1 section 4.2.5.3).
_LONGEST_NAME: Final = 255


def hops(headers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of shovels that carried the message, the last one last; at most eight."""
    raw = headers.get(SHOVELLED)
    if not isinstance(raw, Undecoded):
        return ()
    return _known_names(raw) if len(raw) <= _SHORT else _names(raw)


def last_hop(headers: Mapping[str, Any]) -> str | None:
    """Return the shovel that brought the message here; None if none did."""
    found = hops(headers)
    return found[-1] if found else None


def _names(raw: Undecoded) -> tuple[str, ...]:
    # rabbit_basic:prepend_table_header/3: the newest is first.
    tables = decode_array(raw)[:MAX_HOPS]
    found = (table.get("shovel-name") for table in tables if isinstance(table, dict))
    short = (name for name in found if isinstance(name, str) and len(name) <= _LONGEST_NAME)
    return tuple(short)[::-1]


_known_names: Final = functools.lru_cache(_WAYS)(_names)

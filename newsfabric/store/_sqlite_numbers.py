"""Rows of table ``log`` in the SQLite file, each with a check that detects changes. Pure.

A message has a checksum of its own. Its row in ``log`` stays two days longer, and then alone tells
that the number's time is over; or it tells that the number is void. A flipped bit in the row (in
topic, id or number) could make the number of a living message GONE.

So both kinds of row carry a check of their values. For a message it is the last :data:`_BITS` bits
of the time at which the row expires, which is therefore up to 131 s later. A void number has the
check in place of the id. The decision that a reader may question: the check isn't a column, so that
this release and the one before can read each other's files. Rows of the release before have no
check: there the expiry is exactly the ms that topic and id give, and a void number has an empty id.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import orjson

from newsfabric.store import rules

# Values of one row: router, epoch, seq, topic, id, kept_until.
LogRow = tuple[str, int, int, str, str, int]

_BITS: Final = 16
_MASK: Final = (1 << _BITS) - 1


def message_row(router: str, epoch: int, seq: int, topic: str, id_text: str, end: int) -> LogRow:
    """Return the row of a number whose message is kept until ``end`` (ms)."""
    place = (router, epoch, seq, topic, id_text)
    # Rounded up: no row may expire before its time.
    ends = (rules.index_ends(end) + _MASK) & ~_MASK
    return (*place, ends | _check(place) & _MASK)


def void_row(router: str, epoch: int, seq: int, ends: int) -> LogRow:
    """Return the row of a void number, which is deleted at ``ends`` (ms)."""
    return (router, epoch, seq, "", _void_id(router, epoch, seq), ends)


def is_over(row: LogRow, end: int) -> bool:
    """Return whether ``row`` is as it was written for a message that is kept until ``end``."""
    *place, ends = row
    return ends & _MASK == _check(place) & _MASK or ends == rules.index_ends(end)


def is_void_row(row: LogRow) -> bool:
    """Return whether ``row``, without a topic, is as it was written for a void number."""
    router, epoch, seq, _, id_text, _ = row
    return id_text in ("", _void_id(router, epoch, seq))


def _void_id(router: str, epoch: int, seq: int) -> str:
    # Ten characters: one flipped bit in a row's head can turn a text of eight into an empty one,
    # which is valid.
    return f"{_check((router, epoch, seq)):010x}"


def _check(values: Any) -> int:
    return zlib.crc32(orjson.dumps(values))

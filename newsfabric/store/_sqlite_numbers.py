"""Rows of table ``log`` in the SQLite file: each says itself whether it has changed. Pure.

A message has a checksum, and outlives no doubt about it. Its row here stays two days longer, and
says alone that the number's time is over, or that it is void. A disk that returns one other bit
there would make a message over that isn't: by another topic or id, or by another number.

So both carry a check of what they are about. That of a message is in the last :data:`_BITS` bits of
the time at which its row ends, which is a minute later for it; a void number has no id, and has it
there. The decision that one would question is that it isn't a column: files of the release before
stay readable, by both. What that release wrote has no check: there the row ends at the very ms that
its topic and id say, and a void number has nothing in its place.
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
    """The row of a number whose message is kept until ``end`` (ms)."""
    place = (router, epoch, seq, topic, id_text)
    # Rounded up: nothing may go before its time.
    ends = (rules.index_ends(end) + _MASK) & ~_MASK
    return (*place, ends | _check(place) & _MASK)


def void_row(router: str, epoch: int, seq: int, ends: int) -> LogRow:
    """The row of a number that is void; it goes at ``ends`` (ms)."""
    return (router, epoch, seq, "", _void_id(router, epoch, seq), ends)


def says_over(row: LogRow, end: int) -> bool:
    """Whether ``row`` is what was written of a message that is kept until ``end``."""
    *place, ends = row
    return ends & _MASK == _check(place) & _MASK or ends == rules.index_ends(end)


def says_void(row: LogRow) -> bool:
    """Whether ``row``, without a topic, is what was written of a void number."""
    router, epoch, seq, _, id_text, _ = row
    return id_text in ("", _void_id(router, epoch, seq))


def _void_id(router: str, epoch: int, seq: int) -> str:
    # Of ten characters: of eight one bit in a row's head makes none.
    return f"{_check((router, epoch, seq)):010x}"


def _check(values: Any) -> int:
    return zlib.crc32(orjson.dumps(values))

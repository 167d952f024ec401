"""The ``position`` token: how far a reader has come, as a version vector.

There is no offset that means anything on another gateway, so a position lists, for every
stream (a router since it started), the number up to which everything was seen, and one time that
stands for all streams not listed: of those, everything routed until then was seen.

On the wire it is base64url without padding (RFC 4648 section 5) of::

    1 byte   version, 1
    6 bytes  time, ms since the epoch, big-endian
    then for each stream, in ascending order of the hash:
    5 bytes  BLAKE2b of router and epoch
    1–9 bytes  seq, LEB128

Four streams take about 60 characters. Readers must treat it as opaque; we must treat what
they send back as hostile: :func:`decode` accepts exactly what :func:`encode` can make.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Final

VERSION: Final = 1
HASH_BYTES: Final = 5
MAX_STREAMS: Final = 64
MAX_SEQ: Final = 2**63 - 1
_TIME_BYTES: Final = 6
_HEAD_BYTES: Final = 1 + _TIME_BYTES
# 9 × 7 bits hold MAX_SEQ.
_SEQ_BYTES: Final = 9
_MAX_BYTES: Final = _HEAD_BYTES + MAX_STREAMS * (HASH_BYTES + _SEQ_BYTES)
MAX_CHARACTERS: Final = (_MAX_BYTES * 4 + 2) // 3


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """``seen``: stream hash → seq up to which everything was seen; ``time_ms`` for all others."""

    time_ms: int
    seen: Mapping[bytes, int]


def stream_hash(router: str, epoch: int) -> bytes:
    """The stream's name inside positions; two of a hundred streams agree once in 10**8 fabrics."""
    return hashlib.blake2b(f"{router}\0{epoch}".encode(), digest_size=HASH_BYTES).digest()


def encode(time_ms: int, entries: list[bytes]) -> str:
    """The token; ``entries`` are from :func:`entry`, at most MAX_STREAMS, in any order."""
    head = bytes((VERSION,)) + time_ms.to_bytes(_TIME_BYTES, "big")
    packed = head + b"".join(sorted(entries))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def entry(hash_: bytes, seq: int) -> bytes:
    """One stream's part of a token."""
    packed = bytearray(hash_)
    while seq > 0x7F:
        packed.append(seq & 0x7F | 0x80)
        seq >>= 7
    packed.append(seq)
    return bytes(packed)


def decode(token: str) -> Position:
    """The position in ``token``; ValueError for anything that :func:`encode` can't have made."""
    packed = _unpacked(token)
    if len(packed) < _HEAD_BYTES or packed[0] != VERSION:
        raise ValueError("position: unknown version")
    seen: dict[bytes, int] = {}
    at, last = _HEAD_BYTES, b""
    while at < len(packed):
        hash_ = packed[at : at + HASH_BYTES]
        if hash_ <= last or len(seen) == MAX_STREAMS:
            raise ValueError("position: streams out of order or too many")
        seen[hash_], at = _seq(packed, at + HASH_BYTES)
        last = hash_
    return Position(int.from_bytes(packed[1:_HEAD_BYTES], "big"), seen)


def _unpacked(token: str) -> bytes:
    if len(token) > MAX_CHARACTERS:
        raise ValueError("position: too long")
    try:
        packed = base64.b64decode(
            token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True
        )
    except (UnicodeEncodeError, binascii.Error) as exc:
        raise ValueError("position: not base64url") from exc
    # "/" and "+" and stray low bits decode too: only the one spelling is accepted.
    if base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii") != token:
        raise ValueError("position: not as we write it")
    return packed


def _seq(packed: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(_SEQ_BYTES):
        if at + i >= len(packed):
            raise ValueError("position: cut off")
        byte = packed[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if byte == 0 and i > 0:
                raise ValueError("position: padded number")
            return value, at + i + 1
    raise ValueError("position: number too large")

"""The ``position`` token: how far a reader has come, as a version vector.

There is no offset that means anything on another gateway, so a position lists, for every
stream (a router since it started), the number up to which everything was seen, and two times.
``time_ms`` stands for all streams that aren't listed: of those, everything routed until then was
seen. ``since_ms`` only bounds a search: whatever of the listed streams wasn't seen was
routed then or later.

On the wire it is base64url without padding (RFC 4648 section 5) of::

    1 byte   version, 2
    6 bytes  time_ms, ms since the epoch, big-endian
    1–7 bytes  since_ms - time_ms, LEB128
    then for each stream, in ascending order of the hash:
    5 bytes  BLAKE2b of router and epoch
    1–9 bytes  seq, LEB128

Four streams take about 60 characters. Readers must treat it as opaque; we must treat what
they send back as hostile: :func:`decode` accepts exactly what :func:`encode` can make.

The decision that one would question: a token of another version is no error but a position from
the beginning of time. Readers who come back after an upgrade are told that they may have missed
something, instead of being refused.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from newsfabric.envelope import MAX_MS, Envelope, ms_of_id

VERSION: Final = 2
# Those that other releases have, or will.
_VERSIONS: Final = 15
HASH_BYTES: Final = 5
MAX_STREAMS: Final = 64
MAX_SEQ: Final = 2**63 - 1
_TIME_BYTES: Final = 6
_HEAD_BYTES: Final = 1 + _TIME_BYTES
# 7 bits each: 7 bytes hold MAX_MS, 9 bytes hold MAX_SEQ.
_SINCE_BYTES: Final = 7
_SEQ_BYTES: Final = 9
_MAX_BYTES: Final = _HEAD_BYTES + _SINCE_BYTES + MAX_STREAMS * (HASH_BYTES + _SEQ_BYTES)
MAX_CHARACTERS: Final = (_MAX_BYTES * 4 + 2) // 3
# A crowd that comes back brings few tokens many times.
_DECODED: Final = 1_024
_HASHED: Final = 4_096


class Copy(NamedTuple):
    """One copy of a message: its place in a stream, and the time that its router gave it."""

    stream: bytes
    seq: int
    routed_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """``seen``: stream hash → seq up to which everything was seen; ``time_ms`` for all others.

    What wasn't seen of the streams in ``seen`` was routed at ``since_ms`` or later.
    """

    time_ms: int
    since_ms: int
    seen: Mapping[bytes, int]

    def covers(self, copies: Iterable[Copy]) -> bool:
        """Whether a reader at this position has the message: one of its copies is enough."""
        for stream, seq, routed_ms in copies:
            seen = self.seen.get(stream)
            if routed_ms <= self.time_ms if seen is None else seq <= seen:
                return True
        return False


# What a token of another version says: nothing.
UNKNOWN: Final = Position(0, 0, {})


@functools.lru_cache(_HASHED)
def stream_hash(router: str, epoch: int) -> bytes:
    """The stream's name inside positions; two of a hundred streams agree once in 10**8 fabrics."""
    return hashlib.blake2b(f"{router}\0{epoch}".encode(), digest_size=HASH_BYTES).digest()


def copy_of(envelope: Envelope) -> Copy:
    """The copy that ``envelope`` is."""
    stream = stream_hash(envelope.router, envelope.epoch)
    return Copy(stream, envelope.seq, ms_of_id(envelope.id))


def encode(time_ms: int, since_ms: int, entries: list[bytes]) -> str:
    """The token; ``entries`` are from :func:`entry`, at most MAX_STREAMS, in any order.

    A ``since_ms`` before ``time_ms`` pulls that back: it is always safe to have seen less.
    """
    time_ms = min(time_ms, since_ms)
    head = bytes((VERSION,)) + time_ms.to_bytes(_TIME_BYTES, "big") + _leb128(since_ms - time_ms)
    packed = head + b"".join(sorted(entries))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def entry(hash_: bytes, seq: int) -> bytes:
    """One stream's part of a token."""
    return hash_ + _leb128(seq)


@functools.lru_cache(_DECODED)
def decode(token: str) -> Position:
    """The position in ``token``; ValueError for anything that :func:`encode` can't have made."""
    packed = _unpacked(token)
    if not packed:
        raise ValueError("position: empty")
    if packed[0] != VERSION and packed[0] <= _VERSIONS:
        return UNKNOWN
    if packed[0] != VERSION:
        raise ValueError("position: no version of ours")
    if len(packed) < _HEAD_BYTES:
        raise ValueError("position: cut off")
    time_ms = int.from_bytes(packed[1:_HEAD_BYTES], "big")
    since, at = _number(packed, _HEAD_BYTES, _SINCE_BYTES)
    if time_ms + since > MAX_MS:
        raise ValueError("position: no such time")
    seen: dict[bytes, int] = {}
    last = b""
    while at < len(packed):
        hash_ = packed[at : at + HASH_BYTES]
        if hash_ <= last or len(seen) == MAX_STREAMS:
            raise ValueError("position: streams out of order or too many")
        seen[hash_], at = _number(packed, at + HASH_BYTES, _SEQ_BYTES)
        last = hash_
    return Position(time_ms, time_ms + since, seen)


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


def _leb128(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def _number(packed: bytes, at: int, most: int) -> tuple[int, int]:
    value = 0
    for i in range(most):
        if at + i >= len(packed):
            raise ValueError("position: cut off")
        byte = packed[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if byte == 0 and i > 0:
                raise ValueError("position: padded number")
            return value, at + i + 1
    raise ValueError("position: number too large")

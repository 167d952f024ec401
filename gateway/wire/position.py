"""The ``position`` token: which messages a reader has, as a version vector (docs/design/0011).

Example, of 12:00. Listed are ``r1``: 9, 11:59:58, and ``r2``: 4, 11:40. A reader with this position
has numbers 1 to 9 of r1 and 1 to 4 of r2. Number 5 of r2, which was lost on its way, is found if
the store is read from 11:40 on. ``r3`` and ``r4`` aren't listed: the reader has all of ``r3``,
which began at 05:00, and nothing of ``r4``, which began at 07:00.

On the wire the token is base64url without padding (RFC 4648 section 5) of::

    1 byte   version, 3
    6 bytes  time, ms since the epoch, big-endian
    then for each log, in ascending order of the hash:
    5 bytes  BLAKE2b of region, router and epoch
    1–9 bytes  number, LEB128
    1–6 bytes  how many seconds the log's time is before the position's, LEB128

Four logs take about 60 characters. Tokens from readers may be hostile: :func:`decode` accepts
exactly the tokens that :func:`encode` can make.

Deliberately, a token of another version isn't an error, but a position from the beginning of time.
Readers who return after an upgrade get the answer that they may have missed something, instead of
being refused.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, NamedTuple, Protocol

from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.store.logs import Log
from newsfabric.topology.times import TIMES

VERSION: Final = 3
# Versions up to this one belong to other releases, old or new.
_VERSIONS: Final = 15
HASH_BYTES: Final = 5
MAX_LOGS: Final = 64
MAX_SEQ: Final = 2**63 - 1
# The times of a router of the previous release may go back by this much.
CLOCK_STEP_MS: Final = TIMES.clock_ms
_TIME_BYTES: Final = 6
_HEAD_BYTES: Final = 1 + _TIME_BYTES
# 7 bits each: 9 bytes hold MAX_SEQ, 6 bytes the largest time in seconds.
_SEQ_BYTES: Final = 9
_LAG_BYTES: Final = 6
_MAX_BYTES: Final = _HEAD_BYTES + MAX_LOGS * (HASH_BYTES + _SEQ_BYTES + _LAG_BYTES)
MAX_CHARACTERS: Final = (_MAX_BYTES * 4 + 2) // 3
# A crowd of returning readers brings few tokens many times.
_DECODED: Final = 1_024
_HASHED: Final = 4_096


class Copy(NamedTuple):
    """A copy of a message: its place in a log, and the time that its router gave it."""

    log: Log
    seq: int
    routed_ms: int


class Listed(NamedTuple):
    """A reader's state in one log: the reader has all numbers up to ``mark``, and the others were
    routed at ``whole_ms`` or later (``CLOCK_STEP_MS`` earlier at most)."""

    mark: int
    whole_ms: int


class _Marked(Protocol):
    """The attributes of a :class:`Listed`."""

    @property
    def mark(self) -> int: ...

    @property
    def whole_ms(self) -> int: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """The reader's mark in each ``listed`` log, by the log's hash; ``time_ms`` is for others."""

    time_ms: int
    listed: Mapping[bytes, Listed]

    #: A log that isn't listed is covered if it began this long before ``time_ms``.
    reach_ms: ClassVar[int] = 6 * 3_600_000

    def covers(self, log: Log, seq: int) -> bool:
        """Return whether the reader has this number, if the number is a message."""
        listed = self.listed.get(log_hash(log))
        if listed is not None:
            return seq <= listed.mark
        return seq <= 0 or log.epoch <= self.time_ms - self.reach_ms

    def since_ms(self, log: Log) -> int:
        """Return a time of the router's clock before which the reader lacks nothing of ``log``."""
        listed = self.listed.get(log_hash(log))
        return (log.epoch if listed is None else listed.whole_ms) - CLOCK_STEP_MS


# The position in a token of another version: nothing is covered.
UNKNOWN: Final = Position(0, {})


@functools.lru_cache(_HASHED)
def log_hash(log: Log) -> bytes:
    """Return the log's name in positions; two of 100 logs have the same in 1 of 10**8 fabrics."""
    name = f"{log.region}\0{log.router}\0{log.epoch}"
    return hashlib.blake2b(name.encode(), digest_size=HASH_BYTES).digest()


def log_of(envelope: Envelope) -> Log:
    """Return the log in which ``envelope`` has its number."""
    return Log(envelope.origin, envelope.router, envelope.epoch)


def copy_of(envelope: Envelope) -> Copy:
    """Return the place and time of ``envelope`` as a copy."""
    return Copy(log_of(envelope), envelope.seq, ms_of_id(envelope.id))


def encode(position: Position) -> str:
    """Return the token of ``position``, which lists at most MAX_LOGS logs.

    A log's time is cut to whole seconds before the position's: an earlier time is always safe.
    """
    return token(position.time_ms, sorted(position.listed.items()))


def token(time_ms: int, listed: Iterable[tuple[bytes, _Marked]]) -> str:
    """Return the token of a position that lists these logs, in ascending order of the hash."""
    entries = [
        # In seconds, rounded up.
        _entry(hash_, one.mark, (ms + 999) // 1000 if (ms := time_ms - one.whole_ms) > 0 else 0)
        for hash_, one in listed
    ]
    return _spelt(bytes((VERSION,)) + time_ms.to_bytes(_TIME_BYTES, "big") + b"".join(entries))


# Each message has a position, in which most entries are as before.
@functools.lru_cache(4 * MAX_LOGS)
def _entry(hash_: bytes, mark: int, lag_s: int) -> bytes:
    return hash_ + _leb128(mark) + _leb128(lag_s)


@functools.lru_cache(_DECODED)
def decode(token: str) -> Position:
    """Return the position in ``token``; ValueError for all that :func:`encode` can't have made."""
    packed = _unpacked(token)
    if not packed:
        raise ValueError("position: empty")
    if packed[0] != VERSION:
        if packed[0] <= _VERSIONS:
            return UNKNOWN
        raise ValueError("position: no version of ours")
    if len(packed) < _HEAD_BYTES:
        raise ValueError("position: cut off")
    time_ms = int.from_bytes(packed[1:_HEAD_BYTES], "big")
    listed: dict[bytes, Listed] = {}
    last, at = b"", _HEAD_BYTES
    while at < len(packed):
        hash_ = packed[at : at + HASH_BYTES]
        if hash_ <= last or len(listed) == MAX_LOGS:
            raise ValueError("position: logs out of order or too many")
        mark, at = _number(packed, at + HASH_BYTES, _SEQ_BYTES)
        lag, at = _number(packed, at, _LAG_BYTES)
        # The last second may begin before the beginning of time.
        if lag * 1000 >= time_ms + 1000:
            raise ValueError("position: no such time")
        listed[hash_] = Listed(mark, max(0, time_ms - lag * 1000))
        last = hash_
    return Position(time_ms, listed)


def _unpacked(token: str) -> bytes:
    if len(token) > MAX_CHARACTERS:
        raise ValueError("position: too long")
    try:
        packed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError as exc:
        raise ValueError("position: not base64url") from exc
    # Foreign characters and stray low bits decode too: only one spelling is accepted.
    if _spelt(packed) != token:
        raise ValueError("position: not as we write it")
    return packed


def _spelt(packed: bytes) -> str:
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def _leb128(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def _number(packed: bytes, at: int, most: int) -> tuple[int, int]:
    """Return the number that begins ``at``, of ``most`` bytes at most, and the index after it."""
    value = 0
    for i, byte in enumerate(packed[at : at + most]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if byte == 0 and i > 0:
                raise ValueError("position: padded number")
            return value, at + i + 1
    raise ValueError("position: number cut off or too large")

"""What a control plane leaves for the next one, and how that one catches up.

The data plane keeps a blob for us: how far each router's stream was published. It is sent behind
the publications it speaks of, so it never says too much. Who attaches with it rereads
the journal from a minute before it was written, and publishes what lies beyond those marks; what
the data plane has had all the same it drops as a copy. So nothing is lost or doubled,
as far as the journal goes back (ten minutes).
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Final

import orjson

from gateway.core import Core
from gateway.streams import Streams
from newsfabric.envelope import MAX_MS, Envelope, ms_of_id
from newsfabric.store.rules import JOURNAL_MS, clock_ms

logger = logging.getLogger(__name__)

_VERSION: Final = 1
# Messages that were on their way when the blob was written.
_MARGIN_MS: Final = 60_000
# Clocks of routers differ.
_SKEW_MS: Final = 1_000
_PAGE: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """A stream was published up to ``seq``; its last message was routed at ``routed_ms``."""

    router: str
    epoch: int
    seq: int
    routed_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Marks:
    """How far everything was published at ``at_ms``."""

    at_ms: int
    marks: tuple[Mark, ...]


def encode_marks(streams: Streams, at_ms: int) -> bytes:
    """The blob."""
    return orjson.dumps([_VERSION, at_ms, list(streams.marks())])


def decode_marks(blob: bytes) -> Marks:
    """What :func:`encode_marks` made; ValueError for anything else."""
    try:
        version, at_ms, marks = orjson.loads(blob)
        if version != _VERSION or not _is_time(at_ms):
            raise ValueError(f"marks of version {version!r} at {at_ms!r}")
        return Marks(at_ms, tuple(_mark(*fields) for fields in marks))
    except TypeError as exc:
        raise ValueError("not marks") from exc


def _mark(router: object, epoch: object, seq: object, routed_ms: object) -> Mark:
    if not (
        isinstance(router, str) and _is_count(epoch) and _is_count(seq) and _is_time(routed_ms)
    ):
        raise ValueError("not a mark")
    assert isinstance(epoch, int)
    assert isinstance(seq, int)
    assert isinstance(routed_ms, int)
    return Mark(router, epoch, seq, routed_ms)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: object) -> bool:
    return isinstance(value, int) and _is_count(value) and value <= MAX_MS


def resume(streams: Streams, marks: Marks) -> None:
    """Go on from where the last control plane was."""
    for mark in marks.marks:
        streams.resume(mark.router, mark.epoch, mark.seq, routed_ms=mark.routed_ms)


async def catch_up(core: Core, marks: Marks) -> int:
    """Publish what was routed since ``marks`` and lies beyond them; returns how many.

    StoreError if the journal can't be read; try again.
    """
    now = clock_ms()
    at, count = max(now - JOURNAL_MS, marks.at_ms - _MARGIN_MS), 0
    limit = _PAGE
    while True:
        page = await core.store.journal(from_ms=at, to_ms=now + _SKEW_MS, limit=limit)
        for envelope in page:
            if _was_missed(core.hub.streams, envelope, marks):
                publication = core.hub.offer(envelope, now / 1000)
                if publication is not None:
                    core.publish(publication)
                    count += 1
        if len(page) < limit:
            return count
        last = ms_of_id(page[-1].id)
        # A page of one millisecond alone: only a longer one gets beyond it.
        limit = limit * 2 if last == at else _PAGE
        at = last


def _was_missed(streams: Streams, envelope: Envelope, marks: Marks) -> bool:
    if streams.mark(envelope.router, envelope.epoch) is None:
        # A router that started meanwhile. What it routed before is no news to our readers.
        return ms_of_id(envelope.id) >= marks.at_ms - _SKEW_MS
    return not streams.seen(envelope.router, envelope.epoch, envelope.seq)

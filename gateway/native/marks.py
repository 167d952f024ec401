"""What a control plane leaves for the next one: its marks.

The data plane keeps a blob for us: how far each router's stream was published. It is sent behind
the publications it speaks of, so it never says too much. Who attaches with it goes on from
there, as a gateway does that was deaf meanwhile (:mod:`gateway.repair`): it rereads the journal
and publishes what lies beyond those marks; what the data plane has had all the same it drops
as a copy. So nothing is lost or doubled, as far as the journal goes back (ten minutes).
"""

from __future__ import annotations

import dataclasses
from typing import Final

import orjson

from gateway.position import MAX_SEQ
from gateway.streams import Lost, Streams
from newsfabric.envelope import MAX_MS
from newsfabric.numbers import is_whole

_VERSION: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """A stream was published up to ``seq``; its last message was routed at ``routed_ms``.

    Of those numbers some may be ``lost``.
    """

    router: str
    epoch: int
    seq: int
    routed_ms: int
    lost: Lost | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Marks:
    """How far everything was published at ``at_ms``, by gateways that listen since ``since_ms``
    and know what was routed since ``known_ms``."""

    at_ms: int
    since_ms: int
    known_ms: int
    marks: tuple[Mark, ...]


def encode_marks(streams: Streams, at_ms: int) -> bytes:
    """The blob."""
    times = (at_ms, streams.since_ms, streams.known_ms)
    marks = [
        mark if lost is None else (*mark, [lost.runs, lost.from_ms, lost.at_ms])
        for *mark, lost in streams.marks()
    ]
    return orjson.dumps([_VERSION, *times, marks])


def decode_marks(blob: bytes) -> Marks:
    """What :func:`encode_marks` made; ValueError for anything else."""
    try:
        version, *rest = orjson.loads(blob)
        if version != _VERSION:
            raise ValueError(f"marks of version {version!r}")
        at_ms, since_ms, known_ms, marks = rest
        if not (_is_time(at_ms) and _is_time(since_ms) and _is_time(known_ms)):
            raise ValueError(f"marks at {at_ms!r} since {since_ms!r}, {known_ms!r}")
        return Marks(at_ms, since_ms, known_ms, tuple(_mark(*fields) for fields in marks))
    except TypeError as exc:
        raise ValueError("not marks") from exc


def _mark(
    router: object, epoch: object, seq: object, routed_ms: object, lost: object = None
) -> Mark:
    if not (
        isinstance(router, str) and _is_count(epoch) and _is_count(seq) and _is_time(routed_ms)
    ):
        raise ValueError("not a mark")
    assert isinstance(epoch, int)
    assert isinstance(seq, int)
    assert isinstance(routed_ms, int)
    return Mark(router, epoch, seq, routed_ms, None if lost is None else _lost(lost))


def _lost(told: object) -> Lost:
    if not isinstance(told, list):
        raise ValueError("nothing that was lost")
    runs, from_ms, at_ms = told
    found = tuple((first, last) for first, last in runs)
    ends = [end for run in found for end in run]
    if not (ends and all(map(_is_count, ends)) and sorted(ends) == ends and ends[0] > 0):
        raise ValueError(f"lost {runs!r}")
    if not (_is_time(from_ms) and _is_time(at_ms)):
        raise ValueError(f"lost at {from_ms!r}, {at_ms!r}")
    return Lost(found, from_ms, at_ms)


def _is_count(value: object) -> bool:
    return is_whole(value, 0, MAX_SEQ)


def _is_time(value: object) -> bool:
    return is_whole(value, 0, MAX_MS)


def resume(streams: Streams, marks: Marks) -> None:
    """Go on from where the last control plane was."""
    streams.listened_since(marks.since_ms, known_ms=marks.known_ms)
    for mark in marks.marks:
        streams.resume(mark.router, mark.epoch, mark.seq, routed_ms=mark.routed_ms, lost=mark.lost)

"""Pages of the messages that a reader missed, each with a position (``GET /history``)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

from gateway.logs.logs import Logs
from gateway.memory.hub import Hub
from gateway.past.replay import Replay
from gateway.wire.position import (
    MAX_LOGS,
    UNKNOWN,
    Copy,
    Listed,
    Position,
    decode,
    encode,
    log_hash,
)
from gateway.wire.publication import Publication


def page(
    missed: Replay, token: str | None, hub: Hub, *, limit: int, most_bytes: int
) -> tuple[list[Publication], str]:
    """Return the first of the ``missed`` messages, and the position of a reader who has them.

    Messages are in the order in which they were routed: only then can a position lie between two of
    them. The position is valid for this topic alone, although other topics' messages have numbers
    in the same logs.
    """
    begins = UNKNOWN if token is None else decode(token)
    beyond = [one for one in missed.publications if _is_beyond(begins, one, hub.logs)]
    publications = sorted(beyond, key=lambda one: min(map(_routed, one.copies)))
    sizes = itertools.accumulate(one.weight for one in publications[:limit])
    # At least one message, whatever its weight.
    count = max(1, sum(size <= most_bytes for size in sizes))
    if not all(any(_is_up_to_mark(copy, hub.logs) for copy in one.copies) for one in publications):
        # An earlier number is missing here: no position can lie between two of these messages.
        count = len(publications)
    while count < len(publications):
        taken, rest = publications[:count], publications[count:]
        reached = _after(begins, taken, rest, hub.logs)
        covered = (any(reached.covers(*copy[:2]) for copy in one.copies) for one in taken)
        if len(reached.listed) <= MAX_LOGS and all(covered):
            return taken, encode(reached)
        # A router's clock was set back between two of the messages.
        count += 1
    return publications, hub.position(time.time())


def _is_beyond(begins: Position, publication: Publication, logs: Logs) -> bool:
    """Return whether a reader at ``begins`` lacks a copy that was given here.

    If a number is covered but ends void elsewhere (:meth:`.ReturningReader.may_lack`), another copy
    is on a later page: a reader of pages gets no live message that could be dropped as a duplicate.
    """
    copies = (copy[:2] for copy in publication.copies)
    return any(logs.was_given(*copy) and not begins.covers(*copy) for copy in copies)


def _is_up_to_mark(copy: Copy, logs: Logs) -> bool:
    known = logs.find(copy.log)
    return known is None or copy.seq <= known.mark


def _after(
    begins: Position, taken: list[Publication], rest: list[Publication], logs: Logs
) -> Position:
    """Return the position of a reader at ``begins`` who got ``taken``, but not ``rest``.

    A number that is missing here isn't covered: its message arrives later, although messages of the
    same log that were routed after it are taken now.
    """
    listed = dict(begins.listed)
    for copy in _copies(taken):
        known = listed.get(hash_ := log_hash(copy.log), Listed(0, copy.log.epoch))
        here = logs.find(copy.log)
        seq = copy.seq if here is None else min(copy.seq, here.mark)
        listed[hash_] = Listed(max(known.mark, seq), known.whole_ms)
    for copy in _copies(rest):
        known = listed.get(hash_ := log_hash(copy.log), Listed(copy.seq, copy.routed_ms))
        mark = max(0, min(known.mark, copy.seq - 1))
        listed[hash_] = Listed(mark, min(known.whole_ms, copy.routed_ms))
    return Position(begins.time_ms, listed)


def _routed(copy: Copy) -> tuple[int, bytes, int]:
    return (copy.routed_ms, log_hash(copy.log), copy.seq)


def _copies(publications: Iterable[Publication]) -> Iterable[Copy]:
    return (copy for publication in publications for copy in publication.copies)

"""What a control plane leaves to the next one: what it knew of each log.

The data plane keeps a blob for us. It is sent behind the publications that it speaks of, so it
never says too much. Who attaches with it goes on from there: a number that was seen after it is
missing, is read and published again, and the data plane drops what it has had as a copy.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import orjson

from gateway.known_log import Left
from gateway.logs import LeftLogs
from gateway.position import MAX_SEQ
from gateway.runs import Run
from newsfabric.envelope import MAX_MS
from newsfabric.numbers import is_whole
from newsfabric.store.logs import Log

_VERSION: Final = 4


# Of a log of which more is to be left than there is room for.
_FEW: Final = 64


def encode_marks(left: LeftLogs, most_bytes: int) -> bytes:
    """The blob; if it would be too long only the first runs of seen numbers of each log are left.

    The successor reads the others once more. ValueError if that isn't short enough.
    """
    blob = _encode(left)
    if len(blob) > most_bytes:
        few = (dataclasses.replace(one, seen=one.seen[:_FEW]) for one in left.logs)
        blob = _encode(left._replace(logs=tuple(few)))
    if len(blob) > most_bytes:
        raise ValueError(f"{len(left.logs)} logs are more than a successor can be told of")
    return blob


def _encode(left: LeftLogs) -> bytes:
    logs = [[*one.log, *_rest(one)] for one in left.logs]
    return orjson.dumps([_VERSION, left.directory_ms, left.forgotten_ms, logs])


def _rest(left: Left) -> list[object]:
    return [
        left.start,
        left.seen,
        left.passed,
        left.low,
        left.ended,
        left.voids,
        left.whole_ms,
    ]


def decode_marks(blob: bytes) -> LeftLogs:
    """What :func:`encode_marks` made; ValueError for anything else."""
    try:
        version, *rest = orjson.loads(blob)
        if version != _VERSION:
            raise ValueError(f"marks of version {version!r}")
        directory_ms, forgotten_ms, logs = rest
        return LeftLogs(
            tuple(_left(*fields) for fields in logs),
            _whole(directory_ms, MAX_MS),
            _whole(forgotten_ms, MAX_MS),
        )
    except TypeError as exc:
        raise ValueError("not marks") from exc


def _left(
    region: object,
    router: object,
    epoch: object,
    start: object,
    seen: object,
    passed: object,
    low: object,
    ended: object,
    voids: object,
    whole_ms: object,
) -> Left:
    if not (isinstance(region, str) and isinstance(router, str)):
        raise ValueError("not the name of a log")
    return Left(
        log=Log(region, router, _whole(epoch, MAX_MS)),
        start=_whole(start),
        seen=_runs(seen),
        passed=_runs(passed),
        low=_whole(low),
        ended=None if ended is None else _whole(ended),
        voids=_runs(voids),
        whole_ms=_whole(whole_ms, MAX_MS),
    )


def _runs(told: object) -> tuple[Run, ...]:
    if not isinstance(told, list):
        raise ValueError("no runs of numbers")
    runs = tuple((_whole(first), _whole(last)) for first, last in told)
    ends = [end for run in runs for end in run]
    if sorted(ends) != ends or ends[:1] == [0]:
        raise ValueError(f"runs of numbers out of order: {told!r:.80}")
    return runs


def _whole(value: object, most: int = MAX_SEQ) -> int:
    if not is_whole(value, 0, most):
        raise ValueError(f"expected a whole number up to {most}, got {value!r:.80}")
    assert isinstance(value, int)
    return value

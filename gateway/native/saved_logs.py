"""The state that a control plane leaves to the next one: its knowledge of each log.

The data plane keeps a blob for us, which is replaced each second. For each message that it was
given since, it adds a line with the number to the blob (the command ``mark``). So the next control
plane knows which numbers' messages readers here were given. Numbers without room are read once
more.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from gateway.logs.known_log import KnownLog, LogSnapshot
from gateway.logs.logs import LogsSnapshot
from gateway.logs.runs import Run, Runs
from gateway.wire.position import MAX_SEQ
from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.numbers import is_whole
from newsfabric.store.logs import Log

_VERSION: Final = 4
# Left if the state is too large: the next control plane begins anew, and sends readers elsewhere.
UNKNOWN: Final = b"unknown"

# Runs that are left of a log if there is no room for all.
_FEW: Final = 64
# This share of the logs is left out at once.
_SHARE: Final = 16


def encode_logs(left: LogsSnapshot, most_bytes: int) -> bytes:
    """Return the blob, in ``most_bytes`` at most.

    If it would be too long, only the first runs of seen numbers of each log are left: the successor
    reads the others once more. If that is too long, the whole logs that began first are forgotten.
    ValueError if that isn't short enough.
    """
    blob = _encode(left)
    if len(blob) > most_bytes:
        few = (one._replace(seen=one.seen[:_FEW]) for one in left.logs)
        blob = _encode(left := left._replace(logs=tuple(few)))
    while len(blob) > most_bytes:
        blob = _encode(left := _with_fewer(left))
    return blob


def _with_fewer(left: LogsSnapshot) -> LogsSnapshot:
    """Return ``left`` without some whole logs; as when a gateway forgets them
    (:attr:`gateway.logs.logs.Logs.forgotten_ms`)."""
    whole = [one.log for one in left.logs if _is_whole(one)]
    whole.sort(key=lambda log: log.epoch)
    if not whole:
        raise ValueError(f"{len(left.logs)} logs are more than a successor can be sent")
    oldest = whole[: len(left.logs) // _SHARE + 1]
    forgotten = set(oldest)
    logs = tuple(one for one in left.logs if one.log not in forgotten)
    return left._replace(logs=logs, forgotten_ms=max(left.forgotten_ms, oldest[-1].epoch))


def _is_whole(left: LogSnapshot) -> bool:
    is_seen = left.seen == ((1, left.ended),) or (left.ended == 0 and not left.seen)
    return is_seen and not left.skipped


def _encode(left: LogsSnapshot) -> bytes:
    logs = [(*log, *rest) for log, *rest in left.logs]
    times = left.max_lead_ms, left.times, left.min_lead_ms
    return orjson.dumps([_VERSION, left.directory_ms, left.forgotten_ms, logs, times])


def encode_given(envelope: Envelope) -> bytes:
    """Return the line for the blob that records that the data plane was given ``envelope``."""
    number = envelope.origin, envelope.router, envelope.epoch, envelope.seq
    return b"\n" + orjson.dumps(number)


def decode_logs(blob: bytes) -> LogsSnapshot:
    """Return the state that :func:`encode_logs` made, with the numbers added since; ValueError for
    anything else."""
    try:
        remembered, *lines = map(orjson.loads, blob.split(b"\n"))
        return _with_given(_decode(*remembered), lines)
    except TypeError as exc:
        raise ValueError("not the state of logs") from exc


def _with_given(left: LogsSnapshot, lines: list[Any]) -> LogsSnapshot:
    """Return ``left`` with the messages that were given since."""
    logs = {one.log: one for one in left.logs}
    given: dict[Log, Runs] = {}
    for line in lines:
        *named, number = line
        log, seq = _log(*named), _whole(number, least=1)
        if log not in given:
            given[log] = Runs(logs[log].seen if log in logs else ())
        given[log].add(seq, seq)
    for log, seen in given.items():
        known = logs.get(log) or KnownLog(log, start=0, last_report_at=0.0).snapshot()
        logs[log] = known._replace(seen=tuple(seen))
    return left._replace(logs=tuple(logs.values()))


def _log(region: object, router: object, epoch: object) -> Log:
    if not (isinstance(region, str) and isinstance(router, str)):
        raise ValueError("not the name of a log")
    return Log(region, router, _whole(epoch, MAX_MS))


def _decode(version: object, *rest: Any) -> LogsSnapshot:
    if version != _VERSION:
        raise ValueError(f"logs of version {version!r:.80}")
    directory_ms, forgotten_ms, logs, times = rest
    max_lead_ms, reported, min_lead_ms = times
    return LogsSnapshot(
        tuple(_left(*fields) for fields in logs),
        _whole(directory_ms, MAX_MS),
        _whole(forgotten_ms, MAX_MS),
        _lead(max_lead_ms),
        tuple(_reported(*fields) for fields in reported),
        _lead(min_lead_ms),
    )


def _lead(ms: object) -> int | None:
    # Below 0 if a reported time is less than this machine's uptime.
    return None if ms is None else _whole(ms, MAX_MS, least=-MAX_MS)


def _reported(region: object, ms: object) -> tuple[str, int]:
    if not isinstance(region, str):
        raise ValueError("not the name of a region")
    return region, _whole(ms, MAX_MS)


def _left(*fields: Any) -> LogSnapshot:
    region, router, epoch, start, seen, passed, low, ended, voids, whole_ms = fields
    return LogSnapshot(
        log=_log(region, router, epoch),
        start=_whole(start),
        seen=_runs(seen),
        skipped=_runs(passed),
        low=_whole(low),
        ended=None if ended is None else _whole(ended),
        voids=_runs(voids),
        whole_ms=_whole(whole_ms, MAX_MS),
    )


def _runs(pairs: object) -> tuple[Run, ...]:
    if not isinstance(pairs, list):
        raise ValueError("no runs of numbers")
    runs = tuple((_whole(first), _whole(last)) for first, last in pairs)
    ends = [end for run in runs for end in run]
    if sorted(ends) != ends or ends[:1] == [0]:
        raise ValueError(f"runs of numbers out of order: {runs!r:.80}")
    return runs


def _whole(value: object, most: int = MAX_SEQ, *, least: int = 0) -> int:
    if not is_whole(value, least, most):
        raise ValueError(f"expected a whole number up to {most}, got {value!r:.80}")
    return value

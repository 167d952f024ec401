"""Handling of rows that no router of ours wrote, or that have changed since.

One bad row must not hide all others. A caller that reads a topic's messages gets such a row without
a body: else the caller would believe that the others are all. Where numbers are read, such a row is
left out: its number stays missing, and the caller knows that.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import orjson

from newsfabric import metrics
from newsfabric.errors import StoreError
from newsfabric.line_limits import LineLimit
from newsfabric.messages.envelope import Envelope, identity_of_id, ms_of_id
from newsfabric.numbers import is_whole
from newsfabric.store.logs import DirectoryRow, Log

logger = logging.getLogger(__name__)

UNREADABLE: Final = metrics.counter(
    "store_unreadable_rows", "Unreadable rows, skipped at each read"
)
_MAX_NUMBER: Final = 2**63 - 1
_GARBAGE: Final = (AttributeError, KeyError, TypeError, ValueError)
# A caller that looks for a number reads its row again and again.
_lines: Final = LineLimit()

R = TypeVar("R", bound=Sequence[Any])
T = TypeVar("T")


def read_row(row: R, read: Callable[[R], T]) -> T:
    """Return ``read(row)``; StoreError if the row can't be read."""
    try:
        return read(row)
    except _GARBAGE as exc:
        raise StoreError(f"the store holds what no router wrote: {str(row)[:200]}") from exc


def read_or_blank(
    topic: str, place: Sequence[Any], row: R, read: Callable[[R], Envelope]
) -> Envelope:
    """Return ``read(row)``. For an unreadable row return an envelope of its ``place`` (id, router,
    epoch, seq) with an empty body, which is no JSON; StoreError if ``place`` is unreadable too.

    Callers that leave the envelope out count it (:mod:`newsfabric.store.sound`).
    """
    try:
        return read(row)
    except _GARBAGE as exc:
        _log_row(place, exc)
        return read_row(place, functools.partial(blank, topic))


def blank(topic: str, place: Sequence[Any]) -> Envelope:
    """Return a message of ``topic`` of which only the ``place`` is known, without a body; TypeError
    or ValueError if ``place`` is none."""
    id_, router, epoch, seq = place
    id_text = str(id_)
    if not (isinstance(router, str) and is_whole(epoch, 0, _MAX_NUMBER)):
        raise TypeError("not a log's name")
    if not is_whole(seq, 0, _MAX_NUMBER):
        raise TypeError("not a number")
    return Envelope(
        id=id_text,
        identity=identity_of_id(id_text),
        topic=topic,
        body=b"",
        published_ms=ms_of_id(id_text),
        origin="",
        router=router,
        epoch=epoch,
        seq=seq,
    )


def readable(rows: Iterable[R], read: Callable[[R], Envelope]) -> Iterator[Envelope]:
    """Yield ``read(row)`` of all ``rows`` that can be read; others are counted."""
    for row in rows:
        try:
            envelope = read(row)
        except _GARBAGE as exc:
            left_out(row, exc)
        else:
            yield envelope


def left_out(row: Sequence[Any], why: Exception) -> None:
    """Count ``row``, and log at a limited rate that such a row can't be read."""
    UNREADABLE.inc()
    _log_row(row, why)


def _log_row(row: Sequence[Any], why: Exception) -> None:
    suppressed = _lines.may_log(time.monotonic())
    if suppressed is not None:
        # Names and numbers only; the body comes after these.
        logger.warning(
            "a row of the store can't be read (and %d more): %s: %s",
            suppressed, list(row[:4]), why,
        )  # fmt: skip


def read_directory_row(region: str, fields: Sequence[Any]) -> DirectoryRow:
    """Return the row of (router, epoch, version, low, ended, voids as JSON), or StoreError."""

    def read(fields: Sequence[Any]) -> DirectoryRow:
        router, epoch, version, low, ended, voids = fields
        runs = tuple((first, last) for first, last in orjson.loads(voids))
        ends = [end for run in runs for end in run]
        numbers = [epoch, version, low, *([] if ended is None else [ended]), *ends]
        if not all(is_whole(number, 0, _MAX_NUMBER) for number in numbers):
            raise ValueError("not whole numbers")
        if sorted(ends) != ends or ends[:1] == [0]:
            raise ValueError("runs out of order")
        return DirectoryRow(Log(region, router, epoch), version, low, ended, runs)

    return read_row(fields, read)


def readable_rows(region: str, rows: Iterable[Sequence[Any]]) -> Iterator[DirectoryRow]:
    """Yield the directory rows that can be read: one bad row must not hide all other logs."""
    for fields in rows:
        try:
            yield read_directory_row(region, fields)
        except StoreError as exc:
            left_out(fields, exc)

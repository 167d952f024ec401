"""Rows that no router of ours wrote: what reading one raises, and how the journal leaves them out.

Whoever asks for a topic's messages must hear that one can't be read, or would take what is left
for everything. The journal is read by number: a row that is left out stays a hole in its stream,
and those who look for holes know it. One bad row must not keep them from all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import orjson

from newsfabric import metrics
from newsfabric.envelope import Envelope
from newsfabric.errors import StoreError
from newsfabric.store.logs import DirectoryRow, Log

UNREADABLE: Final = metrics.counter(
    "store_unreadable_rows", "Rows of the journal that can't be read, each time one is met"
)
_GARBAGE: Final = (AttributeError, KeyError, TypeError, ValueError)

R = TypeVar("R")
T = TypeVar("T")


def read_row(row: R, read: Callable[[R], T]) -> T:
    """What ``read`` makes of ``row``; StoreError if that can't be done."""
    try:
        return read(row)
    except _GARBAGE as exc:
        raise StoreError(f"the store holds what no router wrote: {str(row)[:200]}") from exc


def readable(rows: Iterable[R], read: Callable[[R], Envelope | None]) -> Iterator[Envelope]:
    """What ``read`` makes of ``rows`` of the journal, if anything, but for those it can't read."""
    for row in rows:
        try:
            envelope = read(row)
        except _GARBAGE:
            UNREADABLE.inc()
        else:
            if envelope is not None:
                yield envelope


def read_directory_row(region: str, fields: Sequence[Any]) -> DirectoryRow:
    """The row of (router, epoch, version, low, ended, voids as JSON); StoreError if it is none."""

    def read(fields: Sequence[Any]) -> DirectoryRow:
        router, epoch, version, low, ended, voids = fields
        if version is None or low is None:
            raise ValueError("no version or no low")
        runs = tuple((first, last) for first, last in orjson.loads(voids))
        return DirectoryRow(Log(region, router, epoch), version, low, ended, runs)

    return read_row(fields, read)

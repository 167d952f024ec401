"""Messages so late that this gateway may have forgotten that it gave a copy of them. Pure.

A gateway knows for 15 minutes which messages it gave to readers. Copies of one message get their
numbers up to 750 s apart (docs/guarantees.md, S4), by clocks that differ by up to 30 s. So when a
copy is older than two minutes, another one may have been given so long ago that nobody here
remembers. Before it is offered its other copies are looked up, in every region: where any of them
was given here, or was past when this gateway began, it is one more copy.

Example. The gateway was cut off from Dublin at 12:00. At 12:05 it gives a message to its readers
that Oregon routed. At 12:45 it hears of a number of Dublin again, reads it, and finds the same
message, routed at 12:04. It is 41 minutes old, so what the store has of its topic from 11:51 to
12:17 is read in both regions; Oregon's copy is there, its number was given here, and so this
copy is only noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gateway.logs import CLOCKS_MS, Logs
from gateway.position import copy_of
from newsfabric.envelope import Envelope, ms_of_id

APART_MS: Final = 750_000
# The identity window of 15 minutes, less these two.
LATE_MS: Final = 900_000 - APART_MS - CLOCKS_MS
# Of a region that was silent for so long nothing is asked any more: a repeat is better than a
# message that nobody gets.
SILENT_SECONDS: Final = 3_600.0


def is_late(envelope: Envelope, wall_ms: int) -> bool:
    """Whether its copies must be looked up before it is offered."""
    return wall_ms - ms_of_id(envelope.id) > LATE_MS


def span_of(envelopes: Iterable[Envelope]) -> tuple[int, int]:
    """First and last time, in ms, at which copies of these messages can have been routed."""
    times = [ms_of_id(envelope.id) for envelope in envelopes]
    margin = APART_MS + CLOCKS_MS
    return max(0, min(times) - margin), max(times) + margin


def clusters(messages: Iterable[Envelope]) -> Iterator[list[Envelope]]:
    """These messages, in order of time, in groups whose copies lie near to each other.

    A page of a quiet log can span hours: what lies between needn't be read.
    """
    group: list[Envelope] = []
    for one in sorted(messages, key=lambda one: one.id):
        if group and ms_of_id(one.id) - ms_of_id(group[-1].id) > 2 * (APART_MS + CLOCKS_MS):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def given(late: Iterable[Envelope], copies: Iterable[Envelope], logs: Logs) -> set[int]:
    """The identities of those ``late`` ones of which another one of ``copies`` was given here."""
    places = {one.identity: copy_of(one)[:2] for one in late}
    return {
        one.identity
        for one in copies
        if one.identity in places
        and places[one.identity] != (place := copy_of(one)[:2])
        and logs.gave(*place)
    }

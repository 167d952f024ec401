"""The check that each reader got each message exactly once. Pure: no clock, no I/O; times in ns.

A publisher numbers its messages, for each topic from 0, and notes those that have a receipt. A
reader notes the numbers that it got. At the end :func:`census` compares the two. If publishers and
readers are in different processes, their records are exchanged as JSON.

A reader is owed messages sent after its first ``subscribed``, until shortly before it left. That
includes messages sent while it was away, since it returns with its position. A message received
twice within one subscription is doubled. If it is received again after a reconnection, under the
same identity, it is a repeat, which the protocol allows and readers drop; under another identity it
is doubled, too.

``newsfabric-crowd`` keeps records by the same rules; one of its entries is for all readers with the
same record.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

#: The field of a body that marks a message of a load test; its value is the publisher's name.
BODY_FIELD: Final = "loadtest"
#: A message sent so shortly before a reader left isn't owed to that reader.
GRACE_NS: Final = 5_000_000_000
#: A reader without a connection for so long at the end has failed.
OUTSIDE_NS: Final = 15_000_000_000
_IDENTITIES: Final = 100_000

Key = tuple[str, str]
Got = Literal["new", "repeat", "doubled"]


class Numbers:
    """A set of whole numbers, as ranges: small where few are missing."""

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        pairs = list(ranges)
        self._first = [int(pair[0]) for pair in pairs]
        self._last = [int(pair[1]) for pair in pairs]

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self._first, number) - 1
        return at >= 0 and number <= self._last[at]

    def add(self, number: int) -> bool:
        """Add ``number``; return whether it is new."""
        at = bisect.bisect_right(self._first, number) - 1
        if at >= 0 and number <= self._last[at]:
            return False
        joins_left = at >= 0 and self._last[at] == number - 1
        joins_right = at + 1 < len(self._first) and self._first[at + 1] == number + 1
        if joins_left and joins_right:
            self._last[at] = self._last[at + 1]
            del self._first[at + 1], self._last[at + 1]
        elif joins_left:
            self._last[at] = number
        elif joins_right:
            self._first[at + 1] = number
        else:
            self._first.insert(at + 1, number)
            self._last.insert(at + 1, number)
        return True

    @property
    def newest(self) -> int:
        """The highest number; -1 if there is none."""
        return self._last[-1] if self._last else -1

    def ranges(self) -> list[list[int]]:
        """Return first and last of each range."""
        return [list(pair) for pair in zip(self._first, self._last, strict=True)]


class Identities:
    """The first known identity of each message, from any reader of this process; bounded."""

    def __init__(self, most: int = _IDENTITIES) -> None:
        self._most = most
        self._seen: collections.OrderedDict[tuple[Key, int], str] = collections.OrderedDict()

    def agrees(self, key: Key, number: int, identity: str) -> bool:
        """Return whether ``identity`` is the first known one of the message."""
        known = self._seen.setdefault((key, number), identity)
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return known == identity


class ReaderRecord:
    """The messages of one reader. ``kind`` is the name of its class."""

    def __init__(self, kind: str, began: int) -> None:
        self.kind = kind
        self.began = began
        self.doubled = self.repeats = self.gaps = 0
        #: Topic → the time of its first subscription.
        self.since: dict[str, int] = {}
        self.had: dict[Key, Numbers] = {}
        self._here: dict[Key, Numbers] = {}
        self._away = began
        self._back: int | None = None
        self._pausing = False

    def away(self, now: int, *, pausing: bool = False) -> None:
        """Note that from now on nothing is read: without a connection, or while ``pausing``."""
        if self._caught_up(now):
            self._away = now
        self._back = None
        self._pausing = pausing

    def back(self, now: int) -> None:
        """Note that messages are read again; missed ones arrive soon."""
        self._back = now

    def subscribed(self, topic: str, now: int, *, resumed: bool, recovered: bool) -> None:
        """Note a subscription's begin: from now on no message may arrive twice in it."""
        self.since.setdefault(topic, now)
        if resumed and not recovered:
            self.gaps += 1
        self._here = {key: had for key, had in self._here.items() if key[0] != topic}

    def got(self, key: Key, number: int, *, agrees: bool) -> Got:
        """Note a message of ``key`` (topic, publisher); ``agrees``: with its known identity."""
        new_here = self._here.setdefault(key, Numbers()).add(number)
        if self.had.setdefault(key, Numbers()).add(number):
            return "new"
        if new_here and agrees:
            self.repeats += 1
            return "repeat"
        self.doubled += 1
        return "doubled"

    def entry(self, now: int, *, left: bool = False) -> dict[str, Any]:
        """Return all for the census, when the reader has ``left`` or the test ends at ``now``."""
        until = now if self._caught_up(now) else self._away
        outside = self._back is None and not self._pausing and now - self._away > OUTSIDE_NS
        return {
            "kind": self.kind,
            "readers": 1,
            "until": until,
            "since": self.since,
            "had": [[*key, numbers.ranges()] for key, numbers in self.had.items()],
            "doubled": self.doubled,
            "repeats": self.repeats,
            "gaps": self.gaps,
            "outside": int(outside),
            "left": left,
        }

    def _caught_up(self, now: int) -> bool:
        return self._back is not None and now >= self._back + GRACE_NS


class PublisherRecord:
    """The messages of one publisher, by topic; a message counts once it has its receipt."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._next: collections.Counter[str] = collections.Counter()
        self._open: set[tuple[str, int]] = set()
        self._receipted: dict[str, dict[int, int]] = {}

    def next(self, topic: str) -> int:
        """Return the number of the next message on ``topic``; it has no receipt yet."""
        number = self._next[topic]
        self._next[topic] += 1
        self._open.add((topic, number))
        return number

    def receipted(self, topic: str, number: int, sent: int) -> None:
        """Note a receipt of a message that was first sent at ``sent``."""
        self._open.discard((topic, number))
        self._receipted.setdefault(topic, {})[number] = sent

    @property
    def unreceipted(self) -> int:
        """The number of messages without receipts."""
        return len(self._open)

    def entry(self) -> dict[str, Any]:
        """Return all of it, for the census."""
        sent = {topic: sorted(map(list, by.items())) for topic, by in self._receipted.items()}
        return {"name": self.name, "sent": sent, "unreceipted": self.unreceipted}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The deliveries owed to all readers, and those received.

    ``outside``: readers without a connection for long at the end. ``late``: messages that readers
    who left before the end hadn't received yet, nor anything newer. ``lost_by`` and ``doubled_by``
    are by kind of reader.
    """

    readers: int
    messages: int
    unreceipted: int
    owed: int
    lost: int
    late: int
    doubled: int
    repeats: int
    gaps: int
    outside: int
    lost_by: dict[str, int]
    doubled_by: dict[str, int]

    def broken_promises(self) -> Iterator[str]:
        """Yield each promise that wasn't kept, in words."""
        if self.lost:
            yield f"{self.lost} deliveries were lost"
        if self.doubled:
            yield f"{self.doubled} deliveries were doubled"
        if self.outside:
            yield f"{self.outside} readers were outside at the end"
        if self.unreceipted:
            yield f"{self.unreceipted} messages have no receipt"
        if not self.owed:
            yield "no delivery was owed to anybody, so no promise can be shown to be kept"


def census(
    readers: Sequence[dict[str, Any]],
    publishers: Sequence[dict[str, Any]],
    *,
    grace: int = GRACE_NS,
) -> Census:
    """Compare the entries of all records. ``grace``: see :data:`GRACE_NS`."""
    sent: dict[str, list[tuple[str, list[list[int]]]]] = {}
    for one in publishers:
        for topic, numbered in one["sent"].items():
            sent.setdefault(topic, []).append((one["name"], numbered))
    lost: collections.Counter[str] = collections.Counter()
    doubled: collections.Counter[str] = collections.Counter()
    owed = late = 0
    for reader in readers:
        had = {(topic, name): Numbers(ranges) for topic, name, ranges in reader["had"]}
        doubled[reader["kind"]] += reader["doubled"]
        alike = reader["readers"]
        for topic, since in reader["since"].items():
            for name, numbered in sent.get(topic, ()):
                numbers = had.get((topic, name), Numbers())
                due = list(_due(numbered, since, reader["until"] - grace))
                owed += len(due) * alike
                missing = [number for number in due if number not in numbers]
                # A reader that left can't be waited for: messages newer than all it had were on
                # their way.
                gone = [n for n in missing if reader["left"] and n > numbers.newest]
                late += len(gone) * alike
                lost[reader["kind"]] += (len(missing) - len(gone)) * alike
    return Census(
        readers=sum(one["readers"] for one in readers),
        messages=sum(len(numbered) for by in sent.values() for _, numbered in by),
        unreceipted=sum(one["unreceipted"] for one in publishers),
        owed=owed,
        lost=lost.total(),
        late=late,
        doubled=doubled.total(),
        repeats=sum(one["repeats"] for one in readers),
        gaps=sum(one["gaps"] for one in readers),
        outside=sum(one["outside"] for one in readers),
        lost_by=dict(+lost),
        doubled_by=dict(+doubled),
    )


def _due(numbered: list[list[int]], since: int, until: int) -> Iterator[int]:
    return (number for number, at in numbered if since < at < until)

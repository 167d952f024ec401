"""Whether each reader got each message exactly once. Pure: no clock, no I/O; times in ns.

A publisher numbers its messages, for each topic from 0, and notes those that have a receipt. A
reader notes the numbers that it got. At the end :func:`census` compares the two; where publishers
and readers are in different processes, their records come there as JSON.

A reader is owed what was sent after its first ``subscribed``, until shortly before it left; also
what was sent while it was away, since it comes back with its position. A message that comes twice
within one subscription is doubled. One that comes again after a reconnect under its old identity
is a repeat, which the protocol allows and readers drop; under another identity it is doubled, too.

``newsfabric-crowd`` keeps records by the same rules; one of its entries is of all readers who had
the same.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

#: The field of a body that makes it one of a load test's; it has the publisher's name.
BODY_FIELD: Final = "loadtest"
#: What was sent so shortly before a reader left isn't owed to that reader.
GRACE_NS: Final = 5_000_000_000
#: A reader who has been outside for so long at the end has failed.
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
        """Add ``number``; whether it is new."""
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
        """The highest; -1 if there is none."""
        return self._last[-1] if self._last else -1

    def ranges(self) -> list[list[int]]:
        """First and last of each range."""
        return [list(pair) for pair in zip(self._first, self._last, strict=True)]


class Identities:
    """The identity of each message as it was first seen, by any reader of this process; bounded."""

    def __init__(self, most: int = _IDENTITIES) -> None:
        self._most = most
        self._seen: collections.OrderedDict[tuple[Key, int], str] = collections.OrderedDict()

    def agrees(self, key: Key, number: int, identity: str) -> bool:
        """Whether the message has had this ``identity`` before, or none that is known."""
        known = self._seen.setdefault((key, number), identity)
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return known == identity


class ReaderRecord:
    """What one reader got. ``kind`` is the name of its class."""

    def __init__(self, kind: str, began: int) -> None:
        self.kind = kind
        self.began = began
        self.doubled = self.repeats = self.gaps = 0
        #: When the topic was subscribed to for the first time.
        self.since: dict[str, int] = {}
        self.had: dict[Key, Numbers] = {}
        self._here: dict[Key, Numbers] = {}
        self._away = began
        self._back: int | None = None
        self._pausing = False

    def away(self, now: int, *, pausing: bool = False) -> None:
        """From now on nothing is taken: there is no connection, or the reader is ``pausing``."""
        if self._caught_up(now):
            self._away = now
        self._back = None
        self._pausing = pausing

    def back(self, now: int) -> None:
        """Messages are taken again; those of the past come soon."""
        self._back = now

    def subscribed(self, topic: str, now: int, *, resumed: bool, recovered: bool) -> None:
        """The gateway says so. A subscription begins: nothing may come twice in it."""
        self.since.setdefault(topic, now)
        if resumed and not recovered:
            self.gaps += 1
        self._here = {key: had for key, had in self._here.items() if key[0] != topic}

    def got(self, key: Key, number: int, *, agrees: bool) -> Got:
        """A message of ``key`` (topic, publisher); ``agrees``: with the identity that it had."""
        new_here = self._here.setdefault(key, Numbers()).add(number)
        if self.had.setdefault(key, Numbers()).add(number):
            return "new"
        if new_here and agrees:
            self.repeats += 1
            return "repeat"
        self.doubled += 1
        return "doubled"

    def entry(self, now: int, *, left: bool = False) -> dict[str, Any]:
        """All of it, for the census, when the reader has ``left`` or the test ends at ``now``."""
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
    """What one publisher sent, by topic; a message counts once it has its receipt."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._next: collections.Counter[str] = collections.Counter()
        self._open: set[tuple[str, int]] = set()
        self._receipted: dict[str, dict[int, int]] = {}

    def next(self, topic: str) -> int:
        """The number of the next message on ``topic``; it has no receipt yet."""
        number = self._next[topic]
        self._next[topic] += 1
        self._open.add((topic, number))
        return number

    def receipted(self, topic: str, number: int, sent: int) -> None:
        """It was routed; it had been sent for the first time at ``sent``."""
        self._open.discard((topic, number))
        self._receipted.setdefault(topic, {})[number] = sent

    @property
    def unreceipted(self) -> int:
        """How many have no receipt."""
        return len(self._open)

    def entry(self) -> dict[str, Any]:
        """All of it, for the census."""
        sent = {topic: sorted(map(list, by.items())) for topic, by in self._receipted.items()}
        return {"name": self.name, "sent": sent, "unreceipted": self.unreceipted}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What all readers were owed, and had. ``outside``: who had no connection for long at the end;
    ``late``: what readers who left before the end hadn't had yet, nor anything newer.

    ``lost_by`` and ``doubled_by`` are by kind of reader.
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
        """Each promise that wasn't kept, in words."""
        if self.lost:
            yield f"{self.lost} deliveries were lost"
        if self.doubled:
            yield f"{self.doubled} deliveries were doubled"
        if self.outside:
            yield f"{self.outside} readers were outside at the end"
        if self.unreceipted:
            yield f"{self.unreceipted} messages have no receipt"
        if not self.owed:
            yield "no delivery was owed to anybody, so none can be said to be kept"


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
                # Who has left can't be waited for: what is newer than all it had was on its way.
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

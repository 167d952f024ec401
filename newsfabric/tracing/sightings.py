"""The last messages that a process saw: by which ways, when, and what became of them. Pure.

Routers and gateways keep one ring each. It is the evidence of ``newsfabric trace`` and what
races are counted by; nothing else depends on it. It costs one entry per *message*, none
per delivery, and is bounded in number, in copies and in age.

A *way* is the shovels that carried a copy here (:mod:`newsfabric.messages.hops`), the last one
last.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
from typing import Any, Final, NamedTuple

from newsfabric.messages.envelope import identity_of_id, identity_text

# About 1 KB each with its copies: 8 MB at the bound.
MOST: Final = 8192
# Most copies have come by then, though identities are remembered for longer.
KEEP_SECONDS: Final = 600.0
# Two routers on two paths through two feeds make eight; a publisher may repeat itself for ever.
MAX_COPIES: Final = 16
# How many messages one search returns.
MAX_FOUND: Final = 20

Way = tuple[str, ...]

# What may be the beginning of an id or of an identity: no less, or everything would match.
_PREFIX: Final = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")


class SeenCopy(NamedTuple):
    """One arrival of a message. In gateways with the place in the router's stream."""

    at_ms: int
    way: Way
    id: str | None = None
    router: str | None = None
    epoch: int | None = None
    seq: int | None = None
    path: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True)
class Sighting:
    """One message as one process saw it; ``copies`` in the order in which they came.

    ``later`` counts copies, those that found no room among them too. ``steps`` are what
    became of it, in ms since the epoch; ``id``, ``epoch`` and ``seq`` are what a router gave it.
    """

    identity: int
    topic: str
    message_id: str | None
    published_ms: int
    copies: list[SeenCopy]
    later: int = 0
    steps: dict[str, int] = dataclasses.field(default_factory=dict)
    id: str | None = None
    epoch: int | None = None
    seq: int | None = None

    def document(self) -> dict[str, Any]:
        """As ``/trace`` answers."""
        return {
            "identity": identity_text(self.identity),
            "topic": self.topic,
            "message_id": self.message_id,
            "published_ms": self.published_ms,
            "id": self.id,
            "epoch": self.epoch,
            "seq": self.seq,
            "copies": [copy._asdict() for copy in self.copies],
            "copies_in_all": self.later + 1,
            "steps": self.steps,
        }

    def matches(self, prefix: str) -> bool:
        """Whether ``prefix`` begins its identity or one of its ids."""
        ids = [self.id, *(copy.id for copy in self.copies)]
        return identity_text(self.identity).startswith(prefix) or any(
            each is not None and each.startswith(prefix) for each in ids
        )


class Place(enum.Enum):
    """How a copy did. The values are metric labels."""

    FIRST = "first"
    LATER = "later"
    # By the winner's own way: the publisher or a broker has sent it again.
    AGAIN = "again"


class Arrival(NamedTuple):
    """``lead_ms`` is set for the second copy by another way: so much earlier the winner was."""

    place: Place
    winner: Way
    lead_ms: int | None = None


class Sightings:
    """The ring. Times in ms since the epoch."""

    def __init__(self, *, most: int = MOST, keep_seconds: float = KEEP_SECONDS) -> None:
        self._most = most
        self._keep_ms = round(keep_seconds * 1000)
        # In the order in which the messages were first seen.
        self._seen: collections.OrderedDict[int, Sighting] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def get(self, identity: int) -> Sighting | None:
        """What is remembered of a message."""
        return self._seen.get(identity)

    def first(self, sighting: Sighting) -> None:
        """A message that :meth:`again` didn't know; it has one copy."""
        self._seen[sighting.identity] = sighting
        oldest_ms = sighting.copies[0].at_ms - self._keep_ms
        while len(self._seen) > self._most or self._oldest_ms() < oldest_ms:
            self._seen.popitem(last=False)

    def again(self, identity: int, copy: SeenCopy) -> Arrival | None:
        """Another copy of a message; None if it is the first one that is known."""
        seen = self._seen.get(identity)
        if seen is None:
            return None
        winner = seen.copies[0]
        seen.later += 1
        if len(seen.copies) < MAX_COPIES:
            seen.copies.append(copy)
        if _same_way(copy, winner):
            return Arrival(Place.AGAIN, winner.way)
        second = all(_same_way(each, winner) for each in seen.copies[1:-1])
        lead_ms = max(0, copy.at_ms - winner.at_ms) if second else None
        return Arrival(Place.LATER, winner.way, lead_ms)

    def find(self, text: str) -> list[Sighting]:
        """Those whose id, identity or beginning of one is ``text``, or whose message_id it is."""
        if (exact := _identity(text)) is not None:
            found = self._seen.get(exact)
            return [found] if found is not None else []
        prefix = text.lower() if _PREFIX.fullmatch(text.lower()) else None
        matching = (
            seen
            for seen in reversed(self._seen.values())
            if seen.message_id == text or (prefix is not None and seen.matches(prefix))
        )
        return [seen for _, seen in zip(range(MAX_FOUND), matching, strict=False)]

    def document(self, text: str) -> dict[str, Any]:
        """What ``/trace/TEXT`` answers, with how far back this process remembers."""
        return {
            "sightings": [seen.document() for seen in self.find(text)],
            "remembered": len(self._seen),
            "since_ms": self._oldest_ms() if self._seen else None,
        }

    def _oldest_ms(self) -> int:
        return next(iter(self._seen.values())).copies[0].at_ms


def _same_way(copy: SeenCopy, winner: SeenCopy) -> bool:
    # What another router made of it is another way, even through the same shovels.
    return (copy.way, copy.router) == (winner.way, winner.router)


def _identity(text: str) -> int | None:
    try:
        return identity_of_id(text.lower())
    except ValueError:
        return None

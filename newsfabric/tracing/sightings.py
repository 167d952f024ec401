"""The last messages that a process saw: their ways, times and steps. Pure.

Routers and gateways keep one ring each. It is the evidence of ``newsfabric trace`` and the basis of
the counts of races; no other code depends on it. It costs one entry per *message*, none per
delivery, and is bounded in number, in copies and in age.

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
# Most copies have arrived by then, though identities are remembered for longer.
KEEP_SECONDS: Final = 600.0
# Two routers on two paths through two feeds make eight; a publisher may repeat a message for ever.
MAX_COPIES: Final = 16
# Most messages that one search returns.
MAX_FOUND: Final = 20

Way = tuple[str, ...]

# The beginning of an id or of an identity, long enough not to match every message.
_PREFIX: Final = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")


class SeenCopy(NamedTuple):
    """An arrival of a message. In gateways with its log and number."""

    at_ms: int
    way: Way
    id: str | None = None
    router: str | None = None
    epoch: int | None = None
    seq: int | None = None
    path: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True)
class Sighting:
    """A message as one process saw it; ``copies`` in the order of their arrival.

    ``later`` counts all later copies, also those beyond the bound of ``copies``. ``steps`` are the
    times of its next steps, in ms since the epoch; ``id``, ``epoch`` and ``seq`` are from a router.
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

    def sighting_document(self) -> dict[str, Any]:
        """Return the sighting in the form of ``/trace``."""
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
        """Return whether ``prefix`` begins the message's identity or one of its ids."""
        ids = [self.id, *(copy.id for copy in self.copies)]
        return identity_text(self.identity).startswith(prefix) or any(
            each is not None and each.startswith(prefix) for each in ids
        )


class RacePlace(enum.Enum):
    """The result of a copy in its race. The values are metric labels."""

    FIRST = "first"
    LATER = "later"
    # By the winner's own way: the publisher or a broker has sent the message again.
    AGAIN = "again"


class Arrival(NamedTuple):
    """The result of a copy; ``lead_ms`` is the winner's lead over the second copy's way."""

    place: RacePlace
    winner: Way
    lead_ms: int | None = None


class Sightings:
    """A ring of sightings. Times in ms since the epoch."""

    def __init__(self, *, most: int = MOST, keep_seconds: float = KEEP_SECONDS) -> None:
        self._most = most
        self._keep_ms = round(keep_seconds * 1000)
        # In the order in which the messages were first seen.
        self._seen: collections.OrderedDict[int, Sighting] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def get(self, identity: int) -> Sighting | None:
        """Return the sighting of a message, if it is remembered."""
        return self._seen.get(identity)

    def first(self, sighting: Sighting) -> None:
        """Add a message that :meth:`again` didn't know; it has one copy."""
        self._seen[sighting.identity] = sighting
        oldest_ms = sighting.copies[0].at_ms - self._keep_ms
        while len(self._seen) > self._most or self._oldest_ms() < oldest_ms:
            self._seen.popitem(last=False)

    def again(self, identity: int, copy: SeenCopy) -> Arrival | None:
        """Add another copy of a message; None if the message isn't known."""
        seen = self._seen.get(identity)
        if seen is None:
            return None
        winner = seen.copies[0]
        seen.later += 1
        if len(seen.copies) < MAX_COPIES:
            seen.copies.append(copy)
        if _same_way(copy, winner):
            return Arrival(RacePlace.AGAIN, winner.way)
        second = all(_same_way(each, winner) for each in seen.copies[1:-1])
        lead_ms = max(0, copy.at_ms - winner.at_ms) if second else None
        return Arrival(RacePlace.LATER, winner.way, lead_ms)

    def find(self, text: str) -> list[Sighting]:
        """Return messages with the id, identity, beginning of one, or message_id ``text``."""
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

    def sightings_document(self, text: str) -> dict[str, Any]:
        """Return the reply to ``/trace/TEXT``, with the age of this process's memory."""
        return {
            "sightings": [seen.sighting_document() for seen in self.find(text)],
            "remembered": len(self._seen),
            "since_ms": self._oldest_ms() if self._seen else None,
        }

    def _oldest_ms(self) -> int:
        return next(iter(self._seen.values())).copies[0].at_ms


def _same_way(copy: SeenCopy, winner: SeenCopy) -> bool:
    # A copy by another router is of another way, even through the same shovels.
    return (copy.way, copy.router) == (winner.way, winner.router)


def _identity(text: str) -> int | None:
    try:
        return identity_of_id(text.lower())
    except ValueError:
        return None

"""Values that are stored or published.

A *copy* is one number of one log. A message that several routers numbered has several copies, but
one identity.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from newsfabric.store.logs import Log

Copy = tuple[Log, int]


class ModelRow(NamedTuple):
    """A message's row in the store."""

    identity: int
    topic: str
    # By the router's clock.
    routed_at: float


# The row of a number that will never be a message. Compared with ``is``.
VOID: Final = ModelRow(0, "", 0.0)


class ModelPublished(NamedTuple):
    """A message on its way from a router to gateways."""

    log: Log
    number: int
    row: ModelRow
    low: int


class Tick(NamedTuple):
    """A router's last number and low, sent when it has nothing else to send."""

    log: Log
    number: int
    at: float
    low: int


class Delivery(NamedTuple):
    """A message on its way from a publisher to one router of a region."""

    serial: int
    identity: int
    topic: str
    first_sent: float

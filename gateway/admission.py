"""Whether a new reader may come in."""

from __future__ import annotations

import enum
from collections.abc import Callable

from gateway import measures
from gateway.origins import Origins


class Welcome(enum.Enum):
    """Whether a new reader may come in. The values are metric labels."""

    YES = "yes"
    FULL = "capacity"
    DRAINING = "draining"
    STARTING = "starting"
    BAD_ORIGIN = "origin"


class Admission:
    """Lets readers in, up to ``capacity`` of them.

    ``readers`` counts those who are here; ``can_serve`` says whether a reader can be told what it
    has missed, and be given a position.
    """

    def __init__(
        self,
        origins: Origins,
        capacity: int,
        readers: Callable[[], int],
        can_serve: Callable[[], bool],
    ) -> None:
        self._origins = origins
        self._capacity = capacity
        self._readers = readers
        self._can_serve = can_serve
        #: Set for good when the gateway begins to drain: nobody comes in any more.
        self.draining = False

    def ask(self, origin: str | None, host: str | None) -> Welcome:
        """Whether a reader from a page of ``origin`` may come in now. Refusals are counted."""
        verdict = self._ask(origin, host)
        if verdict is not Welcome.YES:
            measures.REJECTED_CONNECTS.labels(verdict.value).inc()
        return verdict

    def _ask(self, origin: str | None, host: str | None) -> Welcome:
        if self.draining:
            return Welcome.DRAINING
        if not self._can_serve():
            return Welcome.STARTING
        if not self._origins.allows(origin, host):
            return Welcome.BAD_ORIGIN
        if self._readers() >= self._capacity:
            return Welcome.FULL
        return Welcome.YES

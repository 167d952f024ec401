"""What a reader is given before what is live: after a position, of a rewind, of its mailbox."""

from __future__ import annotations

import dataclasses

from gateway.fitting import newest_that_fit
from gateway.protocol import Gap
from gateway.publication import Publication, push_bytes


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False)
class Recalled:
    """What a reader is given first, in the order to send it; why that may not be all, if so.

    A crowd is given the same object, so what is found out about it once is known for all.
    """

    publications: list[Publication]
    gap: Gap | None = None
    #: Whether something in it is still to come to everybody: a copy of that is news to others.
    is_ahead: bool = False
    _fitting: tuple[int, list[Publication]] | None = dataclasses.field(
        default=None, init=False, repr=False
    )

    def that_fit(self, most_bytes: int) -> list[Publication]:
        """The newest of them whose pushes have so many bytes together."""
        if self._fitting is None or self._fitting[0] != most_bytes:
            self._fitting = most_bytes, newest_that_fit(self.publications, push_bytes, most_bytes)
        return self._fitting[1]

    @property
    def weight(self) -> int:
        """Bytes that keeping it costs, roughly."""
        return sum(publication.weight for publication in self.publications)

    @property
    def recovered(self) -> bool:
        """Whether it is certainly all."""
        return self.gap is None

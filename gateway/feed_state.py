"""Whether news reaches this gateway: how long ago the last tick of its own region came."""

from __future__ import annotations

from collections.abc import Callable


class FeedState:
    """The age of the feed. ``clock`` gives seconds, and only goes on."""

    def __init__(
        self, clock: Callable[[], float], *, fresh_seconds: float, stranded_seconds: float
    ) -> None:
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._stranded_seconds = stranded_seconds
        self._began = clock()
        self._ticked_at: float | None = None

    def ticked(self) -> None:
        """A tick of our own region has come."""
        self._ticked_at = self._clock()

    @property
    def age(self) -> float | None:
        """Seconds since the last tick of our own region; None before the first one."""
        return None if self._ticked_at is None else self._clock() - self._ticked_at

    @property
    def is_fresh(self) -> bool:
        """Whether the last tick is young enough for readers to be sent here."""
        age = self.age
        return age is not None and age <= self._fresh_seconds

    @property
    def is_stranded(self) -> bool:
        """Whether there was no feed for so long that readers are better served elsewhere."""
        fed_at = self._began if self._ticked_at is None else self._ticked_at
        return self._clock() - fed_at > self._stranded_seconds

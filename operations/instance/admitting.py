"""Which boxes get a user on the core, and which lose it. Pure: passes time in, asks nobody.

A box is admitted as soon as its group lists it. It loses its user only when it has been gone for
``grace`` seconds, seen so each time: else an answer of AWS that lacks it once would cut it off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from operations.instance.description import INSTANCE_ID


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """Boxes to admit and to forget, in order."""

    admit: tuple[str, ...]
    forget: tuple[str, ...]


@dataclasses.dataclass(slots=True, kw_only=True)
class Admissions:
    """Remembers since when a box is gone, and whom it has admitted itself."""

    grace: float = 600.0
    _admitted: set[str] = dataclasses.field(default_factory=set)
    _gone: dict[str, float] = dataclasses.field(default_factory=dict)

    def step(self, now: float, listed: Set[str], known: Set[str]) -> Change:
        """``listed``: the group's instances, whatever state they are in. ``known``: boxes that have
        a user on the core. Names that are no instance's are left alone: boxes that Ansible made
        have users too. Say of each that is done: :meth:`admitted`, :meth:`forgotten`.
        """
        boxes = {name for name in listed if INSTANCE_ID.fullmatch(name)}
        ours = {name for name in known | self._admitted if INSTANCE_ID.fullmatch(name)}
        gone = ours - boxes
        self._gone = {name: self._gone.get(name, now) for name in gone}
        # A group without any box is rather a mistake, and there is no hurry.
        forget = [name for name, since in self._gone.items() if now - since >= self.grace]
        # A broker that was replaced has begun without users.
        admit = boxes - (self._admitted & known)
        return Change(tuple(sorted(admit)), tuple(sorted(forget)) if boxes else ())

    def admitted(self, box: str) -> None:
        """``box`` has its user and its secret."""
        self._admitted.add(box)

    def forgotten(self, box: str) -> None:
        """``box`` has neither any more."""
        self._admitted.discard(box)
        self._gone.pop(box, None)

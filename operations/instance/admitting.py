"""Decides which boxes get a user on the core, and which lose it. Pure: callers pass time and lists.

A box is admitted as soon as its group lists it. It loses its user only after ``grace`` seconds
without it in any list: else one wrong answer of AWS would cut it off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from operations.instance.description import INSTANCE_ID


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """Boxes to admit and to forget, each sorted by name."""

    admit: tuple[str, ...]
    forget: tuple[str, ...]


@dataclasses.dataclass(slots=True, kw_only=True)
class Admissions:
    """The times since which boxes are gone, and the boxes admitted by this process."""

    grace: float = 600.0
    _admitted: set[str] = dataclasses.field(default_factory=set)
    _gone: dict[str, float] = dataclasses.field(default_factory=dict)

    def step(self, now: float, listed: Set[str], known: Set[str]) -> Change:
        """Return the boxes to admit and to forget at ``now``.

        ``listed``: the group's instances, in any state. ``known``: boxes that have a user on the
        core. Names that are no instance's are left alone: boxes made by Ansible have users too.
        Report each success by :meth:`admitted` or :meth:`forgotten`.
        """
        boxes = {name for name in listed if INSTANCE_ID.fullmatch(name)}
        ours = {name for name in known | self._admitted if INSTANCE_ID.fullmatch(name)}
        gone = ours - boxes
        self._gone = {name: self._gone.get(name, now) for name in gone}
        # A group without any box is probably a mistake, and there is no hurry.
        forget = [name for name, since in self._gone.items() if now - since >= self.grace]
        # A broker that was replaced has no users.
        admit = boxes - (self._admitted & known)
        return Change(tuple(sorted(admit)), tuple(sorted(forget)) if boxes else ())

    def admitted(self, box: str) -> None:
        """Note that ``box`` has its user and its secret."""
        self._admitted.add(box)

    def forgotten(self, box: str) -> None:
        """Note that the user and the secret of ``box`` are deleted."""
        self._admitted.discard(box)
        self._gone.pop(box, None)

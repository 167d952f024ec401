"""What breaks when: a schedule made from a seed. Pure.

Faults come one after another, each with time to recover before the next: what has to survive is the
death of any *one* thing. In a long run each kind of process is killed twice; a short one takes
what comes first in the list, and that is ordered by how much a fault has to teach.

Outages are something else: what lasts for so long that others draw conclusions from it, and what
happens while it lasts.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final, Literal

Verb = Literal["kill", "stop", "cut", "slow"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``name`` is broken at ``at`` (seconds) and healed ``lasts`` later."""

    at: float
    lasts: float
    verb: Verb
    kind: str
    name: str

    @property
    def until(self) -> float:
        """When it is healed."""
        return self.at + self.lasts


@dataclasses.dataclass(frozen=True, slots=True)
class _Recipe:
    """How a kind of thing is broken, for how long, and what it then needs to be well again."""

    verb: Verb
    kind: str
    lasts: float
    recovers: float


# A node of RabbitMQ boots in about eight seconds; systemd starts a service again after one or two.
_FIRST: Final = (
    _Recipe("kill", "core node", 3, 17),
    _Recipe("kill", "gateway", 2, 8),
    _Recipe("kill", "router", 2, 6),
    _Recipe("kill", "dataplane", 0, 8),
    _Recipe("kill", "mailbox", 2, 6),
    _Recipe("kill", "retail node", 3, 15),
    _Recipe("kill", "keeper", 2, 6),
    _Recipe("kill", "store node", 8, 22),
    _Recipe("cut", "link", 30, 20),
    _Recipe("kill", "client node", 3, 15),
    _Recipe("kill", "box", 20, 20),
    _Recipe("kill", "agent", 2, 6),
    _Recipe("kill", "frontdesk", 2, 6),
    _Recipe("stop", "router", 6, 6),
    _Recipe("stop", "gateway", 6, 6),
    _Recipe("slow", "link", 15, 5),
)
# A router's log is closed by another one after 60 to 75 s without a word.
_CLOSED: Final = 85.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Within:
    """What is broken ``after`` so many seconds of an outage."""

    after: float
    recipe: _Recipe


@dataclasses.dataclass(frozen=True, slots=True)
class _Outage:
    """``of`` lasts for minutes, and ``within`` happens meanwhile."""

    of: _Recipe
    within: tuple[_Within, ...] = ()


_OUTAGES: Final = (
    # Frozen beyond its lease, and dead: in both cases its log is closed without it.
    _Outage(_Recipe("stop", "router", _CLOSED, 15)),
    _Outage(_Recipe("kill", "router", _CLOSED, 15)),
    # What begins while a region is cut off knows the other one from its store alone.
    _Outage(
        _Recipe("cut", "link", 75, 60),
        (
            _Within(10, _Recipe("kill", "gateway", 2, 0)),
            _Within(25, _Recipe("kill", "router", 2, 0)),
            _Within(40, _Recipe("kill", "dataplane", 0, 0)),
        ),
    ),
)
_AGAIN: Final = tuple(recipe for recipe in _FIRST if recipe.verb == "kill" and recipe.kind != "box")
# Nothing breaks before the first messages have come through, nor after the last second.
_QUIET: Final = 10.0
# The most of a run that one fault may take.
_SHARE: Final = 0.1


def make_schedule(
    names: Mapping[str, Sequence[str]], *, seconds: float, seed: int
) -> tuple[Fault, ...]:
    """Faults for a run of ``seconds``; ``names`` are what there is of each kind.

    The same arguments give the same schedule. A kind that there is none of is left out.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    room = seconds - 2 * _QUIET
    chosen: list[_Recipe] = []
    for recipe in map(lambda r: _shortened(r, seconds), (*_FIRST, *_AGAIN)):  # noqa: C417
        if names.get(recipe.kind) and recipe.lasts + recipe.recovers <= room:
            chosen.append(recipe)
            room -= recipe.lasts + recipe.recovers
    rng.shuffle(chosen)
    pause = room / max(1, len(chosen))
    at = _QUIET
    faults = []
    left: dict[tuple[str, str], list[str]] = {}
    for recipe in chosen:
        name = _next_name(recipe, names[recipe.kind], left, rng)
        faults.append(
            Fault(at=at, lasts=recipe.lasts, verb=recipe.verb, kind=recipe.kind, name=name)
        )
        at += recipe.lasts + recipe.recovers + pause
    return tuple(faults)


def make_outages(
    names: Mapping[str, Sequence[str]], *, seconds: float, seed: int
) -> tuple[Fault, ...]:
    """Outages for a run of ``seconds``, as :func:`make_schedule` makes faults: each kind in turn,
    in an order of the seed, for as long as there is time."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    left: dict[tuple[str, str], list[str]] = {}
    faults: list[Fault] = []
    there = [outage for outage in _OUTAGES if names.get(outage.of.kind)]
    at = _QUIET
    for outage in itertools.cycle(rng.sample(there, len(there))):
        lasts = outage.of.lasts + outage.of.recovers
        if at + lasts > seconds - _QUIET:
            break
        for after, recipe in ((0.0, outage.of), *((w.after, w.recipe) for w in outage.within)):
            if names.get(recipe.kind):
                name = _next_name(recipe, names[recipe.kind], left, rng)
                faults.append(
                    Fault(
                        at=at + after,
                        lasts=recipe.lasts,
                        verb=recipe.verb,
                        kind=recipe.kind,
                        name=name,
                    )
                )
        at += lasts
    return tuple(faults)


def _shortened(recipe: _Recipe, seconds: float) -> _Recipe:
    return dataclasses.replace(recipe, lasts=min(recipe.lasts, _SHARE * seconds))


def _next_name(
    recipe: _Recipe,
    names: Sequence[str],
    left: dict[tuple[str, str], list[str]],
    rng: random.Random,
) -> str:
    """One of that kind; none a second time in the same way before all others had their turn."""
    turn = left.setdefault((recipe.verb, recipe.kind), [])
    if not turn:
        turn += rng.sample(list(names), len(names))
    return turn.pop()

"""A schedule of faults, made from a seed. Pure.

A schedule is a series of incidents, each with time to recover before the next. Most are one fault
for seconds: a world must survive the death of any *one* part. Outages last long enough for other
parts to react to them, and have further faults within.

A run of ten minutes has every kind of fault at least once, even in a world of two regions with
Cassandra. A longer run kills each kind of process again; a shorter one takes the first faults of
the list, which is ordered by how instructive they are.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from newsfabric.kinds import CORE

Verb = Literal["kill", "stop", "cut", "slow", "lose"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: ``name`` is broken at ``at`` (seconds) and healed ``lasts`` later."""

    at: float
    lasts: float
    verb: Verb
    kind: str
    name: str

    @property
    def until(self) -> float:
        """The time of the healing."""
        return self.at + self.lasts


@dataclasses.dataclass(frozen=True, slots=True)
class _Recipe:
    """A fault of a kind of part: how it is broken, its duration, and the seconds to recover."""

    verb: Verb
    kind: str
    lasts: float
    recovers: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Within:
    """A fault that begins ``after`` so many seconds of an outage."""

    after: float
    recipe: _Recipe


@dataclasses.dataclass(frozen=True, slots=True)
class _Incident:
    """A fault ``of``, with the faults ``within`` while it lasts."""

    of: _Recipe
    within: tuple[_Within, ...] = ()

    @property
    def seconds(self) -> float:
        """The time until all is well again."""
        return self.of.lasts + self.of.recovers

    def parts(self) -> Iterator[tuple[float, _Recipe]]:
        """Yield each fault with the seconds from the beginning of the incident."""
        yield 0.0, self.of
        yield from ((within.after, within.recipe) for within in self.within)

    def only(self, names: Mapping[str, Sequence[str]]) -> _Incident:
        """Return the incident without faults of kinds that the world has none of."""
        there = tuple(within for within in self.within if names.get(within.recipe.kind))
        return dataclasses.replace(self, within=there)


# A RabbitMQ node boots in about eight seconds; systemd restarts a service after one or two. The
# owner of a queue checks it every five seconds.
_NAMED: Final = (
    _Recipe("kill", "core node", 3, 17),
    _Recipe("kill", "gateway", 2, 8),
    _Recipe("kill", "router", 2, 6),
    _Recipe("kill", "dataplane", 0, 8),
    _Recipe("kill", "mailbox", 2, 6),
    _Recipe("lose", "router queue", 0, 12),
    _Recipe("kill", "retail node", 3, 15),
    _Recipe("kill", "keeper", 2, 6),
    _Recipe("kill", "store node", 8, 22),
    _Recipe("lose", "feed queue", 0, 15),
    _Recipe("cut", "link", 30, 20),
    _Recipe("kill", "client node", 3, 15),
    _Recipe("kill", "box", 20, 20),
    _Recipe("stop", "gateway", 6, 6),
    _Recipe("lose", "mailbox queue", 0, 10),
    _Recipe("kill", "agent", 2, 6),
    _Recipe("kill", "frontdesk", 2, 6),
    _Recipe("lose", "gateway queue", 0, 15),
    _Recipe("lose", "region queue", 0, 12),
    _Recipe("stop", "router", 6, 6),
    _Recipe("slow", "link", 15, 5),
    _Recipe("lose", "receipts queue", 0, 12),
    _Recipe("lose", "upstream queue", 0, 12),
)
# Kinds of services that have no recipe of their own.
_OTHERS: Final = tuple(kind for kind in CORE if kind not in {recipe.kind for recipe in _NAMED})
_FIRST: Final = (*_NAMED, *(_Recipe("kill", kind, 2, 6) for kind in _OTHERS))
_AGAIN: Final = tuple(recipe for recipe in _FIRST if recipe.verb == "kill" and recipe.kind != "box")
# A router's log is closed by another router after a silence of 60 to 75 s.
_CLOSED: Final = 85.0

# The faults during a router's outage break nothing that the other router needs.
_OUTAGES: Final = (
    # Frozen beyond its lease, and dead: in both cases its log is closed by another router.
    _Incident(
        _Recipe("stop", "router", _CLOSED, 15),
        (
            _Within(15, _Recipe("kill", "mailbox", 2, 0)),
            _Within(30, _Recipe("kill", "keeper", 2, 0)),
            _Within(45, _Recipe("lose", "feed queue", 0, 0)),
            _Within(65, _Recipe("slow", "link", 15, 0)),
        ),
    ),
    _Incident(
        _Recipe("kill", "router", _CLOSED, 15),
        (
            _Within(15, _Recipe("kill", "frontdesk", 2, 0)),
            _Within(25, _Recipe("kill", "agent", 2, 0)),
            _Within(40, _Recipe("lose", "gateway queue", 0, 0)),
            *(_Within(45 + 3 * n, _Recipe("kill", kind, 2, 0)) for n, kind in enumerate(_OTHERS)),
            _Within(60, _Recipe("lose", "receipts queue", 0, 0)),
            _Within(70, _Recipe("lose", "upstream queue", 0, 0)),
        ),
    ),
    # Processes that start while a region is cut off know the other region only from the store.
    _Incident(
        _Recipe("cut", "link", 75, 45),
        (
            _Within(10, _Recipe("kill", "gateway", 2, 0)),
            _Within(25, _Recipe("kill", "router", 2, 0)),
            _Within(40, _Recipe("kill", "dataplane", 0, 0)),
        ),
    ),
    # Messages arrive before the store, from which they would be repaired; then a queue is lost.
    _Incident(
        _Recipe("cut", "store link", 30, 20), (_Within(10, _Recipe("lose", "region queue", 0, 0)),)
    ),
    # The store has the messages that the feed doesn't bring.
    _Incident(_Recipe("cut", "feed link", 30, 20)),
)
# No faults before the first messages have arrived, nor in the last seconds.
_QUIET: Final = 10.0
# The largest share of a run that one fault may last, except outages.
_SHARE: Final = 0.1
# The largest share of it that one outage may last.
_OUTAGE_SHARE: Final = 0.25


def make_schedule(
    names: Mapping[str, Sequence[str]], *, seconds: float, seed: int
) -> tuple[Fault, ...]:
    """Make the faults for a run of ``seconds``; ``names`` has the parts of each kind.

    The same arguments give the same schedule. Kinds without parts are left out.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    room = max(0.0, seconds - 2 * _QUIET)
    outages = (outage for outage in _OUTAGES if outage.seconds <= _OUTAGE_SHARE * room)
    chosen = _fitting(outages, names, room)
    played = {(recipe.verb, recipe.kind) for each in chosen for _, recipe in each.parts()}
    first = (recipe for recipe in _FIRST if (recipe.verb, recipe.kind) not in played)
    short = [_Incident(_shortened(recipe, seconds)) for recipe in (*first, *_AGAIN)]
    chosen += _fitting(short, names, room - _seconds(chosen))
    rng.shuffle(chosen)
    pause = (room - _seconds(chosen)) / max(1, len(chosen))
    return tuple(_carried_out(chosen, names, rng, pause=pause))


def make_outages(
    names: Mapping[str, Sequence[str]], *, seconds: float, seed: int
) -> tuple[Fault, ...]:
    """Make only outages for a run of ``seconds``: each kind in turn, in an order of the seed, while
    there is time."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    there = _fitting(_OUTAGES, names, float("inf"))
    chosen: list[_Incident] = []
    for outage in itertools.cycle(rng.sample(there, len(there))):
        if _seconds([*chosen, outage]) > seconds - 2 * _QUIET:
            break
        chosen.append(outage)
    return tuple(_carried_out(chosen, names, rng, pause=0.0))


def _fitting(
    incidents: Iterable[_Incident], names: Mapping[str, Sequence[str]], room: float
) -> list[_Incident]:
    """Return the ``incidents`` that the world has parts for, while they fit into ``room``."""
    chosen: list[_Incident] = []
    for incident in incidents:
        if names.get(incident.of.kind) and incident.seconds <= room - _seconds(chosen):
            chosen.append(incident.only(names))
    return chosen


def _seconds(incidents: Iterable[_Incident]) -> float:
    return sum(incident.seconds for incident in incidents)


def _carried_out(
    incidents: Iterable[_Incident],
    names: Mapping[str, Sequence[str]],
    rng: random.Random,
    *,
    pause: float,
) -> Iterator[Fault]:
    left: dict[tuple[str, str], list[str]] = {}
    at = _QUIET
    for incident in incidents:
        for after, recipe in incident.parts():
            yield Fault(
                at=at + after,
                lasts=recipe.lasts,
                verb=recipe.verb,
                kind=recipe.kind,
                name=_next_name(recipe, names[recipe.kind], left, rng),
            )
        at += incident.seconds + pause


def _shortened(recipe: _Recipe, seconds: float) -> _Recipe:
    return dataclasses.replace(recipe, lasts=min(recipe.lasts, _SHARE * seconds))


def _next_name(
    recipe: _Recipe,
    names: Sequence[str],
    left: dict[tuple[str, str], list[str]],
    rng: random.Random,
) -> str:
    """Return a part of that kind; it isn't chosen again for that verb before all others were."""
    turn = left.setdefault((recipe.verb, recipe.kind), [])
    if not turn:
        turn += rng.sample(list(names), len(names))
    return turn.pop()

"""Keepers with different views, over brokers that fail: invariants, and states that must follow.

A history repeats some seconds of mishaps and then a calm in which some brokers stay away; at the
end all are well. The letters (a), (b), (c) are the model's (tests/support/keepers_world.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import pytest
from fabrics import broker
from keepers_world import Broken, KeepersWorld
from quick_time import run
from unit_share import examples, some

from newsfabric.settings import Node
from newsfabric.topology import Broker, KeptShovel, ShovelPlace
from newsfabric.topology.plan import _paths
from shovels.places import BrokersView, Uptimes
from shovels.places import choose_place as _choose_place
from shovels.plan import Actual

# Seconds. In the calm a broker is found to be away, and becomes steady once it is back.
_MISHAPS = 15.0
_CALM = 40.0
# The time until a shovel that doesn't run is made elsewhere; the time until its broker is tried
# again, and the shovel is seen to run there.
_UNTIL_UNFIT = 200.0
_UNTIL_FIT = 700.0
# The time for which a broker that is restarted is down.
_DOWN = 3.0


@dataclasses.dataclass(frozen=True)
class HistoryLimits:
    """The limits of a history."""

    phases: int = 3
    # Whether a broker's shovel supervisor may be dead.
    unable: bool = False
    # The highest number of core brokers.
    most: int = 4


USUAL = HistoryLimits()
UNABLE = HistoryLimits(phases=1, unable=True, most=3)


def play(seed: int, profile: HistoryLimits = USUAL) -> None:
    """Play the history of ``seed``; raise :class:`Broken` if an invariant breaks."""
    run(_history(random.Random(seed), profile), began=0.0)


async def _history(rng: random.Random, profile: HistoryLimits) -> None:
    world = KeepersWorld(
        rng, client=rng.randint(1, 2), core=rng.randint(1, profile.most), keepers=rng.randint(1, 3)
    )
    await _judged(world, _play(world, profile))


async def _judged(world: KeepersWorld, playing: Coroutine[Any, Any, None]) -> None:
    """Play until the end, or until a keeper breaks an invariant."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(world.run(n, stop)) for n in range(len(world.keepers))]
    tasks.append(asyncio.create_task(playing))
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for task in done:
        task.result()


@contextlib.asynccontextmanager
async def _running(world: KeepersWorld) -> AsyncIterator[None]:
    """Run keepers until the end; an invariant that they break is raised then."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(world.run(n, stop)) for n in range(len(world.keepers))]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def _play(world: KeepersWorld, profile: HistoryLimits) -> None:
    rng, loop = world.rng, asyncio.get_running_loop()
    await asyncio.sleep(_CALM)
    for _ in range(profile.phases):
        until = loop.time() + _MISHAPS
        while loop.time() < until:
            _mishap(world, profile)
            await asyncio.sleep(rng.uniform(0.0, 4.0))
        _calm(world, away=0.25)
        await asyncio.sleep(_UNTIL_UNFIT if profile.unable else _CALM)
        world.judge_links()
    for unable in [each for each, found in world.brokers.items() if found.unable]:
        world.die(unable)
    await asyncio.sleep(_DOWN)
    _calm(world, away=0.0)
    await asyncio.sleep(_UNTIL_FIT if profile.unable else _CALM)
    world.judge_links()
    world.judge_settled()


def _mishap(world: KeepersWorld, profile: HistoryLimits) -> None:
    rng = world.rng
    struck = rng.choice(list(world.brokers))
    found = world.brokers[struck]
    match rng.randrange(6 if profile.unable else 5):
        case 0 if not found.dead:
            world.die(struck)
        case 0 | 1 if found.dead:
            world.begin(struck, empty=rng.random() < 0.3)
        case 2:
            world.hang(struck, not found.hangs)
        case 3:
            world.cut_off((rng.randrange(len(world.keepers)), struck))
        case 4:
            world.refusing = rng.choice((0.0, 0.3))
        case 5 if not found.dead:
            world.disable(struck)


def _calm(world: KeepersWorld, *, away: float) -> None:
    """Let a share of brokers (``away``) stay away; repair everything else."""
    world.cut_off(*world.cut)
    world.refusing = 0.0
    for each, found in world.brokers.items():
        gone = world.rng.random() < away
        hangs = gone and world.rng.random() < 0.5
        if found.dead and not (gone and not hangs):
            world.begin(each)
        if gone and not hangs and not found.dead:
            world.die(each)
        if hangs != found.hangs:
            world.hang(each, hangs)


@pytest.mark.parametrize("seed", some(range(12)))
def test_links_move_and_come_back_and_are_never_nowhere(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", some(range(4)))
def test_links_leave_a_broker_that_cant_run_shovels_and_come_back(seed: int) -> None:
    play(seed, UNABLE)


async def _silent() -> None:
    """Let all shovels of a broker report that they run, and carry nothing until it restarts."""
    world = KeepersWorld(random.Random(1), client=1, core=2, keepers=2)
    async with _running(world):
        await asyncio.sleep(_CALM)
        world.judge_settled()
        world.silence(broker("oregon-core-1"))
        await asyncio.sleep(_UNTIL_UNFIT)
        # The broker is tried again meanwhile, and working shovels go on.
        for _ in range(int(_UNTIL_FIT)):
            world.judge_links()
            await asyncio.sleep(1.0)
        # A shovel that can run on that broker alone tried each source in vain. A keeper isn't ready
        # while it tries a source again.
        async with asyncio.timeout(_UNTIL_FIT):
            while any(keeper.readiness().waiting_for for keeper in world.keepers):
                world.judge_links()
                await asyncio.sleep(1.0)
        for keeper in world.keepers:
            found = await keeper._seen()
            unfit = {node.node: node.unfit for node in found["nodes"] if node.unfit}
            assert set(unfit) >= {"oregon-core-1"}
        world.die(broker("oregon-core-1"))
        await asyncio.sleep(_DOWN)
        world.begin(broker("oregon-core-1"))
        await asyncio.sleep(_CALM)
        world.judge_settled()


def test_links_leave_a_broker_whose_shovels_bring_nothing_and_come_back_when_it_restarts() -> None:
    run(_silent(), began=0.0)


def test_that_is_found_out_if_what_says_that_it_runs_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shovels.watch.FollowedLink.proven", lambda link, _: _hosts(link.link))
    with pytest.raises(Broken):
        run(_silent(), began=0.0)


async def _full() -> None:
    """Let a broker run out of room, die, and be back without room for a long time."""
    world = KeepersWorld(random.Random(1), client=1, core=3, keepers=2)
    async with _running(world):
        await asyncio.sleep(_CALM)
        full = broker("oregon-core-1")
        world.fill(full, True)
        await asyncio.sleep(_DOWN)
        world.judge_links()
        world.die(full)
        await asyncio.sleep(_CALM)
        world.begin(full)
        await asyncio.sleep(_UNTIL_UNFIT)
        world.judge_links()
        for keeper in world.keepers:
            shovels = keeper.canaries()["shovels"]
            assert [each["name"] for each in shovels if each["restarts"]] == []
            assert not any(keeper.watch.unfit(asyncio.get_running_loop().time()).values())
        world.fill(full, False)
        await asyncio.sleep(_CALM)
        world.judge_settled()


def test_links_leave_a_broker_that_has_no_room_and_come_back_when_it_has_some() -> None:
    run(_full(), began=0.0)


def test_that_is_found_out_if_a_full_broker_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_CHOICE, _never_full)
    with pytest.raises(Broken, match=r"\(b\)"):
        run(_full(), began=0.0)


async def _unlisted() -> None:
    """Let a broker that is only a source not list its queues; another broker dies."""
    world = KeepersWorld(random.Random(1), client=1, core=3, keepers=2)
    async with _running(world):
        await asyncio.sleep(_CALM)
        world.brokers[broker("oregon-client-1")].unlisted = 1
        await asyncio.sleep(_CALM)
        world.die(broker("oregon-core-1"))
        await asyncio.sleep(_CALM)
        publish = next(each for each in world.links if each.name == "publish.oregon.1")
        assert [place.host.name for place in world.working(publish)] == ["oregon-core-3"]
        world.brokers[broker("oregon-client-1")].unlisted = 0
        world.begin(broker("oregon-core-1"))
        await asyncio.sleep(_CALM)
        world.judge_settled()


def test_what_a_broker_holds_is_taken_elsewhere_also_while_it_doesnt_say_what_is_on_it() -> None:
    run(_unlisted(), began=0.0)


async def _now_and_then(moves: list[str]) -> None:
    """Find a shovel's hosts for five minutes, while its host answers every second time."""
    world = KeepersWorld(random.Random(1), client=1, core=3, keepers=1)
    async with _running(world):
        await asyncio.sleep(_CALM)
        world.brokers[broker("oregon-core-1")].unlisted = 2
        publish = next(each for each in world.links if each.name == "publish.oregon.1")
        for _ in range(300):
            await asyncio.sleep(1.0)
            there = "+".join(p.host.name for p in publish.places() if world.is_at(publish, p))
            moves += [there] if moves[-1:] != [there] else []
        world.brokers[broker("oregon-core-1")].unlisted = 0
        await asyncio.sleep(_CALM)
        world.judge_settled()


def test_a_stand_in_for_a_broker_that_answers_now_and_then_stays() -> None:
    moves: list[str] = []
    run(_now_and_then(moves), began=0.0)
    assert moves == ["oregon-core-1", "oregon-core-1+oregon-core-3"]


def test_that_is_found_out_if_such_a_broker_counts_as_steady(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observe = Uptimes.observe

    def forgetful(uptimes: Uptimes, running: Mapping[Broker, bool], now: float) -> BrokersView:
        return observe(uptimes, running if any(running.values()) else {}, now)

    monkeypatch.setattr(Uptimes, "observe", forgetful)
    moves: list[str] = []
    run(_now_and_then(moves), began=0.0)
    assert len(moves) > 20


async def _parted(found: list[str], keepers: int, seconds: int) -> None:
    """Find the sources of a shovel for ``seconds``, while its host can't reach the best source.

    After that it can.
    """
    world = KeepersWorld(random.Random(1), client=1, core=3, keepers=keepers)
    async with _running(world):
        await asyncio.sleep(_CALM)
        link = next(each for each in world.links if each.name == "receipts.1")
        assert world.working(link) == {link.preferred}
        world.parted.add((link.preferred.host, link.preferred.source))
        for _ in range(seconds):
            await asyncio.sleep(1.0)
            # A shovel that is being made again has no place.
            for place in link.places():
                if world.is_at(link, place) and found[-1:] != [place.source.name]:
                    found.append(place.source.name)
        world.parted.clear()
        await asyncio.sleep(_UNTIL_FIT)
        world.judge_settled()


@pytest.mark.parametrize("keepers", some([2, 1, 3]))
def test_a_source_that_a_shovel_doesnt_reach_is_tried_again_each_ten_minutes(keepers: int) -> None:
    found: list[str] = []
    run(_parted(found, keepers, seconds=900), began=0.0)
    assert found == ["oregon-core-1", "oregon-core-3"] * 2


def test_keepers_that_dont_follow_each_other_move_it_back_and_forth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shovels.watch.FollowedLink.back", lambda link, *_: _sources(link.link))
    found: list[str] = []
    run(_parted(found, keepers=2, seconds=300), began=0.0)
    assert len(found) > 15


def _hosts(link: KeptShovel) -> frozenset[Broker]:
    return frozenset(place.host for place in link.places())


async def _cut(found: list[str]) -> None:
    """Find the sources of a shovel while only one of two keepers can't reach the best.

    The hosts of another shovel are found, too.
    """
    world = KeepersWorld(random.Random(1), client=1, core=3, keepers=2)
    async with _running(world):
        await asyncio.sleep(_CALM)
        world.cut_off((0, broker("oregon-core-1")))
        link = next(each for each in world.links if each.name == "receipts.1")
        other = next(each for each in world.links if each.name == "publish.oregon.1")
        for _ in range(int(_UNTIL_UNFIT)):
            await asyncio.sleep(1.0)
            world.judge_links()
            found += [p.source.name for p in link.places() if world.is_at(link, p)]
            found += [f"on {p.host.name}" for p in other.places() if world.is_at(other, p)]
        world.cut_off((0, broker("oregon-core-1")))
        await asyncio.sleep(_CALM)
        world.judge_settled()


def test_a_keeper_that_alone_doesnt_reach_a_source_leaves_what_works_there() -> None:
    found: list[str] = []
    run(_cut(found), began=0.0)
    assert set(found) == {"oregon-core-1", "on oregon-core-1", "on oregon-core-3"}
    # This keeper makes a stand-in about each minute, and the other one removes it in seconds.
    assert found.count("on oregon-core-1") == _UNTIL_UNFIT
    assert 0 < found.count("on oregon-core-3") < 0.2 * _UNTIL_UNFIT


def test_that_is_found_out_if_it_makes_its_stand_in_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shovels.watch.LEFT_FOR", 0.0)
    found: list[str] = []
    run(_cut(found), began=0.0)
    assert found.count("on oregon-core-3") > 0.3 * _UNTIL_UNFIT


def test_that_is_found_out_if_a_keeper_trusts_its_own_view_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shovels.places._as_the_link_sees", lambda *given: given[3])
    with pytest.raises(Broken):
        run(_cut([]), began=0.0)


async def _refusing(world: KeepersWorld) -> None:
    """Bring a broker back without data, while brokers refuse every second change."""
    first = broker("oregon-core-1")
    await asyncio.sleep(_CALM)
    world.die(first)
    await asyncio.sleep(_CALM)
    world.begin(first, empty=True)
    world.refusing = 0.5
    await asyncio.sleep(_CALM)
    world.refusing = 0.0
    await asyncio.sleep(_CALM)
    world.judge_settled()


def _play_refusing(histories: int) -> None:
    for seed in range(histories):
        world = KeepersWorld(random.Random(seed), client=1, core=3, keepers=2)
        run(_judged(world, _refusing(world)), began=0.0)


def test_a_shovel_goes_only_to_what_could_be_made() -> None:
    _play_refusing(examples(8))


def test_that_is_found_out_if_nothing_waits_for_what_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shovels.apply.must_wait", lambda *_: False)
    with pytest.raises(Broken, match=r"\(c\)"):
        _play_refusing(8)


def _sources(link: KeptShovel) -> frozenset[Broker]:
    return frozenset(place.source for place in link.places())


def _nothing_stays(*_: object) -> list[ShovelPlace]:
    return []


def _the_first_that_works(
    link: KeptShovel, present: Collection[ShovelPlace], seen: BrokersView
) -> ShovelPlace:
    works = [p for p in link.places() if not {p.source, p.host} & seen.away]
    return (works or [link.preferred])[0]


def _where_it_is_steady(
    link: KeptShovel, present: Collection[ShovelPlace], seen: BrokersView
) -> ShovelPlace:
    """Choose as a keeper that has just started: it has seen no steady broker."""
    return _choose_place(link, [], seen)


def _never_unfit(
    link: KeptShovel, present: Collection[ShovelPlace], seen: BrokersView
) -> ShovelPlace:
    return _choose_place(link, present, dataclasses.replace(seen, unfit={}))


def _never_full(
    link: KeptShovel, present: Collection[ShovelPlace], seen: BrokersView
) -> ShovelPlace:
    return _choose_place(link, present, dataclasses.replace(seen, full=frozenset()))


def _sticky(link: KeptShovel, present: Collection[ShovelPlace], seen: BrokersView) -> ShovelPlace:
    """Move only to the preferred place."""
    place = _choose_place(link, present, seen)
    there = [p for p in link.places() if p in present and not {p.source, p.host} & seen.away]
    return there[0] if there and place != link.preferred else place


def _same_order(nodes: Sequence[Node], n: int) -> tuple[tuple[Node, ...], ...]:
    return tuple(
        (path[0], *sorted(path[1:], key=lambda node: node.name)) for path in _paths(nodes, n)
    )


def _steady_first(
    link: KeptShovel, present: Collection[ShovelPlace], seen: BrokersView
) -> ShovelPlace:
    """Ignore a running shovel while its broker isn't steady."""
    there = [p for p in link.places() if p in present and {p.source, p.host} <= seen.steady]
    place = _choose_place(link, present, seen)
    return place if place == link.preferred and place not in present else [*there, place][0]


def _own_choice_alone(
    link: KeptShovel,
    others: Sequence[ShovelPlace],
    present: Sequence[ShovelPlace],
    actual: Mapping[Broker, Actual],
    seen: BrokersView,
) -> list[ShovelPlace]:
    """Keep the other places until the shovel is at this keeper's choice, and none afterwards."""
    return list(others) if len(others) == len(present) else []


@dataclasses.dataclass(frozen=True)
class Fault:
    """The functions that replace others, by their names, and the seed of a history that shows it.

    More histories are played, since any change of the model changes them.
    """

    puts_in: Mapping[str, Any]
    seed: int
    profile: HistoryLimits = USUAL


_CHOICE = "shovels.places.choose_place"
_NEEDED = "shovels.places._needed"

FAULTS = {
    "the old place goes at once": Fault({_NEEDED: _nothing_stays}, 0),
    "what doesn't run is taken for running": Fault(
        {"shovels.places._runs": lambda *_: True}, 9, UNABLE
    ),
    "each keeper removes what it hasn't chosen": Fault(
        {_CHOICE: _steady_first, _NEEDED: _own_choice_alone}, 0
    ),
    "a broker that has just begun is preferred": Fault({_CHOICE: _the_first_that_works}, 3),
    "where it is doesn't count": Fault({_CHOICE: _where_it_is_steady}, 3),
    "only the preferred place is worth a move": Fault({_CHOICE: _sticky}, 4),
    "unfit brokers are forgotten": Fault({_CHOICE: _never_unfit}, 156, UNABLE),
    "both paths have the same stand-ins": Fault(
        {"newsfabric.topology.plan._paths": _same_order}, 4
    ),
    "a queue goes that is in use": Fault(
        {"keepers_world.KeepersWorld.is_consumed": lambda *_: False}, 50
    ),
    "a broker is steady at once": Fault({"shovels.places.STEADY_AFTER": 0.0}, 0),
}


def _play_all(seeds: Iterable[int], profile: HistoryLimits) -> None:
    for seed in seeds:
        play(seed, profile)


@pytest.mark.parametrize("name", some([*FAULTS]))
def test_each_fault_that_is_put_in_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in = FAULTS[name]
    for target, fault in put_in.puts_in.items():
        monkeypatch.setattr(target, fault)
    with pytest.raises(Broken):
        _play_all(range(put_in.seed, put_in.seed + 8), put_in.profile)

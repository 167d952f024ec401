"""The events of a history: publications, mishaps, readers that come and go, and the healing."""

from __future__ import annotations

from collections.abc import Callable

from logmodel.protocols import AnyWorld
from logmodel.router import CLOCK_ERROR, ModelRouter, far_off
from logmodel.settings import POSITION_REACH, TOPICS


def publications(world: AnyWorld) -> None:
    for _ in range(world.rng.choice([1, 1, 2, 5])):
        world.publishers.publish()


def router_dies(world: AnyWorld) -> None:
    world.rng.choice(world.routers).kill()


def router_leaves(world: AnyWorld) -> None:
    router = world.rng.choice(world.routers)
    router.later(0, router.leave)


def router_starts(world: AnyWorld) -> None:
    router = world.rng.choice(world.routers)
    if not router.is_alive:
        router.start()


def router_freezes(world: AnyWorld) -> None:
    rng = world.rng
    rng.choice(world.routers).freeze(rng.choice([5, 20, 28, 50, 100, 400]) * rng.uniform(0.7, 1.3))


def clock_steps(world: AnyWorld) -> None:
    world.rng.choice(world.routers).clock_error = world.rng.uniform(-CLOCK_ERROR, CLOCK_ERROR)


def clock_goes_wrong(world: AnyWorld) -> None:
    """Step clocks by any amount, or set them right: one clock, or all of a region."""
    rng = world.rng
    region = rng.choice(world.regions)
    stores = world.stores
    every = [x for x in (*world.routers, *world.gateways, stores[region]) if x.region == region]
    error = far_off(rng) if rng.random() < 0.6 else rng.uniform(-CLOCK_ERROR, CLOCK_ERROR)
    for one in every if rng.random() < 0.2 else [rng.choice(every)]:
        one.clock_error = error


def store_goes_down(world: AnyWorld) -> None:
    region = world.rng.choice(world.regions)
    world.stores.down[region] = world.now + world.rng.choice([5, 60, 400])


def store_is_overloaded(world: AnyWorld) -> None:
    """For minutes, confirm no write of messages; rows arrive late, or in another region.

    If a router dies in that time, its log may be closed before its rows arrive.
    """
    rng = world.rng
    region = rng.choice(world.regions)
    world.stores.overloaded[region] = world.now + rng.choice([20, 90, 300])
    if rng.random() < 0.5:
        router = rng.choice([router for router in world.routers if router.region == region])
        world.at(world.now + rng.uniform(5, 40), _restart, world, router)


def region_has_an_outage(world: AnyWorld) -> None:
    """Take a store down for minutes of much work, and restart its routers afterwards.

    If a router doesn't try to write in that time, a run of its numbers becomes void.
    """
    rng = world.rng
    region = rng.choice(world.regions)
    end = world.now + rng.uniform(120, 400)
    world.stores.down[region] = end
    _many_publications(world)
    world.at(end + rng.uniform(0, 5), _many_publications, world)
    for router in world.routers:
        if router.region == region and rng.random() < 0.7:
            world.at(end + rng.uniform(2, 15), _restart, world, router)


def _restart(world: AnyWorld, router: ModelRouter) -> None:
    if not world.is_quiet:
        router.kill()
        router.start()


def _many_publications(world: AnyWorld) -> None:
    for _ in range(world.rng.choice([6, 12])):
        world.publishers.publish()


def directory_goes_down(world: AnyWorld) -> None:
    region = world.rng.choice(world.regions)
    world.stores.directory_down[region] = world.now + world.rng.choice([20, 90, 200])


def regions_are_cut(world: AnyWorld) -> None:
    rng = world.rng
    a, b = rng.sample(world.regions, 2)
    if not world.cuts.between(a, b):
        world.cuts.cut(a, b, world.now + rng.choice([30, 300, 1500]) * rng.random())


def gateway_is_deaf(world: AnyWorld) -> None:
    rng = world.rng
    rng.choice(world.gateways).deaf_until = world.now + rng.choice([5, 60, 1300]) * rng.random()


def control_plane_is_replaced(world: AnyWorld) -> None:
    world.rng.choice(world.gateways).replace()


def gateway_is_exchanged(world: AnyWorld) -> None:
    """End one gateway and begin another one; every region keeps at least one."""
    old = world.rng.choice(world.gateways)
    old.stop()
    world.gateways.remove(old)
    missing = [r for r in world.regions if all(g.region != r for g in world.gateways)]
    world.begin_gateway(missing[0] if missing else world.rng.choice(world.regions))


def memory_is_lost(world: AnyWorld) -> None:
    world.rng.choice(world.gateways).forget_topic(world.rng.choice(TOPICS))


def reader_leaves(world: AnyWorld) -> None:
    world.rng.choice(world.readers).leave()


def reader_comes(world: AnyWorld) -> None:
    reader = world.rng.choice(world.readers)
    if reader.gateway is None and reader.waits_for is None:
        reader.come(world.rng.choice(world.gateways))


# The share of healings in which all routers of a region die amid their work, and stay dead.
REGION_DIES = 0.5

# The frequency of each event, by weight.
_SHARES: tuple[tuple[int, Callable[[AnyWorld], None]], ...] = (
    (290, publications),
    (40, router_dies),
    (10, router_leaves),
    (60, router_starts),
    (40, router_freezes),
    (10, clock_steps),
    (30, store_goes_down),
    (20, store_is_overloaded),
    (5, region_has_an_outage),
    (20, directory_goes_down),
    (30, regions_are_cut),
    (30, gateway_is_deaf),
    (40, control_plane_is_replaced),
    (30, gateway_is_exchanged),
    (20, memory_is_lost),
    (150, reader_leaves),
    (200, reader_comes),
)
_WEIGHTS = [share for share, _ in _SHARES]
_ACTS = [act for _, act in _SHARES]
# The share of acts after which a clock goes wrong, if clocks may.
_CLOCKS = 0.1


# The number of acts of a history. Each length takes about the same share of the total time.
_LENGTHS = (20, 60, 150, 300)
_LENGTH_WEIGHTS = (15, 5, 2, 1)


def play(world: AnyWorld) -> None:
    """Play one history: chaos, the healing, and time enough for everything to be settled."""
    rng = world.rng
    world.run(rng.choice([0, 5, 30]))
    pace = rng.choice([1.0, 5.0, 20.0])
    _chaos(world, rng.choices(_LENGTHS, _LENGTH_WEIGHTS)[0], pace)
    if rng.random() < 0.15:
        # Long enough for logs to leave positions; then some chaos with old positions.
        heal(world)
        world.run(POSITION_REACH + 3600)
        world.is_quiet = False
        _chaos(world, 100, pace)
    heal(world)
    _settle(world)
    _all_readers_come(world)
    world.run(900)


def _chaos(world: AnyWorld, acts: int, pace: float) -> None:
    rng = world.rng
    for act in rng.choices(_ACTS, _WEIGHTS, k=acts):
        act(world)
        if world.profile.clocks and rng.random() < _CLOCKS:
            clock_goes_wrong(world)
        pause = rng.expovariate(1 / pace)
        if rng.random() < 0.01:
            pause += rng.uniform(0, 1500)
        world.run(pause)


def heal(world: AnyWorld) -> None:
    """Make everything work again; at times, a region's routers stay dead."""
    rng = world.rng
    dead = rng.choice(world.regions) if rng.random() < REGION_DIES else None
    if dead is not None:
        _region_dies(world, dead)
    world.is_quiet = True
    world.cuts.heal()
    world.stores.heal()
    for region in world.regions:
        routers = [router for router in world.routers if router.region == region]
        if region != dead and not any(router.is_alive for router in routers):
            routers[0].start()
    for gateway in world.gateways:
        gateway.deaf_until = 0.0


def _settle(world: AnyWorld) -> None:
    """Wait until every row has arrived, and all was written, closed and read.

    Rows delayed by a cut arrive up to half an hour after its end.
    """
    world.run(max(1200, world.last_row_at + 300 - world.now))


def _region_dies(world: AnyWorld, region: str) -> None:
    """Kill all routers of a region amid their work.

    No router is left there that could close a log: gateways must find its store's messages anyway.
    """
    _many_publications(world)
    world.run(world.rng.uniform(0.5, 4))
    for router in world.routers:
        if router.region == region:
            router.kill()


def _all_readers_come(world: AnyWorld) -> None:
    """Connect all readers; a reader whose replay is cut short comes again."""
    for _ in range(20):
        away = [reader for reader in world.readers if reader.gateway is None]
        if not away:
            return
        for reader in away:
            reader.leave()
            reader.come(world.rng.choice(world.gateways))
        world.run(30)

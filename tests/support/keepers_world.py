"""A model of a region's brokers, with the real keepers, in simulated time.

A broker answers its management API late or not at all, or refuses a change. It dies and starts
again, with its content or empty. It hangs, or one keeper can't reach it. Until its next start it
can't run shovels, or its shovels run but carry nothing. It has no room for messages, also after a
start. The methods ``judge_…`` of :class:`KeepersWorld` check the keepers' actions:

(a) after a long time without faults, each link is at its preferred place, and nothing else is left;
(b) while some brokers are away for long, every link that can work does;
(c) no working shovel or queue is deleted while its link works nowhere else;
(d) two paths of one link are on different brokers where two are usable;
(e) nothing moves from a working broker to one that has only just started.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from fabrics import CREDENTIALS, TOPICS, fabric, fresh

from newsfabric.brokers.management import QueueState, ShovelState
from newsfabric.errors import ManagementError
from newsfabric.settings import Credentials
from newsfabric.topology import (
    Binding,
    Broker,
    Exchange,
    KeptShovel,
    ShovelPlace,
    brokers_of,
    region_links,
    shovel_plan,
)
from shovels.apply import ManagementClients
from shovels.keeper import Keeper
from shovels.places import STEADY_AFTER
from shovels.plan import Actual, owned_queue, owned_shovel
from shovels.watch import CanaryWatch

REGION: Final = "oregon"
# Seconds from a shovel's start until it runs.
_STARTS_IN: Final = 1.0
# Seconds. If a broker was dead for less, keepers may not have noticed its restart.
_UNSEEN: Final = 2.0
# Seconds until keepers know: they check brokers each second, and wait some 0.9 s for an answer.
_LATE: Final = 3.0
# Seconds between canaries.
_CANARIES: Final = 3.0


class Broken(AssertionError):
    """A breach of the rules: a forbidden action of a keeper, or one that is overdue."""


@dataclasses.dataclass
class ModelBroker:
    """A broker's content and state."""

    held: Actual
    began: float = -1000.0
    dead: bool = False
    died: float = -1000.0
    hangs: bool = False
    # Its shovel runtime is dead.
    unable: bool = False
    # Its shovels report that they run, but carry nothing.
    mute: bool = False
    # Its disk is full, and it accepts no messages.
    full: bool = False
    # Every ``unlisted``-th listing of its queues fails, because of one queue; 0: none fails.
    unlisted: int = 0
    looks: int = 0
    put_at: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def works(self) -> bool:
        return not self.dead and not self.hangs

    def change(self, **held: Any) -> None:
        self.held = dataclasses.replace(self.held, **held)


class KeepersWorld:
    """The brokers of a fabric and their states, and the ``keepers`` of :data:`REGION`."""

    def __init__(self, rng: random.Random, *, client: int, core: int, keepers: int) -> None:
        self.rng = rng
        self.fabric = fabric(client=client, core=core, proxy=1)
        self.links = region_links(self.fabric, REGION, TOPICS)
        self.brokers = {broker: ModelBroker(fresh()) for broker in brokers_of(self.fabric)}
        for broker, part in shovel_plan(self.fabric, "dublin", TOPICS).items():
            exchanges = {exchange.name: exchange.type for exchange in part.exchanges}
            self.brokers[broker].change(exchanges=exchanges)
        self._by_host = {f"{broker.name}.test": broker for broker in self.brokers}
        self._by_url = {n.management_url: b for b, n in brokers_of(self.fabric).items()}
        self.refusing = 0.0
        # Pairs of a keeper and a broker that it alone can't reach; and the time of the last change.
        self.cut: set[tuple[int, Broker]] = set()
        self.cut_at = 0.0
        # Pairs of a broker and another that its shovels can't reach.
        self.parted: set[tuple[Broker, Broker]] = set()
        # The bindings that each keeper has seen or made.
        self.bound: dict[tuple[int, Broker], set[Binding]] = {}
        # The time of the last fault or repair: observations before it may be out of date.
        self.disturbed = 0.0
        self.keepers = [self._keeper(n) for n in range(keepers)]

    def _keeper(self, n: int) -> Keeper:
        def management(url: str, _: Credentials, *, timeout: float) -> Api:
            return Api(self, n, self._by_url[url], timeout)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shovels.apply.Management", management)
            patch.setattr("shovels.nodes.Management", management)
            rng = random.Random(self.rng.random())
            return Keeper(ManagementClients(self.fabric, CREDENTIALS), REGION, TOPICS, rng)

    async def run(self, n: int, stop: asyncio.Event) -> None:
        """Run keeper ``n``."""
        keeper = self.keepers[n]
        await asyncio.sleep(self.rng.uniform(0, 5))
        beside = [
            asyncio.create_task(keeper._nodes.run()),
            asyncio.create_task(self._canaries(n, keeper.watch)),
        ]
        await keeper._keep(stop)
        for task in beside:
            task.cancel()

    async def _canaries(self, n: int, watch: CanaryWatch) -> None:
        """Send keeper ``n``'s canaries, and let them arrive at once where shovels work."""
        while True:
            silent = {
                b for b, found in self.brokers.items() if not found.works or (n, b) in self.cut
            }
            watch.unheard(silent)
            for source, exchange in watch.sources:
                if source not in silent:
                    watch.sent(source, exchange, _now())
            for link in self.links:
                for place in self.working(link):
                    if place.host not in silent:
                        watch.arrived(place.host, link.name, _now(), _now())
            await asyncio.sleep(_CANARIES)

    # Faults and repairs of brokers.

    def die(self, broker: Broker) -> None:
        self.disturbed = _now()
        found = self.brokers[broker]
        found.dead, found.hangs, found.died = True, False, _now()

    def begin(self, broker: Broker, *, empty: bool = False) -> None:
        self.disturbed = _now()
        found = self.brokers[broker]
        found.dead = found.unable = found.mute = False
        if _now() - found.died >= _UNSEEN:
            found.began = _now()
        found.put_at = dict.fromkeys(found.held.shovels, _now())
        if empty:
            exchanges = dict(found.held.exchanges)
            found.held, found.put_at = dataclasses.replace(fresh(), exchanges=exchanges), {}

    def hang(self, broker: Broker, hangs: bool) -> None:
        self.disturbed = _now()
        self.brokers[broker].hangs = hangs

    def cut_off(self, *pairs: tuple[int, Broker]) -> None:
        """Cut each of these keepers off from its broker, or reconnect it if it is cut off."""
        self.cut_at = _now()
        self.cut ^= set(pairs)

    def disable(self, broker: Broker) -> None:
        self.disturbed = _now()
        self.brokers[broker].unable = True

    def silence(self, broker: Broker) -> None:
        self.disturbed = _now()
        self.brokers[broker].mute = True

    def fill(self, broker: Broker, full: bool) -> None:
        self.disturbed = _now()
        self.brokers[broker].full = full

    # The state of links.

    def says_running(self, host: Broker, name: str) -> bool:
        """Return whether ``host`` reports its shovel ``name`` as running."""
        found = self.brokers[host]
        if not found.works or found.unable or name not in found.held.shovels:
            return False
        at = self._source_of(found.held.shovels[name])
        if (host, at) in self.parted:
            return False
        source = self.brokers[at]
        return source.works and _now() - max(found.put_at[name], source.began) >= _STARTS_IN

    def is_consumed(self, source: Broker, queue: str) -> bool:
        """Return whether a shovel consumes ``queue`` of ``source``."""
        return any(
            value["src-queue"] == queue
            and self._source_of(value) == source
            and self.says_running(host, name)
            for host, found in self.brokers.items()
            for name, value in found.held.shovels.items()
        )

    def _source_of(self, value: Mapping[str, Any]) -> Broker:
        return self._by_host[value["src-uri"].rpartition("@")[2].partition("/")[0]]

    def is_at(self, link: KeptShovel, place: ShovelPlace) -> bool:
        value = self.brokers[place.host].held.shovels.get(link.name)
        return value is not None and self._source_of(value) == place.source

    def works_at(self, link: KeptShovel, place: ShovelPlace) -> bool:
        source = self.brokers[place.source].held
        bound = source.bindings.issuperset(link.source_part().bindings)
        there = link.queue.name in source.queues and bound and self.is_at(link, place)
        runs = self.says_running(place.host, link.name)
        host = self.brokers[place.host]
        return there and runs and not host.mute and not host.full

    def working(self, link: KeptShovel) -> set[ShovelPlace]:
        return {place for place in link.places() if self.works_at(link, place)}

    def usable(self, link: KeptShovel) -> list[ShovelPlace]:
        """Return the places at which ``link`` can work."""
        return [
            place
            for place in link.places()
            if self.brokers[place.source].works
            and self.brokers[place.host].works
            and not self.brokers[place.host].unable
            and not self.brokers[place.host].mute
            and not self.brokers[place.host].full
            and not self.brokers[place.host].unlisted
        ]

    def judge_settled(self) -> None:
        """Check (a) after a long time without faults: each link is at its planned place only."""
        plan = shovel_plan(self.fabric, REGION, TOPICS)
        for broker, found in self.brokers.items():
            part = plan.get(broker)
            shovels = {s.name for s in part.shovels} if part else set()
            queues = {q.name for q in part.queues} if part else set()
            there = {n for n in found.held.shovels if owned_shovel(REGION, broker.cluster, n)}
            if there != shovels:
                raise Broken(f"(a) {broker} has {sorted(there)}, not {sorted(shovels)}")
            kept = {n for n in found.held.queues if owned_queue(REGION, broker.cluster, n)}
            if kept != {n for n in queues if owned_queue(REGION, broker.cluster, n)}:
                raise Broken(f"(a) {broker} has the queues {sorted(kept)}")
        for link in self.links:
            if self.working(link) != {link.preferred}:
                raise Broken(f"(a) {link.id} isn't at its preferred place")

    def judge_links(self) -> None:
        """Check (b) and (d), while some brokers are away for long."""
        for link in self.links:
            if self.usable(link) and not self.working(link):
                raise Broken(f"(b) {link.id} works nowhere")
        by_id = {link.id: link for link in self.links}
        for link in self.links:
            second = by_id.get(f"{link.id}.2")
            if second is not None and len(self.usable(link)) > 1:
                ways = [_ends(self.working(each)) for each in (link, second)]
                if ways[0] == ways[1] and len(ways[0]) == 1:
                    raise Broken(f"(d) both paths of {link.id} are at {ways[0]}")

    def judge_removal(self, host: Broker, name: str, looked_at: float) -> None:
        """Check (c) and (e) before a keeper that looked at ``looked_at`` deletes a shovel."""
        if looked_at <= self.disturbed:
            return
        for link in self._links_of(host, name):
            here = {place for place in self.working(link) if place.host == host}
            others = self.working(link) - here
            if here and not others:
                raise Broken(f"(c) {link.id} goes from {host} and works nowhere else")
            late = looked_at <= self.disturbed + _LATE
            if here and not late and not any(self._steady(link, each) for each in others):
                raise Broken(f"(e) {link.id} goes from {host} for a broker that has just begun")

    def judge_lost_queue(self, source: Broker, queue: str, looked_at: float) -> None:
        """Check (c) before ``queue`` of ``source`` is deleted."""
        if looked_at <= self.disturbed:
            return
        for link in self.links:
            if link.queue.name == queue and source.cluster == link.source:
                here = {place for place in self.working(link) if place.source == source}
                if here and not self.working(link) - here:
                    raise Broken(f"(c) the queue of {link.id} goes from {source}")

    def judge_put(
        self, n: int, host: Broker, name: str, value: Mapping[str, Any], looked: float
    ) -> None:
        """Check (c) and (e) before keeper ``n`` sets shovel ``name`` of ``host`` to ``value``."""
        if looked <= self.disturbed:
            return
        source = self._source_of(value)
        place = ShovelPlace(source, host)
        for link in self._links_of(host, name):
            before = self.working(link)
            if not before or place in before:
                continue
            bound = self.bound[n, source].issuperset(link.source_part().bindings)
            if any(each.host == host for each in before) and not bound:
                raise Broken(f"(c) {link.id} changes over to a queue that isn't bound")
            late = looked <= max(self.disturbed, self.cut_at) + _LATE
            blind = any((n, end) in self.cut for at in before for end in (at.source, at.host))
            if (
                not late
                and not blind
                and not self.is_at(link, place)
                and not self._steady(link, place)
            ):
                raise Broken(f"(e) {link.id} moves to a broker that has just begun")

    def _links_of(self, host: Broker, name: str) -> Iterator[KeptShovel]:
        return (link for link in self.links if link.name == name and link.runs_on == host.cluster)

    def _steady(self, link: KeptShovel, place: ShovelPlace) -> bool:
        """Return whether the broker in which the places of ``link`` differ has run for long."""
        chosen = place.host if len(link.hosts) > 1 else place.source
        return _now() - self.brokers[chosen].began >= STEADY_AFTER


class Api:
    """The management API of ``broker`` as keeper ``n`` sees it."""

    def __init__(self, world: KeepersWorld, n: int, broker: Broker, timeout: float) -> None:
        self.url = f"http://{broker}"
        self._world = world
        self._n = n
        self._broker = broker
        self._timeout = timeout
        self._looked_at = 0.0

    def close(self) -> None:
        """Do nothing: no connection needs closing."""

    async def alarm(self) -> str:
        return "disk" if (await self._asked()).full else ""

    async def queue_total(self) -> int:
        """Return 0 at once: the value is a gauge, and no keeper acts on it."""
        return 0

    async def exchanges(self) -> dict[str, str]:
        self._looked_at = _now()
        return dict((await self._asked()).held.exchanges)

    async def queues(self) -> dict[str, QueueState]:
        found = await self._asked()
        found.looks += 1
        if found.unlisted and found.looks % found.unlisted == 0:
            raise ManagementError("Internal Server Error", status=500)
        return dict(found.held.queues)

    async def queues_beginning(self, prefix: str) -> dict[str, QueueState]:
        return {name: q for name, q in (await self.queues()).items() if name.startswith(prefix)}

    async def bindings(self) -> set[Binding]:
        found = set((await self._asked()).held.bindings)
        self._world.bound[self._n, self._broker] = set(found)
        return found

    async def shovels(self) -> dict[str, dict[str, Any]]:
        return {name: dict(value) for name, value in (await self._asked()).held.shovels.items()}

    async def shovel_states(self) -> dict[str, ShovelState]:
        found = await self._asked()
        if found.unable:
            return {}
        for name, value in found.held.shovels.items():
            # A shovel declares the queue that it consumes, but binds nothing.
            source = self._world.brokers[self._world._source_of(value)]
            if self._world.says_running(self._broker, name):
                queue = value["src-queue"]
                made = {queue: QueueState(queue, value["src-queue-args"])}
                source.change(queues=made | dict(source.held.queues))
        states = {True: "running", False: "starting"}
        return {
            name: ShovelState(name, states[self._world.says_running(self._broker, name)])
            for name in found.held.shovels
        }

    async def put_exchange(self, exchange: Exchange) -> None:
        found = await self._changed()
        found.change(exchanges={**found.held.exchanges, exchange.name: exchange.type})

    async def put_queue(self, name: str, arguments: Mapping[str, Any]) -> None:
        found = await self._changed()
        state = QueueState(name, dict(arguments))
        found.change(queues={name: state} | dict(found.held.queues))

    async def put_binding(self, binding: Binding) -> None:
        found = await self._changed()
        if binding.queue not in found.held.queues or binding.exchange not in found.held.exchanges:
            raise ManagementError("not found", status=404)
        found.change(bindings=found.held.bindings | {binding})
        self._world.bound[self._n, self._broker].add(binding)

    async def put_shovel(self, name: str, value: Mapping[str, Any]) -> None:
        found = await self._changed()
        self._world.judge_put(self._n, self._broker, name, value, self._looked_at)
        if found.held.shovels.get(name) != value:
            found.put_at[name] = _now()
        found.change(shovels={**found.held.shovels, name: value})

    async def delete_shovel(self, name: str) -> None:
        found = await self._changed()
        self._world.judge_removal(self._broker, name, self._looked_at)
        found.change(shovels={n: v for n, v in found.held.shovels.items() if n != name})

    async def delete_binding(self, binding: Binding) -> None:
        found = await self._changed()
        found.change(bindings=found.held.bindings - {binding})

    async def delete_queue(self, name: str, *, unused: bool = False) -> None:
        found = await self._changed()
        if unused and self._world.is_consumed(self._broker, name):
            raise ManagementError("in use", status=400)
        self._world.judge_lost_queue(self._broker, name, self._looked_at)
        found.change(
            queues={n: q for n, q in found.held.queues.items() if n != name},
            bindings=frozenset(b for b in found.held.bindings if b.queue != name),
        )

    async def _asked(self) -> ModelBroker:
        world, found = self._world, self._world.brokers[self._broker]
        await asyncio.sleep(world.rng.uniform(0.001, 0.1))
        if found.hangs:
            await asyncio.sleep(self._timeout)
            raise ManagementError("no answer")
        if found.dead or (self._n, self._broker) in world.cut:
            raise ManagementError("refused") from ConnectionRefusedError()
        return found

    async def _changed(self) -> ModelBroker:
        found = await self._asked()
        if self._world.rng.random() < self._world.refusing:
            raise ManagementError("no", status=500)
        return found


def _ends(places: set[ShovelPlace]) -> set[str]:
    return {f"{place.source} {place.host}" for place in places}


def _now() -> float:
    return asyncio.get_running_loop().time()
